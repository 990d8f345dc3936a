"""Wrong forms of `exact_when`, which promise full attention's output where it differs."""


def forced_ones_cut_off(length: int, *, vertical: int, slash: int, forced_vertical: int, forced_slash: int,
                        block: int, **_) -> bool:
    """Vertical-slash: the first of the forced columns and diagonals are taken for sure where not all fit."""
    last_block = (length - 1) // block * block
    gap_start, gap_end = min(vertical, forced_vertical), last_block + 1 - min(slash, max(1, forced_slash))
    return vertical >= length or slash >= length or gap_end <= gap_start
