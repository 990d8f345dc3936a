"""The decode kernel: one query row against a cache, keys split over programs, parts merged."""

import pytest
import torch

from cca_lab.attention import interval_attention
from cca_lab.attention.kernels import decode
from tests.kernels import bench


def check_decode(keys, splits, *, heads=(4, 2), head_dim=16, dtype=torch.float32, layout=lambda x: x):
    generator = torch.Generator().manual_seed(keys)
    shapes = (heads[0], 1), (heads[1], keys), (heads[1], keys)
    q, k, v = (torch.randn(2, n, length, head_dim, generator=generator).to(dtype) for n, length in shapes)
    with bench.guarded_outputs():
        got = decode.triton_decode(*(bench.guarded(layout(x)) for x in (q, k, v)), 0.25, splits=splits)
    everything = torch.tensor([[[[[0, keys]]]]])
    wanted = interval_attention(q.double(), k.double(), v.double(), everything, scale=0.25, backend="dense",
                                return_lse=True)
    for name, a, b in zip(("out", "lse"), got, wanted, strict=True):
        bench.assert_close(a, b, name, dtype)


@pytest.mark.parametrize("splits", [None, 1, 2, 5])
@pytest.mark.parametrize("keys", [1, 63, 64, 65, 300])
def test_any_number_of_keys_and_splits(keys, splits):
    check_decode(keys, splits)


@pytest.mark.parametrize("heads", [(1, 1), (8, 1), (20, 1), (6, 3)], ids=str)
def test_grouped_queries(heads):
    check_decode(70, 2, heads=heads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim", [20, 64])
def test_half_precision_and_padded_head_dims(head_dim, dtype):
    check_decode(70, 2, head_dim=head_dim, dtype=dtype)


def test_any_strides():
    check_decode(70, 2, layout=lambda x: x.transpose(1, 2).contiguous().transpose(1, 2))


def test_a_merge_that_averages_the_parts_is_caught(monkeypatch):
    right = torch.Tensor.logsumexp
    monkeypatch.setattr(torch.Tensor, "logsumexp", lambda x, dim, **kw: right(x, dim, **kw) * 0 + x.mean(dim, **kw))
    with pytest.raises(AssertionError):
        check_decode(300, 3)
