"""The labelled formulas of docs/claims, and those of the ledger, are what the code checks.

Each is turned into Python and evaluated: it must be the function that a claim's check judges, or
hold in the cases of that check and be attained in some. A changed formula must be noticed.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cca_lab.mechanisms import indices
from cca_lab.mechanisms.cca import groups
from cca_lab.theory import compression, cores, ledger
from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality import masks
from cca_lab.theory.conditioning import spectrum
from cca_lab.theory.cost import pairs as cost
from cca_lab.theory.noise import models, output, weight
from cca_lab.theory.reachability import depth
from cca_lab.theory.reachability.indices import exact_cover
from cca_lab.theory.sparsity import laws, meaning, theorem1
from tests.mutants import theory_cca, theory_dga, theory_forall, theory_lococo
from tests.theory import tex

Compared = Callable[[str], Iterator[bool]]
PAGES = ("cca", "dga", "lococo", "proved")
FORMULAS = {label: formula for page in PAGES for label, formula in tex.formulas(page).items()}
FAULTS = [fault for module in (theory_cca, theory_dga, theory_forall, theory_lococo)
          for fault in module.FORMULAS]


# ---------------------------------------------------------------- cca.md: i = L, rows from 1

ROWS = [*product(range(1, 26), range(1, 8), range(1, 7))]  # L, g, s


def letters(length: int, g: int, s: int) -> dict:
    """Return the article's letters for row i = L, or a text of L tokens."""
    j, k = exact_cover(length, g, s)
    return {"L": length, "i": length, "g": Fraction(g), "s": s, "N": length - s, "j": j, "k": k,
            "r": (length - s) % g, "m": Fraction(length, g), "w": length - k + 1,
            "C": groups.pairs(length, g, s)}


def equation(formula: str, single: bool = False) -> Iterator[bool]:
    """Compare the sides where L >= s or, for s = 1, where g divides L."""
    for length, g, s in ROWS:
        if (s == 1 and length % g == 0) if single else length >= s:
            yield tex.holds(formula, **letters(length, g, s))


def most_raw(formula: str) -> Iterator[bool]:
    for case in ROWS:
        yield tex.holds(formula, **letters(*case))
        yield tex.value(formula, **letters(*case)) == cores.most_raw(*case[1:])
        yield tex.value(formula, side=0, **letters(*case)) == min(case[2], case[0])


