"""DGA's causal mask: Algorithm 2 shows a group to rows that precede its last token.

"Dynamic Group Attention", Section 5.1 and Appendix D. The functions and checks are those of `grouping`.
"""

from functools import partial

from cca_lab.theory.causality.grouping import (
    all_members,
    any_member,
    any_partition,
    check_mask,
    check_members,
    check_nearest_group,
    columns_of_group,
    complement,
    cut,
    effective,
    gathered,
    member_reads,
    minus,
    sliced,
    sliced_in_front,
    the_consecutive_one,
    times,
    times_read,
)
from cca_lab.theory.claim import Claim, Strength, Verdict, Weight
from cca_lab.theory.forall import papers

__all__ = ["CLAIMS", "all_members", "any_member", "any_partition", "check_mask", "complement", "cut", "effective",
           "minus", "times", "times_read"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="D1.alg2", paper="DGA", place="Appendix D, Algorithm 2", check=check_mask, printed=(any_member, minus),
        quote="for aggregated tokens by setting M<sup>n</sup><sub>i,j</sub>=1 if "
              "||M<sub>i,G<sub>j</sub></sub>||<sub>0</sub>>0.", formula=True,
        reading="Row i sees a pooled group as soon as it sees one of its members, and raw what Phi leaves of the "
                "members [Phi = M^0 - repeat(M^n): the operator is lost in our text; with a product it is wrong as "
                "well].",
        verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.SUBSTANCE,
        corrected=(all_members, minus), repaired=Strength.SMT,
        machine=partial(papers.members_read_once, member_reads, (all_members, minus)),
        repair="M^n = 1 iff max G <= i, and Phi = M^0 - repeat(M^n): the complement is what M^n leaves out",
        proof="A pooled group holds tokens up to max G, weighed by the query of max G; rows min G <= i < max "
              "G must not see it (Section 5.1 says so of Figure 1). Consecutive groups are disjoint intervals "
              "of the non-focal order, so row i is inside at most one; focal tokens, closed groups and the "
              "open group's past partition the past. Read with '*' for '-' the printed rule counts twice; its "
              "own M^n with '-' has entries -1.",
        example="""
from math import exp

def first_output(value):                           # of two tokens in one group, m = 2, with zero scores
    pooled = (1.0 + value) / 2                     # weighed by the query of the second token
    seen = [pooled]                                # ||M_{1,G}||_0 = 1 > 0: the first row sees the group
    return sum(exp(0) * x for x in seen) / len(seen)

print(first_output(0.0), first_output(10.0))       # the second token's value is 0, then 10
assert first_output(0.0) != first_output(10.0)     # the first row has read it
"""),
    Claim(
        id="D1.eq14", paper="DGA", place="Section 5.1, Eq. 14", check=check_members,
        quote=(r"\mathbf{K}_{[\min G_i:\max G_i]}^{\top}) \in \mathbb{R}^m$",
               "are the first and last token index in the *i*-th group"), formula=True,
        reading="The slice from min G to max G has the keys of the m members of group G [of K or of K', where the "
                "focal tokens were moved to the front: Eq. 14 adds K'_j over j in G, and has K in the slice].",
        printed=sliced, corrected=gathered, verdict=Verdict.DEPENDS, strength=Strength.COUNTEREXAMPLE,
        models={"K and token indices, as printed": (sliced, False),
                "K' and positions in K'": (sliced_in_front, True)},
        weight=Weight.TYPOGRAPHY, repaired=Strength.PROOF,
        repair="K_G, a gather; as a slice it is right in K', or if no focal token lies inside the group",
        proof="In K' the groups are neighbours, so the positions min G..max G are the m members. In K there are max G "
              "- min G + 1 tokens between them: a focal token that lies between is sliced too. The query Q_max G is "
              "that of the last member either way.",
        example="""
focal, group = 2, [1, 3]                           # of the tokens 1, 2, 3, the second is focal; m = 2
K, K_front = [1, 2, 3], [2, 1, 3]                  # tokens in the order of the text, and with the focal one in front
in_text = K[K.index(1) : K.index(3) + 1]
in_front = K_front[K_front.index(1) : K_front.index(3) + 1]
print(in_text, in_front)
assert in_text == [1, 2, 3] and in_front == group
"""),
    Claim(
        id="D1.eq15", paper="DGA", place="Section 5.1, Eq. 15; Appendix D, Algorithm 2", check=check_nearest_group,
        quote=("where z denotes the index of the *i*-th token's nearest neighbor group",
               r"\mathbf{M}_{i}^{c} = \Phi_{i,[m(z-1)+1:mz]} \in \mathbb{R}^{m}"), formula=True,
        reading="The members of one group z are all that row i misses: it lies inside at most one group, as the groups "
                "are consecutive among the non-focal tokens [step 4 gives group z the columns m(z-1)+1 to mz].",
        printed=the_consecutive_one, verdict=Verdict.HOLDS, strength=Strength.SMT,
        machine=partial(papers.one_open_group, columns_of_group),
        proof="Consecutive groups occupy disjoint ranges [min G, max G], so i lies in at most one. Were any partition "
              "allowed, as step 2 alone reads, groups (1, 3) and (2, 4) would both be open in row 2.",
        example="""
tokens, m = [1, 2, 4, 5, 7, 9], 2                  # not focal
groups = [tokens[m * (z - 1) : m * z] for z in (1, 2, 3)]
for i in range(1, 10):
    opened = [group for group in groups if group[0] <= i < group[-1]]
    print("row", i, "inside", opened)
    assert len(opened) <= 1
"""),
)
