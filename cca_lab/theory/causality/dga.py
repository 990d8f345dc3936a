"""DGA's groups and their mask, as printed and repaired, and the checks that judge them.

"Dynamic Group Attention", Section 5.1 and Appendix D, Eq. 14-15, Algorithm 2. The L tokens are
focal or not; the non-focal ones are cut, in their order, into groups of m. A row reads focal tokens
raw, pooled groups, and the raw members ("complement") of the group that contains the row. All
indices count from 0 here. The functions of a few indices also take the symbolic integers of
`cca_lab.theory.forall`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product

import torch
from torch import Tensor

from cca_lab.attention.dense import masked_matrix
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.forall import papers

Rule = Callable[[int, Sequence[int]], int]   # (row, members) -> 1 if the row sees the pooled group
Phi = Callable[[int, int], int]  # (token visible, group seen) -> entry of the complement's mask
Mask = tuple[Rule, Phi]
Groups = list[tuple[int, ...]]


def any_member(row: int, members: Sequence[int]) -> int:
    """Algorithm 2, step 3, as printed: M^n = 1 if ||M_{i,G}||_0 > 0, if any member is visible."""
    return int(members[0] <= row)


def all_members(row: int, members: Sequence[int]) -> int:
    """The rule that is causal: M^n = 1 if every member is visible, i >= max G."""
    return int(members[-1] <= row)


def minus(visible: int, seen: int) -> int:
    """Phi = M^0 - repeat(M^n): one reading of step 4, whose operator is not legible."""
    return visible - seen


def times(visible: int, seen: int) -> int:
    """Phi = M^0 * repeat(M^n): the other reading."""
    return visible * seen


def cut(length: int, focal: Sequence[int], size: int) -> tuple[list[int], Groups]:
    """Return the focal tokens with those that do not fill a group, and the groups of the others.

    A group has m neighbouring columns of the non-focal tokens (step 4).
    """
    rest = [t for t in range(length) if t not in set(focal)]
    ends = range(size, len(rest) + 1, size)
    alone = rest[len(rest) // size * size :]
    return sorted([*focal, *alone]), [tuple(rest[end - size : end]) for end in ends]


def entry(row: int, t: int, members: Sequence[int], mask: Mask) -> int:
    """Return the entry of Phi (step 4) for a row and a member t of a group."""
    rule, phi = mask
    return phi(int(t <= row), rule(row, members))


def member_reads(row: int, t: int, members: Sequence[int], mask: Mask) -> int:
    """Count how often a row reads member t of a group, pooled, and raw if the row is inside.

    Of the members only the first and the last matter here.
    """
    inside = members[0] <= row <= members[-1]
    return mask[0](row, members) + (max(0, entry(row, t, members, mask)) if inside else 0)


def complement(row: int, groups: Groups, mask: Mask) -> dict[int, int]:
    """M^c of a row (step 4): an entry for each member of the group z that is open in it."""
    return {t: entry(row, t, members, mask) for members in groups
            if members[0] <= row <= members[-1] for t in members}


def times_read(length: int, focal: Sequence[int], size: int, mask: Mask) -> list[list[int]]:
    """Count how often row i reads token t, focal, pooled or as complement; entries of -1 hide."""
    focal, groups = cut(length, focal, size)
    counts = [[0] * length for _ in range(length)]
    for row in range(length):
        for t in focal:
            counts[row][t] += int(t <= row)
        for members in groups:
            for t in members:
                counts[row][t] += member_reads(row, t, members, mask)
    return counts


def effective(q: Tensor, k: Tensor, focal: Sequence[int], size: int,
              mask: Mask = (all_members, minus)) -> Tensor:
    """Return the matrix E (L, L) with out = E v, of q and k (L, D), for a choice of focal tokens.

    The scale is 1/sqrt(D), groups have m = `size` tokens, and entries of -1 in the mask hide.
    """
    length, scale = len(q), q.shape[-1] ** -0.5
    focal, groups = cut(length, focal, size)
    # pooling weights
    columns = torch.zeros(len(focal) + len(groups) + length, length, dtype=q.dtype)
    columns[range(len(focal)), focal] = 1
    visible = torch.zeros(length, len(columns), dtype=torch.bool)
    for column, t in enumerate(focal):
        visible[t:, column] = True
    for z, members in enumerate(groups, start=len(focal)):
        logits = scale * (k[list(members)] @ q[members[-1]])
        columns[z, list(members)] = logits.softmax(dim=0)  # Eq. 14
        visible[:, z] = torch.tensor([bool(mask[0](row, members)) for row in range(length)])
    columns[-length:] = torch.eye(length, dtype=q.dtype)
    for row in range(length):
        for t, value in complement(row, groups, mask).items():
            visible[row, len(columns) - length + t] = value > 0
    weights, _ = masked_matrix(q[None, None], (columns @ k)[None, None], visible[None, None], scale)
    return weights[0, 0] @ columns


def check_mask(mask: Mask) -> Outcome:
    """Judge whether rows read their past once and no future: focal sets of 9 tokens, m = 2, 3."""
    leaks = doubles = misses = negative = cases = 0
    for size, focal in product((2, 3), _subsets(9)):
        if not (groups := cut(9, focal, size)[1]):
            continue
        cases += 1
        cells = [(n, t <= i) for i, row in enumerate(times_read(9, focal, size, mask))
                 for t, n in enumerate(row)]
        leaks += any(n != 0 and not past for n, past in cells)
        doubles += any(n > 1 for n, _ in cells)
        misses += any(n < 1 and past for n, past in cells)
        negative += any(value < 0 for row in range(9)
                        for value in complement(row, groups, mask).values())
    numbers = {"cases": cases, "leak": leaks, "double": doubles, "missing": misses,
               "negative": negative}
    if not leaks + doubles + misses + negative:
        return Outcome(True, f"every past token once, no future token, in {cases} of {cases} "
                       "partitions", numbers)
    zeros = torch.zeros(2, 1).double()
    weight = effective(zeros, zeros, [], 2, mask)[0, 1].item() if mask[0](0, (0, 1)) else 0.0
    return Outcome(False, f"L=m=2, zero scores: the first row gives {weight:.2f} of its weight to "
                   f"the second token; L=9: of {cases} partitions {leaks} leak, {doubles} count "
                   f"twice, {misses} miss a token, {negative} have mask entries of -1", numbers)


def _subsets(length: int) -> Iterator[tuple[int, ...]]:
    return (focal for count in range(length + 1) for focal in combinations(range(length), count))


SUBJECTS = {
    "D1.alg2": Subjects(check_mask, (any_member, minus), corrected=(all_members, minus),
                        machine=partial(papers.members_read_once, member_reads,
                                        (all_members, minus))),
}
