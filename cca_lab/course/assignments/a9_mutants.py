"""a9: tests that catch wrong implementations and pass right ones, however they are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments import a9_attention as a9
from cca_lab.course.assignments.a9_judge import (
    Candidate,
    Implementation,
    Maker,
    candidates,
    judge,
    need_floats,
    need_integer,
)
from cca_lab.course.compare import describe
from cca_lab.course.tasks import Assignment, CourseTask, Draw, Mistake, Property

# Drawing tokens

INF = float("inf")
LARGEST = 100_000  # logit
Weights = Callable[[Tensor, float], Tensor]


def legal_sample(logits: Any, temperature: Any, count: Any,
                 seed: Any) -> tuple[Tensor, float, int, int]:
    """Return logits, temperature, count and seed; arguments as for an implementation."""
    need_floats(logits, "logits", None)
    if logits.isnan().any() or (logits == INF).any() or not logits.isfinite().any():
        raise Mistake("the test called sample with logits that are NaN or inf, or all -inf")
    if (logits[logits.isfinite()].abs() > LARGEST).any():
        raise Mistake(f"the test called sample with finite logits of more than {LARGEST} in size: "
                      "what is left of them is rounding")
    if isinstance(temperature, Tensor) and temperature.numel() == 1:
        temperature = temperature.item()
    if not isinstance(temperature, (int, float)) or not 0.1 <= temperature <= 10:
        raise Mistake(f"the test called sample with temperature = {describe(temperature)}, wanted "
                      "0.1 to 10")
    return (logits, float(temperature), need_integer(count, "count", 1, 10_000),
            need_integer(seed, "seed", 0, 10_000))


def softmax(logits: Tensor, temperature: float) -> Tensor:
    """Return the right probabilities."""
    return (logits / temperature).softmax(0)


def uniforms(count: int, seed: int) -> Tensor:
    """Return numbers from 0 to 1, float64."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_sums(weights: Tensor, count: int, seed: int) -> Tensor:
    """Draw by the running sum of the probabilities."""
    return chosen(weights, uniforms(count, seed))


def chosen(weights: Tensor, numbers: Tensor) -> Tensor:
    """Return for each number from 0 to 1 the token in whose share it lies, none of weight 0."""
    sums = weights.cumsum(0)
    last = int(weights.nonzero()[-1])
    return torch.searchsorted(sums / sums[-1], numbers, right=True).clamp(max=last)


def by_torch(weights: Tensor, count: int, seed: int) -> Tensor:
    """Draw by torch's own function."""
    return torch.multinomial(weights, count, True, generator=torch.Generator().manual_seed(seed))


def by_gumbel(weights: Tensor, count: int, seed: int) -> Tensor:
    """Draw by the largest of noisy logarithms."""
    noise = -(-uniforms(count * len(weights), seed).clamp(min=1e-300).log()).log()
    return (weights.log() + noise.reshape(count, -1)).argmax(1)


def sampler(weights: Weights = softmax, draws: Callable[[Tensor, int, int], Tensor] = by_sums,
            seed_of: Callable[[int, int], int] = lambda seed, calls: seed) -> Maker:
    """Return a maker of a sampler; `seed_of` gets the seed and the number of calls so far."""
    def make(draw: Draw) -> Implementation:
        salt, calls = draw.getrandbits(40) << 16, [0]

        def sample(logits: Tensor, temperature: float, count: int, seed: int) -> Tensor:
            calls[0] += 1
            given = weights(logits, temperature)
            if not given.sum() > 0:  # all is lost: the first token
                given = torch.eye(len(given), dtype=given.dtype)[0]
            return draws(given / given.sum(), count, salt + seed_of(seed, calls[0]))
        return sample
    return make


def mixed(draw: Draw) -> Weights:
    """Return probabilities with a uniform part."""
    share = draw.uniform(0.1, 0.2)
    return lambda logits, temperature: ((1 - share) * softmax(logits, temperature)
                                        + share * (logits > -INF) / (logits > -INF).sum())


