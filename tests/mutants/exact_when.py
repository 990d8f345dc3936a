"""Wrong forms of `exact_when`, which promise full attention's output where it differs."""

from cca_lab.mechanisms import VerticalSlash


class ForcedOnesCutOff(VerticalSlash):
    """The first of the forced columns and diagonals are taken for sure where not all fit."""

    def exact_when(self, length: int) -> bool:
        last_block = (length - 1) // self.block * self.block
        gap_start = min(self.vertical, self.forced_vertical)
        gap_end = last_block + 1 - min(self.slash, max(1, self.forced_slash))
        return self.vertical >= length or self.slash >= length or gap_end <= gap_start
