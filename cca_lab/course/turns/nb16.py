"""What the reader writes in notebook 16: tokens read twice or not at all, pooling by feature."""

from cca_lab.course.compare import need_close, need_equal
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


def check_counts(answer: Answer, draw: Draw) -> None:
    """Rows before and after the window is full, windows longer and shorter than a group."""
    from cca_lab.mechanisms.indices import read_twice, unread

    sizes = [(11, 5, 4), (12, 5, 4), (38, 3, 8), (39, 3, 8), (3, 5, 4), (6, 8, 3)]
    sizes.append((draw.randrange(60, 90), draw.randrange(4, 9), draw.randrange(10, 20)))
    for row, window, group in sizes:
        twice, missing = read_twice(row, window, group), unread(row, window, group)
        with case(f"row {row}, window {window}, groups of {group}"):
            got = answer(row, window, group)
            if not isinstance(got, tuple) or len(got) != 2:
                raise Mistake(f"got {got!r}, wanted two numbers: (read twice, not read)")
            if got == (missing, twice) and twice != missing:
                raise Mistake(f"got {got}, wanted {(twice, missing)}: the two are in the other "
                              "order")
            if row + 1 < window and got[0] > row + 1:
                raise Mistake(f"{got[0]} tokens are read twice, but row {row} has {row + 1} tokens "
                              "in all: the window is not full yet")
            if min(got) < 0:
                raise Mistake(f"got {got}: a count cannot be negative; take 0 instead")
            need_equal(got[0], twice, "the tokens read twice", causes={
                "row i has i + 1 tokens behind it, its own included; close groups of those":
                    max(0, row // group * group - max(0, row + 1 - window))})
            need_equal(got[1], missing, "the tokens not read")


def check_pooling(answer: Answer, draw: Draw) -> None:
    """One group, against DeepSeek-V4's pooling; the usual slips are named."""
    for tokens, features in [(4, 3), (1, 2), (5, 6)]:
        values, gates, bias = (draw.normal(tokens, features) for _ in range(3))
        logits = gates + bias
        wanted = (logits.softmax(dim=0) * values).sum(dim=0)
        causes = {
            "the softmax goes over the tokens (dim=0): each feature has weights of its own":
                (logits.softmax(dim=1) * values).sum(dim=0),
            "add the position bias to the gates before the softmax":
                (gates.softmax(dim=0) * values).sum(dim=0),
            "that is CCA's way: one weight for all features of a token":
                (logits.mean(dim=1).softmax(dim=0)[:, None] * values).sum(dim=0),
            "multiply by the values, not by the gates": (logits.softmax(dim=0) * gates).sum(dim=0),
        }
        with case(f"{tokens} tokens, {features} features"):
            need_close(answer(values, gates, bias), wanted, "the entry", causes=causes)


TURNS = (
    CourseTask("16.2", "read_counts", "Twice, or not at all", 8, 2, 4, (
        Property("counts what a row reads twice and what it misses", 1, check_counts),)),
    CourseTask("16.4", "pool_group", "A weight for each feature", 8, 2, 3, (
        Property("a softmax over tokens for each feature", 1, check_pooling),)),
)
