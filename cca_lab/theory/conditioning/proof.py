"""The proof of Theorem 3 (DGA A.3): zero eigenvalues that are left out, and what that does to the theorem.

Lemma 4 bounds lambda_min(2 V^T M^T M V) by taking 1/m for lambda_min(M^T M). M^T M is L x L of rank k < L: its smallest
eigenvalue is 0, and 1/m is the only other one. The paper says that zero eigenvalues "may not actually mean much"; so
the theorem is also judged for kappa_+, the largest over the smallest nonzero eigenvalue, which 2 V V^T and 2 V^T V
share, and which is what would count for L > d.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.conditioning.spectrum import (
    SLACK,
    ZERO,
    Array,
    cases,
    check_rayleigh,
    check_smallest,
    check_theorem,
    condition_number,
    constant_in_groups,
    eigenvalues,
    grouped,
    hessian,
    hessian_printed,
    smallest_counterexample,
)


def nonzero_condition(matrix: Array) -> Any:
    """Return kappa_+: the largest over the smallest nonzero eigenvalue; exact for a diagonal matrix of Fractions."""
    values = eigenvalues(matrix)
    return values[-1] / min(value for value in values if value > ZERO * values[-1])


def never_rises(values: Array, m: int) -> bool:
    """Theorem 3 for kappa_+, whatever V is."""
    return True


def full_rank_or_constant(values: Array, m: int) -> bool:
    """Whether V has full row rank, so that there are no zero eigenvalues, or is constant in every group."""
    constant = all(constant_in_groups(column, m) for column in values.T)
    return constant or condition_number(hessian(values)) < float("inf")


# ---------------------------------------------------------------- checks

def nonzero_cases() -> Iterator[tuple[str, Array, int]]:
    """Yield (name, V, m): a V of integers, a V that is constant in groups, and the cases of `conditioning`."""
    yield "V = (1, 1), (1, 0), (1, 1), (1, -2), m = 2", smallest_counterexample(Fraction(1, 2)), 2
    yield "V constant in groups of 4", np.repeat(np.random.default_rng(3).normal(size=(8, 4)), 4, axis=0), 4
    yield from cases()


def check_nonzero(promises: Callable[[Array, int], bool]) -> Finding:
    """Judge where kappa_+(Hbar) <= kappa_+(H) is promised, for 2 V^T V and for 2 V V^T."""
    kept, wrong, rises = 0, "", []
    for name, values, m in nonzero_cases():
        before, after = (nonzero_condition(hessian_printed(v)) for v in (values, grouped(values, m)))
        others = [float(nonzero_condition(hessian(v))) for v in (values, grouped(values, m))]
        if not np.allclose([float(before), float(after)], others, rtol=1e-6):
            return Finding(False, f"{name}: the two Hessians differ in their nonzero eigenvalues")
        rose = after > before * (1 + SLACK)
        if "Gaussian" in name and len(values) > values.shape[1]:
            rises.append(rose)
        if promises(values, m):
            kept += 1
            if rose and not wrong:
                wrong = f"{name}: kappa over the nonzero eigenvalues {before} becomes {after}, for both matrices"
    if wrong:
        return Finding(False, f"{wrong}; it rises for {sum(rises)} of {len(rises)} Gaussian V with L > d",
                       {"risen": sum(rises), "gaussian": len(rises)})
    return Finding(kept > 0, f"it does not rise in the {kept} cases that are covered", {"cases": kept})


SMALLEST = """import numpy as np

