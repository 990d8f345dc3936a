"""What the reader writes in notebook 07; rows count from 1 there, as in the CCA paper."""

from cca_lab.course.compare import need_equal, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Property, case


# 07.2: the pairs of all rows
def count(answer: Answer, draw: Draw) -> None:
    """Against a list of rows; the first size tells the usual mistakes apart."""
    sizes = [(9, 3, 3), (9, 4, 2), (5, 2, 8), (1, 3, 1), (6, 1, 2)]
    sizes += draw.sizes(8, (20, 60), (2, 7), (1, 12))
    for length, group, window in sizes:
        rows = [(row, max(0, row - window)) for row in range(1, length + 1)]
        pairs = [old // group + old % group + min(row, window) for row, old in rows]
        wanted = sum(pairs)
        causes = {
            "the tokens that fill no group, (i - s) mod g of them, are not read":
                sum(old // group + min(row, window) for row, old in rows),
            "the first rows read a whole window, although the text has only begun":
                sum(old // group + old % group + window for row, old in rows),
            "a row that is shorter than the window gets a negative number of cores":
                sum((row - window) // group + (row - window) % group + min(row, window)
                    for row, old in rows),
            "the last token of the last core is read raw as well":
                wanted + sum(old >= group for _, old in rows),
            "a core counts as all the tokens of its group": sum(row for row, _ in rows),
            "only the cores are counted": sum(old // group + old % group for row, old in rows),
            "only the last row is counted": pairs[-1],
            "the last row is left out: does your range end at length + 1?": sum(pairs[:-1]),
        }
        with case(f"length {length}, group {group}, window {window}"):
            need_equal(answer(length, group, window), wanted, "the number of pairs", causes=causes)


# 07.6: what a cache keeps
def kept(answer: Answer, draw: Draw) -> None:
    """Against counting up from an empty cache."""
    sizes = [(9, 4, 3), (10, 4, 3), (23, 5, 3), (3, 5, 4), (40, 8, 1), (200, 16, 32)]
    sizes += draw.sizes(10, (30, 90), (2, 9), (1, 20))
    for tokens, group, window in sizes:
        with case(f"{tokens} tokens, group {group}, window {window}"):
            got = answer(tokens, group, window)
            need_items(got, 2, "two numbers: cores and raw tokens")
            visible = 0
            while group * (visible + 1) + window <= tokens + 1:
                visible += 1
            complete = sum(start + group <= tokens for start in range(0, tokens, group))
            need_equal(got[0], complete, "cores", causes={
                "only the cores are kept that the next row reads; the others close too, and nobody "
                "could make them later": visible,
                "a group that is not complete has a core": -(-tokens // group)})
            before = max(0, tokens - window) // group
            need_equal(got[1], tokens - group * visible, "raw tokens", causes={
                "only the window is kept: the tokens that fill no group are raw too":
                    min(tokens, window),
                "the window is kept without the next row's own token, and nothing else":
                    min(tokens, window - 1),
                "the last row decides; the next one may read one core more":
                    tokens - group * before,
                "a token is dropped when its group closes, although it is still in the window":
                    tokens % group,
                "nothing is dropped": tokens})


# 07.8: where attention is half of the work
def half(answer: Answer, draw: Draw) -> None:
    """Against trying one length after the other."""
    sizes = [(8, 21), (3, 5), (1, 2)]
    sizes += [(draw.randint(2, 30), draw.randint(2, 80)) for _ in range(4)]
    for width, inner in sizes:
        weights = 4 * width * width + 3 * width * inner
        wanted = 1
        while 4 * width * wanted * (wanted + 1) // 2 < 2 * weights * wanted:
            wanted += 1
        whole = 4 * width + 3 * inner
        with case(f"width {width}, inner width {inner}"):
            need_equal(answer(width, inner), wanted, "the length", causes={
                "every row reads every token: causal attention has L (L + 1) / 2 pairs":
                    -(-whole // 2),
                "a token is multiplied with the weights once, but each takes two operations":
                    -(-whole // 2) - 1,
                "pairs take two operations for each number; they take four": 2 * whole - 1,
                "row i reads i - 1 tokens; it reads itself too": whole + 1,
                "the pairs are taken as L^2 / 2: one token too late": whole})


TURNS: tuple[CourseTask, ...] = (
    CourseTask("07.2", "count_pairs", "The pairs of all rows", 6, 2, 4, (
        Property("equal to a list of rows", 1, count),)),
    CourseTask("07.6", "kept_entries", "What a cache keeps", 8, 3, 4, (
        Property("equal to counting", 1, kept),)),
    CourseTask("07.8", "half_length", "Where attention is half of the work", 6, 2, 4, (
        Property("equal to trying all lengths", 1, half),)),
)
