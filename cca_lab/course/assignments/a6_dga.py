"""a6: Dynamic groups with a span and a local window, and a detector of leaks from the future.

The variant: token 0 is always focal and of equal scores the later token wins; a group stretches
over at most `span` tokens; a row reads a group pooled once all members lie before its `window`
nearest tokens, and raw until then.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a6_leaks import (
    CAUSAL_DIRECT,
    CAUSAL_OTHERS,
    CAUSAL_STEPS,
    DIRECT,
    OTHERS,
    STEPS,
    Implementation,
    Maker,
    attend,
    importance,
)
from cca_lab.course.compare import by_hand, describe, need_close, need_keys, need_tensor
from cca_lab.course.tasks import (
    Answer,
    Assignment,
    CourseTask,
    Draw,
    Mistake,
    Property,
    Share,
    case,
)

# The rule of a6, once, in plain loops: focal tokens, groups, and which groups a row reads pooled.

def whole(got: Any, what: str) -> list[int]:
    """Return integers as a list, from a list or a tensor."""
    values = got.tolist() if isinstance(
        got, Tensor) and got.dim() == 1 and not got.is_floating_point() else got
    if isinstance(values, (list, tuple)):
        values = [item.item() if isinstance(item, Tensor) and item.numel() == 1 else item
                  for item in values]
    if not isinstance(values, list) or not all(type(item) is int for item in values):
        raise Mistake(f"{what} is {describe(got)}, wanted a list of integers")
    return values


def choose(scores: list[float], every: int, later: bool = True, first: bool = True, up: bool = True,
           counted: bool = True) -> list[int]:
    """Return the focal tokens, ascending; each switch set to False makes a mistake."""
    count = -(-len(scores) // every) if up else max(1, len(scores) // every)
    ranked = sorted(range(len(scores)),
                    key=lambda t: (first and t == 0, scores[t], t if later else -t), reverse=True)
    return sorted(ranked[: count if counted else count + 1])


def cut(focal: list[int], length: int, group: int, span: int, start: int = 0) -> list[list[int]]:
    """Return the groups of the other tokens; the span counts from member `start`, right is 0."""
    groups: list[list[int]] = []
    for token in range(length):
        if token in focal:
            continue
        if groups and len(groups[-1]) < group and token < groups[-1][start] + span:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def pooled_from(length: int, groups: list[list[int]], window: int) -> Tensor:
    """Return bool (L, K): the row reads the group pooled."""
    return torch.tensor([[members[-1] <= row - window for members in groups]
                         for row in range(length)], dtype=torch.bool).view(length, len(groups))


# a6.2: choice

def chosen(answer: Answer, scores: Tensor, every: int) -> None:
    """Compare the answer for some scores with sorting."""
    with case(f"scores {[round(x, 2) for x in scores.tolist()]}, every {every}"):
        got, wanted = whole(answer(scores, every),
                            "the focal tokens"), choose(scores.tolist(), every)
        if got == wanted:
            return
        causes = {
            "of equal scores the earlier token wins": choose(scores.tolist(), every, later=False),
            "token 0 has no place of its own": choose(scores.tolist(), every, first=False),
            "token 0 is not counted in the number": choose(scores.tolist(), every, counted=False),
            "the number is rounded down": choose(scores.tolist(), every, up=False),
            "the tokens are not in ascending order": got if sorted(got) == wanted else None}
        ends = [f". This is what comes out when {cause}" for cause, other in causes.items()
                if got == other]
        raise Mistake(f"the focal tokens are {got}, wanted {wanted}{ends[0] if ends else ''}")


def choice_sizes(draw: Draw) -> list[tuple[int, ...]]:
    """Return (length, every)."""
    if not draw.secret:
        return [(1, 3), (4, 2), (5, 2), (9, 3), (7, 1), (10, 20)]
    return draw.sizes(12, (1, 40), (1, 8)) + [(30, 10), (21, 4)]


def choice_distinct(answer: Answer, draw: Draw) -> None:
    """Scores without ties."""
    for length, every in choice_sizes(draw):
        chosen(answer, draw.normal(length).abs(), every)


def choice_ties(answer: Answer, draw: Draw) -> None:
    """Scores with many ties."""
    chosen(answer, torch.tensor([0.5, 0.2, 0.4, 0.2, 0.2], dtype=torch.float64), 2)
    for length, every in choice_sizes(draw):
        chosen(answer, draw.integers(1, 4, length).double() / 4, every)
    chosen(answer, torch.full((12,), 0.25, dtype=torch.float64), 3)


# a6.3: groups

def grouped(answer: Answer, draw: Draw, most_span: int | None) -> None:
    """Compare the groups of random focal tokens with a loop; a span of None closes no group."""
    cases = [(6, 2, [0, 3], 4), (7, 3, [0, 2, 3], 3), (5, 2, [0, 1, 2, 3, 4], 2),
             (9, 5, [0, 5, 6], 2), (9, 3, [0, 3, 4, 7], 4), (1, 2, [0], 1)]
    if draw.secret:
        cases = [(length, draw.randint(1, 5), sorted({0, *draw.sample(range(length), length // 3)}),
                  0) for length in sorted(draw.randint(3, 30) for _ in range(12))]
    for length, group, focal, span in cases:
        span = length if most_span is None else span or draw.randint(1, most_span)
        with case(f"focal {focal}, length {length}, group {group}, span {span}"):
            got = answer(focal, length, group, span)
            if not isinstance(got, (list, tuple)):
                raise Mistake(f"the groups are {describe(got)}, wanted a list of lists")
            groups, wanted = [whole(members, "a group")
                             for members in got], cut(focal, length, group, span)
            if groups == wanted:
                continue
            causes = {"the last group is lost when it is not full":
                          [g for g in wanted if len(g) == group],
                      "groups may stretch over span + 1 tokens":
                          cut(focal, length, group, span + 1),
                      "groups may stretch over span - 1 tokens only":
                          cut(focal, length, group, max(1, span - 1)),
                      "the span counts from the last member of the group; it counts from the first":
                          cut(focal, length, group, span, start=-1),
                      "the span closes no group": cut(focal, length, group, length)}
            ends = " or when ".join(cause for cause, other in causes.items() if groups == other)
            raise Mistake(f"the groups are {groups}, wanted {wanted}"
                          + f". This is what comes out when {ends}" * bool(ends))


# a6.4: what a row reads

def divisions(draw: Draw, length: int) -> list[tuple[int, list[list[int]], int]]:
    """Return (length, groups, window) for all sets of focal tokens of short texts, and others."""
    examples = []
    for bits in range(2**length):
        focal = [token for token in range(length) if bits >> token & 1]
        span = draw.randint(2, length) if draw.secret else length
        examples.append((length, cut(focal, length, 2 + bits % 2, span), draw.randint(1, 3)
                      if draw.secret else 1))
    examples.append((12, cut([], 12, 4, 12), 3))  # whole groups, up to the last token
    for longer in (11, 16, 23):
        focal = sorted(draw.sample(range(longer), longer // 3))
        examples.append((longer, cut(focal, longer, draw.randint(1, 4), draw.randint(2, 6)),
                      draw.randint(1, 6)))
    return sorted(examples, key=lambda division: (division[0], len(division[1])))


def table(answer: Answer, length: int, groups: list[list[int]], window: int) -> Tensor:
    """Return the answer's table, bool (length, K + length), from zeros and ones too."""
    got = answer(length, groups, window)
    if isinstance(got, Tensor) and ((got == 0) | (got == 1)).all():
        got = got.bool()
    return need_tensor(got, (length, len(groups) + length), "the table", "bool")


