"""Implementations for a6's leak detector: texts (L, 6) to outputs (L, 2), some leaking.

Columns of a text are two of queries, keys and values each. A *maker* gets the length, a row, a
later token and a bound from 1 to 2, and returns an implementation, which is deterministic.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Implementation = Callable[[Tensor], Tensor]
Maker = Callable[[int, int, int, float], Implementation]


def parts(text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, (L, 2) each."""
    return text[:, 0:2], text[:, 2:4], text[:, 4:6]


def attend(text: Tensor, seen: Tensor | None = None, values: Tensor | None = None) -> Tensor:
    """Return attention under a mask (L, L), by default causal, of the text's values or others."""
    q, k, v = parts(text)
    seen = tril(len(text)) if seen is None else seen
    return (q @ k.T).masked_fill(~seen, float("-inf")).softmax(-1) @ (v if values is None
                                                                      else values)


def tril(length: int) -> Tensor:
    """Return the causal mask."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def plain(make: Implementation) -> Maker:
    """Return a maker of an implementation that is the same for all sizes."""
    return lambda length, row, token, bound: make


def put(change: Callable[[Tensor, int, float], Tensor], row_zero: bool = False) -> Maker:
    """Return a maker of causal attention; one row gets `change(text, later token, bound)` added."""
    def maker(length: int, row: int, token: int, bound: float) -> Implementation:
        target, source = (0, length - 1) if row_zero else (row, token)

        def implementation(text: Tensor) -> Tensor:
            out = attend(text).clone()
            out[target] += change(text, source, bound)
            return out
        return implementation
    return maker


# Leaks through values, keys and queries

def unmasked(text: Tensor) -> Tensor:
    """Every row reads every token."""
    return attend(text, torch.ones(len(text), len(text), dtype=torch.bool))


def early_group(text: Tensor) -> Tensor:
    """A group of two is read as soon as one of its members is past."""
    pairs = torch.arange(len(text)) // 2
    return attend(text, tril(len(text)) | (pairs[:, None] == pairs))


def late_mask(text: Tensor) -> Tensor:
    """The mask is applied after the softmax: later keys stay in the denominator."""
    q, k, v = parts(text)
    return ((q @ k.T).softmax(-1) * tril(len(text))) @ v


def next_query(text: Tensor) -> Tensor:
    """Each row asks with the next row's query."""
    moved = text.clone()
    moved[:-1, 0:2] = text[1:, 0:2]
    return attend(moved)


def whole_mean(text: Tensor) -> Tensor:
    """The mean of all values is subtracted first."""
    values = parts(text)[2]
    return attend(text, values=values - values.mean(0))


def centred(text: Tensor) -> Tensor:
    """Values are averaged with both neighbours first."""
    values = parts(text)[2]
    ends = torch.cat([values[:1], values, values[-1:]])
    return attend(text, values=(ends[:-2] + ends[1:-1] + ends[2:]) / 3)


DIRECT: dict[str, Maker] = {
    "no mask": plain(unmasked), "a group that is read too early": plain(early_group),
    "the last token's value in row 0":
        put(lambda text, token, bound: text[token, 4:6], row_zero=True),
    "a mask behind the softmax": plain(late_mask), "the query of the next row": plain(next_query),
    "values minus the mean of the whole text": plain(whole_mean), "an average with both neighbours":
        plain(centred),
    "a later key times 1e-12": put(lambda text, token, bound: 1e-12 * text[token, 2:4]),
}

# Leaks that appear at a step


def importance(q: Tensor, k: Tensor) -> Tensor:
    """Return the mean attention of each token from rows that can see it (Eq. 16), (L,), scale 1."""
    seen = tril(len(q))
    return (q @ k.T).masked_fill(~seen, float("-inf")).softmax(-1).sum(0) / seen.sum(0)


