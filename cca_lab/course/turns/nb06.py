"""What the reader writes in notebook 06: H2O's eviction, blocks, and a table of intervals."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, forward, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 06.2: which tokens H2O keeps
def kept_places(scores: Sequence[float], heavy: int, recent: int, *, old_wins: bool = False,
                lightest: bool = False, in_order: bool = True, all_choose: bool = False,
                last: bool = True) -> list[int]:
    """Return the tokens that are kept; the keywords are mistakes."""
    older = range(max(0, len(scores) - recent))
    sign, chosen_of = 1 if lightest else -1, range(len(scores)) if all_choose else older
    chosen = sorted(chosen_of, key=lambda t: (sign * scores[t], t if old_wins else -t))[:heavy]
    newest = [t for t in range(len(older), len(scores)) if t not in chosen] if last else []
    return sorted([*chosen, *newest]) if in_order else [*chosen, *newest]


def scored(draw: Draw, scores: list[float], heavy: int, recent: int) -> tuple[Any, ...]:
    """Return scores, as H2O has added them up, and what is kept."""
    return list(scores), heavy, recent


SCORES = (([1.43, 1.47, 0.10], 1, 1), ([2.0, 0.5, 3.0, 1.0, 2.5], 2, 1),
          ([3.0, 1.0, 2.0, 5.0, 4.0, 0.2], 2, 2), ([1.0, 2.0], 3, 2), ([4.0], 1, 1),
          ([3.0, 2.0, 1.0], 0, 2), ([3.0, 1.0, 2.0], 2, 0), ([1.0, 3.0, 1.0, 2.0, 9.0], 2, 1),
          ([1.0, 1.0, 1.0, 1.0, 9.0], 2, 1), ([0.3, 4.1, 2.2, 0.7, 3.9, 1.8, 2.6, 0.4], 3, 3))


def all_of_zero(scores: Sequence[float], heavy: int, recent: int) -> list[int]:
    """Return what scores[-recent:] keeps."""
    places = range(len(scores))
    heaviest = sorted(places[:-recent], key=lambda t: (-scores[t], -t))[:heavy]
    return sorted([*heaviest, *places[-recent:]])


# 06.4: LM-Infinite's distances
PAIRS = [(row, token, near) for near in (4, 3, 1, 7) for row in range(3 * near + 3)
         for token in range(row + 1) if token < 2 or row - token < near]


# 06.6: what a row reads of columns and diagonals in blocks
def tokens_read(row: int, columns: list[int], offsets: list[int], block: int, *,
                low: Callable[[int, int, int], int] = lambda first, block, row: first,
                longer: int = 0, one: bool = False, ahead: bool = False, negative: bool = False,
                twice: bool = False, with_columns: bool = True) -> list[int]:
    """Return the tokens that a row reads, ascending; the keywords are mistakes."""
    first = low(row - row % block, block, row)
    size = 1 if one else block + longer
    ranges = {t for o in offsets for t in range(first - o, first - o + size)}
    chosen = [*ranges, *columns] if twice else ranges | set(columns if with_columns else [])
    return sorted(t for t in chosen if (negative or t >= 0) and (ahead or t <= row))


BLOCKS: tuple[tuple[int, list[int], list[int], int], ...] = (
    (7, [2, 8], [0, 5], 3), (1, [0], [0, 5], 3), (11, [2], [0, 4], 4), (6, [], [0, 1], 1),
    (9, [1, 9], [0, 2], 5), (18, [3, 12], [0, 7, 11], 4), (13, [0, 5, 14], [0, 6], 5))


# 06.8: which blocks a block of rows reads
def blocks_read(scores: Sequence[float], most: int, *, own: bool = True, lowest: bool = False,
                extra: int = 0, nearest: bool = False, in_order: bool = True) -> list[int]:
    """Return the blocks that are read, ascending; the keywords are mistakes."""
    last, sign = len(scores) - 1, 1 if lowest else -1
    if nearest:
        return list(range(len(scores)))[-most:]
    order = sorted(range(len(scores)), key=lambda n: (own and n != last, sign * scores[n], n))
    return sorted(order[: most + extra]) if in_order else order[: most + extra]


# 06.10: shifted blocks without wrap-around
def first_of_block(row: int, group: int) -> int:
    """Return the first token of the row's shifted block, by going back to its border."""
    while row > 0 and (row - group // 2) % group:
        row -= 1
    return row


# 06.11: the intervals of StreamingLLM
def window_table(length: int, sinks: int, recent: int, *, first: int = 0, behind: bool = True,
                 end: int = 1, with_sinks: bool = True, cut: bool = True) -> Tensor:
    """Return the intervals of sinks and recent tokens, (L, 2, 2); the keywords are mistakes."""
    rows = []
    for i in range(length):
        start = max(sinks if behind else 0, i - recent + first)
        start = min(start, i + min(end, 1)) if cut else start
        rows.append([[0, min(sinks, i + 1) * with_sinks], [start, i + end]])
    return torch.tensor(rows)


# 06.12: the columns of mean pooling
def columns_of(row: int, group: int, window: int, *, late: int = 0, soon: bool = False,
               raw_from: Callable[[int, int], int] = lambda first, near: first,
               own: int = 1) -> list[list[int]]:
    """Return the members of each column that a row reads: old groups, then single tokens."""
    columns: list[list[int]] = []
    while len(columns) * group + group - 1 <= row - (0 if soon else window) - late:
        columns.append(list(range(len(columns) * group, len(columns) * group + group)))
    first = raw_from(len(columns) * group, max(0, row + 1 - window))
    return columns + [[t] for t in range(first, row + own)]


TURNS: tuple[CourseTask, ...] = (
    CourseTask("06.2", "kept_places", "Which tokens H2O keeps", 6, 2, 4, (
        equals("the recent ones, and the heaviest of the others", kept_places,
               examples(scored, *SCORES), "the places", wrong=mistakes(kept_places, {
            "the recent tokens take part in the choice of the heavy ones; those are chosen from "
            "the others": {"all_choose": True},
            "the lightest are kept, and the heaviest leave": {"lightest": True},
            "of equal scores the newer leaves; in H2O here it is the older": {"old_wins": True},
            "the places are in the order of their scores; they belong in the order of the text":
                {"in_order": False},
            "only the heavy ones are returned": {"last": False}}) | {
            "the recent tokens are not kept whatever their score": lambda scores, heavy, recent:
                kept_places(scores, heavy + recent, 0),
            "the scores are returned; their places are wanted": lambda scores, heavy, recent:
                [scores[t] for t in kept_places(scores, heavy, recent)],
            "scores[-0:] is the whole list": all_of_zero}),)),
    CourseTask("06.4", "far_distance", "LM-Infinite's distances", 3, 1, 3, (
        equals("true in the window, one for all outside it",
               lambda row, token, near: min(row - token, near),
               examples(lambda draw, row, token, near: (row, token, near), *PAIRS),
               "the distance", wrong={
            "the true distance is returned; it has no limit": lambda i, t, near: i - t,
            "all first tokens are treated as far, those in the window too":
                lambda i, t, near: min(near, i) if t < 2 else i - t,
            "the limit is one too small": lambda i, t, near: min(i - t, near - 1),
            "every distance is the limit": lambda i, t, near: near,
            "positions of StreamingLLM are used: a place in the cache":
                lambda i, t, near: i - t if i - t < near else min(i, near + 1) - t}),)),
    CourseTask("06.6", "tokens_read", "What a row reads, in blocks", 8, 3, 4, (
        equals("columns and blocks of diagonals, none of the future", tokens_read,
               examples(lambda draw, row, columns, diagonals, block: (
                   row, list(columns), list(diagonals), block), *BLOCKS), "the tokens",
               wrong=mistakes(tokens_read, {
            "a diagonal is one token; a block of rows reads `block` tokens of it":
                {"low": lambda first, block, row: row, "one": True},
            "the range begins at the row's own place; it begins at that of the block's first row":
                {"low": lambda first, block, row: row},
            "the range ends where it should begin":
                {"low": lambda first, block, row: first - block + 1},
            "the range is one token too long": {"longer": 1},
            "later tokens are read too": {"ahead": True},
            "only the diagonals are read": {"with_columns": False},
            "a range that begins before the text is not cut at 0": {"negative": True},
            "a token is listed twice": {"twice": True}})),)),
    CourseTask("06.8", "blocks_read", "The best blocks", 5, 2, 3, (
        equals("the own block, and the best of the others", blocks_read,
               examples(lambda draw, scores, most: (list(scores), most),
                        ([3.0, 1.0, 2.0, 0.0], 2), ([5.0, 4.0, 3.0], 1), ([0.5], 3),
                        ([1.0, 2.0, 9.0], 2), ([2.1, 4.4, 0.3, 3.7, 1.6, 2.8], 3)), "the blocks",
               wrong=mistakes(blocks_read, {
            "the own block is chosen by its score; it is always one of those that are read":
                {"own": False},
            "the own block comes on top of the number; it counts": {"extra": 1},
            "the blocks with the lowest scores are read": {"lowest": True},
            "the nearest blocks are read, whatever their scores": {"nearest": True},
            "the blocks are in the order of their scores; they belong in the order of the text":
                {"in_order": False}})),)),
    CourseTask("06.10", "first_of_block", "Shifted blocks that do not wrap", 5, 2, 4, (
        equals("the borders lie half a block off", first_of_block,
               examples(lambda draw, row, group: (row, group), *(
                   (row, group) for group in (4, 8, 2, 6, 14) for row in range(3 * group + 1))),
               "the first token", wrong={
            "the blocks are not shifted": lambda row, group: row // group * group,
            "the blocks are shifted by a whole group":
                lambda row, group: max(0, row // group * group - group),
            "the first half block begins before the text":
                lambda row, group: (row + group // 2) // group * group - group // 2,
            "the first half block is forgotten: its rows have a block of their own":
                lambda row, group: max(group // 2,
                                       (row + group // 2) // group * group - group // 2),
            "a place is shifted, and its block's first token is not shifted back":
                lambda row, group: (row + group // 2) // group * group,
            "all blocks have half the size":
                lambda row, group: row // (group // 2) * (group // 2)}),)),
    CourseTask("06.11", "window_table", "StreamingLLM as a table of intervals", 10, 3, 5, (
        equals("the tokens of the definition, each once", forward(window_table),
               examples(lambda draw, tokens, sinks, recent: (tokens, sinks, recent),
                        (8, 1, 2), (6, 0, 0), (9, 3, 4), (5, 8, 1), (1, 2, 2), (12, 2, 20)),
               "the table", wrong=mistakes(window_table, {
            "a sink in the window is read twice; start the recent ones behind the sinks":
                {"behind": False},
            "the row's own token is counted among the recent ones; here it comes on top of them":
                {"first": 1},
            "ends before it starts": {"cut": False},
            "the interval ends one token late, in the future of the row": {"end": 2},
            "the interval ends before the row's own token": {"end": 0},
            "the sinks are left out": {"with_sinks": False}})),), drive=forward),
    CourseTask("06.12", "columns_of", "Old groups and single tokens", 6, 2, 4, (
        equals("each token of the past is in one column", columns_of,
               examples(lambda draw, row, group, window: (row, group, window), *(
                   (row, *sizes) for sizes in ((3, 2), (2, 1), (2, 3), (4, 4), (5, 6))
                   for row in range(15))), "the columns", wrong=mistakes(columns_of, {
            "a group counts as old as soon as it is complete; the window must be past it":
                {"soon": True},
            "the raw tokens are only those of the window; tokens between are missed":
                {"raw_from": lambda first, near: near},
            "all tokens are raw as well: members of a group are read twice":
                {"raw_from": lambda first, near: 0},
            "the row's own token is forgotten": {"own": 0},
            "a group is old one row too late": {"late": 1}})),)),
)
