"""Every row of MECHANISMS, on every rung, passes the bench. A new mechanism joins with a line in OPTIONS."""

import inspect
import json
from functools import lru_cache, partial
from types import SimpleNamespace

import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.mechanism import EVERY_ROW, OWN_BLOCK, RUNTIME, WHOLE_PROMPT
from tests.mechanisms import bench

# Small options of each mechanism, easy to hard. Most checks run at 11 tokens.
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
    "dga": [
        {"group": 2, "gamma": 0.3},
        {"group": 3, "gamma": 0.0},                               # only leftover tokens are focal
        {"group": 2, "gamma": 0.0, "floor": 3, "recent": 2, "random": 2, "seed": 1},
        {"group": 3, "gamma": 0.2, "shared": True},
        {"group": 2, "gamma": 0.25, "choose": "blocks", "block": 4},
        {"group": 3, "gamma": 0.0, "choose": "blocks", "block": 5},
    ],
    "lococo": [
        {"slots": 3, "segment": 2},
        {"slots": 2, "segment": 1, "weights": "relu"},
        {"slots": 3, "segment": 4, "sinks": 1},                   # a segment that exceeds the memory
        {"slots": 4, "segment": 3, "heavy": 2, "scores": "sum"},
        {"slots": 3, "segment": 2, "residual": True, "buffer": 1, "kernel": 3},
        {"slots": 2, "segment": [4, 1], "weights": "relu", "residual": True},
    ],
    "minference": [
        {"patterns": [{"pattern": "vertical_slash", "vertical": 2, "slash": 2, "last": 3, "forced_vertical": 1,
                       "forced_slash": 1, "block": 1}]},
        {"patterns": [{"pattern": "a_shape", "sinks": 1, "window": 3}]},
    ],
    "a_shape": [
        {"sinks": 2, "window": 3},
        {"sinks": 0, "window": 1},                                # each row reads itself
        {"sinks": 4, "window": 2},                                # more first tokens than window
        {"sinks": 1, "window": 20},
    ],
    "vertical_slash": [
        {"vertical": 2, "slash": 2, "last": 3, "forced_vertical": 1, "forced_slash": 1, "block": 1},
        {"vertical": 0, "slash": 3, "last": 4, "forced_vertical": 0, "forced_slash": 0, "block": 2},
        {"vertical": 3, "slash": 1, "last": 20, "forced_vertical": 0, "forced_slash": 4, "block": 3},
        {"vertical": 1, "slash": 3, "last": 1, "forced_vertical": 2, "forced_slash": 2, "block": 2},
    ],
    "block_sparse": [
        {"block": 2, "top_k": 2},
        {"block": 3, "top_k": 2},                                 # a short last block
        {"block": 2, "top_k": 2, "force_diagonal": False},        # some rows do not read themselves
    ],
    "h2o": [
        {"heavy": 2, "recent": 2},
        {"heavy": 3, "recent": 0},                                # a token may go as soon as it has attended
        {"heavy": 0, "recent": 3},                                # a window
        {"heavy": 2, "recent": 1, "prompt": 6},                   # several go at once after the prompt
        {"heavy": 0.3, "recent": 0.2, "prompt": 7},
    ],
    "longlora": [
        {"group": 4},
        {"group": 3},                                             # odd, and a short last block
        {"group": 1},
        {"group": 20},                                            # one block; the shifted heads have two
        {"group": 0.3},                                           # a share of the length
    ],
    "streaming_llm": [
        {"sinks": 1, "recent": 3},
        {"sinks": 2, "recent": 0},                                # a row sees the sinks and itself
        {"sinks": 0, "recent": 2},                                # a plain sliding window
        {"sinks": 4, "recent": 2, "positions": "cache"},
        {"sinks": 20, "recent": 2, "positions": "cache"},         # every token is a sink
    ],
    "lm_infinite": [
        {"local": 3, "global_tokens": 2},
        {"local": 1, "global_tokens": 1},
        {"local": 4, "global_tokens": 0},
        {"local": 2, "global_tokens": 5, "limit": 6},             # limit > local, reached in the text
        {"local": 4, "global_tokens": 3, "limit": 1},
    ],
    "mean_pooling": [{"group": 3, "window": 4}, {"group": 4, "window": 2}, {"group": 1, "window": 2}],
    "random_tokens": [
        {"group": 3, "window": 4},
        {"group": 4, "window": 2, "seed": 1},
        {"group": 1, "window": 2},
    ],
}
# (mechanism, symmetry) that does not hold, and the options for which it does not; such a check must fail.
EXEMPT: dict[tuple[str, str], dict] = {
    ("lococo", "large_logits"): {},                               # weights are made from keys, not from logits
    ("lococo", "rope_translation"): {},                           # and from rotated keys, wherever they point
    ("cca", "rope_translation"): {"pooling": "max"},              # a maximum of rotated features is no vector
}
SCOPES = {EVERY_ROW: lambda form, options, mechanism, **sizes: bench.check_causality(form, options, **sizes),
          WHOLE_PROMPT: lambda form, options, mechanism, **sizes: bench.check_whole_prompt(
              form, options, mechanism.select, **sizes),
          OWN_BLOCK: lambda form, options, mechanism, **sizes: bench.check_own_block(
              form, options, mechanism.select, **sizes)}
