"""Every cache decodes through the kernel what it decodes densely: ragged sizes, grouped queries."""

import pytest
import torch

from cca_lab.attention.kernels import decode
from cca_lab.mechanisms import MECHANISMS, mechanism_of
from cca_lab.mechanisms.caches import CACHES
from tests.attention.kernels import bench
from tests.mechanisms.bench import inputs, rope_tables, rotate
from tests.mechanisms.options import OPTIONS
from tests.mutants import kernels as mutants

PROMPT, LENGTH, HEAD_DIM = 13, 20, 8
STATES = [
    ("cca", {"group": 3, "window": 5}),
    ("cca", {"group": 4, "window": 2, "per_query_head": True}),
    ("cca", {"group": 3, "window": 5, "sinks": 2}),
    ("dga", {"group": 3, "gamma": 0.2}),
    ("dga", {"group": 3, "gamma": 0.2, "choose": "blocks", "block": 7}),
    ("lococo", {"slots": 5, "segment": 4}),
    ("streaming_llm", {"sinks": 2, "recent": 6}),
    ("streaming_llm", {"sinks": 2, "recent": 6, "positions": "cache"}),
    ("lm_infinite", {"local": 5, "global_tokens": 3}),
    ("mean_pooling", {"group": 3, "window": 5}),
    ("random_tokens", {"group": 3, "window": 5}),
]
STATES += [(name, OPTIONS[name][0]) for name in sorted(CACHES.keys() - dict(STATES).keys())
           # not H2O: its scores need weights that no fused kernel keeps
           if "triton" in MECHANISMS[name].backends and name != "h2o"]


def check_decoding(name: str, options: dict) -> None:
    """A prompt and then single tokens: kernels in float32 against dense in float64."""
    q, k, v = inputs(LENGTH, heads=4, kv_heads=2, head_dim=HEAD_DIM)
    tables = rope_tables(LENGTH, HEAD_DIM)
    q, k = rotate(q, *tables), rotate(k, *tables)
    chunks = [slice(0, PROMPT), *(slice(t, t + 1) for t in range(PROMPT, LENGTH))]
    states = {dtype: CACHES[name].state(mechanism_of(name, {**options, "backend": backend}))
              for dtype, backend in ((torch.float32, "triton"), (torch.float64, "dense"))}
    with torch.no_grad(), bench.guarded_outputs() as rooms:
        for now in chunks:
            before = len(rooms)
            got, wanted = (
                state.step(*(x[:, :, now].to(bench.DEVICE, dtype) for x in (q, k, v)), scale=0.4,
                           rotation=tuple(table[None, now].to(bench.DEVICE, dtype)
                                          for table in tables)) for dtype, state in states.items())
            bench.assert_close(got, wanted, f"{name}, tokens {now.start} to {now.stop}",
                               torch.float32)
            assert len(rooms) > before, "no kernel ran"


@pytest.mark.parametrize(("name", "options"), STATES, ids=str)
def test_decoding_through_the_kernel_equals_dense(monkeypatch, name, options):
    rows, launches, right, kernel = [], [], decode.triton_decode, decode.decode_split
    monkeypatch.setattr(decode, "triton_decode", lambda *args,
                        **rest: rows.append(args) or right(*args, **rest))
    monkeypatch.setattr(decode, "decode_split", Counted(kernel, launches))
    check_decoding(name, options)
    assert len(rows) >= LENGTH - PROMPT
    # a core for each query head is read apart
    assert len(launches) == len(rows) or "per_query_head" in options, "one launch reads all pieces"


class Counted:
    """A kernel of which the launches are counted."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        self.launches.append(grid)
        return self.kernel[grid]


@pytest.mark.parametrize("mutant", [mutants.last_key_unread, mutants.future_visible],
                         ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match="max error"):
        check_decoding("streaming_llm", {"sinks": 2, "recent": 6})
