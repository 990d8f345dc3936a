"""LoCoCo's compressor: eviction inside Eq. 4 and outside Eqs. 6-7, what is kept, what it costs."""

import math
from fractions import Fraction
from itertools import product

import pytest
import torch

from cca_lab.theory import ledger
from cca_lab.theory.compression import convolution as compression
from cca_lab.theory.compression import memory
from tests.mutants import theory_compression as wrong

CLAIMS = {claim.id: claim for claim in ledger.collect()}


@pytest.mark.parametrize("name, subject", wrong.ALSO_BROKEN,
                         ids=lambda x: getattr(x, "__name__", str(x)[:9]))
def test_more_wrong_subjects_are_refuted(name, subject):
    assert not CLAIMS[name].check(subject).holds


@pytest.mark.parametrize("rows", wrong.WRONG_ROWS, ids=lambda rows: rows.__name__)
def test_wrong_rows_do_not_keep_what_eviction_keeps(rows):
    assert compression.keeps_what_eviction_keeps(compression.one_hot_rows).holds
    assert not compression.keeps_what_eviction_keeps(rows).holds


def test_one_hot_rows_by_hand():
    scores = [Fraction(3), Fraction(1), Fraction(2)]
    assert compression.one_hot_rows(scores) == [[1, 0, 0], [0, 0, 1]]
    assert compression.one_hot_rows([Fraction(1), Fraction(1)]) == [[0, 1]]
    assert compression.mix(compression.one_hot_rows(scores),
                           [Fraction(7), Fraction(8), Fraction(9)]) == [7, 9]


def test_with_one_slot_the_first_token_always_stays():
    """So the smallest example for LC.evict has two slots."""
    for attention in compression.histories(1):
        scores = compression.accumulated(attention)
        assert scores[0] > scores[1] and sum(scores) == 2
    dropped = {min(range(3), key=compression.accumulated(attention).__getitem__)
               for attention in compression.histories(2)}
    assert dropped == {1, 2}


def test_equal_windows_get_equal_weights_under_any_kernel():
    found = compression.check_convolution(compression.keys_and_values).numbers
    assert found["different"] == 0 and found["kernels"] == compression.KERNELS
    assert compression.check_convolution(compression.keys_values_scores).numbers["different"] > 0


def test_relu_convolution_equals_torch():
    channels = [[Fraction(t % 5 - 2) for t in range(30)], [Fraction(t % 3) for t in range(30)]]
    kernel = [[(tap * 7) % 5 - 2 for tap in range(21)], [(tap * 3) % 7 - 3 for tap in range(21)]]
    wanted = torch.conv1d(torch.tensor([[list(map(float, c)) for c in channels]])[0],
                          torch.tensor([kernel]).float(), padding=10).relu()[0]
    assert [float(x) for x in compression.relu_convolution(channels, kernel)] == wanted.tolist()


def test_shares_follow_the_recurrence_and_add_up_to_at_most_one():
    for slots in range(1, 7):
        mean = Fraction(1, slots + 1)
        slot_shares = [mean] * slots
        for steps in range(60):
            assert compression.share_after(steps, slots) == slot_shares[0]
            slot_shares = [sum(slot_shares, Fraction(0)) * mean] * slots
        assert sum(compression.share_after(steps, slots) for steps in range(60)) < 1


def test_random_weights_forget_at_the_predicted_rate_and_shares_are_conserved():
    """Dirichlet rows: the mean share follows the formula, and every slot sums to 1."""
    slots, tokens, draws = 4, 12, 4000
    torch.manual_seed(0)
    shares = torch.ones(draws, slots, 1, dtype=torch.float64)
    for _ in range(tokens - 1):
        rows = torch.distributions.Dirichlet(torch.ones(slots + 1, dtype=torch.float64)).sample(
            (draws, slots))
        shares = torch.cat([rows[..., 1:] @ shares, rows[..., :1]], dim=-1)
    assert torch.allclose(shares.sum(-1), torch.ones(draws, slots, dtype=torch.float64))
    mean, error = shares.mean((0, 1)), 4 * shares.mean(1).std(0) / math.sqrt(draws)
    wanted = torch.tensor([float(compression.share_after(age, slots)) for age in range(tokens - 1)])
    assert ((mean.flip(0)[:-1] - wanted).abs() < error.flip(0)[:-1]).all()


def test_half_life_is_m_ln_2():
    for slots in (32, 512, 4096):
        half_life = math.log(2) / math.log((slots + 1) / slots)
        assert half_life == pytest.approx(slots * math.log(2), rel=1 / slots)
        after, now = (compression.share_after(steps, slots) for steps in (round(half_life), 0))
        assert after / now == pytest.approx(0.5, rel=1 / slots)


