"""The attention that tokens receive: the sums of the dense matrix, by every way to compute them."""

import pytest
import torch

from cca_lab.attention.received import attention_received

CASES = [(50, 50, 4, 2, 16), (133, 300, 6, 2, 20), (1, 40, 2, 2, 8), (130, 130, 2, 1, 4)]


def wanted(q, k, scale):
    rows, tokens = q.shape[2], k.shape[2]
    logits = scale * q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT
    past = torch.arange(tokens) <= tokens - rows + torch.arange(rows)[:, None]
    logits = logits.masked_fill(~past, float("-inf"))
    return logits.softmax(-1).sum(2), logits.logsumexp(-1)


def inputs(rows, tokens, heads, kv_heads, dim, dtype=torch.float64):
    torch.manual_seed(rows)
    return (torch.randn(2, heads, rows, dim, dtype=dtype),
            torch.randn(2, kv_heads, tokens, dim, dtype=dtype))


def check(sizes, dtype=torch.float64, tolerance=1e-12):
    q, k = inputs(*sizes)
    sums, lse = wanted(q, k, 0.7)
    for known in (None, lse.to(dtype)):
        got = attention_received(q.to(dtype), k.to(dtype), scale=0.7, lse=known)
        assert got.dtype == torch.promote_types(dtype, torch.float32)
        assert (got - sums).abs().max() < tolerance, "sums differ"


@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_sums_of_the_dense_matrix(sizes):
    check(sizes)


def test_sums_in_less_than_float64():
    check(CASES[0], torch.float32, 1e-4)
    check(CASES[0], torch.bfloat16, 0.2)


def test_every_scale():
    q, k = inputs(*CASES[0])
    for scale in (0.0, -0.4):
        assert torch.allclose(attention_received(q, k, scale=scale), wanted(q, k, scale)[0])


def test_rows_that_are_counted_from_the_first_are_found(monkeypatch):
    """The mutant reads token t by the rows up to t."""
    monkeypatch.setattr(torch.Tensor, "flip", lambda x, *dims: x)
    with pytest.raises(AssertionError, match="sums differ"):
        check(CASES[0])