def entries(formula: str) -> Iterator[bool]:
    for length, g, s in ROWS:
        if length % g == 0:
            yield (tex.value(formula, **letters(length, g, s))
                   == length // g + cores.most_kept(g, s))


def lost(formula: str) -> Iterator[bool]:
    yield depth.check_depth(lambda L, w, a, n: tex.holds(formula, L=L, w=w, a=a, n=n)).holds
    for L, w, a, n in depth.CASES:
        yield tex.holds(formula, L=L, w=w, a=a, n=n) == depth.loses_some(L, w, a, n)


def every_group(formula: str) -> Iterator[bool]:
    for x in range(1, 60):
        yield tex.value(formula, x=x) == x**1.5 - cost.SLACK * x


def premise(formula: str) -> Iterator[bool]:
    """Compare the shares of full attention in a group of three tokens, with base 2."""
    for last, later in product(product((0, 1, 3), repeat=3), ((2, 0, 1, 0), (-1, 3, 0, 4))):
        row, moved = softmax(later), [b - a for a, b in zip(last, later, strict=False)]
        for t in range(3):
            share = tex.value(formula, varphi=softmax(last), delta=moved, U=range(3), t=t,
                              e=Fraction(2))
            yield share == row[t] / sum(row[:3])


# ---------------------------------------------------------------- dga.md

LAWS = [*laws.CASES[:40], *laws.ATTAINED[:10]]
# Two V with blocks [[a, b], [b, a]] in V V^T: means keep the larger, or the smaller eigenvalues.
SHARP = [np.linalg.cholesky(np.kron(np.diag([1.0, 0.0]), [[3, b], [b, 3]])
                            + np.kron(np.diag([0.0, 1.0]), [[5, 2 * b], [2 * b, 5]]))
         for b in (1, -1)]


def of_laws(at: Callable, points: bool, formula: str) -> Iterator[bool]:
    """Compare a formula about a law with a function of it, and of x; the relation must hold."""
    for law, rho in LAWS:
        def probability(event, law=law):
            return law.probability(
                lambda row: event(row, max(row), sum(row), [x / sum(row) for x in row]))

        for x in laws.points(law, rho) if points else [None]:
            names = {"P": probability, "L": law.length, "rho": rho, "J": range(law.length), "j": 0,
                     "x": x, "p": laws.p_sparse(law, rho)}
            yield tex.value(formula, **names) == at(law, rho, *[x] * points)
            yield tex.holds(formula, **names)


def markov(formula: str) -> Iterator[bool]:
    """The bound holds for tokens that are rarely large, and is P_sparse to 1 % for two of them."""
    small, rare = Fraction(1, 10**6), Fraction(1, 100)
    for length, rho in ((4, 1), (3, Fraction(2, 3)), (2, Fraction(3, 4)), (2, 1)):
        law = laws.iid("rarely large", {small: 1 - rare, 1: rare}, length)
        mean = {small: 1, 1: rare + (1 - rare) * small}  # of X / y, given X <= y
        bound = sum(chance * tex.value(formula, ("mu",), E=1, Y=max(row), mu=mean.get, L=length,
                                       rho=rho) for chance, row in law.outcomes)
        yield bound <= laws.p_sparse(law, rho)
    yield bound > Fraction(99, 100) * laws.p_sparse(law, rho)


def few(formula: str) -> Iterator[bool]:
    """Compare the tokens that 90 % of a row needs; a row whose others are alike needs as many."""
    for L, w in product((2, 4, 10, 100), (Fraction(2, 3), Fraction(3, 5))):
        yield meaning.k90(meaning.sink(L, w)) == tex.value(formula, w=w, L=L)
    generator = Random(0)
    for _ in range(200):
        others = generator.randint(1, 59)
        drawn = [1, *(generator.choice((0, 1, 1, 2, 9, 40)) for _ in range(others))]
        row = [Fraction(value, sum(drawn)) for value in drawn]
        if (w := max(row)) < meaning.NINE_TENTHS:
            yield meaning.k90(row) <= tex.value(formula, w=w, L=len(row))


WEIGHTS = [[Fraction(share, sum(shares)) for share in shares]
           for shares in ((1, 1), (1, 3), (1, 1, 1), (1, 2, 5), (1, 1, 1, 1), (1, 2, 3, 10))]


def lemma_2(formula: str) -> Iterator[bool]:
    for alpha in WEIGHTS:
        for j in range(len(alpha)):
            yield tex.value(formula, U=weight.lemma2, alpha=alpha, j=j, I=range(len(alpha))) == (
                (weight.gradient(alpha, j) ** 2).sum() / alpha[j] ** 2)


def masses(alpha, m: int, j: int) -> dict:
    return dict(U=weight.lemma2, A=models.group_masses(alpha, m), alpha=alpha, j=j, g=j // m,
                m=Fraction(m))


def factor(formula: str) -> Iterator[bool]:
    for (model, power), case in product(models.POWERS.items(), models.PLACES):
        yield tex.value(formula, p=power, **masses(*case)) == (
            models.exact_variance(model, *case) / models.full_variance(case[0], case[2]))


def constant(formula: str) -> Iterator[bool]:
    for case in models.PLACES:
        yield tex.holds(formula, **masses(*case))
        yield tex.value(formula, **masses(*case)) == models.constant(case[1])


QUARTERS = [Fraction(1, 4)] * 4
OUTPUTS = [  # values, weights: equal in each group of two; each other; equal means; mixed
    ([[1, 0], [1, 0], [0, 1], [0, 1]], QUARTERS), (np.eye(4, dtype=int).tolist(), QUARTERS),
    ([[1, 0], [0, 1], [1, 0], [0, 1]], QUARTERS),
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], [Fraction(1, 8)] * 2 + [Fraction(3, 8)] * 2)]


