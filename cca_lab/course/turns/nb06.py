"""What the reader writes in notebook 06: H2O's eviction, a block of a diagonal, shifted blocks."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from cca_lab.course.compare import cause_of, describe
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


def _need_list(got: Any, wanted: list[int], what: str, causes: dict[str, Sequence[int]]) -> None:
    """Compare a list of tokens; a wrong one that equals a cause is told so."""
    got = got.tolist() if isinstance(got, Tensor) else got
    if not isinstance(got, (list, tuple)) or not all(type(token) is int for token in got):
        raise Mistake(f"{what} are {describe(got)}, wanted a list of integers")
    if list(got) != wanted:
        raise Mistake(f"{what} are {list(got)}, wanted {wanted}"
                      + cause_of(causes, lambda other: list(got) == list(other)))


# 06.2: which tokens H2O keeps
def keep(scores: Sequence[float], heavy: int, recent: int, *, old_wins: bool = False,
         lightest: bool = False, in_order: bool = True) -> list[int]:
    """Return the tokens that are kept; options are mistakes."""
    older = range(max(0, len(scores) - recent))
    sign = 1 if lightest else -1
    chosen = sorted(older, key=lambda t: (sign * scores[t], t if old_wins else -t))[:heavy]
    return [*(sorted(chosen) if in_order else chosen), *range(len(older), len(scores))]


def kept(answer: Answer, draw: Draw) -> None:
    """Scores in the order of the text, as H2O has added them up."""
    cases = [([1.43, 1.47, 0.10], 1, 1), ([2.0, 0.5, 3.0, 1.0, 2.5], 2, 1),
             ([3.0, 1.0, 2.0, 5.0, 4.0, 0.2], 2, 2), ([1.0, 2.0], 3, 2), ([4.0], 1, 1),
             ([3.0, 2.0, 1.0], 0, 2), ([3.0, 1.0, 2.0], 2, 0),
             ([1.0, 3.0, 1.0, 2.0, 9.0], 2, 1), ([1.0, 1.0, 1.0, 1.0, 9.0], 2, 1)]
    for _ in range(6):
        scores = [round(draw.uniform(0, 5), 2) for _ in range(draw.randint(3, 12))]
        cases.append((scores, draw.randint(1, 4), draw.randint(1, 4)))
    for scores, heavy, recent in cases:
        wanted, last = keep(scores, heavy, recent), set(keep(scores, 0, recent))
        heaviest = keep(scores, len(scores), 0, in_order=False)  # of all tokens, recent ones too
        causes: dict[str, Sequence[int]] = {
            "the recent tokens take part in the choice of the heavy ones; those are chosen from "
            "the others": sorted({*heaviest[:heavy], *last}),
            "the recent tokens are not kept whatever their score":
                sorted(heaviest[: heavy + recent]),
            "the lightest are kept, and the heaviest leave":
                keep(scores, heavy, recent, lightest=True),
            "of equal scores the newer leaves; in H2O here it is the older":
                keep(scores, heavy, recent, old_wins=True),
            "the places are in the order of their scores; they belong in the order of the text":
                keep(scores, heavy, recent, in_order=False),
            "only the heavy ones are returned": [t for t in wanted if t not in last],
            "scores[-0:] is the whole list": list(range(len(scores))),
        }
        with case(f"scores {scores}, heavy {heavy}, recent {recent}"):
            _need_list(answer(scores, heavy, recent), wanted, "the places", causes)


# 06.5: what a row reads of columns and diagonals in blocks
def tokens_of(columns: Sequence[int], offsets: Sequence[int], last: int, low: int,
              high: int) -> list[int]:
    """Return, up to `last`, the columns and each diagonal o's tokens low - o to high - o - 1."""
    return [t for t in range(last + 1) if t in columns
            or any(low - o <= t < high - o for o in offsets)]


