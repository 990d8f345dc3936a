"""What the reader writes in notebook 06: H2O's eviction, blocks, and a table of intervals."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close, need_tensor
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


# 06.9: the intervals of StreamingLLM
def check_table(answer: Answer, draw: Draw) -> None:
    """Each row reads the tokens of the definition, each once."""
    for length, sinks, recent in ((8, 1, 2), (6, 0, 0), (9, 3, 4), (5, 8, 1), (1, 2, 2),
                                  (12, 2, 20)):
        with case(f"{length} tokens, sinks {sinks}, recent {recent}"):
            table = need_tensor(answer(length, sinks, recent), (length, 2, 2), "the table", "int")
            for row, ((low, high), (start, end)) in enumerate(table.tolist()):
                written = f"row {row} has [{low}, {high}) and [{start}, {end})"
                wanted = [t for t in range(row + 1) if t < sinks or row - t <= recent]
                if low > high or start > end:
                    raise Mistake(f"{written}: an interval ends before it starts; where it is "
                                  "empty, its end is its start")
                got = [*range(low, high), *range(start, end)]
                if max(got, default=0) > row:
                    raise Mistake(f"{written}: token {max(got)} is in the future of row {row}")
                twice = sorted({t for t in got if got.count(t) > 1})
                if twice:
                    raise Mistake(f"{written}: token {twice[0]} is read twice, and would count "
                                  "twice in the softmax; start the recent ones behind the sinks")
                if got != wanted:
                    raise Mistake(f"{written}, the tokens {got}; wanted {wanted}" + cause_of({
                        "the row's own token is counted among the recent ones; here it comes "
                        "on top of them":
                            [t for t in range(row + 1) if t < sinks or row - t < recent],
                        "the sinks are left out": [t for t in wanted if t >= sinks],
                    }, got.__eq__))


def check_rungs(answer: Answer, draw: Draw) -> None:
    """Attention with the table, on every rung that runs here, against the loop."""
    from cca_lab.attention import interval_attention
    from cca_lab.attention.fused import installed

    q, k, v = (draw.normal(20, 16) for _ in "qkv")
    reads = [[t for t in range(row + 1) if t < 2 or row - t <= 5] for row in range(20)]
    wanted = torch.stack([(k[read] @ q[row] / 4).softmax(0) @ v[read]
                          for row, read in enumerate(reads)])
    table = answer(20, 2, 5)[None, None].long()  # (1, 1, L, 2, 2)
    interpreted = installed() and os.environ.get("TRITON_INTERPRET") == "1"
    for backend in ("dense", "blocked", *(["triton"] if interpreted else [])):
        dtype = torch.float32 if backend == "triton" else torch.float64
        queries, keys, values = (x[None, None].to(dtype) for x in (q, k, v))
        with case(f"backend {backend}"):
            # float32: 16 products and 7 weights are added, and rounded once each
            tolerance = 23 * torch.finfo(dtype).eps if backend == "triton" else 1e-12
            got = interval_attention(queries, keys, values, table, backend=backend)
            need_close(got[0, 0].to(wanted), wanted, "the output", tolerance=tolerance)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("06.2", "kept_places", "Which tokens H2O keeps", 6, 2, 4, (
        Property("the recent ones, and the heaviest of the others", 1, kept),)),
    CourseTask("06.5", "tokens_read", "What a row reads, in blocks", 8, 3, 4, (
        Property("columns and blocks of diagonals, none of the future", 1, in_blocks),)),
    CourseTask("06.8", "first_of_block", "Shifted blocks that do not wrap", 5, 2, 4, (
        Property("the borders lie half a block off", 1, shifted),)),
    CourseTask("06.9", "window_table", "StreamingLLM as a table of intervals", 10, 3, 5, (
        Property("the tokens of the definition, each once", 1, check_table),
        Property("every rung that runs here equals the loop", 1, check_rungs))),
)
