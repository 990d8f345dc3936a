"""a9: right implementations and mutants of drawing tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a9_judge import Entry, Implementation, need_floats, need_integer
from cca_lab.course.compare import describe
from cca_lab.course.tasks import Draw, Mistake

INF = float("inf")
LARGEST = 100_000  # logit
Weights = Callable[[Tensor, float], Tensor]


def legal_sample(*args: Any) -> tuple[Tensor, float, int, int]:
    """Return logits, temperature, count and seed; arguments as for an implementation."""
    if len(args) != 4:
        raise Mistake(f"the test called sample with {len(args)} arguments, wanted logits, temperature, count, seed")
    logits = need_floats(args[0], "logits", None)
    if logits.isnan().any() or (logits == INF).any() or not logits.isfinite().any():
        raise Mistake("the test called sample with logits that are NaN or inf, or all -inf")
    if (logits[logits.isfinite()].abs() > LARGEST).any():
        raise Mistake(f"the test called sample with finite logits of more than {LARGEST} in size: what is left of them "
                      "is rounding")
    temperature = args[1].item() if isinstance(args[1], Tensor) and args[1].numel() == 1 else args[1]
    if not isinstance(temperature, (int, float)) or not 0.1 <= temperature <= 10:
        raise Mistake(f"the test called sample with temperature = {describe(temperature)}, wanted 0.1 to 10")
    return (logits, float(temperature), need_integer(args[2], "count", 1, 10_000),
            need_integer(args[3], "seed", 0, 10_000))


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
    """Return for each number from 0 to 1 the token in whose share it lies; never one with the weight 0."""
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
            seed_of: Callable[[int, int], int] = lambda seed, calls: seed) -> Callable[[Draw], Implementation]:
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


def drawn(make: Callable[[Draw], Weights]) -> Callable[[Draw], Implementation]:
    """Return a maker of a sampler whose probabilities depend on a constant of the draw."""
    return lambda draw: sampler(make(draw))(draw)


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
SAMPLE_RIGHT = [Entry(f"uses running sums: {BOUND}", sampler()),
                Entry(f"uses torch.multinomial: {BOUND}", sampler(draws=by_torch)),
                Entry(f"uses noisy logarithms: {BOUND}", sampler(draws=by_gumbel))]
SAMPLE_SHOWN = [
    Entry("with a temperature other than 1", sampler(lambda logits, temperature: softmax(logits, 1.0))),
    Entry("with a temperature other than 1, in the other direction", sampler(
        lambda logits, temperature: softmax(logits, 1 / temperature))),
    Entry("in tokens that are not the most likely one", sampler(
        lambda logits, temperature: torch.eye(len(logits), dtype=logits.dtype)[logits.argmax()])),
    Entry("in how often unlikely tokens come", drawn(mixed)),
]
SAMPLE_HIDDEN = [
    Entry("in the last token", sampler(not_last)),
    Entry("in whether draws depend on each other", sampler(
        draws=lambda weights, count, seed: by_sums(weights, count, seed)[torch.arange(count) // 2])),
    Entry("with another seed", sampler(seed_of=lambda seed, calls: 0)),
    Entry("with the same seed again", sampler(seed_of=lambda seed, calls: seed + 10_007 * (calls % 5))),
    Entry("with large logits", sampler(naive)),
    Entry("with many tokens", drawn(cut)),
    Entry("in the order of the draws", sampler(
        draws=lambda weights, count, seed: by_sums(weights, count, seed).sort().values)),
    Entry("with neighbouring seeds", sampler(draws=one_stream)),
    Entry("with logits of -inf", sampler(lambda logits, temperature: softmax(
        logits.where(logits > -INF, logits[logits > -INF].min() - 1), temperature))),
    Entry("if one token is drawn at a time", sampler(
        draws=lambda weights, count, seed: weights.argmax()[None] if count == 1 else by_sums(weights, count, seed))),
    Entry("with a low temperature", sampler(lambda logits, temperature: softmax(logits, max(0.5, temperature)))),
]