def in_blocks(answer: Answer, draw: Draw) -> None:
    """Rows of several blocks; the first case tells the usual mistakes apart."""
    cases: list[tuple[int, list[int], list[int], int]] = [
        (7, [2, 8], [0, 5], 3), (1, [0], [0, 5], 3), (11, [2], [0, 4], 4), (6, [], [0, 1], 1),
        (9, [1, 9], [0, 2], 5)]
    for _ in range(8):
        columns = sorted(draw.sample(range(20), draw.randint(0, 3)))
        cases.append((draw.randint(0, 19), columns, [0, *sorted(draw.sample(range(1, 18), 2))],
                      draw.randint(1, 5)))
    for row, columns, offsets, block in cases:
        chosen, first = (columns, offsets), row - row % block
        end = first + block
        wanted, ranges = (tokens_of(read, offsets, row, first, end) for read in (columns, []))
        causes: dict[str, Sequence[int]] = {
            "a diagonal is one token; a block of rows reads `block` tokens of it":
                tokens_of(*chosen, row, row, row + 1),
            "the range begins at the row's own place; it begins at that of the block's first row":
                tokens_of(*chosen, row, row, row + block),
            "the range ends where it should begin":
                tokens_of(*chosen, row, first - block + 1, first + 1),
            "the range is one token too long": tokens_of(*chosen, row, first, end + 1),
            "later tokens are read too":
                tokens_of(*chosen, max([end - 1, *columns]), first, end),
            "only the diagonals are read": ranges,
            "a token is listed twice": sorted([*ranges, *(t for t in columns if t <= row)]),
        }
        with case(f"row {row}, columns {columns}, diagonals {offsets}, block {block}"):
            got = answer(row, columns, offsets, block)
            if isinstance(got, (list, tuple)) and any(type(t) is int and t < 0 for t in got):
                raise Mistake(f"the tokens are {list(got)}: a range that begins before the text is "
                              "cut at 0")
            _need_list(got, wanted, "the tokens", causes)


# 06.8: shifted blocks without wrap-around
def first_token(row: int, group: int) -> int:
    """Return the first token of the row's shifted block, by going back to its border."""
    while row > 0 and (row - group // 2) % group:
        row -= 1
    return row


def shifted(answer: Answer, draw: Draw) -> None:
    """All rows of a text, so that the whole text tells the mistake; groups are even."""
    for group in (4, 8, 2, 6, 2 * draw.randint(5, 12)):
        rows, half = range(3 * group + 1), group // 2
        got = [answer(row, group) for row in rows]
        causes = {
            "the blocks are not shifted": [row // group * group for row in rows],
            "the blocks are shifted by a whole group":
                [max(0, row // group * group - group) for row in rows],
            "the first half block begins before the text":
                [(row + half) // group * group - half for row in rows],
            "the first half block is forgotten: its rows have a block of their own":
                [max(half, (row + half) // group * group - half) for row in rows],
            "a place is shifted, and its block's first token is not shifted back":
                [(row + half) // group * group for row in rows],
            "all blocks have half the size": [row // half * half for row in rows],
        }
        for row, first in zip(rows, got, strict=True):
            with case(f"row {row}, group {group}"):
                if type(first) is not int:
                    raise Mistake(f"the first token is {describe(first)}, wanted an integer: "
                                  "divide with //")
                if first != (wanted := first_token(row, group)):
                    raise Mistake(f"the first token is {first}, wanted {wanted}"
                                  + cause_of(causes, got.__eq__))


TURNS: tuple[CourseTask, ...] = (
    CourseTask("06.2", "kept_places", "Which tokens H2O keeps", 6, 2, 4, (
        Property("the recent ones, and the heaviest of the others", 1, kept),)),
    CourseTask("06.5", "tokens_read", "What a row reads, in blocks", 8, 3, 4, (
        Property("columns and blocks of diagonals, none of the future", 1, in_blocks),)),
    CourseTask("06.8", "first_of_block", "Shifted blocks that do not wrap", 5, 2, 4, (
        Property("the borders lie half a block off", 1, shifted),)),
)
