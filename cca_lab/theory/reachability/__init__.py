"""Which row reads which token in CCA-Attention: Proposition 1, and the printed indices.

Chen et al., ICML 2025, Sections 3.2-3.4, Algorithm 1 and Appendix A. The functions and checks are those of `indices`.
"""

from functools import partial

from cca_lab.theory.claim import Claim, Strength, Verdict, Weight
from cca_lab.theory.forall import papers
from cca_lab.theory.reachability.indices import (
    ROWS,
    SIZES,
    check_cover,
    check_least,
    check_reachable,
    check_scaling,
    check_short,
    check_terms,
    check_window,
    clipped_window,
    core_count,
    effective_row,
    exact_cover,
    exact_terms,
    no_cores_before,
    printed_cover,
    printed_terms,
    scaled_inside,
    scaled_outside,
    split_cover,
    times_read,
)

__all__ = ["CLAIMS", "ROWS", "SIZES", "core_count", "effective_row", "exact_cover", "exact_terms", "printed_cover",
           "printed_terms", "times_read"]

REACHABLE = Claim(
    id="P1", paper="CCA", place="Appendix A, Proposition 1", check=check_reachable, printed=printed_cover,
    quote="fully satisfies the reachability condition from the earlier tokens to the later tokens in the sequence at "
          "each transformer layer",
    reading="With the indices as printed, every token has a positive weight in its own and in every later row, and "
            "none in an earlier one [in real numbers; a token inside a core has the weight A^G phi of Eq. 8].",
    verdict=Verdict.HOLDS, strength=Strength.SMT, machine=partial(papers.reached, printed_cover),
    proof="C W^V = Phi X W^V, so Out = E V with E >= 0. Every core p <= j has p g <= i - s <= i, so no token after i "
          "is read. A softmax is positive and sums to 1; tokens 1..jg are in cores, jg+1..i are raw, which the solver "
          "finds for all i, g and s. With the printed k token jg has two positive terms: it still reaches row i, "
          "twice.",
    example="""
from math import exp

def softmax(scores):
    return [exp(x) / sum(map(exp, scores)) for x in scores]

g, s, i = 2, 1, 3                                  # one core of tokens 1 and 2; raw tokens from k on
j, k = max(0, (i - s) // g), max(1, i - s - (i - s) % g)
phi, row = softmax([0.0, 1.0]), softmax([0.5] * j + [2.0] * (i - k + 1))
weight = {1: row[0] * phi[0], 2: row[0] * phi[1] + row[1], 3: row[2]}
print("tokens", [1, 2], "in the core, raw", list(range(k, i + 1)), weight)
assert min(weight.values()) > 0 and abs(sum(weight.values()) - 1) < 1e-12
""")

FIRST = Claim(
    id="P1.alg1", paper="CCA", place="Section 3.3, Eq. 4; Algorithm 1, line 11", check=check_cover,
    printed=printed_cover, formula=True,
    quote=(r"local window size to $s + ((i-s) \bmod g)$. This strategy ensures that each key token participates in the "
           "attention computation", r"where $k = \max(1, i-s - ((i-s) \bmod g))$"),
    reading="The raw keys k..i are the local window of which the text speaks: with the cores they are the tokens 1..i, "
            "each key token [once, as with windows of that size].",
    verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.SLIP,
    repair="k = j g + 1, with j = max(0, floor((i-s)/g)); the size of the window is right (P1.window)",
    corrected=exact_cover, repaired=Strength.SMT, machine=partial(papers.read_once, exact_cover),
    proof="Write i - s = j g + r. The printed k is j g, the last token of core j, which is read a second time in every "
          "row i >= s + g (and only it): k..i has one token more than the window. j g + 1 makes the cores and the raw "
          "tokens a partition of 1..i.",
    example="""
g, s, i = 2, 1, 3
j = max(0, (i - s) // g)                           # cores of row i
k = max(1, i - s - (i - s) % g)                    # first raw token, Eq. 4
read = [*range(1, j * g + 1), *range(k, i + 1)]
print(f"row {i} reads the tokens {read}; the window should have {s + (i - s) % g} of them")
assert read == [1, 2, 2, 3]                        # token 2 inside the core, and raw
""")

