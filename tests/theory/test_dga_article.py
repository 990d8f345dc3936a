"""The formulas of docs/claims/dga.md, and the ledger's in plain letters, are what the code checks.

Each is turned into Python and evaluated: it must equal the function that judges the claim, or hold
of random cases and be attained in others.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from cca_lab.theory import ledger
from cca_lab.theory.conditioning import spectrum
from cca_lab.theory.cost import dga
from cca_lab.theory.noise import models, output, weight
from cca_lab.theory.sparsity import laws, meaning, theorem1
from tests.mutants import theory_dga as wrong
from tests.theory import tex

LAWS = [*laws.CASES[:40], *laws.ATTAINED[:10]]
# Two V with blocks [[a, b], [b, a]] in V V^T: means keep the larger, or the smaller eigenvalues.
SHARP = [np.linalg.cholesky(np.kron(np.diag([1.0, 0.0]), [[3, b], [b, 3]])
                            + np.kron(np.diag([0.0, 1.0]), [[5, 2 * b], [2 * b, 5]]))
         for b in (1, -1)]


def probabilities(law: laws.FiniteLaw, rho: Fraction, **names) -> dict:
    """Return the names of a formula about a law; P is its probability."""
    def probability(event):
        return law.probability(lambda row: event(row, sum(row), [x / sum(row) for x in row]))

    return names | {"P": probability, "L": law.length, "rho": rho, "J": range(law.length),
                    "P_sparse": laws.p_sparse(law, rho)}


def of_x(at: theorem1.Objective, j: int) -> Callable[[str], Iterator[bool]]:
    """Compare a formula with a function of law, rho and x; the relation must hold as well."""
    def found(formula: str) -> Iterator[bool]:
        for law, rho in LAWS:
            for x in laws.points(law, rho):
                names = probabilities(law, rho, x=x, j=j)
                yield tex.value(formula, **names) == at(law, rho, x)
                yield tex.holds(formula, **names)

    return found


def counting(formula: str) -> Iterator[bool]:
    for law, rho in LAWS:
        names = probabilities(law, rho)
        yield tex.value(formula, **names) == theorem1.counting_bound(law, rho)
        yield tex.holds(formula, **names)


def few(formula: str) -> Iterator[bool]:
    for length in (2, 7, 10, 1000):
        for w in (Fraction(1, 2), Fraction(101, 1000), Fraction(2, 3)):
            yield tex.value(formula, w=w, L=length) == meaning.most_tokens(length, Fraction(1), w)


def lemma_2(formula: str) -> Iterator[bool]:
    for alpha in weight.CASES:
        for j in range(len(alpha)):
            yield tex.value(formula, U=weight.lemma2, alpha=alpha, j=j, I=range(len(alpha))) == (
                weight.variance_terms(alpha, j)[0] / alpha[j] ** 2)


def factor(formula: str) -> Iterator[bool]:
    for model, power in models.POWERS.items():
        for alpha, m, j in models.PLACES:
            yield tex.value(formula, U=weight.lemma2, A=models.group_masses(alpha, m), alpha=alpha,
                            j=j, g=j // m, m=m, p=power) == (
                models.exact_variance(model, alpha, m, j) / models.full_variance(alpha, j))


def constant(formula: str) -> Iterator[bool]:
    for alpha, m, j in models.PLACES:
        names = dict(U=weight.lemma2, A=models.group_masses(alpha, m), alpha=alpha, j=j, g=j // m,
                     m=Fraction(m))
        yield tex.holds(formula, **names)
        yield tex.value(formula, **names) == models.constant(m)


def output_identity(formula: str) -> Iterator[bool]:
    for values, alpha, m in (output.EQUAL, *output.APART):
        groups = range(len(alpha) // m)
        members = [range(g * m, g * m + m) for g in groups]
        for v in zip(*values, strict=True):
            column = [[x] for x in v]
            wanted = (output.full_covariance(column, alpha)[0][0]
                      - output.grouped_covariance(column, alpha, m)[0][0])
            yield wanted == tex.value(
                formula, A=models.group_masses(alpha, m), m=m, G=groups, v=v, members=members,
                v_bar=[Fraction(sum(v[j] for j in group), m) for group in members])


def pooled(formula: str) -> Iterator[bool]:
    for a in models.RANDOM:
        pool = models.softmax(np.array(a))
        got = tex.value(formula, P=pool, a=a, l=pool @ a, J=range(len(a)), functions=())
        yield got == pytest.approx(models.pooled_logit_factor(a))


def eigenvalues(kind: spectrum.Hessian, sharp) -> Callable[[str], Iterator[bool]]:
    """Check a chain of relations between eigenvalues, and where each relation is an equation."""
    def found(formula: str) -> Iterator[bool]:
        def numbers(values, m: int, i: int) -> dict:
            matrices = (kind(v) for v in (values, spectrum.grouped(values, m)))
            H, H_bar = (spectrum.eigenvalues(matrix).astype(float) for matrix in matrices)
            slack = 1e-9 * H[-1]
            return dict(lambda_=lambda spectrum, i: spectrum[i - 1], i=i, m=m, k=len(values) // m,
                        L=len(values), H=H, H_bar=H_bar), slack

        for _, values, m in spectrum.cases():
            for i in range(1, min(len(values) // m, values.shape[1]) + 1):
                names, slack = numbers(values, m, i)
                terms = [tex.value(formula, FUNCTIONS, side, **names)
                         for side in range(len(tex.sides(formula, FUNCTIONS)))]
                yield terms == sorted(terms) or all(
                    b - a > -slack for a, b in zip(terms, terms[1:], strict=False))
        for values, side in sharp:
            for i in (1, 2):
                names, slack = numbers(values, 2, i)
                a, b = (tex.value(formula, FUNCTIONS, n, **names) for n in (side, side + 1))
                yield abs(a - b) <= slack

    return found


def saving(formula: str) -> Iterator[bool]:
    for m in (4, 16, 64):
        yield tex.value(formula, gamma=dga.GAMMA, m=m) == dga.fewest(m)


def fewer(formula: str) -> Iterator[bool]:
    for length, focal, group in product(range(2, 30), range(30), range(2, 30)):
        if focal + group <= length:
            yield (tex.holds(formula, m=group, L=length, r=focal)
                   == (dga.keys(length, focal, group) < length))


FUNCTIONS = ("lambda_", "lambda")
LABELS: dict[str, tuple[str, Callable[[str], Iterator[bool]]]] = {  # the claim, and what compares
    "dga-two-term": ("T1", of_x(theorem1.two_term_at, 0)),
    "dga-union": ("T1.eq20", of_x(theorem1.union_bound, 0)),
    "dga-counting": ("T1.eq19", counting), "dga-few": ("T1.few", few),
    "dga-lemma-2": ("", lemma_2), "dga-factor": ("T2", factor), "dga-constant": ("", constant),
    "dga-output": ("T2.output", output_identity), "dga-pooled": ("T2.eq14", pooled),
    "dga-separation": ("", eigenvalues(spectrum.hessian, [(SHARP[0], 1), (SHARP[1], 0)])),
    "dga-reversed": ("T3.lemma4", eigenvalues(
        spectrum.hessian_printed, [(np.repeat(np.diag([1.0, 3.0]), 2, axis=0), 0)])),
    "dga-saving": ("D1.rate", saving), "dga-fewer": ("", fewer),
}


@pytest.mark.parametrize("label", LABELS)
def test_a_formula_of_the_article_and_of_the_ledger_is_what_the_code_checks(label):
    claim, compared = LABELS[label]
    assert all(compared(tex.formula("dga", label)))
    if claim:
        repair = ledger.words()[claim]["repair"]
        assert all(compared(tex.plain(ledger.one_line(repair))))


@pytest.mark.parametrize(("label", "right", "changed"), wrong.FORMULAS)
def test_a_changed_formula_is_noticed(label, right, changed):
    formula = tex.formula("dga", label)
    assert right in formula
    assert not all(LABELS[label][1](formula.replace(right, changed)))


def test_what_theorem_2_says_in_words_is_what_the_code_checks():
    """The powers of m by noise, the constant, and the hypothesis, which is needed."""
    article, repair = tex.text("dga"), ledger.one_line(ledger.words()["T2"]["repair"])
    powers = {"mean": ("if each token has its own noise", "for independent noise on the tokens"),
              "shared": ("if all tokens of", "if the noise is assumed divided by m"),
              "pooled": ("if the logit of a group", "for noise on the pooled logit")}
    for model, (words, plain) in powers.items():
        assert f"$p = {models.POWERS[model]}$ {words}" in article
        assert f"{models.POWERS[model]} {plain}" in repair
    assert "under 2m / (m + 1), and under no smaller number" in repair
    assert "*Let the weights be constant within groups" in article
    assert "for weights that are constant within groups" in repair
    alpha, m = output.UNEQUAL[1:]
    left = models.exact_variance("weights", alpha, m, 1) / models.full_variance(alpha, 1)
    assert left > 300 * models.constant(m) / m


@pytest.mark.parametrize("name", [*wrong.WEAKER, *wrong.ALSO_BROKEN])
def test_a_weaker_statement_is_refused(name):
    claim, subject = (wrong.WEAKER | wrong.ALSO_BROKEN)[name]
    assert not ledger.subjects()[claim].check(subject).holds


def test_each_formula_has_a_planted_fault():
    assert {label for label, _, _ in wrong.FORMULAS} == set(LABELS)
