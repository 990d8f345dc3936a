"""LoCoCo: the formulas of docs/claims/lococo.md are what the code computes, and what it costs."""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
import torch

from cca_lab.theory import ledger
from cca_lab.theory.causality import lococo, masks
from cca_lab.theory.compression import convolution, memory
from tests.mutants import theory_lococo as wrong
from tests.theory import tex

CLAIMS = {claim.id: claim for claim in ledger.collect()}
SIZES = [*product(range(1, 7), repeat=2)]


@pytest.mark.parametrize("name, subject", wrong.ALSO_BROKEN,
                         ids=lambda x: getattr(x, "__name__", None))
def test_more_wrong_subjects_are_refuted(name, subject):
    assert not CLAIMS[name].check(subject).holds


# ---------------------------------------------------------------- the article's formulas

def leak(formula: str) -> Iterator[bool]:
    for scores, h in product(([2], [-1, 3], [0, 0, 1]), range(4)):
        weights = masks.mask_times([*scores, *[5] * h], [True] * len(scores) + [False] * h)
        yield sum(weights[len(scores):], Fraction(0)) == tex.value(
            formula, h=h, e=Fraction(2), s=scores, J=range(len(scores)))  # with base 2


def first(formula: str) -> Iterator[bool]:
    for M, B in SIZES:
        yield tex.value(formula, M=M, B=Fraction(B)) == lococo.first_columns(M, B)


def taps(formula: str) -> Iterator[bool]:
    """The width of the formula informs the first entry of all, and the next smaller does not."""
    def width(entries: int) -> int:
        return tex.value(formula, M=entries - 1, B=1)

    yield convolution.check_informed(width).holds
    yield not convolution.check_informed(lambda entries: width(entries) - 2).holds
    yield all(CLAIMS["LC.global"].corrected(n) == width(n) for n in range(2, 25))


def peak(formula: str) -> Iterator[bool]:
    for M, B in memory.SIZES:
        stated = CLAIMS["LC.peak"].corrected(M, B)
        yield tex.value(formula, M=M, B=B) == memory.most_at_once(M, B) == stated


def share(formula: str) -> Iterator[bool]:
    for M, n in product(range(1, 4), range(5)):
        held = memory.shares(memory.even(M, n + 1))  # the first step reads the token, n follow
        yield {row[M] for row in held} == {tex.value(formula, M=Fraction(M), n=n)}
        yield memory.share_after(n, M) == tex.value(formula, M=Fraction(M), n=n)


def ratio(formula: str) -> Iterator[bool]:
    for M, B in SIZES:
        counted = count_multiplications(M, B, kernel=5, head_dim=2)
        yield Fraction(*counted) == tex.value(formula, w=5, M=M, B=Fraction(B))


def mean(formula: str) -> Iterator[bool]:
    for weights in memory.streams():
        for slot in memory.shares(weights):
            T = len(slot)
            yield sum(slot) / T == tex.value(formula, T=Fraction(T), M=len(weights[0]))


FORMULAS = {"lococo-leak": leak, "lococo-first": first, "lococo-taps": taps, "lococo-peak": peak,
            "lococo-share": share, "lococo-ratio": ratio, "lococo-mean": mean}


@pytest.mark.parametrize("label", FORMULAS)
def test_a_formula_is_what_the_code_computes(label):
    seen = list(FORMULAS[label](tex.formula("lococo", label)))
    assert seen and all(seen)


@pytest.mark.parametrize(("label", "right", "slip"), wrong.FORMULAS, ids=lambda x: x)
def test_a_wrong_formula_is_seen(label, right, slip):
    formula = tex.formula("lococo", label)
    assert right in formula
    assert not all(FORMULAS[label](formula.replace(right, slip)))


def test_every_formula_of_the_article_is_checked():
    labels = re.findall(r"\$\$ \((lococo-[\w-]+)\)", tex.text("lococo"))
    assert sorted(labels) == sorted(FORMULAS)
    assert {label for label, *_ in wrong.FORMULAS} == FORMULAS.keys()


# ---------------------------------------------------------------- the compressor

def test_with_one_slot_the_first_token_always_stays():
    """So the smallest example for LC.evict has two slots."""
    assert {convolution.dropped(attention) for attention in convolution.histories(1)} == {1}
    assert {convolution.dropped(attention) for attention in convolution.histories(2)} == {1, 2}


@pytest.mark.parametrize(("count", "holds"), [(20, True), (22, False), (44, False)])
def test_equal_windows_begin_with_22_tokens(count, holds):
    """With fewer the padding tells the two tokens apart; eviction could then be imitated."""
    different = convolution.check_convolution(convolution.keys_and_values, count).numbers
    assert (different["different"] > 0) == holds


