"""What the reader writes in notebook 07; rows count from 0."""

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask


# 07.2: the pairs of all rows
def count_pairs(length: int, group: int, window: int, *, rest: bool = True, cut: bool = True,
                short: bool = True, twice: bool = False, whole: bool = False, old: bool = True,
                first: int = 1, last: int = 0) -> int:
    """Return the pairs of all rows, row by row; the keywords are mistakes."""
    total = 0
    for row in range(length if first == 0 else 1, length + 1 - last):
        older = max(0, row - window) if cut else row - window
        cores = older if whole else older // group + (older % group) * rest
        near = min(row, window) if short else window
        total += cores + near * old + (twice and older >= group)
    return total


# 07.6: what a cache keeps
def kept_entries(tokens: int, group: int, window: int, *, cores: str = "complete",
                 raw: str = "next") -> tuple[int, int]:
    """Return the cores and raw tokens of a cache, by counting; the keywords are mistakes."""
    visible = 0
    while group * (visible + 1) + window <= tokens + 1:
        visible += 1
    complete = sum(start + group <= tokens for start in range(0, tokens, group))
    return ({"complete": complete, "visible": visible, "open": -(-tokens // group)}[cores],
            {"next": tokens - group * visible, "window": min(tokens, window),
             "short": min(tokens, window - 1), "group": tokens % group, "all": tokens,
             "last": tokens - group * (max(0, tokens - window) // group)}[raw])


TURNS: tuple[CourseTask, ...] = (
    CourseTask("07.2", "count_pairs", "The pairs of all rows", 6, 2, (
        equals("equal to a list of rows", count_pairs,
               examples("length group window", (9, 3, 3),
                        (9, 4, 2), (5, 2, 8), (1, 3, 1), (6, 1, 2), (27, 2, 9), (41, 5, 4),
                        (58, 7, 11)), "the number of pairs", wrong=mistakes(count_pairs, {
            "the tokens that fill no group, (i + 1 - s) mod g of them, are not read":
                {"rest": False},
            "the first rows read a whole window, although the text has only begun":
                {"short": False},
            "a row that is shorter than the window gets a negative number of cores": {"cut": False},
            "the last token of the last core is read raw as well": {"twice": True},
            "a core counts as all the tokens of its group": {"whole": True},
            "the tokens of the window are not counted": {"old": False},
            "only the last row is counted": {"first": 0},
            "the last row is left out: row i has i + 1 tokens, since rows count from 0":
                {"last": 1}})),)),
    CourseTask("07.6", "kept_entries", "What a cache keeps", 8, 3, (
        equals("equal to counting", kept_entries,
               examples("tokens group window", (9, 4, 3),
                        (10, 4, 3), (23, 5, 3), (3, 5, 4), (40, 8, 1), (200, 16, 32), (57, 7, 9),
                        (64, 2, 19)), "the number of cores", "the number of raw tokens",
               wrong=mistakes(kept_entries, {
            "only the cores are kept that the next row reads; the others close too, and nobody "
            "could make them later": {"cores": "visible"},
            "a group that is not complete has a core": {"cores": "open"},
            "only the window is kept: the tokens that fill no group are raw too": {"raw": "window"},
            "the window is kept without the next row's own token, and nothing else":
                {"raw": "short"},
            "the last row decides; the next one may read one core more": {"raw": "last"},
            "a token is dropped when its group closes, although it is still in the window":
                {"raw": "group"},
            "nothing is dropped": {"raw": "all"}})),)),
)
