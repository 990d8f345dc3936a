"""Checks of a6 for what finds leaks: a detector, a place, and a counterexample against the choice of focal tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a6_groups import choose, cut, pooled_from, whole
from cca_lab.course.assignments.a6_leaks import Implementation, Maker, attend, importance
from cca_lab.course.compare import describe
from cca_lab.course.tasks import Answer, Draw, Mistake, Share

CALLS = 300         # of an implementation, for one answer
LARGEST = 1000.0    # number of a text
WIDTH = 6           # numbers of a token


class Counted:
    """An implementation that counts its calls and refuses what is no text."""

    def __init__(self, implementation: Implementation, length: int) -> None:
        self.implementation, self.length, self.calls = implementation, length, 0

    def __call__(self, text: Any) -> Tensor:
        """Return the outputs.

        Raises:
            Mistake: if there are too many calls, or the text is none.
        """
        self.calls += 1
        self.check()
        if not isinstance(text, Tensor) or tuple(text.shape) != (self.length, WIDTH) or not text.is_floating_point():
            raise Mistake(f"implementation was called with {describe(text)}, wanted floats of shape "
                          f"{(self.length, WIDTH)}")
        if not (text.abs() <= LARGEST).all():
            raise Mistake(f"implementation was called with a number beyond +-{LARGEST:g}, or NaN: clamp large noise")
        return self.implementation(text.detach().double())

    def check(self) -> None:
        """Refuse more calls than are allowed.

        Raises:
            Mistake: naming the limit.
        """
        if self.calls > CALLS:
            raise Mistake(f"the implementation was called more than {CALLS} times: change several tokens, or several "
                          "numbers of a token, in one edit")


def caught(leaking: dict[str, Maker], causal: dict[str, Maker]) -> Callable[[Answer, Draw], Share | None]:
    """Return a check: the share of leaking implementations that are found minus that of causal ones accused."""
    def check(answer: Answer, draw: Draw) -> Share | None:
        missed, accused = [], []
        trials = [*leaking.items(), *causal.items()]
        draw.shuffle(trials)  # whoever counts calls learns nothing
        for name, maker in trials:
            length = draw.randint(5, 8) if draw.secret else 6
            row = draw.randint(0, length - 3)  # the token is not the last one, which is edited most
            token, bound = draw.randint(row + 1, length - 2), draw.uniform(1, 2)
            counted = Counted(maker(length, row, token, bound), length)
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
        said = ([f"missed {len(missed)} of {len(leaking)} leaks: {'; '.join(missed)}"] if missed else []) + (
            [f"accused {len(accused)} of {len(causal)} causal ones: {'; '.join(accused)}"] if accused else [])
        return Share(1 - len(missed) / len(leaking) - len(accused) / len(causal), ". ".join(said))
    return check


# The first leaking row

VALUE, FAINT, SIGN, LARGE, ROOT = ("value", "billionth of the key", "sign of the query",
                                   "part of the value above 50", "root of the key plus 20")


def linked(links: list[tuple[int, int, str]]) -> Implementation:
    """Return causal attention in which some rows read a later token: (row, token, kind)."""
    def implementation(text: Tensor) -> Tensor:
        out = attend(text).clone()
        for row, token, kind in links:
            own = text[token]
            out[row] += {VALUE: own[4:6], FAINT: 1e-9 * own[2:4], SIGN: own[0:2].sign(),
                         LARGE: (own[4:6] - 50).relu(), ROOT: 0 * (20 + own[2:4]).sqrt()}[kind]
        return out
    return implementation


def alone(draw: Draw, length: int, kind: str) -> list[tuple[int, int, str]]:
    """Return links from one row to two later tokens."""
    row = draw.randint(0, length - 3)
    return [(row, token, kind) for token in draw.sample(range(row + 1, length), 2)]


def crossed(draw: Draw, length: int, outer: str, inner: str) -> list[tuple[int, int, str]]:
    """Return a link from a row to a late token, and one between them: the first token has not the first row."""
    row, later_row, token, later_token = sorted(draw.sample(range(length), 4))
    return [(row, later_token, outer), (later_row, token, inner)]


def found_first(answer: Answer, draw: Draw) -> Share | None:
    """The smallest row that leaks, and the smallest later token that alone changes it; None without a leak."""
    length = draw.randint(7, 8) if draw.secret else 6
    examples = [[(1, 4, VALUE), (2, 3, VALUE), (2, 4, VALUE)]]
    examples += [alone(draw, length, kind) for kind in (VALUE, FAINT, ROOT, LARGE)]
    examples += [crossed(draw, length, *kinds) for kinds in ((SIGN, VALUE), (FAINT, LARGE), (ROOT, SIGN))]
    right, said, accused = 0, "", False
    for links in [[], *examples]:
        counted = Counted(linked(links), length)
        got = answer(counted, length)
        counted.check()
        wanted = min((row, token) for row, token, _ in links) if links else None
        place = None if got is None else tuple(whole(got, "the place (row, token)"))
        right += place == wanted and bool(links)
        if not links and place is not None:
            accused = True
        if place != wanted and not said:
            which = "; ".join(f"row {row} reads the {kind} of token {token}" for row, token, kind in sorted(links))
            said = (f"{which}: the result is {place}, wanted {wanted}" if links else
                    f"causal attention, which does not leak: the result is {place}, wanted None. One false accusation "
                    "costs all points of this task")
    if right == len(examples) and not accused:
        return None
    return Share(0.0 if accused else right / len(examples), f"{right} of {len(examples)} places are right. {said}")


# A vote from the future


def row_weights(q: Tensor, k: Tensor, row: int) -> Tensor:
    """Return a row's weight for each token, (L,): focal tokens by Eq. 16, every 2, group 2, no span, window 1."""
    groups = cut(choose(importance(q, k).tolist(), 2), len(q), 2, len(q))
    seen = pooled_from(len(q), groups, 1)[row].tolist()
    mixes = [[t] for t in range(row + 1) if not any(is_seen and t in members
                                                    for members, is_seen in zip(groups, seen, strict=True))]
    mixes += [members for members, is_seen in zip(groups, seen, strict=True) if is_seen]
    phi = torch.zeros(len(mixes), len(q), dtype=torch.float64)
    for column, members in enumerate(mixes):
        phi[column, members] = (k[members] @ q[members[-1]]).softmax(0)
    return (phi @ k @ q[row]).softmax(0) @ phi


