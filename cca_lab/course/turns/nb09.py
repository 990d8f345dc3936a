"""What the reader writes in notebook 09: operations a byte and pairs in blocks."""

from collections.abc import Callable

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask


# 09.3: operations a byte
def operations_a_byte(rows: int, length: int, head_dim: int, itemsize: int, *, each: int = 4,
                      numbers: Callable[[int, int], int] = lambda rows, length:
                          2 * rows + 2 * length,
                      pairs: Callable[[int, int], int] = lambda rows, length: sum(
                          range(length - rows + 1, length + 1)),
                      counted: bool = False) -> float:
    """Return operations over bytes for the last rows of a text; the keywords are mistakes."""
    moved = head_dim * numbers(rows, length) * (1 if counted else itemsize)
    return each * head_dim * pairs(rows, length) / moved


# 09.4: what blocks compute
def computed_pairs(length: int, window: int, block: int, *, area: str = "cut", every: str = "any",
                   early: int = 0) -> int:
    """Return the pairs of the tiles that hold a visible one; the keywords are mistakes."""
    total = 0
    edges = [range(first, min(first + block, length)) for first in range(0, length, block)]
    for rows in edges:
        if area == "first":
            total += len(rows) * (rows[-1] + 1 - max(0, rows[0] - window + 1))
            continue
        for columns in edges:
            seen = [i - window - early < t <= i for i in rows for t in columns]
            needed = {"any": any(seen), "all": all(seen), "always": True,
                      "past": columns[0] <= rows[-1], "last": any(seen[-len(columns) :])}[every]
            total += needed * {"cut": len(seen), "seen": sum(seen), "whole": block * block}[area]
    return total


TURNS: tuple[CourseTask, ...] = (
    CourseTask("09.3", "operations_a_byte", "Operations for each byte", 6, 2, (
        equals("equal to counting pairs and numbers", operations_a_byte,
               examples("rows length head_dim itemsize", (3, 7, 5, 2), (1, 1024, 64, 4),
                   (1024, 1024, 64, 4), (5, 31, 12, 4), (8, 19, 37, 1)),
               "the number of operations a byte", wrong=mistakes(operations_a_byte, {
            "a pair counts 2 D operations; score and value are 2 D each, a multiplication and an "
            "addition a feature": {"each": 2},
            "every row reads the whole text; row i of a causal text reads i + 1 tokens":
                {"pairs": lambda rows, length: rows * length},
            "the rows are the first of the text; they are its last":
                {"pairs": lambda rows, length: rows * (rows + 1) // 2},
            "a row does not read its own token":
                {"pairs": lambda rows, length: sum(range(length - rows, length))},
            "numbers are counted; a number has `itemsize` bytes": {"counted": True},
            "the values are not read": {"numbers": lambda rows, length: 2 * rows + length},
            "the output is not written": {"numbers": lambda rows, length: rows + 2 * length},
            "keys and values are those of the rows only; the rows read the whole text":
                {"numbers": lambda rows, length: 4 * rows},
            "queries and outputs are those of the whole text; only those of the rows move":
                {"numbers": lambda rows, length: 4 * length}}) | {
            "a query, a key, a value and an output are moved for every pair":
                lambda rows, length, head_dim, itemsize: 1 / itemsize,
            "it is bytes over operations, upside down":
                lambda *sizes: 1 / operations_a_byte(*sizes)}),)),
    CourseTask("09.4", "computed_pairs", "Pairs that blocks compute", 8, 3, (
        equals("equal to going through all tiles", computed_pairs,
               examples("length window block", (4, 2, 2),
                        (11, 4, 3), (10, 7, 4), (5, 9, 5), (6, 1, 4), (13, 13, 5), (29, 11, 6),
                        (37, 3, 7)), "the number of pairs", wrong=mistakes(computed_pairs, {
            "only the visible pairs are counted; a tile is computed whole": {"area": "seen"},
            "only the tiles that are visible whole are computed": {"every": "all"},
            "the window is forgotten: tiles far to the left of it are computed": {"every": "past"},
            "every tile is computed, those of the future too": {"every": "always"},
            "the last tiles count as whole blocks, though the text ends inside them":
                {"area": "whole"},
            "a block's last row decides which tiles are needed; its first row reaches further back":
                {"every": "last"},
            "the window begins one token early: a window of w holds the row's own token":
                {"early": 1},
            "tiles are cut at the first column that the block reads; they begin at multiples of "
            "the block": {"area": "first"}})),)),
)
