"""Every mechanism that runs on the kernels: output and all gradients against dense float64."""

import json
from copy import deepcopy

import pytest
import torch

from cca_lab.attention.kernels import pooling
from cca_lab.mechanisms import MECHANISMS
from tests.attention.kernels import bench
from tests.mechanisms.bench import inputs, moved, rope_tables, rotate
from tests.mechanisms.forms import seeded_module, trains_a_module
from tests.mechanisms.options import OPTIONS as SMALL
from tests.mutants import kernels as mutants

# no multiple of any tile, grouped queries
SIZES = {"length": 37, "heads": 4, "kv_heads": 2, "head_dim": 8}
ROTARY = rope_tables(SIZES["length"], SIZES["head_dim"])
OPTIONS = {
    "full": [{}],
    "cca": [{"group": 3, "window": 7}, {"group": 4, "window": 2, "per_query_head": True},
            {"group": 3, "window": 7, "sinks": 2}],
    "dga": [{"group": 3, "gamma": 0.2}, {"group": 3, "gamma": 0.2, "choose": "blocks",
                                         "block": 10}],
    "lococo": [{"slots": 5, "segment": 7}],
    "a_shape": [{"sinks": 2, "window": 6}],
    "vertical_slash": [{"vertical": 5, "slash": 5, "last": 8, "forced_vertical": 1,
                        "forced_slash": 2, "block": 5}],
    "longlora": [{"group": 10}],
    "streaming_llm": [{"sinks": 3, "recent": 6}, {"sinks": 3, "recent": 6, "positions": "cache"}],
    "lm_infinite": [{"local": 6, "global_tokens": 3}],
    "mean_pooling": [{"group": 3, "window": 7}],
    "random_tokens": [{"group": 3, "window": 7}],
}
OPTIONS |= {name: SMALL[name][:1] for name, cls in MECHANISMS.items()
            # rows of the others see no few intervals
            if "triton" in cls.backends and name not in OPTIONS}
FORWARD_ONLY = ("vertical_slash",)
CASES = [(name, options) for name, chosen in OPTIONS.items() for options in chosen]


def attend(name: str, options: dict, leaves: list[torch.Tensor], selection,
           backend: str) -> torch.Tensor:
    """The mechanism's attention, with all that it takes besides options."""
    cls, module = MECHANISMS[name], None
    if trains_a_module(cls):
        module = deepcopy(seeded_module(cls, 4, 2, SIZES["head_dim"],
                                        json.dumps(options))).to(leaves[0])
    rotation = tuple(table.to(leaves[0]) for table in ROTARY)
    return cls(**options, backend=backend).attention(*leaves, rotation=rotation,
                                                     selection=selection, module=module)


def check_mechanism(monkeypatch, name: str, options: dict, spoil=lambda patch: None) -> None:
    """Kernels in float32 against dense in float64; `spoil` may break what the kernels are given."""
    q, k, v = inputs(**SIZES)
    single = [x.float() for x in (rotate(q, *ROTARY), rotate(k, *ROTARY), v)]
    exact = [x.double().requires_grad_() for x in single]
    # once, so that rounding cannot choose otherwise
    selection = MECHANISMS[name](**options).select(*exact[:2])
    wanted = attend(name, options, exact, selection, "dense")
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(0))
    leaves = [bench.guarded(x).requires_grad_(name not in FORWARD_ONLY) for x in single]
    with monkeypatch.context() as patch, bench.guarded_outputs() as rooms:
        spoil(patch)
        got = attend(name, options, leaves, moved(selection, bench.DEVICE), "triton")
        assert rooms, "no kernel ran"
        gradients = [] if name in FORWARD_ONLY else torch.autograd.grad(
            (got * weights.to(got)).sum(), leaves)
    bench.assert_close(got, wanted, "out", torch.float32)
    for what, grad, want in zip("qkv", gradients,
                                torch.autograd.grad((wanted * weights).sum(), exact), strict=False):
        bench.assert_close(grad, want, f"gradient of {what}", torch.float32)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_kernels_equal_dense(monkeypatch, name, options):
    check_mechanism(monkeypatch, name, options)


@pytest.mark.parametrize(("name", "options", "times"), [
    ("cca", {"group": 3, "window": 7}, 1),
    ("cca", {"group": 3, "window": 7, "pooling": "mean"}, 0),  # no such kernel: pooled by PyTorch
    ("cca", {"group": 3, "window": 40}, 0),                    # no row sees a core
    ("dga", {"group": 3, "gamma": 0.2}, 1),
], ids=["cca", "cca, mean", "cca, no cores", "dga"])
def test_pooling_follows_the_backend(monkeypatch, name, options, times):
    calls, right = [], pooling.triton_pool_groups
    monkeypatch.setattr(pooling, "triton_pool_groups",
                        lambda *args: calls.append(args) or right(*args))
    q, k, v = (x.float().to(bench.DEVICE) for x in inputs(**SIZES))
    for backend in ("dense", "blocked"):
        MECHANISMS[name](**options, backend=backend).attention(q, k, v)
    assert not calls
    MECHANISMS[name](**options, backend="triton").attention(q, k, v)
    assert len(calls) == times


@pytest.mark.parametrize(("spoil", "name"), [
    (mutants.future_visible, "streaming_llm"),
    (mutants.last_rows_forgotten, "longlora"),
    (mutants.full_too_soon, "a_shape"),
    (mutants.key_heads_exchanged, "full"),
    *((pool, "cca") for pool in mutants.POOLING),
    (mutants.columns_counted_twice, "vertical_slash"),
], ids=lambda value: getattr(value, "__name__", value))
def test_mutants_are_caught(monkeypatch, spoil, name):
    with pytest.raises(AssertionError, match="max error"):
        check_mechanism(monkeypatch, name, OPTIONS[name][0], spoil)