def example(answer: Answer) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    """Return (q, k, q after the edit, k after it, row, token) of an answer.

    Raises:
        Mistake: if it is no such example.
    """
    got = answer()
    names = ("q", "k", "row", "token", "new q", "new k")
    if not isinstance(got, dict) or set(got) != set(names):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(names)}")
    tensors = []
    for name, dims in (("q", 2), ("k", 2), ("new q", 1), ("new k", 1)):
        try:
            x = torch.as_tensor(got[name])
        except (TypeError, ValueError, RuntimeError):
            x = got[name]  # described below
        if not isinstance(x, Tensor) or x.is_complex() or x.dim() != dims or x.shape[-1] != 2:
            raise Mistake(f"{name} is {describe(x)}, wanted a tensor of shape {'(L, 2)' if dims == 2 else '(2,)'}")
        if not (x.double().abs() <= 100).all():
            raise Mistake(f"{name} has a number beyond +-100, or NaN")
        tensors.append(x.double())
    q, k, new_q, new_k = tensors
    row, token = (x.item() if isinstance(x, Tensor) and x.numel() == 1 else x for x in (got["row"], got["token"]))
    if q.shape != k.shape or not 3 <= len(q) <= 32 or type(row) is not int or type(token) is not int:
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
        raise Mistake(f"row {row} weighs the tokens alike with both versions of token {token} (within 0.01); focal are "
                      f"{focal[0]} before and {focal[1]} after. Is a group that row {row} reads pooled different?")


def no_tiny_edit(answer: Answer, draw: Draw) -> None:
    """Around both texts, small changes of the token leave the row as it is."""
    vote_seen(answer, draw)
    q, k, changed_q, changed_k, row, token = example(answer)
    for name, queries, keys in (("before", q, k), ("after", changed_q, changed_k)):
        still = row_weights(queries, keys, row)
        for _ in range(20):
            moved = [x.clone() for x in (queries, keys)]
            for x in moved:
                x[token] += draw.normal(2, scale=1e-4)
            if not torch.allclose(row_weights(*moved, row), still, rtol=0, atol=1e-9):
                raise Mistake(f"an edit of token {token} by 0.0001 changes row {row}, {name} your edit: two scores are "
                              "almost equal there. Keep the scores of focal and other tokens apart")
