"""The caches of mean pooling and random tokens: any chunks are one forward."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.cca.cache import RandomTokensState
from tests.mechanisms.caching.checks import (
    CHUNKS,
    check_bytes,
    check_chunks,
    check_generation,
    check_state,
)
from tests.mutants import baselines as wrong

G4S7 = dict(group=4, window=7)
every_name = pytest.mark.parametrize("name", ["mean_pooling", "random_tokens"])


@every_name
def test_any_chunks_equal_one_forward(name):
    for sizes in CHUNKS:
        for family, sinks in (("gpt2", 0), ("llama", 3)):
            check_chunks(family, name, sizes, **G4S7, sinks=sinks)


@every_name
@given(group=st.integers(1, 6), window=st.integers(1, 8), rotated=st.booleans(),
       sinks=st.sampled_from([0, 1, 5]), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=30)
def test_state_equals_the_mechanism(name, group, window, sinks, sizes, rotated):
    check_state(name, dict(group=group, window=window, sinks=sinks), sizes, rotated=rotated,
                seed=sum(sizes))


@every_name
def test_generation(name):
    check_generation("llama", name, **G4S7, sinks=3)


@every_name
def test_bytes_equal_the_closed_form(name):
    for family, sinks in (("gpt2", 0), ("llama", 3)):
        check_bytes(family, name, **G4S7, sinks=sinks)


def test_chunks_kill_lots_that_begin_again(monkeypatch):
    monkeypatch.setattr(RandomTokensState, "_close_groups", wrong.lots_begin_again)
    with pytest.raises(AssertionError, match="chunks against one forward"):
        check_chunks("gpt2", "random_tokens", [9, 1, 1, 13, 1, 9], **G4S7)
