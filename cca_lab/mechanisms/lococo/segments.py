"""When LoCoCo compresses and what each row reads: settings and index arithmetic.

A segment begins with the columns [M slots ; tokens since the last compression]. If they are more
than M + buffer, they are compressed to M slots before the segment begins. Tokens and segments count
from 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cca_lab.settings import check_integers

CHOICES = {"weights": ("softmax", "relu"), "scores": ("last", "sum"), "when": ("eager", "lazy"),
           "borders": ("text", "calls")}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of LoCoCo.

    Attributes:
        slots: M, the size of the memory.
        segment: B, tokens in a segment; or a list of sizes, of which the last repeats, such as [64,
            64, 1] for a prompt of 128 tokens and a decoder in which each token is a segment.
        weights: "softmax" or "relu" (Eq. 7), how a row of the convolution's output is normalised.
        residual: mix into each convolved slot one of the columns with the highest accumulated
            attention.
        sinks: slots that keep the first tokens (Table 6, with StreamingLLM).
        heavy: slots that keep the columns with the highest accumulated attention (Table 6, with
            H2O).
        scores: attention accumulated in the "last" segment only, or the "sum" over all segments of
            a token.
        buffer: columns beyond M that are allowed before they are compressed.
        horizon: compressions through which gradients flow, counted back from each row; None for
            all.
        when, borders: for the cache only, see `LoCoCoCache`; outputs over whole texts do not depend
            on them.
        kernel: width of the convolution that `new_module` makes.
    """

    slots: int = 64
    segment: int | list[int] = 64
    weights: str = "softmax"
    residual: bool = False
    sinks: int = 0
    heavy: int = 0
    scores: str = "last"
    buffer: int = 0
    horizon: int | None = None
    when: str = "eager"
    borders: str = "text"
    kernel: int = 21

    def __post_init__(self) -> None:
        sizes = sizes_of(self.segment)
        if not sizes:
            raise ValueError(
                f"segment: got {self.segment!r}, wanted a number of tokens, or a list of them "
                "of which the last repeats")
        for size in sizes:
            check_integers(1, segment=size)
        if len(sizes) == 1:
            object.__setattr__(self, "segment", sizes[0])  # a cache takes one size, not a list
        check_integers(1, slots=self.slots, kernel=self.kernel)
        if self.horizon is not None:
            check_integers(1, horizon=self.horizon)
        check_integers(0, sinks=self.sinks, heavy=self.heavy, buffer=self.buffer)
        for name, valid in CHOICES.items():
            if getattr(self, name) not in valid:
                got = getattr(self, name)
                raise ValueError(f"{name}: got {got!r}, wanted one of {', '.join(valid)}")
        if self.convolved < 0:
            raise ValueError(
                f"sinks and heavy: got {self.sinks} + {self.heavy} tokens to keep, wanted at "
                f"most slots = {self.slots} together; keep fewer, or give more slots")
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel: got {self.kernel}, wanted an odd number, so that it has a middle")

    @property
    def convolved(self) -> int:
        """The number of slots that the convolution fills; the others keep one column each."""
        return self.slots - self.sinks - self.heavy

    @property
    def scored(self) -> bool:
        """Whether the accumulated attention of columns is needed."""
        return self.heavy > 0 or (self.residual and self.convolved > 0)


class Compression(NamedTuple):
    """One compression, of the slots and the tokens [first, border).

    [last, border) is the last segment.
    """

    first: int
    last: int
    border: int


def sizes_of(segment: int | list[int]) -> list[int]:
    """Return the sizes of the segments as a list, of which the last repeats."""
    return list(segment) if isinstance(segment, list | tuple) else [segment]


def segments(length: int, segment: int | list[int]) -> list[tuple[int, int]]:
    """Cut tokens into segments [start, stop) of `segment` tokens, or of the listed sizes, the last one repeated."""
    sizes = sizes_of(segment)
    cuts: list[tuple[int, int]] = []
    start = 0
    while start < length:
        stop = min(length, start + sizes[min(len(cuts), len(sizes) - 1)])
        cuts.append((start, stop))
        start = stop
    return cuts


def compressions(length: int, settings: Settings) -> list[Compression]:
    """Return the compressions that affect some row; one after the last segment would not."""
    done: list[Compression] = []
    columns = first = last = 0
    for start, stop in segments(length, settings.segment):
        if columns > settings.slots + settings.buffer:
            done.append(Compression(first, last, start))
            columns, first = settings.slots, start
        columns += stop - start
        last = start
    return done


def intervals(length: int, settings: Settings, device: torch.device | str | None = None) -> Tensor:
    """Return the columns of [slots of each compression ; raw tokens] that each row reads.

    Args:
        length: L, tokens.
        settings: of the mechanism.
        device: where to build the result.

    Returns:
        int64 (1, 1, L, 2, 2): after n of G compressions, the last of them at token r, row i reads
        the slots [(n-1) M, n M) (none if n = 0) and the raw tokens [G M + r, G M + i + 1).
    """
    borders = torch.tensor([step.border for step in compressions(length, settings)],
                           dtype=torch.int64, device=device)
    token = torch.arange(length, device=device)
    n = (token[:, None] >= borders).sum(dim=1)  # (L,) compressions so far
    first = torch.cat([borders.new_zeros(1), borders])[n]                    # (L,) first raw token
    raw = len(borders) * settings.slots  # the column of raw token 0
    starts = torch.stack([(n - 1).clamp(min=0) * settings.slots, raw + first], dim=-1)
    ends = torch.stack([n * settings.slots, raw + token + 1], dim=-1)        # (L, 2)
    return torch.stack([starts, ends], dim=-1)[None, None]


def held_columns(count: int, segment: int, slots: int, buffer: int = 0) -> int:
    """Return the number of columns after `count` complete segments, with a compression whenever they are too many.

    It is count B until that exceeds M + buffer, first at segment floor((M + buffer) / B) + 1. From
    then on it is M after each compression, and there is one every floor(buffer / B) + 1 segments.
    """
    first = (slots + buffer) // segment + 1
    if count < first:
        return count * segment
    return slots + segment * ((count - first) % (buffer // segment + 1))


def cache_tokens(length: int, *, slots: int, segment: int, buffer: int = 0,
                 when: str = "eager") -> int:
    """Return how many entries (a key and a value each) a decoder keeps for one KV head after `length` tokens.

    Complete segments are compressed at once ("eager") or when the next token comes ("lazy"). So the
    number rises from at most M + buffer and falls back: by up to B - 1 tokens of an open segment,
    or B if lazy.
    """
    check_integers(1, slots=slots, segment=segment)
    count, open_tokens = divmod(length, segment)
    if when == "lazy" and count and not open_tokens:
        return held_columns(count - 1, segment, slots, buffer) + segment
    return held_columns(count, segment, slots, buffer) + open_tokens


def peak_tokens(*, slots: int, segment: int, buffer: int = 0) -> int:
    """Return the largest number of columns at any time in a long text: a segment, and the columns before it.

    It is at most M + buffer + B. A lazy cache stores them until the next token, an eager one
    compresses at once.
    """
    check_integers(1, slots=slots, segment=segment)
    fill = (slots + buffer) // segment * segment
    return segment + max(fill, slots + buffer // segment * segment)