SYMMETRIES = {check.__name__.removeprefix("check_"): check for check in (
    bench.check_large_logits, bench.check_scale, bench.check_heads_interchangeable, bench.check_layouts,
    bench.check_batch, bench.check_right_padding, bench.check_rope_translation)}


def with_module(function, mechanism):
    """Give a mechanism that trains a module a fresh one of fixed weights that fits the shapes of q and k."""
    if mechanism.new_module is None:
        return function

    def call(q, k, *v, selection=None, **options):
        chosen = {name: value for name, value in options.items() if name not in RUNTIME}
        module = seeded_module(mechanism, q.shape[1], k.shape[1], q.shape[3], json.dumps(chosen, default=int))
        frozen = {} if selection is None else {"selection": selection}
        return function(q, k, *v, compressor=module, **frozen, **options)

    return call


@lru_cache
def seeded_module(mechanism, heads: int, kv_heads: int, head_dim: int, options: str):
    """Make the module of one layer with `new_module`, always with the same weights."""
    config = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                             hidden_size=heads * head_dim, num_hidden_layers=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return mechanism.new_module(config, **json.loads(options)).double()


def implementation(name: str, rung: str):
    mechanism = MECHANISMS[name]
    form = mechanism.loops if rung == "loops" else partial(mechanism.attention, backend=rung)
    return with_module(form, mechanism)


def rungs(name: str) -> tuple[str, ...]:
    """Those that compute in float64; "triton" does not: tests/kernels/test_mechanisms.py runs it interpreted."""
    return ("loops", *(rung for rung in MECHANISMS[name].rungs if rung != "triton"))


def label(value) -> str | None:
    if not isinstance(value, dict):
        return None
    return "-".join(f"{key}{option}" for key, option in value.items()) or "plain"


CASES = [(name, options) for name in MECHANISMS for options in OPTIONS.get(name, [])]
ON_RUNGS = [(name, options, rung) for name, options in CASES for rung in rungs(name)]


def linear(name: str, options: dict) -> bool:
    """Whether the output is a matrix times v: not for a maximum of values or weights made from values."""
    return options.get("pooling") != "max" and MECHANISMS[name].new_module is None


every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=label)
on_every_rung = pytest.mark.parametrize(("name", "options", "rung"), ON_RUNGS, ids=label)
on_every_linear_rung = pytest.mark.parametrize(
    ("name", "options", "rung"), [case for case in ON_RUNGS if linear(*case[:2])], ids=label)
above_the_loops = pytest.mark.parametrize(
    ("name", "options", "rung"), [case for case in ON_RUNGS if case[2] != "loops"], ids=label)
takes_tables = pytest.mark.parametrize(                           # full attention needs none: q and k say it all
    ("name", "options", "rung"), [case for case in ON_RUNGS if case[2] != "loops" and case[0] != "full"], ids=label)


def applies(check: str, name: str, options: dict) -> bool:
    """Whether a symmetry can be asked of a mechanism at all; those that do not hold stand in EXEMPT."""
    if check == "rope_translation":
        return name != "full"
    if check == "right_padding":  # a choice may depend on what follows: test_causality_is_what_is_declared
        return MECHANISMS[name].causal_scope(**options) == EVERY_ROW and not MECHANISMS[name].length_matters(**options)
    return True


symmetries = pytest.mark.parametrize(
    ("check", "name", "options", "rung"),
    [(check, *case) for check in SYMMETRIES for case in ON_RUNGS if applies(check, *case[:2])], ids=label)


# ---------------------------------------------------------------- the table

def test_every_mechanism_has_small_options():
    assert set(OPTIONS) == set(MECHANISMS)
    assert all(OPTIONS.values())