def all_counts(answer: Answer, examples: list[tuple[int, list[list[int]], int]]) -> list[Tensor]:
    """Return `read_counts` of the table of each division, unless all are full or almost empty."""
    counts, pooled = [], False
    for division in examples:
        with case(named(*division)):
            seen = table(answer, *division)
        pooled |= bool(seen[:, : len(division[1])].any())
        counts.append(read_counts(seen, division[1]))
    if not pooled:
        raise Mistake(f"in {len(examples)} examples no row reads a group pooled: that is full "
                      "attention, not DGA")
    if 2 * sum(int((each > 0).tril().sum()) for each in counts) < sum(int((each >= 0).tril().sum())
                                                                      for each in counts):
        raise Mistake("the rows read fewer than half of the tokens up to themselves")
    return counts


def read_counts(seen: Tensor, groups: list[list[int]]) -> Tensor:
    """Return how often each row reads each token, pooled or raw, (L, L)."""
    counts = seen[:, len(groups) :].long().clone()
    for number, members in enumerate(groups):
        counts[:, members] += seen[:, number, None].long()
    return counts


def named(length: int, groups: list[list[int]], window: int) -> str:
    """Return a division for a message."""
    return f"length {length}, groups {groups}, window {window}"


def behind_window(answer: Answer, draw: Draw) -> None:
    """Pooled groups are those before the window."""
    for division in divisions(draw, 6):
        length, groups, window = division
        with case(named(*division)):
            got = table(answer, *division)[:, : len(groups)]
            wrong = got != pooled_from(length, groups, window)
            if wrong.any():
                row, number = wrong.nonzero()[0].tolist()
                member = f"its last member {groups[number][-1]}"
                raise Mistake(f"row {row} must not read group {number} pooled yet: {member} is in "
                              "the window or later" if got[row, number]
                              else f"row {row} must read group {number} pooled: {member} lies "
                                   "before the window")