V = np.eye(2)                                # L = d = m = 2: one group of both tokens
M = np.array([[0.5, 0.5]])
H, grouped = 2 * V.T @ V, 2 * V.T @ M.T @ M @ V
before, after = np.linalg.eigvalsh(H), np.linalg.eigvalsh(grouped)
print("eigenvalues", before, "become", after)
"""

CLAIMS = (
    Claim(id="T3.proof", paper="DGA", place="Appendix A.3, Eq. 35; Appendix A.3, Eq. 36; Lemma 3",
          quote=(r"\bar{H} = 2\bar{\mathbf{V}}^{\top}\bar{\mathbf{V}} = 2\mathbf{V}^{\top}M^{\top}M\mathbf{V}",
                 r"\frac{\lambda_{\max}(\bar{H})}{\lambda_{\min}(\bar{H})} \le "
                 r"\frac{\lambda_{\max}(H)}{\lambda_{\min}(H)}", r"$H = 2\mathbf{V}^{\top}\mathbf{V}$"),
          reading="kappa(2 Vbar^T Vbar) <= kappa(2 V^T V) for groups of one size, if lambda_min(H) > 0 [and even if "
                  "lambda_min(Hbar) > 0 as well, as in Eq. 11]",
          printed=hessian_printed, check=check_theorem, verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE,
          corrected=hessian, repair="Theorem 3 itself holds, for 2 V V^T; see T3", repaired=Strength.PROOF,
          weight=Weight.SUBSTANCE, formula=True,
          proof="V = I, L = d = m = 2: 2 V^T V = 2 I, and 2 Vbar^T Vbar has the eigenvalues 1 and 0, which Eq. 30's "
                "hypothesis allows. 4 x 2: V = (1, 1), (1, -1 + 2e), (1, 1), (1, -1 - 2e), m = 2: V^T V = "
                "diag(4, 4 + 8 e^2), Vbar^T Vbar = diag(2, 2 e^2), so kappa 1 + 2 e^2 becomes 1 / e^2 for every e in "
                "(0, 1), by sympy with e as a symbol, and that is more for e^2 < 1/2; here both matrices are positive "
                "definite. The bound fails in Lemma 4.",
          example=SMALLEST + """assert before[1] / before[0] == 1 and abs(after[0]) < 1e-15"""),
    Claim(id="T3.lemma4", paper="DGA", place="Lemma 4, Eq. 45",
          quote=r"\lambda_{\min}(\bar{H}) \ge \frac{\lambda_{\min}(H)}{m}",
          reading="lambda_min(2 V^T M^T M V) >= lambda_min(2 V^T V) / m",
          printed=hessian_printed, check=check_smallest, verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE,
          corrected=hessian, repair="true for 2 V V^T and 2 M V V^T M^T; for the lemma's matrices only "
                                    "lambda_min(Hbar) >= 0",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE, root="T3.proof", formula=True,
          proof="V = I, L = d = m = 2: lambda_min(Hbar) = 0, lambda_min(H) / m = 1. Where both are positive: the 4 x 2 "
                "example with e = 1/10 has 1/25 against 4. For 2 V V^T: b^T Hbar b = (P b)^T H (P b) / m >= "
                "lambda_min(H) |b|^2 / m.",
          example=SMALLEST + """assert after[0] < before[0] / 2"""),
    Claim(id="T3.eq49", paper="DGA", place="Appendix A.3, Eq. 49",
          quote=r"Based on the analyses in the eigenvalues of $M^{\top}M$ in Lemma 3, we have "
                r"$\lambda_{\min}(M^{\top}M) = \frac{1}{m}$",
          reading="z^T M^T M z >= (1/m) z^T z for every z = V x [the smallest eigenvalue in Eqs. 46-49 may be the "
                  "smallest nonzero one]",
          printed=lambda z, m: Fraction(1, m), check=check_rayleigh, verdict=Verdict.FALSE,
          strength=Strength.COUNTEREXAMPLE, corrected=lambda z, m: Fraction(int(constant_in_groups(z, m)), m),
          repair="0 is the bound for z in general; 1/m only for z constant in every group", repaired=Strength.PROOF,
          weight=Weight.SUBSTANCE, root="T3.proof", formula=True,
          proof="M^T M is L x L of rank k < L, so lambda_min = 0: M z = 0 for z = (1, -1), m = 2. Leaving zero "
                "eigenvalues out needs V x in the row space of M, that is V x constant in groups.",
          example="""from fractions import Fraction

m, z = 2, (1, -1)
mean = Fraction(sum(z), m)                              # M z
print("|M z|^2 =", mean ** 2, " |z|^2 / m =", Fraction(sum(x * x for x in z), m))
assert mean ** 2 < Fraction(sum(x * x for x in z), m)"""),
    Claim(id="T3.nonzero", paper="DGA", place="Appendix A.3, Eq. 49",
          quote=r"Here, we focus on the non-zero eigenvalues of $\mathbf{V}^{\top}M^{\top}M\mathbf{V}$ since the zero "
                "eigenvalues may not actually mean much.",
          reading="Theorem 3 holds, also for L > d, with the nonzero eigenvalues only [kappa then is the same for 2 "
                  "V^T V and 2 V V^T]",
          printed=never_rises, check=check_nonzero, verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE,
          corrected=full_rank_or_constant,
          repair="it does not rise where V has full row rank (L <= d), or is constant in every group; else it can rise "
                 "without bound",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE, root="T3.proof", formula=True,
          proof="V = (1, 1), (1, 0), (1, 1), (1, -2), m = 2: V^T V = diag(4, 6), Vbar^T Vbar = diag(2, 1/2), so 3/2 "
                "becomes 4; with -1 + 2e and -1 - 2e for 0 and -2, 1 + 2 e^2 becomes 1 / e^2. No zero eigenvalue is "
                "lost: a small one appears. Gaussian V with y = L / d has kappa near ((1 + sqrt y) / (1 - sqrt y))^2, "
                "grouped y / m, so for L > d it rises where m < y^2. Constant in groups: V^T V = m Vbar^T Vbar.",
          example="""V = [(1, 1), (1, 0), (1, 1), (1, -2)]              # four tokens, groups of two
means = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in (V[:2], V[2:])]
def gram(rows):                                       # V^T V
    return [[sum(r[i] * r[j] for r in rows) for j in (0, 1)] for i in (0, 1)]
print(gram(V), "becomes", gram(means))
assert gram(V) == [[4, 0], [0, 6]] and gram(means) == [[2, 0], [0, 0.5]]   # 6/4 becomes 2/0.5"""),
)
