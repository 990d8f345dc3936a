"""`exact_when` of every mechanism, over random small options, to 1e-12."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import MECHANISMS, full
from tests.mechanisms import bench
from tests.mechanisms.forms import with_module
from tests.mechanisms.options import DRAWN

# False there may still mean equality
ONLY_IF = {"vertical_slash", "minference", "dga", "lm_infinite", "kept_heads"}
LENGTHS = st.integers(1, 10)


def check_exact_when(cls, length: int, options: dict, rotated: bool, seed: int) -> None:
    """Compare with full attention where `exact_when` promises it, and where it denies it."""
    q, k, v = bench.inputs(length, seed=seed)
    tables = bench.rope_tables(length, q.shape[-1])
    q, k = (bench.rotate(x, *tables) if rotated else x for x in (q, k))
    output = with_module(cls, "attention",
                         backend="dense")(q, k, v, rotation=tables if rotated else None, **options)
    error = (output - full.loops(q, k, v)).abs().max().item()
    if cls(**options).exact_when(length):
        assert error <= 1e-12, f"exact_when is True, the error is {error:.1e}"
    elif cls.name not in ONLY_IF:
        assert error > 1e-12, f"exact_when is False, the error is {error:.1e}"


@pytest.mark.parametrize("name", MECHANISMS)
@settings(max_examples=80)
@given(length=LENGTHS, rotated=st.booleans(), seed=st.integers(0, 99), data=st.data())
def test_exact_means_equal_to_full_attention(name, length, rotated, seed, data):
    options = data.draw(st.fixed_dictionaries(DRAWN[name]))
    check_exact_when(MECHANISMS[name], length, options, rotated, seed)