def no_future(answer: Answer, draw: Draw) -> None:
    """No row reads a later token."""
    examples = divisions(draw, 6)
    for division, counts in zip(examples, all_counts(answer, examples), strict=True):
        with case(named(*division)):
            if counts.triu(1).any():
                row, token = counts.triu(1).nonzero()[0].tolist()
                raise Mistake(f"row {row} reads token {token}, which comes later: is a group read "
                              "before all of its members are past, or are its members not cut at "
                              "the row?")


def once(answer: Answer, draw: Draw) -> None:
    """Every token of the past is read exactly once, for every set of focal tokens."""
    examples = divisions(draw, 9 if draw.secret else 6)
    for division, counts in zip(examples, all_counts(answer, examples), strict=True):
        with case(named(*division)):
            wrong = (counts != 1).tril()
            if wrong.any():
                row, token = wrong.nonzero()[0].tolist()
                times = int(counts[row, token])
                why = ("is it focal, or in a group that is not pooled yet?" if times == 0 else
                       "both pooled and raw? A group that is pooled is not read through its "
                       "members")
                raise Mistake(f"row {row} {('never reads', 'reads')[times > 0]} token {token}"
                              f"{' twice' * (times > 1)}: {why}")


# a6.5: attention

def oracle(q: Tensor, k: Tensor, v: Tensor, groups: list[list[int]], window: int, scale: float,
           how: str = "", judge_of: int | None = None) -> Tensor:
    """Return the outputs by one masked matrix; `how` names a mistake, a row that judges is one."""
    if how == "row":
        return torch.stack([oracle(q, k, v, groups, window, scale, judge_of=row)[row]
                            for row in range(len(q))])
    keys, values = [], []
    for members in groups:
        pooled = list(range(members[0], members[-1] + 1)) if how == "slice" else members
        at = members[0 if how == "first" else -1] if judge_of is None else judge_of
        judge = q[at] * (1 if how == "unscaled" else scale)
        weights = (k[pooled] @ judge).softmax(0)
        keys.append(k[pooled].mean(0) if how in ("mean", "mean key") else weights @ k[pooled])
        values.append(v[pooled].mean(0) if how in ("mean", "mean value") else weights @ v[pooled])
    shown = pooled_from(len(q), groups, window + (how == "late") - (how == "early"))
    seen = torch.cat([shown, torch.ones(len(q), len(q), dtype=torch.bool).tril()], dim=1)
    for number, members in enumerate(groups):
        seen[:, [len(groups) + t for t in members]] &= ~seen[:, number,
                                                             None] | (how in ("twice", "raw"))
    seen[:, : len(groups)] &= how not in ("unread", "raw")
    seen |= how == "open"
    scores = ((1 if how == "bare" else scale) * q
              @ torch.stack([*keys, *k]).T).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ torch.stack([*values, *v])


