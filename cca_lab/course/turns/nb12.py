"""What the reader writes in notebook 12_finetune: the groups of a document, a score by offset, one token's weight."""

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close, need_equal, need_items
from cca_lab.course.tasks import Answer, Draw, Mistake, Property, Task, case

# 12.2: the groups that hold a document

def check_groups(answer: Answer, draw: Draw) -> None:
    """Against asking every token of the document."""
    places = [(6, 8, 4), (8, 8, 8), (9, 8, 8), (7, 2, 8), (0, 1, 5), (15, 1, 16)]
    places += draw.sizes(12, (0, 60), (1, 20), (1, 16))
    for first, length, group in places:
        wanted = sorted({token // group for token in range(first, first + length)})
        with case(f"a document of {length} tokens from token {first} on, groups of {group}"):
            got = answer(first, length, group)
            got = got.tolist() if isinstance(got, Tensor) else got
            if not isinstance(got, (list, tuple)):
                raise Mistake(f"the result is {describe(got)}, wanted the list of groups, such as {wanted}")
            if list(got) != wanted:
                raise Mistake(f"the result is {list(got)}, wanted {wanted}{_why(list(got), first, length, group)}")


def _why(got: list[int], first: int, length: int, group: int) -> str:
    last = first + length - 1
    causes = {
        "the token behind the document counts too; the last one is first + length - 1": range(
            first // group, (last + 1) // group + 1),
        "the last group is left out: a document that begins inside a group can reach one group further": range(
            first // group, last // group),
        "only groups that lie entirely inside the document are listed": range(
            -(-first // group), (last + 1) // group),
        "these are tokens, not groups": range(first, last + 1),
    }
    return next((f": {cause}" for cause, wrong in causes.items() if got == list(wrong)), "")


# 12.4: a score that shows a lucky place

def check_by_offset(answer: Answer, draw: Draw) -> None:
    """Answers at offsets with different numbers of questions; every offset counts the same."""
    for counts in ((2, 2), (8, 2, 2), (3, 1, 5, 4)):
        answers = [(offset, draw.random() < (0.9 if offset == 3 else 0.4))
                   for offset, count in enumerate(counts, 3) for _ in range(count)]  # no offset looks like a share
        answers += [(3, True), (3, True), (4, False), (4, True)]
        draw.shuffle(answers)
        offsets = list(range(3, 3 + len(counts)))
        found = [[right for at, right in answers if at == offset] for offset in offsets]
        shares = [sum(hits) / len(hits) for hits in found]
        overall = sum(right for _, right in answers) / len(answers)
        with case(f"{len(answers)} answers at {len(counts)} offsets"):
            got = answer(answers)
            need_items(got, 2, "two numbers: the mean, and the share at the worst offset")
            need_equal(got[0], sum(shares) / len(shares), "the mean over the offsets", tolerance=1e-6, causes={
                "all questions count the same; here all offsets do, however many questions each has": overall,
                "the right answers are added up, and divided by nothing": float(sum(right for _, right in answers)),
                "the shares are added up, and not divided by the number of offsets": sum(shares)})
            need_equal(got[1], min(shares), "the worst share", tolerance=1e-6, causes={
                "it is the number of the worst offset, not the share that is right there": float(
                    offsets[shares.index(min(shares))]),
                "it is the best offset's": max(shares),
                "it is the worst question's": float(min(right for _, right in answers)),
                "it is the share that is wrong there": 1 - min(shares)})


# 12.5: how a row reads one token

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
            own, place = divmod(token, group)
            where = f"token {token}, in core {own}" if own < cores else f"token {token}, raw"
            with case(f"{cores} cores of {group} tokens, {raw} raw tokens; {where}"):
                need_close(torch.as_tensor(answer(row, phi, token)), weight, "the weight", causes=_other_weights(
                    row, phi, token, own, place) if cores else {})


def _other_weights(row: Tensor, phi: Tensor, token: int, own: int, place: int) -> dict[str, Tensor]:
    """Return what usual mistakes make of a token's weight."""
    cores, group = phi.shape
    if own >= cores:
        return {"the columns of raw tokens begin behind the cores: add the number of cores": row[token - cores * group],
                "this is the first raw token's weight": row[cores]}
    return {
        "the core's weight is not divided among its members: multiply by phi": row[own],
        "this is phi alone; multiply it by the weight of its core": phi[own, place],
        "token // group is the core, token % group the place in it: they are exchanged": row[
            min(place, cores - 1)] * phi[min(place, cores - 1), min(own, group - 1)],
        "every core is taken to have an equal share": phi[own, place] / cores,
        "both factors are added; they are multiplied": row[own] + phi[own, place],
    }


TURNS: tuple[Task, ...] = (
    Task("12.2", "groups_of", "Which groups hold a document", 5, 2, 4, (
        Property("equal to asking every token", 1, check_groups),)),
    Task("12.4", "by_offset", "A score that shows a lucky place", 6, 2, 5, (
        Property("the mean over the offsets, and the worst of them", 1, check_by_offset),)),
    Task("12.5", "token_weight", "How a row reads one token", 6, 2, 4, (
        Property("in a core and raw", 1, check_weight),)),
)