def test_the_convolution_equals_torch():
    channels = [[t % 5 - 2 for t in range(30)], [t % 3 for t in range(30)]]
    kernel = [[(tap * 7) % 5 - 2 for tap in range(21)], [(tap * 3) % 7 - 3 for tap in range(21)]]
    wanted = torch.conv1d(torch.tensor([channels]).float(), torch.tensor([kernel]).float(),
                          padding=10)[0, 0]
    assert [float(x) for x in convolution.convolution(channels, kernel)] == wanted.tolist()


# ---------------------------------------------------------------- memory

def test_random_weights_forget_at_the_rate_of_even_ones():
    """Dirichlet rows prefer no entry: the mean share follows the formula."""
    slots, tokens, draws = 4, 12, 4000
    torch.manual_seed(0)
    shares = torch.ones(draws, slots, 1, dtype=torch.float64)
    for _ in range(tokens - 1):
        rows = torch.distributions.Dirichlet(torch.ones(slots + 1, dtype=torch.float64)).sample(
            (draws, slots))
        shares = torch.cat([rows[..., 1:] @ shares, rows[..., :1]], dim=-1)
    found, error = shares.mean((0, 1)), 4 * shares.mean(1).std(0) / math.sqrt(draws)
    wanted = torch.tensor([float(memory.share_after(age, slots)) for age in range(tokens - 1)])
    assert ((found.flip(0)[:-1] - wanted).abs() < error.flip(0)[:-1]).all()


def test_half_of_a_share_is_left_after_m_ln_2_tokens():
    for slots in (32, 512, 4096):
        after, now = (memory.share_after(steps, slots)
                      for steps in (round(slots * math.log(2)), 0))
        assert after / now == pytest.approx(0.5, rel=1 / slots)


def test_segments_by_hand():
    """M = 3, B = 2: filled with one segment, compressed from the second on."""
    assert memory.run(3, 2, 3) == [(4, 0, 2), (8, 12, 3), (10, 15, 3)]
    assert memory.run(3, 2, None) == [(4, 0, 2), (8, 0, 4), (12, 0, 6)]


# ---------------------------------------------------------------- cost

class Counted(int):
    """An integer that counts the multiplications in which it takes part."""

    multiplications = 0

    def __mul__(self, other):
        Counted.multiplications += 1
        return Counted(int(self) * int(other))


def count_multiplications(slots: int, block: int, kernel: int, head_dim: int) -> tuple[int, int]:
    """The multiplications of Eq. 6 and of one block of attention, by running them."""
    entries = [[Counted(1)] * (2 * head_dim) for _ in range(slots + block)]
    pad = [[Counted(0)] * (2 * head_dim)] * (kernel // 2)
    padded = [*pad, *entries, *pad]
    Counted.multiplications = 0
    for _, position, tap in product(range(slots), range(slots + block), range(kernel)):
        sum(x * 1 for x in padded[position + tap])
    convolved, Counted.multiplications = Counted.multiplications, 0
    for _, entry in product(range(block), entries):
        sum(x * 1 for x in entry)  # q . k over head_dim, and weight times v over head_dim
    return convolved, Counted.multiplications


def test_the_closed_forms_count_the_multiplications():
    for sizes in ((1, 1, 1, 1), (2, 3, 5, 1), (3, 2, 3, 2)):
        slots, block, _, head_dim = sizes
        assert count_multiplications(*sizes) == (
            convolution.direct(*sizes),
            convolution.attention_multiplications(slots, block, head_dim))


def test_a_product_of_spectra_is_the_convolution():
    """`by_fourier` counts 2 d M products of n/2 + 1 complex numbers, entries padded by 20."""
    slots, channels, entries, kernel = 3, 4, 24, 21
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, channels, entries, generator=generator, dtype=torch.float64)
    taps = torch.randn(slots, channels, kernel, generator=generator, dtype=torch.float64)
    padded = entries + kernel - 1
    # (M, 2 d, n/2 + 1)
    products = torch.fft.rfft(x, n=padded) * torch.fft.rfft(taps.flip(-1), n=padded)
    assert products.numel() == slots * channels * (padded // 2 + 1)
    found = torch.fft.irfft(products.sum(1), n=padded)[:, kernel // 2:][:, :entries]
    torch.testing.assert_close(found, torch.conv1d(x, taps, padding=kernel // 2)[0], rtol=1e-12,
                               atol=1e-12)
