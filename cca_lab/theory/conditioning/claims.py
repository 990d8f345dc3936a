"""The claims of Theorem 3 and Lemmas 3-4 on the Hessians of `conditioning`."""

from fractions import Fraction

from cca_lab.theory.claim import Claim, Strength, Verdict
from cca_lab.theory.conditioning import (
    check_largest,
    check_rayleigh,
    check_second_difference,
    check_smallest,
    check_theorem,
    constant_in_groups,
    hessian,
    hessian_printed,
)

CLAIMS = (
    Claim(id="T3.hessian", paper="DGA", place="Eq. 32", statement="the Hessian of |V^T alpha - y|^2 is 2 V^T V",
          printed=hessian_printed, check=check_second_difference, verdict=Verdict.FALSE, corrected=hessian,
          repair="2 V V^T, L x L (grouped: 2 Vbar Vbar^T, k x k): the variable is alpha",
          strength=Strength.EXACT,
          proof="|V^T alpha - y|^2 = alpha^T V V^T alpha - 2 y^T V^T alpha + |y|^2. 2 V^T V is d x d, as many rows as "
                "a value has components."),
    Claim(id="T3", paper="DGA", place="Theorem 3, Eqs. 11 and 30",
          statement="kappa(Hbar) <= kappa(H) for the Hessians of Problems 1 and 2, groups of m, if lambda_min(H) > 0",
          printed=hessian, check=check_theorem, verdict=Verdict.HOLDS, corrected=None, repair="",
          strength=Strength.SPOT,
          proof="The variables are alpha, so H = 2 V V^T, and lambda_min(H) > 0 means L <= d. P = sqrt(m) M^T has "
                "orthonormal columns and Hbar = P^T H P / m; by Poincare's separation theorem its eigenvalues lie in "
                "[lambda_min(H) / m, lambda_max(H) / m]. The proof of A.3 is about another matrix: T3.proof."),
    Claim(id="T3.proof", paper="DGA", place="A.3, Eqs. 32, 35-37",
          statement="kappa(Hbar) <= kappa(H) for H = 2 V^T V, if lambda_min > 0 for both",
          printed=hessian_printed, check=check_theorem, verdict=Verdict.FALSE, corrected=hessian,
          repair="Theorem 3 itself holds, for 2 V V^T; see T3",
          strength=Strength.SPOT,
          proof="4 x 2: V = (1, 1), (1, -1 + 2e), (1, 1), (1, -1 - 2e), m = 2: V^T V = diag(4, 4 + 8 e^2), Vbar^T Vbar "
                "= diag(2, 2 e^2), so kappa 1 + 2 e^2 becomes 1 / e^2. The two matrices share their nonzero "
                "eigenvalues, so they differ where L > d: there 2 V V^T is singular, and 2 V^T V need not be."),
    Claim(id="T3.lemma3", paper="DGA", place="Lemma 3, Eq. 38", statement="lambda_max(Hbar) <= lambda_max(H) / m",
          printed=lambda m: Fraction(1, m), check=check_largest, verdict=Verdict.HOLDS, corrected=None, repair="",
          strength=Strength.SPOT,
          proof="|M V x|^2 <= |M|^2 |V x|^2 and |M|^2 = 1/m; the two Hessians share their nonzero eigenvalues, so it "
                "holds for both."),
    Claim(id="T3.lemma4", paper="DGA", place="Lemma 4, Eq. 45", statement="lambda_min(Hbar) >= lambda_min(H) / m",
          printed=hessian_printed, check=check_smallest, verdict=Verdict.FALSE, corrected=hessian,
          repair="true for 2 V V^T; false for 2 V^T V",
          strength=Strength.SPOT,
          proof="The 4 x 2 example with e = 1/10: lambda_min(Hbar) = 0.04, lambda_min(H) / m = 4 (both with Eq. 35's "
                "factor 2). For 2 V V^T: b^T Hbar b = |P b|_H^2 / m >= lambda_min(H) |b|^2 / m."),
    Claim(id="T3.eq49", paper="DGA", place="Eqs. 46-49 and the line below",
          statement="z^T M^T M z >= (1/m) z^T z for z = V x, as zero eigenvalues may be left out",
          printed=lambda z, m: Fraction(1, m), check=check_rayleigh, verdict=Verdict.FALSE,
          corrected=lambda z, m: Fraction(int(constant_in_groups(z, m)), m),
          repair="0 is the bound for z in general; 1/m only for z constant in every group",
          strength=Strength.EXACT,
          proof="M^T M is L x L of rank k < L, so lambda_min = 0: M z = 0 for z = (1, -1), m = 2. Leaving zero "
                "eigenvalues out needs V x in the row space of M, that is V constant in groups."),
)
