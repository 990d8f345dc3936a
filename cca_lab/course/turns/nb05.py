"""What the reader writes in notebook 05_convolutional_memory; rows and tokens count from 0."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close, need_tensor
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 05.2: what a row reads
def _columns(row: int, slots: int, segment: int, *,
             full: Callable[[int, int], bool] = lambda held, slots: held > slots,
             late: int = 0, count_slots: bool = True) -> tuple[int, int]:
    """Return the slots and the first raw token of a row, for given rules; token by token."""
    held, raw, first = 0, 0, 0
    for token in range(row + 1):
        begins = token and token % segment == 0 and token <= row - late
        if begins and full(held * count_slots + raw, slots):
            held, raw, first = slots, 0, token
        raw += 1
    return held, first


RULES: dict[str, dict[str, Any]] = {
    "slots and raw tokens are compressed at every segment, also if they are not more than M":
        {"full": lambda held, slots: True},
    "exactly M columns are compressed too; there is room for M":
        {"full": lambda held, slots: held >= slots},
    "only the raw tokens are counted: the slots need room too": {"count_slots": False},
    "the first row of a segment still reads the old columns; compression comes before it":
        {"late": 1},
}


def reads(answer: Answer, draw: Draw) -> None:
    """All rows of several sizes, at which the usual mistakes differ."""
    sizes = [(2, 3), (4, 3), (6, 3), (5, 1), (10, 4), (draw.randint(3, 9), draw.randint(2, 6))]
    for slots, segment in sizes:
        length = 4 * (slots + segment)
        got = []
        for row in range(length):
            pair = answer(row, slots, segment)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2
                    and all(type(x) is int for x in pair)):
                raise Mistake(f"the result is {describe(pair)}, wanted two integers: slots and the "
                              "first raw token")
            got.append(tuple(pair))
        wrong = [row for row in range(length) if got[row] != _columns(row, slots, segment)]
        if not wrong:
            continue
        wanted = _columns(wrong[0], slots, segment)
        results = {cause: [_columns(row, slots, segment, **rule) for row in range(length)]
                   for cause, rule in RULES.items()}
        begins = [row // segment * segment for row in range(length)]
        always = cause_of({next(iter(RULES)): [(slots if first else 0, first) for first in begins]},
                          got.__eq__)
        with case(f"{slots} slots, segments of {segment}, row {wrong[0]}"):
            raise Mistake(f"slots and first raw token are {got[wrong[0]]}, wanted {wanted}"
                          + (cause_of(results, got.__eq__) or always))


# 05.5: mixing weights
def _ratio(positive: Tensor, dim: int = 1) -> Tensor:
    total = positive.sum(dim, keepdim=True)
    return torch.where(total == 0, 1 / positive.shape[dim],
                       positive / total.masked_fill(total == 0, 1))


def weights(answer: Answer, draw: Draw) -> None:
    """Rows of both signs."""
    for slots, columns in [(2, 3), (3, 5), (4, 7), (1, 4)]:
        numbers = draw.normal(slots, columns)
        numbers[:, 0] = numbers[:, 0].abs() + 0.1
        with case(f"{slots} slots, {columns} columns, a positive number in each row"):
            need_close(answer(numbers), _ratio(numbers.relu()), "the weights", causes={
                "negative numbers are not made 0 first": numbers / numbers.sum(1, keepdim=True),
                "absolute values are taken: negative numbers count 0": _ratio(numbers.abs()),
                "the sums go over the slots; a slot is a mean of columns, so they go along the row":
                    _ratio(numbers.relu(), 0),
                "a softmax is taken, which gives no column 0": numbers.softmax(1),
                "a softmax of the ReLU is taken, which gives no column 0":
                    numbers.relu().softmax(1),
                "a small number is added to the sum, so that the weights do not sum to 1":
                    numbers.relu() / (numbers.relu().sum(1, keepdim=True) + 1e-6)})


def dead(answer: Answer, draw: Draw) -> None:
    """A row without a positive number, beside others."""
    numbers = draw.normal(4, 6)
    numbers[1], numbers[2, 3] = -numbers[1].abs(), numbers[2, 3].abs() + 0.1
    numbers[3], numbers[0, 0] = 0.0, 1.0
    wanted = _ratio(numbers.relu())
    nothing = wanted.clone()
    nothing[[1, 3]] = 0.0
    first = nothing.clone()
    first[[1, 3], 0] = 1.0
    causes = {"a dead row is left at zeros, so that its slot is empty": nothing,
              "a dead row takes the first column": first,
              "one dead row makes all rows even": torch.full_like(wanted, 1 / 6)}
    with case("row 1 has only negative numbers, row 3 only zeros"):
        need_close(answer(numbers), wanted, "the weights", causes=causes,
                   why="0/0: a row without a positive number gives every column the same weight")


# 05.6: the loops
Mixing = Callable[[Tensor, Tensor], Tensor]  # keys and values (N, D) -> weights (M, N)


def _mixing(draw: Draw, slots: int, width: int) -> Mixing:
    """Return a compression that depends on where a column stands, on its key and its value."""
    places, turn = draw.normal(slots, 99), draw.normal(slots, 2 * width)

    def weights(keys: Tensor, values: Tensor) -> Tensor:
        return (places[:, : len(keys)] + turn @ torch.cat([keys, values], dim=1).T).softmax(1)

    return weights


def remember(q: Tensor, k: Tensor, v: Tensor, scale: float, slots: int, segment: int,
             mixing: Mixing, *, full: Callable[[int, int], bool] = lambda held, slots: held > slots,
             late: int = 0, own: bool = True) -> Tensor:
    """Return LoCoCo of one head, row by row; the options are mistakes."""
    held_k, held_v, rows = k[:0], v[:0], []
    for i in range(len(q)):
        if i - late > 0 and (i - late) % segment == 0 and full(len(held_k), slots):
            weights = mixing(held_k, held_v)
            held_k, held_v = weights @ held_k, weights @ held_v
        seen_k, seen_v = held_k, held_v
        held_k, held_v = torch.cat([held_k, k[i : i + 1]]), torch.cat([held_v, v[i : i + 1]])
        if own or not len(seen_k):
            seen_k, seen_v = held_k, held_v
        rows.append((scale * (seen_k @ q[i])).softmax(0) @ seen_v)
    return torch.stack(rows)


def check_memory(answer: Answer, draw: Draw) -> None:
    """Sizes at which the usual mistakes differ; the last segment is short."""
    for length, slots, segment in ((8, 2, 3), (14, 6, 3), (9, 5, 1), (5, 3, 8)):
        q, k, v = (draw.normal(length, 3) for _ in "qkv")
        given = (q, k, v, 0.7, slots, segment, _mixing(draw, slots, 3))
        causes = {
            "what is held is compressed at every segment, also if it is not more than the slots":
                remember(*given, full=lambda held, slots: held > 0),
            "exactly as many columns as slots are compressed too; there is room for them":
                remember(*given, full=lambda held, slots: held >= slots),
            "the first row of a segment still reads the old columns; compression comes before it":
                remember(*given, late=1),
            "a row does not read its own token": remember(*given, own=False),
            "nothing is ever compressed": remember(*given, full=lambda held, slots: False),
        }
        with case(f"{length} tokens, {slots} slots, segments of {segment}"):
            need_close(answer(*given), remember(*given), "the output", causes=causes)


# 05.7: the table
def table_of(length: int, slots: int, segment: int, *, offset: bool = True, latest: bool = True,
             since: bool = True) -> Tensor:
    """Return the table, counted row by row; the options are mistakes."""
    firsts = [_columns(row, slots, segment)[1] for row in range(length)]
    borders = sorted(set(firsts) - {0})
    raw, rows = len(borders) * slots * offset, []
    for row, first in enumerate(firsts):
        n = sum(border <= row for border in borders)
        rows.append([[max(0, n - 1) * slots * latest, n * slots],
                     [raw + first * since, raw + row + 1]])
    return torch.tensor(rows)


def check_table(answer: Answer, draw: Draw) -> None:
    """Every row of several sizes; empty intervals may stand anywhere that does not move back."""
    for sizes in ((8, 2, 3), (7, 4, 3), (14, 6, 3), (9, 3, 1), (4, 5, 2), (13, 2, 5)):
        length, slots, segment = sizes
        wanted = table_of(*sizes)
        with case(f"{length} tokens, {slots} slots, segments of {segment}"):
            got = need_tensor(answer(*sizes), (length, 2, 2), "the table", "int").long()
            results = {
                "the raw tokens begin at column 0; the slots of all compressions come first":
                    table_of(*sizes, offset=False),
                "a row reads the slots of all compressions so far; it reads those of the latest":
                    table_of(*sizes, latest=False),
                "the raw tokens that a compression has taken are still read":
                    table_of(*sizes, since=False),
            }
            for row, pairs in enumerate(zip(got.tolist(), wanted.tolist(), strict=True)):
                for kind, (low, high), right in zip(("slots", "raw tokens"), *pairs, strict=True):
                    if low > high or range(low, high) != range(*right):
                        raise Mistake(f"row {row}: the {kind} are the columns [{low}, {high}), "
                                      f"wanted [{right[0]}, {right[1]})"
                                      + cause_of(results, partial(torch.equal, got)))


def check_rungs(answer: Answer, draw: Draw) -> None:
    """Attention with the table, on every rung that runs here, against the loop."""
    from cca_lab.attention import interval_attention
    from cca_lab.attention.fused import interpreted

    length, slots, segment = 20, 4, 5
    q, k, v = (draw.normal(length, 16) for _ in "qkv")
    mixing, made = _mixing(draw, slots, 16), []

    def watched(keys: Tensor, values: Tensor) -> Tensor:
        weights = mixing(keys, values)
        made.append((weights @ keys, weights @ values))
        return weights

    wanted = remember(q, k, v, 0.25, slots, segment, watched)
    keys = torch.cat([*(pair[0] for pair in made), k])[None, None]
    values = torch.cat([*(pair[1] for pair in made), v])[None, None]
    table = answer(length, slots, segment)[None, None].long()  # (1, 1, L, 2, 2)
    for backend in ("dense", "blocked", *(["triton"] if interpreted() else [])):
        dtype = torch.float32 if backend == "triton" else torch.float64
        # float32: 16 products and at most 9 weights are added, and rounded once each
        tolerance = 25 * torch.finfo(dtype).eps if backend == "triton" else 1e-12
        with case(f"backend {backend}"):
            got = interval_attention(q[None, None].to(dtype), keys.to(dtype), values.to(dtype),
                                     table, backend=backend)
            need_close(got[0, 0].to(wanted), wanted, "the output", tolerance=tolerance)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("05.2", "columns_of", "What a row of LoCoCo reads", 6, 3, 4, (
        Property("equal to counting token by token", 1, reads),)),
    CourseTask("05.5", "mixing_weights", "Weights from a convolution's output", 5, 2, 5, (
        Property("a mean of the columns with positive numbers", 1, weights),
        Property("a row without a positive number becomes the plain mean", 1, dead))),
    CourseTask("05.6", "attend_memory", "LoCoCo as loops", 12, 4, 5, (
        Property("equal to the definition, row by row", 1, check_memory),)),
    CourseTask("05.7", "memory_table", "LoCoCo as a table of intervals", 10, 4, 5, (
        Property("the columns of the definition", 1, check_table),
        Property("every rung that runs here equals the loop", 1, check_rungs))),
)
