"""What the kernels of a7 should compute, in plain torch and float64, and the usual ways to get it wrong."""

import torch
from torch import Tensor

from cca_lab.course.compare import describe
from cca_lab.course.compare import first as first_of
from cca_lab.course.tasks import Mistake

SINGLE = torch.float32
NOTHING = float("-inf")


def need_untouched(got: Tensor, before: Tensor, what: str, place: str) -> None:
    """Check that memory which belongs to nobody's result still holds what it held.

    Raises:
        Mistake: naming the first entry that changed.
    """
    changed = got != before.to(got.dtype)
    if changed.any():
        raise Mistake(f"{what} was written to, {place}: entry {list(first_of(changed))} of it is "
                      f"{describe(got[first_of(changed)].item())}. Is the store masked?")


def power_of_two(size: int) -> int:
    """Return the least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def pooled(q: Tensor, k: Tensor, v: Tensor, starts: list[int], scale: float, *, judge: int = -1, tile: bool = False,
           zeros: bool = False, summed: bool = False, mapping: str = "block") -> tuple[Tensor, Tensor]:
    """Return core keys and core values (B, Hk, M, D), float64; the keywords are mistakes.

    Args:
        q: (B, L, H, D).
        k, v: (B, L, Hk, D).
        starts: first token of each group, and the end of the last.
        scale: of the scores.
        judge: the group's token whose query judges; -1 is right.
        tile: the tokens up to the end of the tile count as well, though they belong to others.
        zeros: the tile's padding takes part in the softmax with scores of 0.
        summed: the queries of the heads are added, not averaged.
        mapping: "block" if neighbouring query heads share a key head, or "cyclic".
    """
    q, k, v = q.double(), k.double(), v.double()
    shared = q.shape[2] // k.shape[2]
    width = power_of_two(max(b - a for a, b in zip(starts, starts[1:], strict=False)))
    cores = []
    for first, end in zip(starts, starts[1:], strict=False):
        query = q[:, first if judge == 0 else end - 1]                                        # (B, H, D)
        split = (k.shape[2], shared) if mapping == "block" else (shared, k.shape[2])
        query = query.unflatten(1, split).mean(2 if mapping == "block" else 1) * (shared if summed else 1)
        stop = min(first + width, k.shape[1]) if tile else end
        scores = scale * torch.einsum("bhd,bthd->bht", query, k[:, first:stop])
        if zeros:
            scores = torch.cat([scores, scores.new_zeros(*scores.shape[:2], width - (end - first))], dim=-1)
        weights = scores.softmax(-1)[..., : stop - first]
        cores.append([torch.einsum("bht,bthd->bhd", weights, x[:, first:stop]) for x in (k, v)])
    keys, values = (torch.stack(side, dim=2) for side in zip(*cores, strict=True))
    return keys, values


def attended(q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, cap: float | None = None,
             mapping: str = "block") -> Tensor:
    """Return attention over intervals by one matrix, (H, L, D), float64; a row that reads nothing gives zeros.

    Args:
        q: (H, L, D).
        k, v: (Hk, N, D); columns that no row reads may hold anything.
        table: (L, n, 2), intervals of columns.
        scale: of the scores.
        cap: scores become cap * tanh(score / cap).
        mapping: "block" if neighbouring query heads share a key head, or "cyclic".
    """
    seen = seen_columns(table, k.shape[1])
    shared = len(q) // len(k)
    index = torch.arange(len(q)) // shared if mapping == "block" else torch.arange(len(q)) % len(k)
    k, v = (x.double().masked_fill(~seen.any(0)[:, None], 0.0)[index] for x in (k, v))
    scores = scale * q.double() @ k.mT
    scores = scores if cap is None else cap * (scores / cap).tanh()
    weights = scores.masked_fill(~seen, NOTHING).softmax(-1)
    return weights.masked_fill(~seen.any(1)[:, None], 0.0) @ v


def seen_columns(table: Tensor, columns: int) -> Tensor:
    """Return which columns each row reads, bool (L, columns)."""
    column = torch.arange(columns)
    return ((column >= table[..., :1]) & (column < table[..., 1:])).any(dim=1)


def cca_intervals(row: int, group: int, window: int) -> list[tuple[int, int]]:
    """Return the intervals of one row of CCA-Attention: cores, and raw tokens."""
    cores = max(0, (row + 1 - window) // group)
    return [(0, cores), (group * cores, row + 1)]


def tiles(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """Count the tiles of all blocks of rows of CCA-Attention, from the first and last row of each block."""
    count = 0
    for first in range(0, length, block_rows):
        above = cca_intervals(first, group, window)
        below = cca_intervals(min(first + block_rows, length) - 1, group, window)
        count += sum(-(-(stop - start) // block_columns) for (start, _), (_, stop) in zip(above, below, strict=True))
    return count


def tiles_by_counting(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """Count the same from every row's intervals."""
    count = 0
    for first in range(0, length, block_rows):
        rows = [cca_intervals(row, group, window) for row in range(first, min(first + block_rows, length))]
        for part in range(2):
            spans = [row[part] for row in rows if row[part][0] < row[part][1]]
            if spans:
                low, high = min(start for start, _ in spans), max(stop for _, stop in spans)
                count += len(range(low, high, block_columns))
    return count