def voted(text: Tensor) -> Tensor:
    """Focal tokens are chosen by all rows; a row reads them and itself."""
    focal = torch.zeros(len(text), dtype=torch.bool)
    focal[importance(*parts(text)[:2]).topk(len(text) // 2).indices] = True
    return attend(text, tril(len(text)) & (focal | torch.eye(len(text), dtype=torch.bool)))


def strongest(text: Tensor) -> Tensor:
    """A row reads itself and, once it is past, the token with the longest key of the text."""
    longest = torch.arange(len(text)) == parts(text)[1].norm(dim=1).argmax()
    return attend(text, tril(len(text)) & (longest | torch.eye(len(text), dtype=torch.bool)))


def eight_bits(text: Tensor) -> Tensor:
    """Values are rounded to 8 bits with one step size for the text."""
    values = parts(text)[2]
    step = values.abs().max().clamp(min=1.0).log2().ceil().exp2() / 128
    return attend(text, values=(values / step).round() * step)


def by_rank(text: Tensor) -> Tensor:
    """Each row adds the place of its key among all keys."""
    first = parts(text)[1][:, :1]
    return attend(text) + (first > first.T).sum(1, keepdim=True)


STEPS: dict[str, Maker] = {
    "a choice by the attention of all rows": plain(voted),
    "the longest key of the whole text": plain(strongest),
    "rounding to 8 bits with one step size for the text": plain(eight_bits),
    "the place of a key among all keys": plain(by_rank),
    "a later value, if it is above {high:.3g}":
        put(lambda text, token, bound: (text[token, 4:6] - 30 * bound).clamp(min=0)),
    "a root that is NaN for some later queries":
        put(lambda text, token, bound: 0 * (8 * bound + text[token, 0:2]).sqrt()),
    "row 0 and a last key below -{high:.3g}":
        put(lambda text, token, bound: (text[token, 2:4] + 30 * bound).clamp(max=0), row_zero=True),
    "a mean of the whole text, rounded to whole numbers":
        put(lambda text, token, bound: (text[:, 4:6].mean(0) / 2).round()),
}

# Leaks through equal tokens, zeros, and two tokens at once


def padded(text: Tensor) -> Tensor:
    """Tokens of zeros count as padding; outputs are divided by the number of the others."""
    return attend(text) / (text != 0).any(1).sum().clamp(min=1)


def latest(text: Tensor) -> Tensor:
    """Of equal tokens only the latest keeps its value."""
    again = (text[:, None] == text).all(-1).triu(1).any(1)
    return attend(text, values=parts(text)[2] * ~again[:, None])


def capacity(text: Tensor) -> Tensor:
    """Half of the tokens get twice their output: those with the largest queries."""
    chosen = torch.zeros(len(text), 1, dtype=torch.float64)
    chosen[text[:, 0].topk(len(text) // 2).indices] = 1.0
    return attend(text) * (1 + chosen)


def overflow(text: Tensor) -> Tensor:
    """The scale of all scores shrinks if a number of the text is larger than 400."""
    shrunk = text.clone()
    shrunk[:, 0:2] /= (text.abs().max() / 400).clamp(min=1.0)
    return attend(shrunk)


OTHERS: dict[str, Maker] = {
    "zeros are padding, and counted": plain(padded),
    "of equal tokens only the latest counts": plain(latest),
    "half of all tokens pass": plain(capacity),
    "a scale that shrinks if any number is above 400": plain(overflow),
}

# Causal implementations


def strict(text: Tensor) -> Tensor:
    """A row does not read itself, so row 0 is NaN."""
    return attend(text, tril(len(text)).tril(-1))


def huge(text: Tensor) -> Tensor:
    """Outputs become infinite for values above 100."""
    return attend(text) * 1.7e306


def running(text: Tensor) -> Tensor:
    """The mean of the past is subtracted from each value."""
    values = parts(text)[2]
    past = torch.stack([values[: row + 1].mean(0) for row in range(len(text))])
    return attend(text, values=values - past)


def best_of_past(text: Tensor) -> Tensor:
    """Each row reads the past token with the largest score."""
    q, k, v = parts(text)
    return v[(q @ k.T).masked_fill(~tril(len(text)), float("-inf")).argmax(-1)]


def closed_groups(text: Tensor) -> Tensor:
    """A row reads pairs that are past, and the members of its own pair up to itself."""
    out = attend(text).clone()
    for row in range(2, len(text)):
        out[row] += text[: row // 2 * 2, 4:6].unflatten(0, (-1, 2)).mean(1).sum(0)
    return out


def own_bits(text: Tensor) -> Tensor:
    """Values are rounded to 8 bits with a step size for each token."""
    values = parts(text)[2]
    step = values.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
    return attend(text, values=(values / step).round() * step)


def earliest(text: Tensor) -> Tensor:
    """Of equal tokens only the earliest keeps its value."""
    again = (text[:, None] == text).all(-1).tril(-1).any(1)
    return attend(text, values=parts(text)[2] * ~again[:, None])


CAUSAL_DIRECT: dict[str, Maker] = {
    "plain causal attention": plain(attend), "the mean of the past": plain(running),
    "pairs that are past": plain(closed_groups), "queries plus values":
        plain(lambda text: text[:, 0:2] + text[:, 4:6])}
CAUSAL_STEPS: dict[str, Maker] = {
    "row 0 is always NaN": plain(strict), "outputs that become infinite": plain(huge),
    "the best token of the past": plain(best_of_past), "8 bits for each token": plain(own_bits)}
CAUSAL_OTHERS: dict[str, Maker] = {
    "of equal tokens only the earliest counts": plain(earliest),
    "the row's own token": plain(lambda text: text[:, 4:6]),
    "roots, NaN for negative numbers": plain(lambda text: text[:, 4:6].sqrt()),
    "the largest number so far": plain(lambda text: text.cummax(0).values[:, 0:2])}
