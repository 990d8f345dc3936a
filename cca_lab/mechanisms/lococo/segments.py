"""When LoCoCo compresses and what each row reads: settings and index arithmetic.

A segment begins with the columns [M slots ; tokens since the last compression]. If they are more
than M, they are compressed to M slots before the segment begins. All count from 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cca_lab.attention.intervals import table_of
from cca_lab.mechanisms.indices import (
    has_passed,
    memory_columns,
    segment_end,
    segment_step,
)
from cca_lab.settings import check_flags, check_integers

CHOICES = {"weights": ("softmax", "relu"), "scores": ("last", "sum")}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of LoCoCo, see `LoCoCo`."""

    slots: int = 64
    segment: int = 64
    weights: str = "softmax"
    sinks: int = 0
    heavy: int = 0
    scores: str = "last"
    kernel: int = 21

    def __post_init__(self) -> None:
        check_flags(self)
        check_integers(1, slots=self.slots, segment=self.segment, kernel=self.kernel)
        check_integers(0, sinks=self.sinks, heavy=self.heavy)
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
        return self.heavy > 0


class Compression(NamedTuple):
    """One compression, of slots and tokens [first, border); [last, border) is a segment."""

    first: int
    last: int
    border: int


def segments(length: int, segment: int) -> list[tuple[int, int]]:
    """Cut tokens into segments [start, stop) of B tokens, the last one of at most so many."""
    return [(start, segment_end(start, length, segment)) for start in range(0, length, segment)]


def compressions(length: int, settings: Settings) -> list[Compression]:
    """Return the compressions that affect some row; one after the last segment would not."""
    done: list[Compression] = []
    columns = first = last = 0
    for start, stop in segments(length, settings.segment):
        full, columns = segment_step(columns, stop - start, settings.slots)
        if full:
            done.append(Compression(first, last, start))
            first = start
        last = start
    return done


def intervals(length: int, settings: Settings, device: torch.device | str | None = None) -> Tensor:
    """Return the columns of [slots of each compression ; raw tokens] that each row reads.

    Returns:
        int64 (1, 1, L, 2, 2): after n of G compressions, the last of them at token r, row i reads
        the slots [(n-1) M, n M) (none if n = 0) and the raw tokens [G M + r, G M + i + 1).
    """
    borders = torch.tensor([step.border for step in compressions(length, settings)],
                           dtype=torch.int64, device=device)
    token = torch.arange(length, device=device)
    n = has_passed(token[:, None], borders).sum(dim=1)     # (L,) compressions so far
    first = torch.cat([borders.new_zeros(1), borders])[n]  # (L,) first raw token
    columns = memory_columns(token, n, first, len(borders), settings.slots)
    return table_of(token, *columns)[None, None]