def test_a_dropped_token_has_no_weight_and_a_kept_one_has():
    half, new_only = [[Fraction(1, 2)] * 2], [[Fraction(0), Fraction(1)]]
    assert memory.in_memory((half, new_only)) == {2}
    assert memory.in_memory((new_only, half)) == {1, 2}
    accepts = CLAIMS["LC.memory"].hypothesis.accepts
    for weights in memory.streams():
        assert memory.in_memory(weights) == memory.led_to(weights)
        assert not accepts(weights) or memory.in_memory(weights) == memory.everything(weights)


def test_a_segment_of_algorithm_2_by_hand():
    """M = 3, B = 2: filled with one segment, compressed from the second on."""
    assert memory.run(3, 2, 3) == [(4, 0, 2), (8, 12, 3), (10, 15, 3)]
    assert memory.run(3, 2, None) == [(4, 0, 2), (8, 0, 4), (12, 0, 6)]


def test_sizes_of_a_full_cache_are_those_of_the_repair():
    for slots, block in memory.SIZES:
        found = memory.segment(memory.np.ones((2, slots)), block, slots)[1]
        assert found == (block * (slots + block), slots * (slots + block), slots)


def test_gradients_through_the_segments_need_them_all():
    """LC.constant's proof: what a backward pass saves grows with the segments."""
    def saved(segments: int, cut: bool) -> int:
        taps, slots, block, held = torch.ones(4, 2, 21, requires_grad=True), 4, 2, set()

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            held.add(tensor.data_ptr())
            kept.append(tensor)  # so that no address is used again
            return tensor

        kept: list[torch.Tensor] = []
        cache, most = torch.ones(2, slots), 0
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            for _ in range(segments):
                entries = torch.cat([cache.detach() if cut else cache, torch.rand(2, block)], dim=1)
                weights = torch.conv1d(entries[None], taps, padding=10)[0].relu()
                cache = entries @ (weights / weights.sum(1, keepdim=True)).T
                if cut:
                    cache.sum().backward()
                    most = max(most, len(held))
                    held.clear()
        return max(most, len(held))

    assert saved(8, cut=True) == saved(16, cut=True)
    assert saved(16, cut=False) > 1.8 * saved(8, cut=False)


class Counted(int):
    """An integer that counts the multiplications in which it takes part."""

    multiplications = 0

    def __mul__(self, other):
        Counted.multiplications += 1
        return Counted(int(self) * int(other))


def count_multiplications(slots, block, kernel, head_dim):
    """The multiplications of Eq. 6 and of one block of attention, by running them."""
    entries = [[Counted(1)] * (2 * head_dim) for _ in range(slots + block)]
    pad = [[Counted(0)] * (2 * head_dim)] * (kernel // 2)
    padded = [*pad, *entries, *pad]
    Counted.multiplications = 0
    for _, position, tap in product(range(slots), range(slots + block), range(kernel)):
        sum(x * 1 for x in padded[position + tap])
    convolution, Counted.multiplications = Counted.multiplications, 0
    for _, entry in product(range(block), entries):
        sum(x * 1 for x in entry)  # q . k over head_dim, and weight times v over head_dim
    return convolution, Counted.multiplications


def test_multiplications_are_counted_and_the_convolution_has_kernel_m_over_b_times_as_many():
    assert count_multiplications(2, 3, 5, 1) == (2 * 5 * 5 * 2, 3 * 5 * 2)
    for sizes in ((1, 1, 1, 1), (2, 3, 5, 1), (3, 2, 3, 2)):
        slots, block, kernel, head_dim = sizes
        closed = (compression.direct(*sizes),
                  compression.attention_multiplications(slots, block, head_dim))
        assert count_multiplications(*sizes) == closed
        assert Fraction(*closed) == Fraction(kernel * slots, block)


def test_shares_of_a_layer_that_the_repair_of_lc_overhead_states():
    directly, by_fourier = ([compression.share_of_layer(kind, m, b) for m, b in compression.SIZES]
                            for kind in (compression.direct, compression.by_fourier))
    assert [round(100 * x) for x in directly[:2]] == [13, 84]
    assert [round(100 * x, 1) for x in by_fourier[:2]] == [1.4, 8.4]
    assert directly[2] > by_fourier[2] > 1
    repair = CLAIMS["LC.overhead"].repair
    assert "13 % or 1.4 %" in repair and "84 % or 8 %" in repair
    one_block = compression.attention_multiplications(512, 512, 128)
    assert 2 <= compression.by_fourier(512, 512) / one_block <= 2.2  # 2 M / B and little more


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