def cut(draw: Draw) -> Weights:
    """Return the probabilities of the most likely tokens only."""
    most = draw.randint(5, 8)

    def weights(logits: Tensor, temperature: float) -> Tensor:
        right = softmax(logits, temperature)
        return right * (right >= right.sort(descending=True).values[min(most, len(right)) - 1])
    return weights


def naive(logits: Tensor, temperature: float) -> Tensor:
    """Return exponentials without a maximum; what overflows is lost."""
    powers = (logits / temperature).exp()
    return (powers / powers.sum()).nan_to_num(0.0)


def one_stream(weights: Tensor, count: int, seed: int) -> Tensor:
    """Draw from one stream of numbers, from which each seed starts one number later."""
    seed, salt = seed % 2**16, seed >> 16 << 16
    return chosen(weights, uniforms(30_000, salt)[seed : seed + count])


def not_last(logits: Tensor, temperature: float) -> Tensor:
    """Return probabilities in which the last token has none."""
    weights = softmax(logits, temperature)
    return torch.cat([weights[:-1], 0 * weights[-1:]]) if len(weights) > 1 else weights


BOUND = "is your bound too tight, or are there too many comparisons for it?"
SAMPLE_RIGHT = candidates(sampler, {f"uses running sums: {BOUND}": {},
                                    f"uses torch.multinomial: {BOUND}": dict(draws=by_torch),
                                    f"uses noisy logarithms: {BOUND}": dict(draws=by_gumbel)})
SAMPLE_SHOWN = candidates(sampler, {
    "with a temperature other than 1":
        dict(weights=lambda logits, temperature: softmax(logits, 1.0)),
    "with a temperature other than 1, in the other direction":
        dict(weights=lambda logits, temperature: softmax(logits, 1 / temperature)),
    "in tokens that are not the most likely one": dict(
        weights=lambda logits, temperature: torch.eye(len(logits),
                                                      dtype=logits.dtype)[logits.argmax()]),
    "in how often unlikely tokens come": lambda draw: sampler(mixed(draw))(draw)})
