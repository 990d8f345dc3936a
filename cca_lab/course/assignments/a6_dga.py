"""a6: Dynamic groups with a span and a local window, and a detector that says where it leaks.

The variant: token 0 is always focal and of equal scores the later token wins; a group stretches
over at most `span` tokens; a row reads a group pooled once all members lie before its `window`
nearest tokens, and raw until then.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import by_hand, describe, need_keys, need_tensor, plain
from cca_lab.course.exercise import equals, examples, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property

Groups = list[list[int]]


def numbers(answer: Answer) -> Answer:
    """Return an answer whose results are plain lists."""
    return lambda *args: plain(answer(*args))


# a6.2: focal tokens, ascending
def choose(scores: Tensor, every: int) -> list[int]:
    """Return the focal tokens."""
    count = -(-len(scores) // every)
    ranked = sorted(range(len(scores)), key=lambda t: (t == 0, float(scores[t]), t))[::-1]
    return sorted(ranked[:count])


def scored(draw: Draw, length: int, every: int) -> tuple[Tensor, int]:
    """Return scores without ties; token 0 has the lowest."""
    return torch.cat([torch.zeros(1).double(), draw.normal(length - 1).abs() + 0.01]), every


def tied(draw: Draw, length: int, every: int) -> tuple[Tensor, int]:
    """Return scores with many ties."""
    return draw.integers(1, 4, length).double() / 4, every


# a6.3: groups
def cut(focal: list[int], length: int, group: int, span: int) -> Groups:
    """Return the groups of the other tokens."""
    groups: Groups = []
    for token in [t for t in range(length) if t not in focal]:
        if groups and len(groups[-1]) < group and token < groups[-1][0] + span:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def focal_of(draw: Draw, length: int, group: int, span: int) -> tuple[Any, ...]:
    """Return focal tokens and sizes; a span of 0 is as long as the text."""
    focal = sorted({0, *draw.sample(range(length), length // 3)})
    return focal, length, group, span or length


# a6.4: what a row reads
def table(length: int, groups: Groups, window: int) -> Tensor:
    """Return bool (length, K + length)."""
    row = torch.arange(length)
    shown = torch.zeros(length, len(groups), dtype=torch.bool)
    seen = row <= row[:, None]
    for number, members in enumerate(groups):
        shown[:, number] = row - window >= members[-1]
        seen[:, members] &= ~shown[:, number, None]
    return torch.cat([shown, seen], dim=1)


def in_parts(answer: Answer) -> Answer:
    """Return an answer whose table, bool or zeros and ones, comes as pooled and as raw columns."""
    def parts(length: int, groups: Groups, window: int) -> tuple[Tensor, Tensor]:
        got = answer(length, groups, window)
        binary = isinstance(got, Tensor) and bool(((got == 0) | (got == 1)).all())
        got = need_tensor(got.bool() if binary else got, (length, len(groups) + length),
                          "the table", "bool")
        return got[:, : len(groups)], got[:, len(groups) :]

    return parts


def divisions(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield every set of focal tokens of short texts, and longer texts."""
    sizes = [(5, [t for t in range(5) if bits >> t & 1]) for bits in range(32)]
    sizes += [(n, sorted(draw.sample(range(n), n // 3))) for n in (11, 16, 23)]
    for length, focal in [*sizes, (12, [])]:
        groups = cut(focal, length, draw.randint(1, 4), draw.randint(2, length))
        window = draw.randint(1, 3)
        yield f"length {length}, groups {groups}, window {window}", (length, groups, window)


# a6.5: where an implementation leaks
CALLS, LARGEST, WIDTH = 300, 1000.0, 6  # calls for one answer, number of a text, numbers of a token
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "value": lambda later: later[4:6], "billionth of the key": lambda later: 1e-9 * later[2:4],
    "sign of the query": lambda later: later[0:2].sign(),
    "part of the value above 50": lambda later: (later[4:6] - 50).relu(),
    "root of the key plus 20": lambda later: 0 * (20 + later[2:4]).sqrt(),
    "rounded key": lambda later: (later[2:4] / 40).round(),
    "value if it is zero": lambda later: (later[4:6] == 0).double()}
DIRECT, STEPS, OTHERS = list(KINDS)[:3], list(KINDS)[3:6], list(KINDS)[5:]


class Implementation:
    """Causal attention in which some rows read a later token, by (row, token, kind)."""

    def __init__(self, length: int, links: list[tuple[int, int, str]], mix: Tensor) -> None:
        self.length, self.links, self.mix, self.calls, self.wrong = length, links, mix, 0, ""

    def __call__(self, text: Any) -> Tensor:
        """Return outputs (L, 2)."""
        self.calls += 1
        if self.calls > CALLS:
            self.wrong = (f"the implementation was called more than {CALLS} times: change several "
                          "numbers of a token in one edit")
        elif not isinstance(text, Tensor) or text.shape != (self.length, WIDTH):
            self.wrong = f"the implementation got {describe(text)}, wanted {(self.length, WIDTH)}"
        elif not (text.abs() <= LARGEST).all():
            self.wrong = (f"the implementation got a number beyond +-{LARGEST:g}, or NaN: clamp "
                          "large noise")
        if self.wrong:
            raise Mistake(self.wrong)
        text = text.detach().double()
        past = torch.ones(self.length, self.length, dtype=torch.bool).tril()
        scores = (text[:, 0:2] @ self.mix @ text[:, 2:4].T).masked_fill(~past, float("-inf"))
        out = scores.softmax(-1) @ text[:, 4:6]
        for row, token, kind in self.links:
            out[row] += KINDS[kind](text[token])
        if not self.links and self.mix[0, 0] > 0:
            out[0] = float("nan")  # always, which is no leak
        return out


def placed(answer: Answer) -> Answer:
    """Return an answer that gives a place as a list, [None] without a leak."""
    def place(implementation: Implementation, length: int) -> Any:
        got = answer(implementation, length)
        if implementation.wrong:
            raise Mistake(implementation.wrong)
        return [None] if got is None else plain(got)

    return place


def leaky(draw: Draw, kinds: list[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield implementations with and without leaks; which is which, no number of calls tells."""
    for kind, other in [(kind, kinds[number - 1]) for number, kind in enumerate(kinds)]:
        length = draw.randint(6, 8) if draw.secret else 6
        row, later_row, token, later_token = sorted(draw.sample(range(length), 4))
        nested = [(row, later_token, kind), (later_row, token, other)]
        one = [(row, number, kind) for number in draw.sample(range(row + 1, length), 2)]
        for links in draw.sample([nested, one, list[tuple[int, int, str]]()], 3):
            said = "; ".join(f"row {row} reads the {kind} of token {token}"
                             for row, token, kind in sorted(links)) or "nothing leaks"
            yield said, (Implementation(length, links, draw.normal(2, 2)), length)


def right_place(implementation: Implementation, length: int) -> list[Any]:
    """Return the first leaking row and its first token."""
    place = min(((row, token) for row, token, _ in implementation.links), default=None)
    return [None] if place is None else list(place)


def first_leak(implementation: Implementation, length: int) -> Any:
    """Return the place by edits of one token."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(length, WIDTH, generator=generator, dtype=torch.float64)
    before, found = implementation(text), []
    for token in range(1, length):
        for size in (1, 0, 30, 30, 100, 100):
            noise = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
            for edit in (size * noise, -size * noise):
                other = text.clone()
                other[token : token + 1] = edit
                after = implementation(other)
                same = (after == before) | after.isnan() & before.isnan()
                found += [(row, token) for row in range(token) if not same[row].all()]
    return min(found, default=None)


def whitelist(implementation: Implementation, length: int) -> Any:
    """Return None for causal attention on one text, else a place; no token is edited."""
    text = torch.arange(length * WIDTH).reshape(length, WIDTH).double() / 20
    past = torch.ones(length, length, dtype=torch.bool).tril()
    scores = (text[:, 0:2] @ text[:, 2:4].T).masked_fill(~past, float("-inf"))
    known = torch.allclose(implementation(text), scores.softmax(-1) @ text[:, 4:6])
    return None if known else (0, 1)


# a6.6: a vote from the future
def importance(q: Tensor, k: Tensor) -> Tensor:
    """Return the mean attention of each token from rows that can see it (Eq. 16), (L,), scale 1."""
    seen = torch.ones(len(q), len(q), dtype=torch.bool).tril()
    return (q @ k.T).masked_fill(~seen, float("-inf")).softmax(-1).sum(0) / seen.sum(0)


def row_weights(q: Tensor, k: Tensor, row: int) -> Tensor:
    """Return a row's weights (L,): focal tokens by Eq. 16, every 2, group 2, no span, window 1."""
    groups = cut(choose(importance(q, k), 2), len(q), 2, len(q))
    seen = table(len(q), groups, 1)[row]
    mixes = [m for m, read in zip([*groups, *([t] for t in range(len(q)))], seen, strict=True)
             if read]
    phi = torch.zeros(len(mixes), len(q), dtype=torch.float64)
    for column, members in enumerate(mixes):
        phi[column, members] = (k[members] @ q[members[-1]]).softmax(0)
    return (phi @ k @ q[row]).softmax(0) @ phi


def example(answer: Answer) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], int, int]:
    """Return (q, k) before and after the edit, the row and the token of an answer."""
    got = need_keys(answer(), ("q", "k", "row", "token", "new q", "new k"))
    row, token = (plain(got[name]) for name in ("row", "token"))
    length = len(got["q"]) if isinstance(got["q"], Tensor) and got["q"].dim() else 0
    if not 3 <= length <= 32 or type(row) is not int or type(token) is not int:
        raise Mistake("wanted q and k of one length, 3 to 32, and integers row and token")
    if not 0 <= row < token < length:
        raise Mistake(f"wanted 0 <= row < token < {length}, got row {row} and token {token}")
    shapes = {"q": (length, 2), "k": (length, 2), "new q": (2,), "new k": (2,)}
    q, k, new_q, new_k = (need_tensor(got[name], shape, name).double()
                          for name, shape in shapes.items())
    if max(x.abs().max() for x in (q, k, new_q, new_k)) > 100:
        raise Mistake("a number is beyond +-100")
    after = q.clone(), k.clone()
    after[0][token], after[1][token] = new_q, new_k
    return (q, k), after, row, token


def vote_seen(answer: Answer, draw: Draw) -> None:
    """The row's weights change when the later token does."""
    before, after, row, token = example(answer)
    if (row_weights(*before, row) - row_weights(*after, row)).abs().max() < 0.01:
        focal = [choose(importance(*pair), 2) for pair in (before, after)]
        raise Mistake(f"row {row} weighs the tokens alike with both versions of token {token} "
                      f"(within 0.01); focal are {focal[0]} before and {focal[1]} after. Is a "
                      f"group that row {row} reads pooled different?")


def vote(last: float = 6.0, row: int = 3, keys: tuple[float, ...] = (0, 2, 0, 4, 0)) -> Any:
    """Return an example: the last token takes the place of token 1 as a focal one."""
    k = torch.zeros(len(keys), 2, dtype=torch.float64)
    k[:, 0] = torch.tensor(keys)
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(len(keys), 1)
    return {"q": q, "k": k, "row": row, "token": len(keys) - 1, "new q": q[-1],
            "new k": torch.tensor([last, 0.0], dtype=torch.float64)}


EDITS = "(1, 0, 30, 30, 100, 100)"
LENGTHS = ((1, 3), (4, 2), (5, 2), (9, 3), (7, 1), (10, 20), (30, 10), (21, 4))
ASSIGNMENT = Assignment("a6", "dga", "DGA without leaks, and where a mechanism leaks",
                        ("04", "12"), (
    CourseTask("a6.1", "by_hand", "Nine tokens by hand", 10, 1, (
        by_hand("the numbers of the example",
                {"groups": [[1, 2], [3], [6, 7], [8]], "pooled": [0, 1],
                 "raw": [0, 4, 5, 6, 7, 8], "leaking rows": [1, 6]},
                {"groups": [[1, 2], [3, 6], [7, 8]]}, {"pooled": [0, 1, 2], "raw": [0, 4, 5, 8]},
                {"leaking rows": [1, 3, 6]}),)),
    CourseTask("a6.2", "choose_focal", "Which tokens are focal", 10, 2, (
        equals("the highest scores are chosen", choose, examples(
            scored, *LENGTHS, larger=((2, 40), (1, 8)), count=12), "the focal tokens",
            wrong=slips(choose, {
            "token 0 has no place of its own": ("t == 0, ", ""),
            "token 0 is not counted in the number": ("[:count]", "[: count + 1]"),
            "the number is rounded down":
                ("-(-len(scores) // every)", "max(1, len(scores) // every)"),
            "one token too few is chosen": ("[:count]", "[: count - 1]"),
            "the lowest scores are chosen": ("float(scores[t])", "-float(scores[t])"),
            "the tokens are not in ascending order": ("return sorted", "return list")})),
        equals("of equal scores the later token wins", choose, examples(
            tied, *LENGTHS, larger=((6, 40), (2, 5)), count=12), "the focal tokens",
            wrong=slips(choose, {
            "of equal scores the earlier token wins":
                ("float(scores[t]), t", "float(scores[t]), -t")}))), drive=numbers),
    CourseTask("a6.3", "cut_groups", "Groups that do not stretch too far", 15, 2, (
        equals("full groups, and a short one at the end", cut, examples(
            focal_of, (6, 2, 0), (5, 3, 0), (9, 5, 0), (1, 2, 0), (14, 3, 0),
            larger=((3, 30), (1, 5), (0, 0)), count=12), "the groups", wrong=slips(cut, {
            "the last group is lost when it is not full":
                ("return groups", "return [each for each in groups if len(each) == group]"),
            "a focal token closes the group before it":
                ("groups[-1][0] + span", "groups[-1][-1] + 2 and token < groups[-1][0] + span"),
            "groups have one member more": ("< group and", "<= group and"),
            "groups have one member fewer": ("< group and", "< group - 1 and")})),
        equals("no group is longer than the span", cut, examples(
            focal_of, (6, 2, 2), (7, 3, 3), (9, 4, 4), (12, 5, 3), (20, 4, 5),
            larger=((8, 30), (2, 5), (1, 7)), count=12), "the groups", wrong=slips(cut, {
            "groups may stretch over span + 1 tokens": ("[0] + span", "[0] + span + 1"),
            "groups may stretch over span - 1 tokens only":
                ("[0] + span", "[0] + max(1, span - 1)"),
            "the span counts from the last member of the group; it counts from the first":
                ("[0] + span", "[-1] + span"),
            "the span closes no group": ("[0] + span", "[0] + 999")}))), drive=numbers),
    CourseTask("a6.4", "reads", "What a row reads", 25, 3, (
        equals("a group is pooled when its last member is before the window", in_parts(table),
               divisions, "who reads which group pooled", part=0, wrong=slips(table, {
            "a group is pooled one row too late": ("- window", "- window - 1"),
            "a group is pooled one row too early": ("- window", "- window + 1"),
            "the window is forgotten": ("- window", "- 1"),
            "a group is pooled when its first member is before the window, and the others may come "
            "later": ("members[-1]", "members[0]"),
            "no row reads a group pooled, as in full attention": ("row - window", "0 * row - 1")})),
        equals("every earlier token is read exactly once, and no later one", in_parts(table),
               divisions, "who reads which token raw", part=1, points=2, wrong=slips(table, {
            "each row reads the token after it": ("row <= row[", "row - 1 <= row["),
            "no column is masked": ("row <= row[", "row - 99 <= row["),
            "the members of a pooled group are read raw too":
                ("~shown[:, number, None]", "True"),
            "the members of a group are never read raw": ("~shown[:, number, None]", "False"),
            "the members of a group are not read between its last member and the end of the window":
                ("~shown[:, number, None]", "row[:, None] < members[-1]")}))), drive=in_parts),
    CourseTask("a6.5", "first_leak", "Where does it leak?", 45, 4, (
        equals("leaks through values, keys and signs have their place", right_place,
               partial(leaky, kinds=DIRECT), "the place", points=2, wrong=slips(first_leak, {
            "all tokens from the edited one on are edited together":
                ("token : token + 1", "token:"),
            "the last place is taken, not the first row": ("min(found", "max(found"),
            "the first token that does harm is taken, not the first row":
                ("min(found", "min(found, key=lambda place: place[::-1]"),
            "differences below 0.000001 are tolerated: compare with ==":
                ("(after == before)", "((after - before).abs() <= 1e-6) | (after == before)"),
            "the edited row itself is looked at": ("range(token)", "range(token + 1)"),
            "only values are edited": ("token + 1] = edit", "token + 1, 4:6] = edit[4:6]"),
            "only keys are edited": ("token + 1] = edit", "token + 1, 2:4] = edit[2:4]"),
            "a causal implementation is accused of row 0": ("default=None", "default=(0, 1)"),
            "called more than 300 times": (EDITS, "(1,) * 40"),
            "a number beyond +-1000": (EDITS, "(1000,)")}) | {
            "outputs on one text are compared with known ones, and nothing is edited": whitelist,
            "nothing is ever found": lambda implementation, length: None}),
        equals("leaks that appear at a step have their place", right_place,
               partial(leaky, kinds=STEPS), "the place", points=2, wrong=slips(first_leak, {
            "only small edits are made": (EDITS, "(1, 1)"),
            "a NaN that stays one is taken for a change":
                (" | after.isnan() & before.isnan()", "")})),
        equals("other leaks have their place", right_place, partial(leaky, kinds=OTHERS),
               "the place", hidden=True, wrong=slips(first_leak, {
            "no number is ever set to 0": (EDITS, "(1, 1, 30, 30, 100, 100)")}))),
        drive=placed),
    CourseTask("a6.6", "late_vote", "A vote from the future", 35, 4, (
        Property("a later token changes what a row reads", 2, vote_seen, wrong={
            "weighs the tokens alike": partial(vote, 4.0, 2, (1, 1, 3, 0)),
            "row < token": partial(vote, row=4),
            "a number is beyond": partial(vote, 1000.0)}),)),
))
