"""The claims of Theorem 3 and Lemma 3 on the Hessians of `conditioning`; those of its proof are in `proof`."""

from fractions import Fraction

from cca_lab.theory.claim import Claim, Strength, Verdict, Weight
from cca_lab.theory.conditioning.proof import CLAIMS as PROOF
from cca_lab.theory.conditioning.spectrum import (
    check_largest,
    check_second_difference,
    check_theorem,
    hessian,
    hessian_printed,
)

CLAIMS = (
    Claim(id="T3", paper="DGA", place="Theorem 3, Appendix A.3, Eq. 30",
          quote=(r"Consider each group size $|G_g| = m$ and $\lambda_{\min}(H) > 0$ , we have",
                 r"\kappa(\bar{H}) \le \kappa(H). \tag{30}"),
          reading="for the Hessians of Problems 1 and 2 by their variables, the weights, and groups of one size: "
                  "lambda_min(H) > 0 gives kappa(Hbar) <= kappa(H) [that hypothesis allows L <= d only]",
          printed=hessian, check=check_theorem, verdict=Verdict.HOLDS, strength=Strength.PROOF, formula=True,
          proof="The variables are the weights, so H = 2 V V^T, L x L, and lambda_min(H) > 0 means that V has full row "
                "rank: L <= d. P = sqrt(m) M^T has orthonormal columns and Hbar = P^T H P / m; by Poincare's "
                "separation theorem its eigenvalues lie in [lambda_min(H) / m, lambda_max(H) / m]; so lambda_min(Hbar) "
                "> 0 (Eq. 11) follows. On the simplex, where steps sum to 0, P maps steps to steps, and the same holds "
                "for the restricted Hessians if the V_j are affinely independent: L <= d + 1. The proof of A.3 is "
                "about another matrix: T3.proof; for L > d see T3.nonzero, for the paper's own use T3.align.",
          example="""import numpy as np

V = np.random.default_rng(0).normal(size=(8, 16))      # L = 8 tokens, d = 16; the rows are the values
H = 2 * V @ V.T                                        # by the 8 weights
M = np.kron(np.eye(4), [[0.5, 0.5]])                   # means of groups of two
before, after = np.linalg.cond(H), np.linalg.cond(2 * M @ V @ V.T @ M.T)
print("kappa", before, "becomes", after)
assert after <= before"""),
    Claim(id="T3.hessian", paper="DGA", place="Appendix A.3, Eq. 32",
          quote=r"then the Hessian matrix of the grouped objective is $$\bar{H} = 2\bar{\mathbf{V}}^{\top}"
                r"\bar{\mathbf{V}}",
          reading="with the rows Vbar_g of Vbar, k x d, 2 Vbar^T Vbar is the second derivative of |sum alphabar_g "
                  "Vbar_g - y|^2 by the group weights",
          printed=hessian_printed, check=check_second_difference, verdict=Verdict.FALSE,
          strength=Strength.COUNTEREXAMPLE, corrected=hessian,
          repair="2 Vbar Vbar^T, k x k (and 2 V V^T, L x L, for Problem 1): the variables are the weights",
          repaired=Strength.PROOF, weight=Weight.SLIP, formula=True,
          proof="|V^T alpha - y|^2 = alpha^T V V^T alpha - 2 y^T V^T alpha + |y|^2. 2 V^T V is d x d, as many rows as "
                "a value has components. Theorem 3 stands with the factors in the other order, its proof does not.",
          example="""import numpy as np

V = np.array([[1, 2], [3, 4], [5, 6]])                  # three group means, d = 2
f = lambda a: float(((a @ V - [1, 1]) ** 2).sum())      # three variables
unit = np.eye(3)
second = [[f(a + b) - f(a) - f(b) + f(0 * a) for b in unit] for a in unit]  # exact for a quadratic
print(np.array(second), "is not", 2 * V.T @ V)
assert np.array_equal(second, 2 * V @ V.T)"""),
    Claim(id="T3.lemma3", paper="DGA", place="Lemma 3, Eq. 38",
          quote=r"\lambda_{\max}(\bar{H}) \le \frac{\lambda_{\max}(H)}{m}",
          reading="lambda_max(Hbar) <= lambda_max(H) / m, for the matrices of the lemma and for the Hessians by the "
                  "weights",
          printed=lambda m: Fraction(1, m), check=check_largest, verdict=Verdict.HOLDS, strength=Strength.PROOF,
          formula=True,
          proof="|M V x|^2 <= |M|^2 |V x|^2 and |M|^2 = 1/m; the two Hessians share their nonzero eigenvalues, so it "
                "holds for both."),
    *PROOF,
)
