"""Every row of MECHANISMS, on every rung, passes the bench. A new mechanism joins with a line in OPTIONS."""

import inspect
from functools import partial

import pytest

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.mechanism import EVERY_ROW
from tests.mechanisms import bench

# Small options of each mechanism, easy to hard.
OPTIONS = {
    "full": [{}],
    "cca": [
        {"group": 2, "window": 4},
        {"group": 1, "window": 3},
        {"group": 3, "window": 4},                                # g does not divide s
        {"group": 4, "window": 2},                                # s < g
        {"group": 3, "window": 2, "pooling": "mean"},
        {"group": 3, "window": 2, "per_query_head": True},
        {"group": 3, "window": 1, "pooling": "max"},
        {"group": 20, "window": 2},                               # no group is ever complete
    ],
}
CAUSAL_CHECKS = {EVERY_ROW: bench.check_causality}
RUNGS = ("loops", "dense", "blocked")


def implementation(name: str, rung: str):
    mechanism = MECHANISMS[name]
    return mechanism.loops if rung == "loops" else partial(mechanism.attention, backend=rung)


def label(value) -> str | None:
    if not isinstance(value, dict):
        return None
    return "-".join(f"{key}{option}" for key, option in value.items()) or "plain"


CASES = [(name, options) for name in MECHANISMS for options in OPTIONS.get(name, [])]
LINEAR = [case for case in CASES if case[1].get("pooling") != "max"]  # a maximum of values has no matrix E
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=label)
every_linear_case = pytest.mark.parametrize(("name", "options"), LINEAR, ids=label)
every_rung = pytest.mark.parametrize("rung", RUNGS)


def test_every_mechanism_has_small_options_and_a_causal_scope_that_is_checked():
    assert set(OPTIONS) == set(MECHANISMS)
    assert {MECHANISMS[name].causal_scope(**options) for name, options in CASES} <= set(CAUSAL_CHECKS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_rows_of_the_table_are_complete(name):
    mechanism = MECHANISMS[name]
    assert mechanism.name == name and mechanism.title and mechanism.paper
    for options in (mechanism.defaults, *mechanism.paper_presets.values()):
        assert set(options) <= set(inspect.signature(mechanism.attention).parameters)
        assert isinstance(mechanism.exact_when(64, **options), bool)


@pytest.mark.parametrize("rung", ["dense", "blocked"])
@pytest.mark.parametrize("sizes", [{"length": 1}, {"length": 3}, {"length": 11},
                                   {"length": 12, "batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 6}],
                         ids=lambda sizes: f"L{sizes['length']}")
@every_case
def test_rungs_agree(name, options, sizes, rung):
    bench.check_same(implementation(name, rung), options, MECHANISMS[name].loops, **sizes)


@every_rung
@every_case
def test_exact_when_tells_the_truth(name, options, rung):
    lengths = [length for length in (1, 2, 4, 5, 6, 9) if MECHANISMS[name].exact_when(length, **options)]
    assert lengths
    for length in lengths:
        bench.check_full_limit(implementation(name, rung), options, length=length)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options in CASES
                                               if not MECHANISMS[name].exact_when(9, **options)], ids=label)
def test_not_exact_is_visibly_different(name, options):
    with pytest.raises(AssertionError, match="against full attention"):
        bench.check_full_limit(MECHANISMS[name].loops, options, length=9)


@every_rung
@every_linear_case
def test_partition_of_unity(name, options, rung):
    bench.check_partition_of_unity(implementation(name, rung), options)


@every_rung
@every_case
def test_causality(name, options, rung):
    CAUSAL_CHECKS[MECHANISMS[name].causal_scope(**options)](implementation(name, rung), options, length=10)


@every_rung
@every_case
@pytest.mark.parametrize("check", [
    bench.check_large_logits, bench.check_scale, bench.check_heads_interchangeable, bench.check_layouts,
    bench.check_batch, bench.check_right_padding], ids=lambda check: check.__name__.removeprefix("check_"))
def test_symmetries(check, name, options, rung):
    check(implementation(name, rung), options)


@every_rung
@every_linear_case
def test_effective_is_what_v_identity_reads(name, options, rung):
    effective = MECHANISMS[name].effective
    bench.check_effective(implementation(name, rung), options, effective, heads=4, kv_heads=2)


@pytest.mark.parametrize("rung", ["dense", "blocked"])
@every_case
def test_gradients(name, options, rung):
    form = implementation(name, rung)
    bench.check_gradients(form, options)
    bench.check_same_gradients(form, options, MECHANISMS[name].loops, heads=4, kv_heads=2)
