"""When LoCoCo compresses and what each row then reads: settings and index arithmetic.

The columns that a segment finds are [M slots ; tokens since the last compression]. They are compressed to
the M slots before a segment begins if they number more than M + buffer. Tokens and segments count from 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cca_lab.mechanisms.inputs import check_counts, check_positive

CHOICES = {"weights": ("softmax", "relu"), "scores": ("last", "sum"), "when": ("eager", "lazy"),
           "borders": ("text", "calls")}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of LoCoCo, checked; `cca_lab.mechanisms.lococo.attention` explains each."""

    slots: int
    segment: int | list[int]
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
            raise ValueError(f"segment: got {self.segment!r}, wanted a number of tokens, or a list of them "
                             "of which the last repeats")
        for size in sizes:
            check_positive(segment=size)
        if len(sizes) == 1:
            object.__setattr__(self, "segment", sizes[0])  # a list of one size is that size, for a cache too
        check_positive(slots=self.slots, kernel=self.kernel)
        if self.horizon is not None:
            check_positive(horizon=self.horizon)
        check_counts(sinks=self.sinks, heavy=self.heavy, buffer=self.buffer)
        for name, valid in CHOICES.items():
            if getattr(self, name) not in valid:
                got = getattr(self, name)
                raise ValueError(f"{name}: got {got!r}, wanted one of {', '.join(valid)}")
        if self.convolved < 0:
            raise ValueError(f"sinks and heavy: got {self.sinks} + {self.heavy} tokens to keep, wanted at "
                             f"most slots = {self.slots} together; keep fewer, or give more slots")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel: got {self.kernel}, wanted an odd number, so that it has a middle")

    @property
    def convolved(self) -> int:
        """Slots that the convolution fills; the others keep one token each."""
        return self.slots - self.sinks - self.heavy

    @property
    def scored(self) -> bool:
        """Whether the attention that columns receive is needed."""
        return self.heavy > 0 or (self.residual and self.convolved > 0)


class Compression(NamedTuple):
    """One compression, of the slots and the tokens [first, border); [last, border) is the last segment."""

    first: int
    last: int
    border: int


def sizes_of(segment: int | list[int]) -> list[int]:
    """Return the sizes of the segments, of which the last repeats."""
    return list(segment) if isinstance(segment, list | tuple) else [segment]


def segments(length: int, segment: int | list[int]) -> list[tuple[int, int]]:
    """Cut tokens into segments [start, stop) of `segment` tokens, or of listed sizes, the last repeated."""
    sizes = sizes_of(segment)
    cuts: list[tuple[int, int]] = []
    start = 0
    while start < length:
        stop = min(length, start + sizes[min(len(cuts), len(sizes) - 1)])
        cuts.append((start, stop))
        start = stop
    return cuts


def compressions(length: int, settings: Settings) -> list[Compression]:
    """List the compressions that some row notices: one after the last segment would serve nobody."""
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
    """The columns of [slots of each compression ; raw tokens] that each row reads.

    Args:
        length: L, tokens.
        settings: of the mechanism.
        device: where to build the result.

    Returns:
        int64 (1, 1, L, 2, 2): after n of G compressions, the last of them at token r, row i reads the slots
        [(n-1) M, n M) (none if n = 0) and the raw tokens [G M + r, G M + i + 1).
    """
    borders = torch.tensor([step.border for step in compressions(length, settings)], dtype=torch.int64,
                           device=device)
    token = torch.arange(length, device=device)
    n = (token[:, None] >= borders).sum(dim=1)                               # (L,) compressions so far
    first = torch.cat([borders.new_zeros(1), borders])[n]                    # (L,) first raw token
    raw = len(borders) * settings.slots                                      # the column of raw token 0
    starts = torch.stack([(n - 1).clamp(min=0) * settings.slots, raw + first], dim=-1)
    ends = torch.stack([n * settings.slots, raw + token + 1], dim=-1)        # (L, 2)
    return torch.stack([starts, ends], dim=-1)[None, None]


def held_columns(count: int, segment: int, slots: int, buffer: int = 0) -> int:
    """Columns after `count` whole segments, compressed where they were too many.

    count B until that exceeds M + buffer, which segment floor((M + buffer) / B) + 1 does first. From then on
    M after each compression, and one comes every floor(buffer / B) + 1 segments.
    """
    first = (slots + buffer) // segment + 1
    if count < first:
        return count * segment
    return slots + segment * ((count - first) % (buffer // segment + 1))


def cache_tokens(length: int, *, slots: int, segment: int, buffer: int = 0, when: str = "eager") -> int:
    """Entries (a key and a value each) that a decoder keeps for one KV head after `length` tokens.

    Whole segments are compressed at once ("eager") or when the next token comes ("lazy"), so the number
    rises from M (+ buffer) and falls back: by up to B - 1 tokens of an open segment, or B if lazy.
    """
    check_positive(slots=slots, segment=segment)
    count, open_tokens = divmod(length, segment)
    if when == "lazy" and count and not open_tokens:
        return held_columns(count - 1, segment, slots, buffer) + segment
    return held_columns(count, segment, slots, buffer) + open_tokens


def peak_tokens(*, slots: int, segment: int, buffer: int = 0) -> int:
    """The most columns that a long text ever needs at once: a segment, over what is there before it.

    At most M + buffer + B; held by a lazy cache, and passed through by an eager one.
    """
    check_positive(slots=slots, segment=segment)
    fill = (slots + buffer) // segment * segment
    return segment + max(fill, slots + buffer // segment * segment)
