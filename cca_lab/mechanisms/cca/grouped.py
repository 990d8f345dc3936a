"""What CCA-Attention, mean pooling and random tokens share: a group size, a local window, what follows from both."""

from dataclasses import dataclass
from typing import Self

from cca_lab.mechanisms.base import Mechanism
from cca_lab.mechanisms.cca.groups import cache_tokens
from cca_lab.settings import check_integers


@dataclass(frozen=True, kw_only=True)
class Grouped(Mechanism):
    """A mechanism that keeps one entry for each group older than a local window; `groups` says what rows see.

    Attributes:
        group: g, tokens in a group.
        window: s, the local window: at least the s nearest tokens of a row, its own included, stay raw.
    """

    group: int = 16
    window: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(1, group=self.group, window=self.window)

    def exact_when(self, length: int) -> bool:
        """Return True if no row has an older group (CCA, Section 3.2: L < g + s), or if every group is one token."""
        return length < self.group + self.window or self.group == 1

    def cache_entries(self, length: int) -> int:
        """Return the number of closed groups plus raw tokens of the next row, see `groups.cache_tokens`."""
        return cache_tokens(length, self.group, self.window)

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return the mechanism with a local window of `entries` tokens."""
        return cls(window=entries)