SAMPLE_HIDDEN = candidates(sampler, {
    "in the last token": dict(weights=not_last),
    "in whether draws depend on each other": dict(
        draws=lambda weights, count, seed:
        by_sums(weights, count, seed)[torch.arange(count) // 2]),
    "with another seed": dict(seed_of=lambda seed, calls: 0),
    "with the same seed again": dict(seed_of=lambda seed, calls: seed + 10_007 * (calls % 5)),
    "with large logits": dict(weights=naive),
    "with many tokens": lambda draw: sampler(cut(draw))(draw),
    "in the order of the draws":
        dict(draws=lambda weights, count, seed: by_sums(weights, count, seed).sort().values),
    "with neighbouring seeds": dict(draws=one_stream),
    "with logits of -inf": dict(weights=lambda logits, temperature: softmax(
        logits.where(logits > -INF, logits[logits > -INF].min() - 1), temperature)),
    "if one token is drawn at a time": dict(
        draws=lambda weights, count, seed:
        weights.argmax()[None] if count == 1 else by_sums(weights, count, seed)),
    "with a low temperature":
        dict(weights=lambda logits, temperature: softmax(logits, max(0.5, temperature)))})


# A step of a cache with sinks and a window

@dataclass
class CachedText:
    """All tokens of a text so far, and the lengths of its chunks."""

    keys: Tensor
    values: Tensor
    sinks: int
    window: int
    chunks: list[int] = field(default_factory=list)

    def more(self, keys: Tensor, values: Tensor) -> "CachedText":
        """Return the text with a chunk more."""
        return CachedText(torch.cat([self.keys, keys]), torch.cat([self.values, values]),
                          self.sinks, self.window, [*self.chunks, len(keys)])

    def kept(self, *, sinks: int | None = None, window: int | None = None) -> list[int]:
        """Return the positions of the first and of the latest tokens."""
        sinks = self.sinks if sinks is None else sinks
        window = self.window if window is None else window
        return [at for at in range(len(self.keys)) if at < sinks or at >= len(self.keys) - window]


@dataclass
class Cache:
    """A step of the cache. A state stands for the whole text, so each step can be replaced.

    Positions stay (`kept`), are said (`shown`), or keep their values. All states of a text
    (`shared="branch"`) or of all texts ("text") may be one.
    """

    kept: Callable[[CachedText], list[int]] = CachedText.kept
    shown: Callable[[CachedText, list[int]], list[int]] = lambda text, kept: kept
    values_of: Callable[[CachedText, list[int]], list[int]] = lambda text, kept: kept
    shared: str = ""
    texts: list[CachedText] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def __call__(self, state: Any, keys: Any, values: Any, sinks: Any,
                 window: Any) -> dict[str, Any]:
        """Return the next state."""
        keys = need_floats(keys, "keys", None, None)
        values = need_floats(values, "values", len(keys), None)
        sinks, window = need_integer(sinks, "sinks", 0, 100), need_integer(window, "window", 1, 100)
        number = self._number(state)
        text = CachedText(keys[:0], values[:0], sinks,
                          window) if number is None else self.texts[number]
        if (text.sinks, text.window, text.keys.shape[1],
            text.values.shape[1]) != (sinks, window, keys.shape[1], values.shape[1]):
            raise Mistake("the test called step with other sinks, another window or other numbers "
                          "of features than the state's")
        if number is not None and self.shared:
            roots = [at for at, root in enumerate(self.roots) if self.shared == "text"
                     or root == self.roots[number]]
            latest = self.texts[roots[-1]]
            if latest.keys.shape[1:] == keys.shape[1:] and latest.values.shape[1:] == values.shape[
                    1:]:
                text = CachedText(latest.keys, latest.values, sinks, window, latest.chunks)
        text = text.more(keys, values)
        self.roots.append(len(self.texts) if number is None else self.roots[number])
        self.texts.append(text)
        kept = self.kept(text)
        return {"keys": text.keys[kept], "values": text.values[self.values_of(text, kept)],
                "positions": torch.tensor(self.shown(text, kept), dtype=torch.int64), "id":
                    len(self.texts) - 1}

    def _number(self, state: Any) -> int | None:
        if state is None:
            return None
        number = state.get("id") if isinstance(state, dict) else None
        if not isinstance(number, int) or not 0 <= number < len(self.texts):
            raise Mistake(f"the test called step with the state {describe(state)}, wanted None or "
                          "a state that this implementation returned, unchanged")
        return number


def cache(**changed: Any) -> Maker:
    """Return a maker of a cache with some steps replaced."""
    return lambda draw: Cache(**changed)


def ring(text: CachedText) -> list[int]:
    """Return the kept positions as a ring has them: a window's slot is position modulo window."""
    kept = text.kept()
    near = sorted((at for at in kept if at >= text.sinks),
                  key=lambda at: (at - text.sinks) % text.window)
    return near + [at for at in kept if at < text.sinks]


def sinks_too(text: CachedText) -> list[int]:
    """Return the positions with those that are sinks and in the window twice."""
    length = len(text.keys)
    return list(range(min(length, text.sinks))) + list(range(max(0, length - text.window), length))


def shrinking(draw: Draw) -> Implementation:
    """Return a cache whose window loses a token in long texts."""
    start = draw.randint(20, 30)
    return Cache(kept=lambda text: text.kept(window=text.window - (len(text.keys) > start)))


def turned(text: CachedText, kept: list[int]) -> list[int]:
    """Return positions of values one token off in the window once it has turned over twice."""
    near = [at for at in kept if at >= text.sinks]
    if len(text.keys) <= text.sinks + 2 * text.window:
        return kept
    moved = dict(zip(near, near[1:] + near[:1], strict=True))
    return [moved.get(at, at) for at in kept]


CACHE_RIGHT = candidates(cache, {
    "keeps tokens in order": {}, "keeps tokens in the order of a ring": dict(kept=ring),
    "keeps the latest token first": dict(kept=lambda text: text.kept()[::-1])})
CACHE_SHOWN = candidates(cache, {
    "in the size of the window, after something was forgotten": dict(
        kept=lambda text: text.kept(window=text.window - 1) or [len(text.keys) - 1]),
    "in the first tokens, after something was forgotten":
        dict(kept=lambda text: text.kept(sinks=0)),
    "when exactly one token should be forgotten":
        dict(kept=lambda text: text.kept(window=text.window + 1)),
    "in the positions, after something was forgotten":
        dict(shown=lambda text, kept: list(range(len(kept))))})
CACHE_HIDDEN = candidates(cache, {
    "while the sinks are still in the window": dict(kept=sinks_too),
    "if the first chunk is longer than the window": dict(
        kept=lambda text: [at for at in text.kept() if text.chunks[0] <= text.window
                           or at >= text.sinks or at >= text.chunks[0] - text.window]),
    "with chunks of more than one token":
        dict(kept=lambda text: text.kept(window=text.window + text.chunks[-1] - 1)),
    "without sinks": dict(kept=lambda text: text.kept(sinks=max(1, text.sinks))),
    "in the values, after the window has turned over twice": dict(values_of=turned),
    "in long texts": shrinking, "if two texts take turns": dict(shared="text"),
    "if a state is continued twice": dict(shared="branch"),
    "if the first chunk is shorter than the sinks":
        dict(kept=lambda text: text.kept(sinks=min(text.sinks, text.chunks[0])))})


def both(name: str, points: tuple[int, int], legal: Callable[..., tuple[Any, ...]],
         right: Sequence[Candidate], shown: Sequence[Candidate],
         hidden: Sequence[Candidate]) -> tuple[Property, Property]:
    """Return the properties of one test: mutants that are spoken of, and mutants that are not."""
    return (Property(f"wrong {name} are caught, right ones pass", points[0],
                     partial(judge, legal=legal, right=right, mutants=shown, shown=True)),
            Property(f"wrong {name} of other kinds are caught", points[1],
                     partial(judge, legal=legal, right=right, mutants=hidden, shown=False),
                     hidden=True))


ASSIGNMENT = Assignment("a9", "mutants", "Kill the mutants: write the tests", ("01", "03", "08"), (
    CourseTask("a9.1", "merge_is_right", "A test for the merge of two parts", 20, 2, 4, both(
        "merges", (1, 2), a9.legal_parts, a9.MERGE_RIGHT, a9.MERGE_SHOWN, a9.MERGE_HIDDEN)),
    CourseTask("a9.2", "attention_is_right", "A test for attention in a window", 40, 3, 5, both(
        "attentions", (1, 3), a9.legal_attention, a9.ATTENTION_RIGHT, a9.ATTENTION_SHOWN,
        a9.ATTENTION_HIDDEN)),
    CourseTask("a9.3", "intervals_are_right", "A test for intervals of columns", 20, 2, 5, both(
        "tables", (1, 2), a9.legal_sizes, a9.TABLE_RIGHT, a9.TABLE_SHOWN, a9.TABLE_HIDDEN)),
    CourseTask("a9.4", "pool_is_right", "A test for the cores of groups", 25, 3, 4, both(
        "cores", (1, 2), a9.legal_pool, a9.POOL_RIGHT, a9.POOL_SHOWN, a9.POOL_HIDDEN)),
    CourseTask("a9.5", "step_is_right", "A test for a step of a cache", 40, 4, 5, both(
        # The cache looks at the arguments itself, for it knows its states.
        "caches", (1, 3), lambda *args: args, CACHE_RIGHT, CACHE_SHOWN, CACHE_HIDDEN)),
    CourseTask("a9.6", "sample_is_right", "A test for something random", 35, 5, 4, both(
        "samplers", (1, 2), legal_sample, SAMPLE_RIGHT, SAMPLE_SHOWN, SAMPLE_HIDDEN)),
), seconds=40.0)