@pytest.mark.parametrize("name", MECHANISMS)
def test_rows_of_the_table_are_complete(name):
    mechanism = MECHANISMS[name]
    assert mechanism.name == name and mechanism.title and mechanism.paper
    assert "dense" in mechanism.rungs and set(mechanism.rungs) <= {"dense", "blocked", "triton"}
    parameters = {form: inspect.signature(getattr(mechanism, form)).parameters
                  for form in ("loops", "attention", "effective")}
    assert set(parameters["attention"]) == set(parameters["loops"]) | {"backend"}
    taken = set(parameters["attention"]) - {"q", "k", "v", "backend", *RUNTIME}
    for options in (mechanism.defaults, *mechanism.paper_presets.values(), *OPTIONS[name]):
        assert set(options) <= taken
        assert json.loads(json.dumps(options)) == options, "options are stored in config.json"
        assert isinstance(mechanism.exact_when(64, **options), bool)
        assert mechanism.causal_scope(**options) in SCOPES
    for keyword, needed in (("scale", True), ("rotation", name != "full"),
                            ("selection", mechanism.select is not None),
                            ("compressor", mechanism.new_module is not None)):
        assert not needed or keyword in parameters["attention"], f"attention takes no {keyword}="


@every_case
def test_a_choice_from_later_tokens_can_be_frozen(name, options):
    mechanism = MECHANISMS[name]
    assert mechanism.causal_scope(**options) == EVERY_ROW or mechanism.select is not None


@every_case
def test_the_length_matters_where_it_is_declared(name, options):
    mechanism = MECHANISMS[name]
    if mechanism.causal_scope(**options) == EVERY_ROW and mechanism.length_matters(**options):
        with pytest.raises(AssertionError, match="padded on the right"):
            bench.check_right_padding(implementation(name, "loops"), options)


# ---------------------------------------------------------------- rungs and limits

@pytest.mark.parametrize("sizes", [{"length": 1}, {"length": 3}, {"length": 11},
                                   {"length": 12, "batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 6}],
                         ids=lambda sizes: f"L{sizes['length']}")
@above_the_loops
def test_rungs_agree(name, options, rung, sizes):
    bench.check_same(implementation(name, rung), options, implementation(name, "loops"), **sizes)


@takes_tables
def test_rungs_agree_under_rotation(name, options, rung):
    tables = bench.rope_tables(12, 4)
    q, k, v = bench.inputs(12, batch=2, heads=4, kv_heads=2)
    inputs = bench.rotate(q, *tables), bench.rotate(k, *tables), v
    got, wanted = (implementation(name, form)(*inputs, rotation=tables, **options) for form in (rung, "loops"))
    bench.assert_close(got, wanted, "output under rotation")


@on_every_rung
def test_exact_when_tells_the_truth(name, options, rung):
    lengths = [length for length in (1, 2, 4, 5, 6, 9) if MECHANISMS[name].exact_when(length, **options)]
    assert lengths
    for length in lengths:
        bench.check_full_limit(implementation(name, rung), options, length=length)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options in CASES
                                               if not MECHANISMS[name].exact_when(9, **options)], ids=label)
def test_not_exact_is_visibly_different(name, options):
    with pytest.raises(AssertionError, match="against full attention"):
        bench.check_full_limit(implementation(name, "loops"), options, length=9)


# ---------------------------------------------------------------- who reaches whom

@on_every_linear_rung
def test_partition_of_unity(name, options, rung):
    bench.check_partition_of_unity(implementation(name, rung), options, MECHANISMS[name].represented)


@on_every_rung
def test_causality_is_what_is_declared(name, options, rung):
    scope = SCOPES[MECHANISMS[name].causal_scope(**options)]
    scope(implementation(name, rung), options, MECHANISMS[name], length=10)


@on_every_linear_rung
def test_effective_is_what_v_identity_reads(name, options, rung):
    effective = with_module(MECHANISMS[name].effective, MECHANISMS[name])
    bench.check_effective(implementation(name, rung), options, effective, heads=4, kv_heads=2)


# ---------------------------------------------------------------- what must not matter

@symmetries
def test_symmetries(check, name, options, rung):
    exempt = EXEMPT.get((name, check))
    if exempt is not None and exempt.items() <= options.items():
        with pytest.raises((AssertionError, ValueError)):
            SYMMETRIES[check](implementation(name, rung), options)
    else:
        SYMMETRIES[check](implementation(name, rung), options)


@above_the_loops
def test_gradients(name, options, rung):
    form = implementation(name, rung)
    bench.check_gradients(form, options)
    bench.check_same_gradients(form, options, implementation(name, "loops"), heads=4, kv_heads=2)