def compared(answer: Answer, draw: Draw, large: float) -> None:
    """Compare outputs with the oracle."""
    kinds = {"a group's first member judges, instead of its last": "first",
             "each row judges the groups with its own query": "row",
             "all members weigh the same": "mean",
             "the group's key is the plain mean of its members' keys": "mean key",
             "the group's value is the plain mean of its members' values": "mean value",
             "focal tokens between the members are pooled too": "slice",
             "the judge's scores are not scaled": "unscaled",
             "the pooled columns are not read": "unread",
             "the members of a pooled group are read raw too": "twice",
             "no row reads a group pooled, as in full attention": "raw",
             "a group is pooled one row too late": "late",
             "a group is pooled one row too early": "early",
             "no column is masked": "open", "the rows' scores are not scaled": "bare"}
    # With large scores one weight is 1, and many mistakes look alike.
    kinds = kinds if large == 1 else {}
    why = ("scores are small, so this is no overflow: does a row read no column at all, or is -inf "
           "multiplied by 0?"
           if large == 1 else "scores are several thousand here, and exp of them is infinite: is "
                              "the maximum subtracted before each exp, in the groups' weights too?")
    cases = [(1, [], 1), (5, [[1, 2]], 1), (5, [[1, 3]], 1), (8, [[1, 2, 5], [6]], 1),
             (9, [[0, 2], [3, 5], [7]], 2)]
    for length, groups, window in cases + divisions(draw, 4)[-3:]:
        q, k, v = draw.normal(length, 4, scale=large), draw.normal(length,
                                                                   4), draw.normal(length, 3)
        with case(named(length, groups, window)):
            given = q, k, v, groups, window, 0.5
            need_close(answer(*given), oracle(*given), "the output", why=why, causes={
                cause: oracle(*given, how) for cause, how in kinds.items()})


# a6.6: a leak detector

CALLS = 300  # of an implementation, for one answer
LARGEST = 1000.0  # number of a text
WIDTH = 6  # numbers of a token


class CountedCalls:
    """An implementation that counts its calls and refuses what is no text."""

    def __init__(self, implementation: Implementation, length: int) -> None:
        self.implementation, self.length, self.calls = implementation, length, 0

    def __call__(self, text: Any) -> Tensor:
        """Return the outputs."""
        self.calls += 1
        self.check()
        if not isinstance(text, Tensor) or tuple(
                text.shape) != (self.length, WIDTH) or not text.is_floating_point():
            raise Mistake(f"implementation was called with {describe(text)}, wanted floats of "
                          f"shape {(self.length, WIDTH)}")
        if not (text.abs() <= LARGEST).all():
            raise Mistake(f"implementation was called with a number beyond +-{LARGEST:g}, or NaN: "
                          "clamp large noise")
        return self.implementation(text.detach().double())

    def check(self) -> None:
        """Refuse more calls than are allowed."""
        if self.calls > CALLS:
            raise Mistake(f"the implementation was called more than {CALLS} times: change several "
                          "tokens, or several numbers of a token, in one edit")


def caught(leaking: dict[str, Maker],
           causal: dict[str, Maker]) -> Callable[[Answer, Draw], Share | None]:
    """Return a check: the share of leaks that are found less that of causal ones accused."""
    def check(answer: Answer, draw: Draw) -> Share | None:
        missed: list[str] = []
        accused: list[str] = []
        trials = [*leaking.items(), *causal.items()]
        draw.shuffle(trials)  # whoever counts calls learns nothing
        for name, maker in trials:
            length = draw.randint(5, 8) if draw.secret else 6
            row = draw.randint(0, length - 3)  # the token is not the last one, which is edited most
            token, bound = draw.randint(row + 1, length - 2), draw.uniform(1, 2)
            counted = CountedCalls(maker(length, row, token, bound), length)
            got = answer(counted, length)
            counted.check()
            got = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
            if not isinstance(got, bool):
                raise Mistake(f"the result is {describe(got)}, wanted True or False"
                              + " (None is not False)" * (got is None))
            if got != (name in leaking):
                (missed if name in leaking else accused).append(name.format(high=30 * bound))
        if not missed and not accused:
            return None
        said = ([f"missed {len(missed)} of {len(leaking)} leaks: {'; '.join(missed)}"] if missed
                else []) + ([f"accused {len(accused)} of {len(causal)} causal ones: "
                             f"{'; '.join(accused)}"] if accused else [])
        return Share(1 - len(missed) / len(leaking) - len(accused) / len(causal), ". ".join(said))
    return check


# a6.7: the first leaking row

VALUE, FAINT, SIGN, LARGE, ROOT = ("value", "billionth of the key", "sign of the query",
                                   "part of the value above 50", "root of the key plus 20")