WINDOW = Claim(
    id="P1.window", paper="CCA", place="Section 3.3", check=check_window, printed=clipped_window, formula=True,
    quote=r"we set the local window size to $s + ((i-s) \bmod g)$",
    reading="Row i has s + ((i-s) mod g) raw tokens [clipped to the i tokens that there are, as k >= 1 in Eq. 4], "
            "which are those that the cores leave over.",
    verdict=Verdict.HOLDS, strength=Strength.SMT, machine=partial(papers.window_left_over, clipped_window),
    proof="For i >= s, i - s = j g + r gives i - j g = s + r <= i. For i < s no core exists and the row has i tokens; "
          "s + ((i-s) mod g) >= s > i is clipped to i.",
    example="""
for s, g in ((4, 2), (1, 3), (2, 2)):
    for i in range(1, 20):
        left = i - g * max(0, (i - s) // g)        # what the cores of row i leave over
        assert min(s + (i - s) % g, i) == left
    print(f"s={s}, g={g}: the window of row 19 has {left} tokens")
""")

LEAST = Claim(
    id="P1.least", paper="CCA", place="Section 3.3", check=check_least, printed=clipped_window,
    quote="attends to the preceding at least s tokens to capture local dependencies",
    reading="The window of row i has s tokens or more [its own token included; all of them where there are fewer].",
    verdict=Verdict.HOLDS, strength=Strength.SMT, machine=partial(papers.window_long_enough, clipped_window),
    proof="s + ((i-s) mod g) >= s, and the clipping leaves min(s, i) at least.")

SHORT = Claim(
    id="P1.short", paper="CCA", place="Section 3.2", check=check_short, printed=no_cores_before, formula=True,
    quote=("When the context is short", r"$i < (g+s)$", "would be excluded from attention calculation"),
    reading="Row i reads no core exactly if i < g + s.",
    verdict=Verdict.HOLDS, strength=Strength.SMT, machine=partial(papers.no_cores, no_cores_before),
    proof="j = max(0, floor((i-s)/g)) is 0 exactly if i - s < g.")

TERMS = Claim(
    id="P1.eq6", paper="CCA", place="Section 3.2; Appendix A, Proposition 1, Eq. 6", check=check_terms,
    printed=printed_terms, formula=True,
    quote=(r"in total $m = \lfloor L/g \rfloor$ groups",
           r"\sum_{p=1}^m \mathbf{A}_{i,p}^G \sum_{q=1}^g \Phi_{p,q} \mathbf{V}_{g(p-1)+q,j} + \sum_{t=1}^w "
           r"\mathbf{A}_{i,t}^L \mathbf{V}_{mg+t,j}"),
    reading="For i > g, the output of row i adds the values of the m groups and of the raw tokens mg+1..mg+w [a core "
            "that the row must not see has weight 0, and the window is clipped to i tokens].",
    verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.SLIP,
    corrected=exact_terms, repaired=Strength.SMT, machine=partial(papers.read_once, split_cover),
    repair="m becomes j(i) = max(0, floor((i-s)/g)), the split i < g + s (as in Section 3.2), and w = i - j g",
    proof="floor(L/g) groups are all groups of the sequence, most of them in the future of row i, and m g + t > i. "
          "Were m the number of cores that row i sees, Eq. 6 would be right. (The captions of Eq. 9 and 10 are also "
          "exchanged: Eq. 9 has the local module alone, Eq. 10 has both.)",
    example="""
L, g, s, i = 8, 2, 2, 4
m, w = L // g, s + (i - s) % g                     # Section 3.2 and Appendix A
raw = [m * g + t for t in range(1, w + 1)]
print(f"row {i} of {L} adds the raw tokens {raw}")
assert raw == [9, 10]                              # after the row, and after the end
""")

SCALE = Claim(
    id="P1.line12", paper="CCA", place="Algorithm 1, line 12", check=check_scaling, printed=scaled_outside,
    quote=r"\mathbf{Att}_i = \text{softmax}(\mathbf{Q}_i [\tilde{\mathbf{K}}_{\mathcal{T}_i}^G; "
          r"\tilde{\mathbf{K}}_{\mathcal{U}_i}^L]^T) / \sqrt{d}$", formula=True,
    reading="A row of weights is softmax(Q_i K^T) / sqrt(d): the division comes after the softmax.",
    verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.TYPOGRAPHY,
    corrected=scaled_inside, repair="softmax(Q_i K^T / sqrt(d)), as in Eq. 5", repaired=Strength.PROOF,
    proof="A softmax sums to 1, so dividing it by sqrt(d) makes every row sum to 1/sqrt(d): no weighted mean of the "
          "values. Eq. 5 has the division inside; line 12 may have lost its place in print or in our text.",
    example="""
from math import exp, sqrt

d, scores = 4, [0.0, 2.0]
weights = [exp(x) / sum(map(exp, scores)) / sqrt(d) for x in scores]
print("line 12:", weights, "sum", sum(weights))
assert abs(sum(weights) - 0.5) < 1e-12             # 1 / sqrt(d) instead of 1
""")

CLAIMS: tuple[Claim, ...] = (REACHABLE, FIRST, WINDOW, LEAST, SHORT, TERMS, SCALE)
