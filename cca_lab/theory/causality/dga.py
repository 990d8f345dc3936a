"""DGA's causal mask, read literally: Algorithm 2 shows a group to rows that precede its last token.

"Dynamic Group Attention", Sections 5.1 and Appendix D, Eq. 14-15, Algorithm 2. The L tokens are focal or
not; the non-focal ones are cut, in their order, into groups of m. A row reads focal tokens raw, pooled
groups, and the raw members ("complement") of the group that contains the row. All indices count from 0 here.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations

import torch
from torch import Tensor

from cca_lab.attention.dense import masked_matrix
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

Rule = Callable[[int, Sequence[int]], int]   # (row, members) -> 1 if the row sees the pooled group
Phi = Callable[[int, int], int]              # (token visible, group seen) -> entry of the complement's mask
Mask = tuple[Rule, Phi]
Groups = list[tuple[int, ...]]


def any_member(row: int, members: Sequence[int]) -> int:
    """Algorithm 2, step 3, as printed: M^n = 1 if ||M_{i,G}||_0 > 0, that is if any member is visible."""
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
    """Cut the non-focal tokens into groups of `size`; the last tokens, which do not fill a group, become focal.

    Args:
        length: L.
        focal: tokens chosen as focal.
        size: m.

    Returns:
        The focal tokens in order, and the groups.
    """
    rest = [t for t in range(length) if t not in set(focal)]
    count = len(rest) // size
    groups = [tuple(rest[z * size : (z + 1) * size]) for z in range(count)]
    return sorted([*focal, *rest[count * size :]]), groups


def complement(row: int, groups: Groups, mask: Mask) -> dict[int, int]:
    """M^c of a row (step 4): an entry for each member of the group z with min G_z <= i <= max G_z."""
    rule, phi = mask
    return {t: phi(int(t <= row), rule(row, members)) for members in groups
            if members[0] <= row <= members[-1] for t in members}


def times_read(length: int, focal: Sequence[int], size: int, mask: Mask) -> list[list[int]]:
    """Count how often row i reads token t, (L, L): focal, in a pooled group, as complement; entries of -1 hide."""
    focal, groups = cut(length, focal, size)
    counts = [[0] * length for _ in range(length)]
    for row in range(length):
        for t in focal:
            counts[row][t] += int(t <= row)
        for members in groups:
            for t in members:
                counts[row][t] += mask[0](row, members)
        for t, entry in complement(row, groups, mask).items():
            counts[row][t] += max(0, entry)
    return counts


def effective(q: Tensor, k: Tensor, focal: Sequence[int], size: int, mask: Mask = (all_members, minus)) -> Tensor:
    """Return the matrix E with out = E v for a given choice of focal tokens; the scale is always 1/sqrt(D).

    Args:
        q, k: (L, D).
        focal: focal tokens.
        size: m.
        mask: the rule for groups and the reading of Phi; entries of -1 count as hidden.

    Returns:
        (L, L) in the dtype of q.
    """
    length, scale = len(q), q.shape[-1] ** -0.5
    focal, groups = cut(length, focal, size)
    columns = torch.zeros(len(focal) + len(groups) + length, length, dtype=q.dtype)   # pooling weights
    columns[range(len(focal)), focal] = 1
    visible = torch.zeros(length, len(columns), dtype=torch.bool)
    for column, t in enumerate(focal):
        visible[t:, column] = True
    for z, members in enumerate(groups, start=len(focal)):
        columns[z, list(members)] = (scale * (k[list(members)] @ q[members[-1]])).softmax(dim=0)   # Eq. 14
        visible[:, z] = torch.tensor([bool(mask[0](row, members)) for row in range(length)])
    columns[-length:] = torch.eye(length, dtype=q.dtype)
    for row in range(length):
        for t, entry in complement(row, groups, mask).items():
            visible[row, len(columns) - length + t] = entry > 0
    weights, _ = masked_matrix(q[None, None], (columns @ k)[None, None], visible[None, None], scale)
    return weights[0, 0] @ columns


def check_mask(mask: Mask) -> Finding:
    """Judge whether every row reads its past once and its future never: all focal sets of L = 9 tokens, m = 2, 3."""
    leaks = doubles = misses = negative = cases = 0
    for size in (2, 3):
        for focal in _subsets(9):
            if not cut(9, focal, size)[1]:
                continue
            cases += 1
            cells = [(n, t <= i) for i, row in enumerate(times_read(9, focal, size, mask)) for t, n in enumerate(row)]
            leaks += any(n != 0 and not past for n, past in cells)
            doubles += any(n > 1 for n, _ in cells)
            misses += any(n < 1 and past for n, past in cells)
            groups = cut(9, focal, size)[1]
            negative += any(entry < 0 for row in range(9) for entry in complement(row, groups, mask).values())
    numbers = {"cases": cases, "leak": leaks, "double": doubles, "missing": misses, "negative": negative}
    if not leaks + doubles + misses + negative:
        return Finding(True, f"every past token once, no future token, in {cases} of {cases} partitions", numbers)
    weight = effective(torch.zeros(2, 1).double(), torch.zeros(2, 1).double(), [], 2, mask)[0, 1].item() \
        if mask[0](0, (0, 1)) else 0.0
    return Finding(False, f"L=m=2, zero scores: the first row gives {weight:.2f} of its weight to the second token; "
                          f"L=9: of {cases} partitions {leaks} leak, {doubles} count twice, {misses} miss a token, "
                          f"{negative} have mask entries of -1", numbers)


def _subsets(length: int) -> Iterator[tuple[int, ...]]:
    return (focal for count in range(length + 1) for focal in combinations(range(length), count))


def _from_one(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return token indices counted from 1, as in the paper."""
    return tuple(t + 1 for t in tokens)