def linked(links: list[tuple[int, int, str]]) -> Implementation:
    """Return causal attention in which some rows read a later token: (row, token, kind)."""
    def implementation(text: Tensor) -> Tensor:
        out = attend(text).clone()
        for row, token, kind in links:
            later = text[token]
            out[row] += {VALUE: later[4:6], FAINT: 1e-9 * later[2:4], SIGN: later[0:2].sign(),
                         LARGE: (later[4:6] - 50).relu(), ROOT: 0 * (20 + later[2:4]).sqrt()}[kind]
        return out
    return implementation


def found_first(answer: Answer, draw: Draw) -> Share | None:
    """The first leaking row and the first later token that changes it; None without a leak."""
    length = draw.randint(7, 8) if draw.secret else 6
    examples = [[(1, 4, VALUE), (2, 3, VALUE), (2, 4, VALUE)]]
    for kind in (VALUE, FAINT, ROOT, LARGE):  # from one row to two later tokens
        row = draw.randint(0, length - 3)
        examples.append([(row, token, kind) for token in draw.sample(range(row + 1, length), 2)])
    for outer, inner in ((SIGN, VALUE), (FAINT, LARGE), (ROOT, SIGN)):  # one inside the other
        row, later_row, token, later_token = sorted(draw.sample(range(length), 4))
        examples.append([(row, later_token, outer), (later_row, token, inner)])
    right, said, accused = 0, "", False
    for links in [[], *examples]:
        counted = CountedCalls(linked(links), length)
        got = answer(counted, length)
        counted.check()
        wanted = min((row, token) for row, token, _ in links) if links else None
        where = None if got is None else tuple(whole(got, "the place (row, token)"))
        right += where == wanted and bool(links)
        if not links and where is not None:
            accused = True
        if where != wanted and not said:
            which = "; ".join(f"row {row} reads the {kind} of token {token}"
                              for row, token, kind in sorted(links))
            said = (f"{which}: the result is {where}, wanted {wanted}" if links else
                    f"causal attention, which does not leak: the result is {where}, wanted None. "
                    "One false accusation costs all points of this task")
    if right == len(examples) and not accused:
        return None
    return Share(0.0 if accused else right / len(examples),
                 f"{right} of {len(examples)} places found. {said}")


# a6.8: a vote from the future

def row_weights(q: Tensor, k: Tensor, row: int) -> Tensor:
    """Return a row's weights (L,): focal tokens by Eq. 16, every 2, group 2, no span, window 1."""
    groups = cut(choose(importance(q, k).tolist(), 2), len(q), 2, len(q))
    seen = pooled_from(len(q), groups, 1)[row].tolist()
    mixes = [[t] for t in range(row + 1) if not any(
        is_seen and t in members for members, is_seen in zip(groups, seen, strict=True))]
    mixes += [members for members, is_seen in zip(groups, seen, strict=True) if is_seen]
    phi = torch.zeros(len(mixes), len(q), dtype=torch.float64)
    for column, members in enumerate(mixes):
        phi[column, members] = (k[members] @ q[members[-1]]).softmax(0)
    return (phi @ k @ q[row]).softmax(0) @ phi


def example(answer: Answer) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    """Return (q, k, q after the edit, k after it, row, token) of an answer."""
    got = answer()
    names = ("q", "k", "row", "token", "new q", "new k")
    need_keys(got, names)
    tensors = []
    for name, dims in (("q", 2), ("k", 2), ("new q", 1), ("new k", 1)):
        try:
            x = torch.as_tensor(got[name])
        except (TypeError, ValueError, RuntimeError):
            x = got[name]  # described below
        if not isinstance(x, Tensor) or x.is_complex() or x.dim() != dims or x.shape[-1] != 2:
            raise Mistake(f"{name} is {describe(x)}, wanted a tensor of shape "
                          f"{'(L, 2)' if dims == 2 else '(2,)'}")
        if not (x.double().abs() <= 100).all():
            raise Mistake(f"{name} has a number beyond +-100, or NaN")
        tensors.append(x.double())
    q, k, new_q, new_k = tensors
    row, token = (x.item() if isinstance(x, Tensor) and x.numel() == 1 else x
                  for x in (got["row"], got["token"]))
    if q.shape != k.shape or not 3 <= len(q) <= 32 or type(row) is not int or type(
            token) is not int:
        raise Mistake("wanted q and k of one length, 3 to 32, and integers row and token")
    if not 0 <= row < token < len(q):
        raise Mistake(f"wanted 0 <= row < token < {len(q)}, got row {row} and token {token}")
    changed_q, changed_k = q.clone(), k.clone()
    changed_q[token], changed_k[token] = new_q, new_k
    return q, k, changed_q, changed_k, row, token


