"""What the reader writes in notebook 14: a document's groups, scores by offset, weights."""

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close, need_equal, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 14.2: the groups that hold a document
def check_groups(answer: Answer, draw: Draw) -> None:
    """Against asking every token of the document."""
    examples = [(6, 8, 4), (8, 8, 8), (9, 8, 8), (7, 2, 8), (0, 1, 5), (15, 1, 16)]
    examples += draw.sizes(12, (0, 60), (1, 20), (1, 16))
    for first, length, group in examples:
        wanted = sorted({token // group for token in range(first, first + length)})
        with case(f"a document of {length} tokens from token {first} on, groups of {group}"):
            got = answer(first, length, group)
            got = got.tolist() if isinstance(got, Tensor) else got
            if not isinstance(got, (list, tuple)):
                raise Mistake(f"the result is {describe(got)}, wanted the list of groups, such as "
                              f"{wanted}")
            if list(got) != wanted:
                why = _why(list(got), first, length, group)
                raise Mistake(f"the result is {list(got)}, wanted {wanted}{why}")


def _why(got: list[int], first: int, length: int, group: int) -> str:
    last = first + length - 1
    causes = {
        "the token behind the document counts too; the last one is first + length - 1":
            range(first // group, (last + 1) // group + 1),
        "the last group is left out: a document that begins inside a group can reach one group "
        "further": range(first // group, last // group),
        "only groups that lie entirely inside the document are listed":
            range(-(-first // group), (last + 1) // group),
        "these are tokens, not groups": range(first, last + 1),
    }
    return next((f": {cause}" for cause, wrong in causes.items() if got == list(wrong)), "")


# 14.4: a score that shows a lucky place
def check_by_offset(answer: Answer, draw: Draw) -> None:
    """Answers at offsets with different numbers of questions; every offset counts the same."""
    for counts in ((), (2, 2), (8, 2, 2), (3, 1, 5, 4)):
        answers = [(offset, draw.random() < (0.9 if offset == 3 else 0.4))
                   for offset, count in enumerate(counts, 3)  # no offset looks like a share
                   for _ in range(count)]
        # alone these have the shares 1 and 1/4, and every mistake gives another number
        answers += [(3, True), (3, True), (4, False), (4, True), (4, False), (4, False)]
        draw.shuffle(answers)
        hits_at = [[right for at, right in answers if at == offset]
                   for offset in range(3, 3 + max(2, len(counts)))]
        shares = [sum(hits) / len(hits) for hits in hits_at]
        total = sum(right for _, right in answers)
        with case(f"{len(answers)} answers at {len(shares)} offsets"):
            got = answer(answers)
            need_items(got, 2, "two numbers: the mean, and the share at the worst offset")
            need_equal(got[0], sum(shares) / len(shares), "the mean over the offsets",
                       tolerance=1e-6, causes={
                "all questions count the same; here all offsets do, however many questions each "
                "has": total / len(answers),
                "the right answers are added up, and divided by nothing": float(total),
                "the shares are added up, and not divided by the number of offsets": sum(shares)})
            need_equal(got[1], min(shares), "the worst share", tolerance=1e-6, causes={
                "it is the number of the worst offset, not the share that is right there":
                    3.0 + shares.index(min(shares)),
                "it is the best offset's": max(shares),
                "it is the worst question's": float(min(right for _, right in answers)),
                "it is the share that is wrong there": 1 - min(shares)})


# 14.5: how a row reads one token
def check_weight(answer: Answer, draw: Draw) -> None:
    """Every token of a row, against the matrix of what each column is made of."""
    for cores, group, raw in [(3, 4, 5), (2, 3, 4), (1, 1, 2), (0, 4, 3)]:
        row = draw.normal(cores + raw).softmax(0)
        phi = draw.normal(cores, group).softmax(1) if cores else torch.zeros(0, group).double()
        made_of = torch.zeros(cores + raw, cores * group + raw).double()
        for core in range(cores):
            made_of[core, core * group : (core + 1) * group] = phi[core]
        made_of[cores:, cores * group :] = torch.eye(raw)
        for token, weight in enumerate(row @ made_of):
            core_of, member = divmod(token, group)
            where = f"token {token}, " + (f"in core {core_of}" if core_of < cores else "raw")
            with case(f"{cores} cores of {group} tokens, {raw} raw tokens; {where}"):
                causes = _other_weights(row, phi, token, core_of, member) if cores else {}
                need_close(torch.as_tensor(answer(row, phi, token)), weight, "the weight",
                           causes=causes)


def _other_weights(row: Tensor, phi: Tensor, token: int, core_of: int,
                   member: int) -> dict[str, Tensor]:
    """Return what usual mistakes make of a token's weight."""
    cores, group = phi.shape
    if core_of >= cores:
        return {"the columns of raw tokens begin behind the cores: add the number of cores":
                    row[token - cores * group],
                "this is the first raw token's weight": row[cores]}
    return {
        "the core's weight is not divided among its members: multiply by phi": row[core_of],
        "this is phi alone; multiply it by the weight of its core": phi[core_of, member],
        "token // group is the core, token % group the place in it: they are exchanged":
            row[min(member, cores - 1)] * phi[min(member, cores - 1), min(core_of, group - 1)],
        "every core is taken to have an equal share": phi[core_of, member] / cores,
        "both factors are added; they are multiplied": row[core_of] + phi[core_of, member],
    }


TURNS: tuple[CourseTask, ...] = (
    CourseTask("14.2", "groups_of", "Which groups hold a document", 5, 2, 4, (
        Property("equal to asking every token", 1, check_groups),)),
    CourseTask("14.4", "by_offset", "A score that shows a lucky place", 6, 2, 5, (
        Property("the mean over the offsets, and the worst of them", 1, check_by_offset),)),
    CourseTask("14.5", "token_weight", "How a row reads one token", 6, 2, 4, (
        Property("in a core and raw", 1, check_weight),)),
)