def sliced_members(members: Sequence[int]) -> list[int]:
    """Eq. 14 as printed: the keys K_[min G : max G] give the weights of group G."""
    return list(range(members[0], members[-1] + 1))


def check_members(keys: Callable[[Sequence[int]], list[int]]) -> Finding:
    """Judge whether the keys that weigh a group are its m members: all focal sets of L = 7 tokens, m = 1, 2, 3."""
    groups = [members for size in (1, 2, 3) for focal in _subsets(7) for members in cut(7, focal, size)[1]]
    wrong = [members for members in groups if keys(members) != list(members)]
    if not wrong:
        return Finding(True, f"m keys for each of {len(groups)} groups", {"groups": len(groups)})
    members = min(wrong, key=lambda group: (len(group), group))
    shown, sliced = _from_one(members), _from_one(keys(members))
    return Finding(False, f"group {shown}: {len(sliced)} keys {sliced} for {len(members)} members; "
                          f"wrong for {len(wrong)} of {len(groups)} groups",
                   {"groups": len(groups), "wrong": len(wrong)})


def any_partition(tokens: Sequence[int], size: int) -> Iterator[Groups]:
    """Yield every partition of the tokens into groups of `size`: Algorithm 2, step 2, says only "partition"."""
    for order in permutations(tokens):
        groups = [tuple(order[z : z + size]) for z in range(0, len(order), size)]
        if groups == sorted(groups) and all(tuple(sorted(members)) == members for members in groups):
            yield groups


def consecutive_partition(tokens: Sequence[int], size: int) -> Iterator[Groups]:
    """Yield the one partition whose groups follow each other in the order of the tokens."""
    yield [tuple(tokens[z : z + size]) for z in range(0, len(tokens), size)]


def check_nearest_group(partitions: Callable[[Sequence[int], int], Iterator[Groups]]) -> Finding:
    """Judge whether a row has at most one open group, min G <= i < max G: sets of 2 .. 6 of 7 tokens, m = 2, 3."""
    cases = 0
    for tokens in _subsets(7):
        for size in (2, 3):
            if not tokens or len(tokens) % size or len(tokens) > 6:
                continue
            for groups in partitions(tokens, size):
                cases += 1
                for row in range(7):
                    opened = [members for members in groups if members[0] <= row < members[-1]]
                    if len(opened) > 1:
                        first, second = map(_from_one, opened[:2])
                        return Finding(False, f"groups {first} and {second}: row {row + 1} stands in both, and "
                                              "Eq. 15 restores the members of one z only")
    return Finding(True, f"at most one open group in {cases} partitions", {"partitions": cases})


CLAIMS = (
    Claim(
        id="D1.alg2", paper="DGA", place="Algorithm 2, steps 3-4", check=check_mask, printed=(any_member, minus),
        statement="M^n = 1 if any member of a group is visible; with the complement, the mask is causal",
        verdict=Verdict.FALSE, corrected=(all_members, minus), strength=Strength.EXACT,
        repair="M^n = 1 iff max G <= i, and Phi = M^0 - repeat(M^n): the complement is what M^n leaves out",
        proof="A pooled group holds tokens up to max G, weighed by the query of max G; rows min G <= i < max "
              "G must not see it (the text beside Fig. 1 agrees). Consecutive groups are disjoint intervals "
              "of the non-focal order, so row i is inside at most one; focal tokens, closed groups and the "
              "open group's past partition 0..i. Read with '*' for '-' the printed rule counts twice; its "
              "own M^n with '-' has entries -1."),
    Claim(
        id="D1.eq14", paper="DGA", place="Eq. 14", check=check_members, printed=sliced_members, corrected=list,
        statement="P = softmax(Q_max G K_[min G : max G]^T) has m entries", verdict=Verdict.HOLDS_IF,
        strength=Strength.EXACT,
        repair="K_G, a gather; the slice is right only if no focal token lies inside the group",
        proof="max G - min G + 1 = m exactly if the members are neighbours. A focal token between them is "
              "sliced too."),
    Claim(
        id="D1.eq15", paper="DGA", place="Eq. 15; Algorithm 2, step 2", check=check_nearest_group,
        printed=any_partition,
        statement="the members of one group z, the nearest one, restore what row i misses", verdict=Verdict.HOLDS_IF,
        corrected=consecutive_partition, strength=Strength.EXACT,
        repair="for groups that are consecutive in the non-focal order, with z the group that contains i; "
               "else all open groups",
        proof="Consecutive groups occupy disjoint ranges [min G, max G], so i lies in at most one. Groups "
              "(1, 3) and (2, 4) are both open in row 2."),
)
