"""P_sparse of a model's heads: against loops over rows, and the figures."""

import math

import pytest
import torch

from cca_lab.attention import statistics as analysis
from cca_lab.models import attention_maps
from cca_lab.models.evaluate import texts_of
from cca_lab.studies import real_heads
from cca_lab.theory.sparsity.laws import rho_sparse
from tests.mutants import real_heads as mutants
from tests.studies import small


def causal_maps(*shape: int, spread: float = 2.0) -> torch.Tensor:
    length = shape[-1]
    scores = spread * torch.randn(*shape, length, generator=torch.Generator().manual_seed(0),
                                  dtype=torch.float64)
    return scores.masked_fill(~torch.ones(length, length).tril().bool(), float("-inf")).softmax(-1)


def test_row_statistics_equal_loops_over_rows():
    maps, lengths = causal_maps(2, 3, 12), torch.tensor([2, 7, 12])
    maps[0, 0, 6, 1] += maps[0, 0, 6, 0]  # a weight of 0, as a low precision leaves it
    maps[0, 0, 6, 0] = 0
    largest, k90, effective, variance, zeros = real_heads.row_statistics(maps, lengths)
    for layer in range(2):
        for head in range(3):
            for place, length in enumerate(lengths.tolist()):
                row = maps[layer, head, length - 1, :length].tolist()
                logits = [math.log(weight) for weight in row if weight]
                mean = sum(logits) / len(logits)
                index = layer, head, place
                assert largest[index] == max(row)
                assert k90[index] == analysis.keys_for_mass_loops(row, 0.9)
                assert effective[index].log().item() == pytest.approx(analysis.entropy_loops(row),
                                                                      abs=1e-12)
                assert variance[index].item() == pytest.approx(
                    sum((logit - mean) ** 2 for logit in logits) / len(logits), rel=1e-12)
                assert zeros[index].item() == pytest.approx(1 - len(logits) / length)


def test_p_sparse_counts_rows_by_the_definition():
    rows = causal_maps(50, 20)[:, -1]  # (50, 20)
    largest = rows.amax(dim=-1, keepdim=True)
    for rho in (0.06, 0.1, 0.3, 1.0):
        wanted = sum(rho_sparse(row.tolist(), rho) for row in rows) / 50
        assert real_heads.p_sparse(largest, torch.tensor([20]), rho).item() == wanted
    assert real_heads.p_sparse(torch.ones(4, 1), torch.tensor([100]), 0.01).item() == 0


@pytest.mark.parametrize("mutant", [mutants.at_the_bar, mutants.bar_without_length])
def test_mutants_of_p_sparse_are_noticed(mutant):
    lengths = torch.tensor([4, 8])
    largest = torch.tensor([[0.5, 0.25], [0.4, 0.26]],
                           dtype=torch.float64)  # bars at rho = 1/2: 1/2 and 1/4
    wanted = [0.0, 0.5]
    assert real_heads.p_sparse(largest, lengths, 0.5).tolist() == wanted
    assert mutant(largest, lengths, 0.5).tolist() != wanted


def test_a_spread_over_unread_tokens_is_noticed():
    maps, lengths = causal_maps(1, 1, 12), torch.tensor([6])
    wanted = maps[0, 0, 5, :6].log().var(correction=0)
    assert real_heads.row_statistics(maps,
                                     lengths)[3].item() == pytest.approx(wanted.item(), rel=1e-12)
    assert mutants.spread_over_unread_tokens(maps, lengths).item() > 2 * wanted


def test_the_fitted_spreads_are_those_of_gaussian_logits():
    tau, length = 1.2, 4000
    logits = tau * torch.randn(8, 1, 1, length, generator=torch.Generator().manual_seed(1),
                               dtype=torch.float64)
    rows = logits.softmax(-1)
    lengths = torch.tensor([length])
    fitted = real_heads.HeadRows(lengths, rows.amax(-1, keepdim=True),
                                 analysis.k90(rows)[..., None].double(),
                                 analysis.effective_tokens(rows)[..., None],
                                 rows.log().var(-1, correction=0)[..., None],
                                 torch.zeros(8, 1, 1, 1))
    assert fitted.tau.item() == pytest.approx(tau, rel=0.02)
    assert fitted.tau_entropy.item() == pytest.approx(tau, rel=0.02)


def test_measure_reads_the_rows_of_the_models_own_maps():
    model = small.model()
    texts = torch.randint(0, len(small.tokenizer()), (3, 20),
                          generator=torch.Generator().manual_seed(0))
    seen = []
    rows = real_heads.measure(model, texts, torch.tensor([5, 20]),
                              lambda done, text: seen.append(done))
    assert rows.largest.shape == (3, 2, 2, 2) and seen == [1, 2, 3]
    maps = attention_maps(model, texts[1])
    assert rows.largest[1, :, :, 0].equal(maps[:, :, 4].amax(-1).double())
    assert rows.p_sparse(0.5).shape == (2, 2, 2) and rows.tau.shape == (2, 2)


def test_rows_start_at_100_and_end_with_the_context():
    lengths = real_heads.row_lengths(512).tolist()
    assert lengths[:2] == [100, 116] and lengths[-1] == 512
    assert real_heads.row_lengths(4096)[-1] == 1000


@pytest.mark.parametrize("call, words",
                         [(lambda: real_heads.row_lengths(100), "context: got 100"),
                          (lambda: texts_of(torch.arange(9), 1, 10),
                           "got 1 texts of 10 tokens from 9"),
                          (lambda: real_heads.measure(None, torch.zeros(1, 5), torch.tensor([6])),
                           "lengths: got 6 to 6, wanted 2 to 5")])
def test_what_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


# Figures