def output_identity(formula: str) -> Iterator[bool]:
    for (values, alpha), m in product(OUTPUTS, [2]):
        members = [range(start, start + m) for start in range(0, len(alpha), m)]
        for v in zip(*values, strict=True):
            column = [[x] for x in v]
            removed = (output.full_covariance(column, alpha)[0][0]
                       - output.grouped_covariance(column, alpha, m)[0][0])
            yield removed == tex.value(
                formula, A=models.group_masses(alpha, m), m=m, G=range(len(members)), v=v,
                v_bar=[Fraction(sum(v[j] for j in group), m) for group in members], members=members)


def eigenvalues(kind: spectrum.Hessian, sharp: list, formula: str) -> Iterator[bool]:
    """Check a chain of relations between eigenvalues, and where each relation is an equation."""
    def terms(values, m: int) -> Iterator[list]:
        H, H_bar = (spectrum.eigenvalues(kind(v)).astype(float)
                    for v in (values, spectrum.grouped(values, m)))
        for i in range(1, min(len(values) // m, values.shape[1]) + 1):
            names = dict(lambda_=lambda spectrum, i: spectrum[i - 1] / H[-1], i=i, m=m,
                         L=len(values), k=len(values) // m, H=H, H_bar=H_bar)
            yield [tex.value(formula, side=side, **names)
                   for side in range(len(tex.chain(formula)[::2]))]

    for _, values, m in spectrum.cases():
        for row in terms(values, m):
            yield all(b - a > -1e-9 for a, b in pairwise(row))
    for values, side in sharp:
        for row in list(terms(values, 2))[:2]:
            yield abs(row[side] - row[side + 1]) < 1e-9


def keys(length: int, focal: int, group: int) -> Fraction:
    """Return what a generated token of DGA reads: focal tokens, groups, an open group."""
    return focal + Fraction(length - focal, group) + group


def saving(formula: str) -> Iterator[bool]:
    """The keys of a token fall by a factor of less than the limit, which they reach to 1 %."""
    for m in (4, 16, 64):
        limit = tex.value(formula, gamma=Fraction(1, 10), m=m)
        saved = [L / keys(L, max(L // 10, 1024), m) for L in (2**p for p in range(13, 41))]
        yield max(saved) < limit and saved[-1] > Fraction(99, 100) * limit


def fewer(formula: str) -> Iterator[bool]:
    for length, focal, group in product(range(2, 30), range(30), range(2, 30)):
        if focal + group <= length:
            yield (tex.holds(formula, m=group, L=length, r=focal)
                   == (keys(length, focal, group) < length))


# ---------------------------------------------------------------- lococo.md

def leak(formula: str) -> Iterator[bool]:
    for scores, h in product(([2], [-1, 3], [0, 0, 1]), range(4)):
        weights = masks.mask_times([*scores, *[5] * h], [True] * len(scores) + [False] * h)
        yield sum(weights[len(scores):], Fraction(0)) == tex.value(
            formula, h=h, e=Fraction(2), s=scores, J=range(len(scores)))  # with base 2


def first(formula: str) -> Iterator[bool]:
    for M, B in [*product(range(1, 13), repeat=2), (128, 512), (512, 512), (128, 1)]:
        yield tex.value(formula, M=M, B=Fraction(B)) == indices.first_compression(M, B)


def taps(formula: str) -> Iterator[bool]:
    """The width of the formula informs the first entry of all, and the next smaller does not."""
    for entries in range(2, 25):
        units = [[[int(t == other) for other in range(entries)]] for t in range(entries)]
        width = tex.value(formula, M=entries - 1, B=1)
        for taps, enough in ((width, True), (width - 2, False)):
            seen = [compression.convolution(unit, [[1] * taps])[0] for unit in units]
            yield all(seen) == enough


def peak(formula: str) -> Iterator[bool]:
    for M, B in [*product((1, 2, 4, 8, 16), repeat=2), (512, 512), (128, 512), (128, 1)]:
        yield tex.value(formula, M=M, B=B) == compression.most_at_once(M, B)


def multiplications(run: Callable, *shapes: tuple[int, ...]) -> int:
    """Count the multiplications of a function of tensors, by PyTorch's counter."""
    with FlopCounterMode(display=False) as counter:
        run(*(torch.ones(shape) for shape in shapes))
    return counter.get_total_flops() // 2  # it counts additions as well


def ratio(formula: str) -> Iterator[bool]:
    w, d = 5, 3
    for M, B in product((1, 2, 5), repeat=2):
        conv = multiplications(partial(torch.conv1d, padding=w // 2), (1, 2 * d, M + B),
                               (M, 2 * d, w))
        attention = multiplications(lambda q, k, v: (q @ k) @ v, (B, d), (d, M + B), (M + B, d))
        yield conv == compression.direct(M, B, w, d)
        yield attention == compression.attention_multiplications(M, B, d)
        yield Fraction(conv, attention) == tex.value(formula, w=w, M=M, B=Fraction(B))


def mean(formula: str) -> Iterator[bool]:
    for steps, M, least in product(range(1, 7), range(1, 4), (-3, -1, 1)):
        numbers = Random(100 * steps + 10 * M + least)
        drawn = [[[max(0, numbers.randint(least, 3)) for _ in range(M)] + [1] for _ in range(M)]
                 for _ in range(steps)]
        weights = tuple([[Fraction(w, sum(row)) for w in row] for row in rows] for rows in drawn)
        for slot in compression.shares(weights):
            T = len(slot)
            yield sum(slot) / T == tex.value(formula, T=Fraction(T), M=len(weights[0]))


# ---------------------------------------------------------------- proved.md: rows from 0

CASES = [*product(range(1, 6), range(1, 6), range(12))]  # g, s, and i or L


def in_rows(wanted: Callable, side: int, formula: str) -> Iterator[bool]:
    """Compare a side with a function of i (or L), g and s; the relations must hold."""
    for g, s, i in CASES:
        names = dict(g=Fraction(g), s=s, i=i, L=i, functions=("n",),
                     n=lambda row, g=g, s=s: indices.core_count(row + 1, g, s))
        yield tex.value(formula, side=side, **names) == wanted(i, g, s)
        yield len(tex.chain(formula, ("n",))) == 1 or tex.holds(formula, **names)


def each(*compared: Compared) -> Compared:
    return lambda formula: (seen for one in compared for seen in one(formula))


def stretch(formula: str) -> Iterator[bool]:
    for m in range(1, 60):
        yield tex.value(formula, m=Fraction(m)) == indices.decode_span(m)


def slots(formula: str) -> Iterator[bool]:
    for B, M, n in CASES:
        yield tex.value(formula, B=B, M=M, n=n) == indices.held_columns(n, B, M)


def twice(formula: str) -> Iterator[bool]:
    for w, m, more in CASES:
        i = w - 1 + more  # the window is full
        r = (i + 1) % m
        yield tex.value(formula, w=w, r=r) == indices.read_twice(i, w, m)
        yield tex.value(formula, w=r, r=w) == indices.unread(i, w, m)


COMPARED: dict[str, Compared] = {
    "cca-cores": equation, "cca-first-raw": equation, "cca-window": equation,
    "cca-most-raw": most_raw, "cca-depth": lost, "cca-premise": premise, "cca-pairs": equation,
    "cca-entries": entries,
    "cca-linear": partial(equation, single=True), "cca-every-g": every_group,
    "dga-two-term": partial(of_laws, theorem1.two_term_at, True),
    "dga-union": partial(of_laws, theorem1.union_bound, True),
    "dga-counting": partial(of_laws, theorem1.counting_bound, False), "dga-markov": markov,
    "dga-few": few,
    "dga-lemma-2": lemma_2, "dga-factor": factor, "dga-constant": constant,
    "dga-output": output_identity,
    "dga-separation": partial(eigenvalues, spectrum.hessian, [(SHARP[0], 1), (SHARP[1], 0)]),
    "dga-reversed": partial(eigenvalues, spectrum.hessian_printed,
                            [(np.repeat(np.diag([1.0, 3.0]), 2, axis=0), 0)]),
    "dga-saving": saving, "dga-fewer": fewer,
    "lococo-leak": leak, "lococo-first": first, "lococo-taps": taps, "lococo-peak": peak,
    "lococo-ratio": ratio, "lococo-mean": mean,
    "proved-cores": partial(in_rows, lambda i, g, s: indices.core_count(i + 1, g, s), -1),
    "proved-entries": each(
        partial(in_rows, lambda i, g, s: indices.cca_entries(i, g, s) - i // g, 0),
        partial(in_rows, lambda i, g, s: cores.most_kept(g, s), -1)),
    "proved-stretch": stretch, "proved-slots": slots, "proved-twice": twice,
}
IN_LEDGER = {"T1": "dga-two-term", "T1.eq20": "dga-union", "T1.eq19": "dga-counting",
             "T2": "dga-factor"}


def test_every_labelled_formula_is_compared_and_has_a_fault():
    assert FORMULAS.keys() == COMPARED.keys() == {label for label, *_ in FAULTS}


@pytest.mark.parametrize("label", COMPARED)
def test_a_formula_is_what_the_code_computes(label):
    seen = list(COMPARED[label](FORMULAS[label]))
    assert seen and all(seen)


@pytest.mark.parametrize(("label", "right", "changed"), FAULTS)
def test_a_changed_formula_is_noticed(label, right, changed):
    assert right in FORMULAS[label]
    assert not all(COMPARED[label](FORMULAS[label].replace(right, changed)))


@pytest.mark.parametrize("name", IN_LEDGER)
def test_a_formula_of_the_ledger_is_the_article_s(name):
    repair = ledger.WORDS[name]["repair"]
    assert all(COMPARED[IN_LEDGER[name]](tex.plain(ledger.one_line(repair))))


@pytest.mark.parametrize(("name", "said", "label", "formula"), [
    ("P1.alg1", "k = j g + 1, with", "cca-first-raw", "k = j g + 1"),
    ("P1c.linear", "L (m + L/m) / 2 pairs for s = 1", "cca-linear", "C = L (m + L/m)/2"),
    ("P1c.every-g", "x^(3/2) - (9/8) x, x =", "cca-every-g", r"x^{3/2} - \frac{9}{8} x")])
def test_what_the_ledger_says_in_words_is_the_formula_of_the_article(name, said, label, formula):
    assert said in ledger.one_line(ledger.WORDS[name]["repair"])
    assert formula == FORMULAS[label]


def test_what_theorem_2_says_in_words_is_what_the_code_checks():
    """The powers of m by noise, the constant, and the hypothesis, which is needed."""
    article, repair = tex.text("dga"), ledger.one_line(ledger.WORDS["T2"]["repair"])
    powers = {"mean": ("if each token has its own noise", "for independent noise on the tokens"),
              "shared": ("if all tokens of", "if the noise is assumed divided by m"),
              "pooled": ("if the logit of a group", "for noise on the pooled logit")}
    for model, (words, plain) in powers.items():
        assert f"$p = {models.POWERS[model]}$ {words}" in article
        assert f"{models.POWERS[model]} {plain}" in repair
    assert "under 2m / (m + 1), and under no smaller number" in repair
    for text in ("*Let the weights be constant within groups", "for weights that are constant"):
        assert text in article + repair


def test_the_lower_bound_on_pairs_is_sharp():
    """9/8 is needed and enough."""
    assert all(map(cost.below_every_group, range(60)))
    x = 4 * 2**20 + 2**10
    assert (cost.older_pairs(x - 1, 2**11) + Fraction(112, 100) * x)**2 < x**3
