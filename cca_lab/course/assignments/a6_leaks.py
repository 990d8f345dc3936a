"""Implementations for a6's leak detector: texts (L, 6) to outputs (L, 2), some leaking.

Columns of a text are two of queries, keys and values each. A *maker* gets the length, a row, a
later token and a bound from 1 to 2, and returns an implementation, which is deterministic.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Implementation = Callable[[Tensor], Tensor]
Maker = Callable[[int, int, int, float], Implementation]


def tril(length: int) -> Tensor:
    """Return the causal mask."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def scores(text: Tensor, seen: Tensor | None = None) -> Tensor:
    """Return scores of queries and keys, -inf outside a mask (L, L), by default the causal one."""
    seen = tril(len(text)) if seen is None else seen
    return (text[:, 0:2] @ text[:, 2:4].T).masked_fill(~seen, float("-inf"))


def attend(text: Tensor, seen: Tensor | None = None, values: Tensor | None = None) -> Tensor:
    """Return attention under a mask, by default causal, of the text's values or others."""
    return scores(text, seen).softmax(-1) @ (text[:, 4:6] if values is None else values)


def importance(q: Tensor, k: Tensor) -> Tensor:
    """Return the mean attention of each token from rows that can see it (Eq. 16), (L,), scale 1."""
    seen = tril(len(q))
    return (q @ k.T).masked_fill(~seen, float("-inf")).softmax(-1).sum(0) / seen.sum(0)


def plain(implementation: Implementation) -> Maker:
    """Return a maker of an implementation that is the same for all sizes."""
    return lambda length, row, token, bound: implementation


def valued(change: Implementation) -> Maker:
    """Return a maker of causal attention of changed values."""
    return plain(lambda text: attend(text, values=change(text[:, 4:6])))


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


def only(text: Tensor, read: Tensor) -> Tensor:
    """Return causal attention to some tokens (L,), and of each row to itself."""
    return attend(text, tril(len(text)) & (read | torch.eye(len(text), dtype=torch.bool)))


def largest(numbers: Tensor) -> Tensor:
    """Return which half of the tokens has the largest numbers."""
    return torch.isin(torch.arange(len(numbers)), numbers.topk(len(numbers) // 2).indices)


def centred(values: Tensor) -> Tensor:
    """Return values averaged with both neighbours."""
    ends = torch.cat([values[:1], values, values[-1:]])
    return (ends[:-2] + ends[1:-1] + ends[2:]) / 3


def rounded(values: Tensor, step: Tensor) -> Tensor:
    """Return values rounded to multiples of a step."""
    return (values / step).round() * step


def equals(text: Tensor) -> Tensor:
    """Return which tokens are the same, (L, L)."""
    return (text[:, None] == text).all(-1)


def closed_groups(text: Tensor) -> Tensor:
    """A row reads pairs that are past, and the members of its own pair up to itself."""
    out = attend(text).clone()
    for row in range(2, len(text)):
        out[row] += text[: row // 2 * 2, 4:6].unflatten(0, (-1, 2)).mean(1).sum(0)
    return out


# Leaks through values, keys and queries

DIRECT: dict[str, Maker] = {
    "no mask": plain(lambda text: attend(text, tril(len(text)) | True)),
    "a group that is read too early": plain(lambda text: attend(
        text, tril(len(text)) | (torch.arange(len(text))[:, None] // 2
                                 == torch.arange(len(text)) // 2))),
    "the last token's value in row 0":
        put(lambda text, token, bound: text[token, 4:6], row_zero=True),
    "a mask behind the softmax": plain(lambda text: (
        scores(text, tril(len(text)) | True).softmax(-1) * tril(len(text))) @ text[:, 4:6]),
    "the query of the next row": plain(lambda text: attend(
        torch.cat([torch.cat([text[1:, 0:2], text[-1:, 0:2]]), text[:, 2:]], dim=1))),
    "values minus the mean of the whole text": valued(lambda values: values - values.mean(0)),
    "an average with both neighbours": valued(centred),
    "a later key times 1e-12": put(lambda text, token, bound: 1e-12 * text[token, 2:4]),
}

# Leaks that appear at a step

STEPS: dict[str, Maker] = {
    "a choice by the attention of all rows":
        plain(lambda text: only(text, largest(importance(text[:, 0:2], text[:, 2:4])))),
    "the longest key of the whole text": plain(lambda text: only(
        text, torch.arange(len(text)) == text[:, 2:4].norm(dim=1).argmax())),
    "rounding to 8 bits with one step size for the text": valued(lambda values: rounded(
        values, values.abs().max().clamp(min=1.0).log2().ceil().exp2() / 128)),
    "the place of a key among all keys": plain(
        lambda text: attend(text) + (text[:, 2:3] > text[:, 2]).sum(1, keepdim=True)),
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

OTHERS: dict[str, Maker] = {
    "zeros are padding, and counted":
        plain(lambda text: attend(text) / (text != 0).any(1).sum().clamp(min=1)),
    "of equal tokens only the latest counts": plain(lambda text: attend(
        text, values=text[:, 4:6] * ~equals(text).triu(1).any(1, keepdim=True))),
    "half of all tokens pass":
        plain(lambda text: attend(text) * (1 + largest(text[:, 0])[:, None].double())),
    "a scale that shrinks if any number is above 400": plain(lambda text: attend(torch.cat(
        [text[:, 0:2] / (text.abs().max() / 400).clamp(min=1.0), text[:, 2:]], dim=1))),
}

# Causal implementations

CAUSAL_DIRECT: dict[str, Maker] = {
    "plain causal attention": plain(attend),
    "the mean of the past": valued(lambda values: values - torch.stack(
        [values[: row + 1].mean(0) for row in range(len(values))])),
    "pairs that are past": plain(closed_groups),
    "queries plus values": plain(lambda text: text[:, 0:2] + text[:, 4:6])}
CAUSAL_STEPS: dict[str, Maker] = {
    "row 0 is always NaN": plain(lambda text: attend(text, tril(len(text)).tril(-1))),
    "outputs that become infinite": plain(lambda text: attend(text) * 1.7e306),
    "the best token of the past": plain(lambda text: text[scores(text).argmax(-1), 4:6]),
    "8 bits for each token": valued(lambda values: rounded(
        values, values.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127))}
CAUSAL_OTHERS: dict[str, Maker] = {
    "of equal tokens only the earliest counts": plain(lambda text: attend(
        text, values=text[:, 4:6] * ~equals(text).tril(-1).any(1, keepdim=True))),
    "the row's own token": plain(lambda text: text[:, 4:6]),
    "roots, NaN for negative numbers": plain(lambda text: text[:, 4:6].sqrt()),
    "the largest number so far": plain(lambda text: text.cummax(0).values[:, 0:2])}