def vote_seen(answer: Answer, draw: Draw) -> None:
    """The row's weights change when the later token does."""
    q, k, changed_q, changed_k, row, token = example(answer)
    before, after = row_weights(q, k, row), row_weights(changed_q, changed_k, row)
    if (before - after).abs().max() < 0.01:
        focal = [choose(importance(*pair).tolist(), 2) for pair in ((q, k), (changed_q, changed_k))]
        raise Mistake(f"row {row} weighs the tokens alike with both versions of token {token} "
                      f"(within 0.01); focal are {focal[0]} before and {focal[1]} after. Is a "
                      f"group that row {row} reads pooled different?")


def no_tiny_edit(answer: Answer, draw: Draw) -> None:
    """Around both texts, small changes of the token leave the row as it is."""
    vote_seen(answer, draw)
    q, k, changed_q, changed_k, row, token = example(answer)
    for name, queries, keys in (("before", q, k), ("after", changed_q, changed_k)):
        still = row_weights(queries, keys, row)
        for _ in range(20):
            q, k = queries.clone(), keys.clone()
            for x in (q, k):
                x[token] += draw.normal(2, scale=1e-4)
            if not torch.allclose(row_weights(q, k, row), still, rtol=0, atol=1e-9):
                raise Mistake(f"an edit of token {token} by 0.0001 changes row {row}, {name} your "
                              "edit: two scores are almost equal there. Keep the scores of focal "
                              "and other tokens apart")


ASSIGNMENT = Assignment("a6", "dga", "DGA without leaks, and a leak detector", ("04", "12"), (
    CourseTask("a6.1", "by_hand", "Nine tokens by hand", 10, 1, 3, (
        Property("the numbers of the example", 2, by_hand(
            {"groups": [[1, 2], [3], [6, 7], [8]], "pooled": [0, 1], "raw": [0, 4, 5, 6, 7, 8],
             "leaking rows": [1, 6]})),)),
    CourseTask("a6.2", "choose_focal", "Which tokens are focal", 10, 2, 3, (
        Property("the highest scores are chosen", 1, choice_distinct),
        Property("of equal scores the later token wins", 1, choice_ties))),
    CourseTask("a6.3", "cut_groups", "Groups that do not stretch too far", 15, 2, 3, (
        Property("full groups, and a short one at the end", 1, partial(grouped, most_span=None)),
        Property("no group is longer than the span", 1, partial(grouped, most_span=7)))),
    CourseTask("a6.4", "reads", "What a row reads", 25, 3, 5, (
        Property("a group is pooled when its last member is before the window", 1, behind_window),
        Property("no row reads a later token", 1, no_future),
        Property("every earlier token is read exactly once", 1, once))),
    CourseTask("a6.5", "attend", "One softmax over groups and tokens", 20, 3, 4, (
        Property("the output equals one matrix", 1, partial(compared, large=1.0)),
        Property("large scores do no harm", 1, partial(compared, large=4000.0)))),
    CourseTask("a6.6", "leaks", "A leak detector", 45, 4, 5, (
        Property("direct leaks are found", 2, caught(DIRECT, CAUSAL_DIRECT)),
        Property("leaks that appear at a step are found", 2, caught(STEPS, CAUSAL_STEPS)),
        Property("other leaks are found", 1, caught(OTHERS, CAUSAL_OTHERS), hidden=True))),
    CourseTask("a6.7", "first_leak", "Where does it leak?", 20, 3, 4, (
        Property("the first leaking row and its token", 2, found_first),)),
    CourseTask("a6.8", "late_vote", "A vote from the future", 35, 4, 4, (
        Property("a later token changes what a row reads", 1, vote_seen),
        Property("no tiny edit shows it", 1, no_tiny_edit))),
))
