"""`exact_when` of every mechanism, over random small options: True means full attention's output, to 1e-12."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import MECHANISMS, full
from tests.mechanisms import bench
from tests.mechanisms.test_every_mechanism import with_module
from tests.mutants import exact_when as wrong

COUNT, SIZE, SHARE = st.integers(0, 7), st.integers(1, 8), st.sampled_from([0.2, 0.5, 1.0])
A_SHAPE = {"sinks": COUNT, "window": SIZE}
VERTICAL_SLASH = {"vertical": COUNT, "slash": SIZE, "last": SIZE, "forced_vertical": COUNT, "forced_slash": COUNT,
                  "block": st.integers(1, 4)}
BLOCK_SPARSE = {"block": st.integers(1, 4), "top_k": st.integers(2, 4), "force_diagonal": st.booleans()}
PATTERNS = st.one_of(*(st.fixed_dictionaries({"pattern": st.just(name), **options}) for name, options in (
    ("a_shape", A_SHAPE), ("vertical_slash", VERTICAL_SLASH), ("block_sparse", BLOCK_SPARSE))))
GROUPS = {"group": st.integers(1, 5), "window": SIZE}
OPTIONS = {
    "full": {},
    "cca": {**GROUPS, "pooling": st.sampled_from(["softmax", "mean", "max"]), "per_query_head": st.booleans()},
    "dga": {"group": st.integers(1, 5), "gamma": st.sampled_from([0.0, 0.3, 1.0]), "floor": COUNT, "recent": COUNT,
            "choose": st.sampled_from(["prompt", "blocks"]), "block": SIZE, "shared": st.booleans()},
    "lococo": {"slots": SIZE, "segment": SIZE | st.lists(SIZE, min_size=1, max_size=3), "buffer": COUNT,
               "kernel": st.sampled_from([1, 3]), "weights": st.sampled_from(["softmax", "relu"])},
    "minference": {"patterns": st.lists(PATTERNS, min_size=1, max_size=1) | st.lists(PATTERNS, min_size=2, max_size=2)},
    "a_shape": A_SHAPE,
    "vertical_slash": VERTICAL_SLASH,
    "block_sparse": BLOCK_SPARSE,
    "h2o": {"heavy": SIZE | SHARE, "recent": COUNT | SHARE, "prompt": SIZE},
    "longlora": {"group": st.integers(1, 20) | SHARE},
    "streaming_llm": {"sinks": st.integers(1, 5), "recent": COUNT,
                      "positions": st.sampled_from(["original", "cache"])},
    "lm_infinite": {"local": SIZE, "global_tokens": COUNT},
    "mean_pooling": GROUPS,
    "random_tokens": {**GROUPS, "seed": COUNT},
}
ONLY_IF = {"vertical_slash", "minference", "dga", "lm_infinite"}  # False there may still mean equality
LENGTHS = st.integers(1, 10)


def check_exact_when(mechanism, length: int, options: dict, rotated: bool, seed: int) -> None:
    """Compare with full attention where `exact_when` promises it, and the other way round where it is an iff."""
    q, k, v = bench.inputs(length, seed=seed)
    tables = bench.rope_tables(length, q.shape[-1])
    q, k = (bench.rotate(x, *tables) if rotated else x for x in (q, k))
    rotation = {"rotation": tables} if rotated and mechanism.name != "full" else {}
    output = with_module(mechanism.attention, mechanism)(q, k, v, backend="dense", **rotation, **options)
    error = (output - full.loops(q, k, v)).abs().max().item()
    if mechanism.exact_when(length, **options):
        assert error <= 1e-12, f"exact_when is True, the error is {error:.1e}"
    elif mechanism.name not in ONLY_IF:
        assert error > 1e-12, f"exact_when is False, the error is {error:.1e}"


def holds(mechanism, examples: int):
    """Return the property of one mechanism, ready to run."""
    options = st.fixed_dictionaries(OPTIONS[mechanism.name])
    given_any = given(length=LENGTHS, options=options, rotated=st.booleans(), seed=st.integers(0, 99))
    return settings(max_examples=examples)(given_any(
        lambda length, options, rotated, seed: check_exact_when(mechanism, length, options, rotated, seed)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_exact_means_equal_to_full_attention(name):
    holds(MECHANISMS[name], 200)()


def test_forced_ones_that_do_not_fit_are_not_promised():
    mutant = replace(MECHANISMS["vertical_slash"], exact_when=wrong.forced_ones_cut_off)
    with pytest.raises(AssertionError, match="exact_when is True"):
        holds(mutant, 200)()
