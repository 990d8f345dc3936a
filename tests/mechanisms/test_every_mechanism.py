"""Every mechanism passes the bench; a new one joins in options.py.

The loops are held to what the paper promises, and all backends to the loops, to 1e-12: what holds
for the one holds for the others. `tests/attention` asks the backends themselves.
"""

import json
from copy import deepcopy
from dataclasses import FrozenInstanceError
from functools import partial

import pytest
import torch

from cca_lab.attention import native
from cca_lab.mechanisms import MECHANISMS, Mechanism, mechanism_of
from cca_lab.mechanisms.base import EVERY_ROW, ON_INTERVALS, OWN_BLOCK, WHOLE_PROMPT
from tests.mechanisms import bench
from tests.mechanisms.forms import form, seeded_module, trains_a_module, with_module
from tests.mechanisms.options import OPTIONS, WHOLE_PAST

# (mechanism, symmetry) that does not hold, and for which options; such a check must fail.
EXEMPT: dict[tuple[str, str], dict] = {
    ("lococo", "large_logits"): {},  # weights are made from keys, not from logits
    ("lococo", "rope_translation"): {},  # and from rotated keys, wherever they point
    ("cca", "rope_translation"): {"pooling": "max"},  # a maximum of rotated features is no vector
}
SCOPES = {EVERY_ROW: lambda attend, options, select, **sizes: bench.check_causality(attend, options,
                                                                                    **sizes),
          WHOLE_PROMPT: bench.check_whole_prompt, OWN_BLOCK: bench.check_own_block}
SYMMETRIES = {check.__name__.removeprefix("check_"): check
              for check in (bench.check_large_logits, bench.check_scale,
                            bench.check_heads_interchangeable, bench.check_layouts,
                            bench.check_batch, bench.check_right_padding,
                            bench.check_rope_translation)}


def implementation(name: str, rung: str):
    cls = MECHANISMS[name]
    return with_module(cls, "loops") if rung == "loops" else with_module(cls, "attention",
                                                                         backend=rung)


def rungs(name: str) -> list[str]:
    """Those above the loops that compute in float64 here; kernels/test_mechanisms.py has "triton".
    """
    left_out = {"triton"} if native.available() else {"triton", "native"}
    return [rung for rung in MECHANISMS[name].backends if rung not in left_out]


def label(value) -> str | None:
    if not isinstance(value, dict):
        return None
    return "-".join(f"{key}{option}" for key, option in value.items()) or "plain"


def linear(name: str, options: dict) -> bool:
    """Whether the output is a matrix times v: not for a maximum, or weights made from values."""
    return options.get("pooling") != "max" and not trains_a_module(MECHANISMS[name])


CASES = [(name, options) for name in MECHANISMS for options in OPTIONS.get(name, [])]
every_name = pytest.mark.parametrize("name", MECHANISMS)
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=label)
every_linear_case = pytest.mark.parametrize(
    ("name", "options"), [case for case in CASES if linear(*case)], ids=label)


def applies(check: str, mechanism: Mechanism) -> bool:
    """Whether a symmetry can be asked of a mechanism; those that do not hold are in EXEMPT."""
    # a choice may depend on what follows: test_causality_is_what_is_declared
    return check != "right_padding" or (mechanism.causal_scope == EVERY_ROW
                                        and not mechanism.length_matters)


# ---------------------------------------------------------------- the table

def test_every_mechanism_has_small_options():
    assert set(OPTIONS) == set(MECHANISMS)
    assert all(OPTIONS.values())


@every_name
def test_rows_of_the_table_are_complete(name):
    cls = MECHANISMS[name]
    assert cls.name == name and cls.title and cls.paper
    assert "dense" in cls.backends and set(cls.backends) <= set(ON_INTERVALS)
    for options in ({}, *cls.paper_presets.values(), *OPTIONS[name],
                    *({"backend": rung} for rung in cls.backends)):
        mechanism = cls(**options)
        assert all(getattr(mechanism, option) == value for option, value in options.items())
        assert isinstance(mechanism.exact_when(64), bool)
        assert mechanism.causal_scope in SCOPES
        stored = json.loads(json.dumps(mechanism.options()))  # as config.json holds them
        assert set(cls.sizes) <= set(stored) <= set(cls.option_names())
        assert mechanism_of(name, stored) == cls(**stored) == mechanism
        for option in cls.option_names():
            with pytest.raises(FrozenInstanceError):
                setattr(mechanism, option, None)


@every_case
def test_a_choice_from_later_tokens_can_be_frozen(name, options):
    mechanism, (q, k, _) = MECHANISMS[name](**options), bench.inputs()
    assert mechanism.causal_scope == EVERY_ROW or (mechanism.chooses
                                                   and mechanism.select(q, k) is not None)


def test_the_length_matters_where_it_is_declared():
    declared = [(name, options) for name, options in CASES
                if MECHANISMS[name](**options).length_matters]
    assert declared
    for name, options in declared:
        with pytest.raises(AssertionError, match="padded on the right"):
            bench.check_right_padding(implementation(name, "loops"), options)


# ---------------------------------------------------------------- rungs and limits

@every_case
def test_rungs_agree(name, options):
    """For one token, grouped queries in a batch, and the same rotated."""
    tables = bench.rope_tables(12, 4)
    q, k, v = bench.inputs(12, batch=2, heads=4, kv_heads=2)
    turned = bench.rotate(q, *tables), bench.rotate(k, *tables), v
    for tensors, keywords in ((bench.inputs(1), {}), ((q, k, v), {}),
                              (turned, {"rotation": tables, "scale": 0.7})):
        wanted = implementation(name, "loops")(*tensors, **options, **keywords)
        for rung in rungs(name):
            got = implementation(name, rung)(*tensors, **options, **keywords)
            bench.assert_close(got, wanted, f"{rung}, {len(wanted[0, 0])} tokens, {list(keywords)}")


@every_name
def test_rungs_agree_with_tables_of_any_shape(name):
    for rung in rungs(name):
        bench.check_rope_tables(implementation(name, rung), OPTIONS[name][0],
                                implementation(name, "loops"))


@pytest.mark.parametrize("name", [name for name in MECHANISMS
                                  if not trains_a_module(MECHANISMS[name])])
def test_half_precision_stays_close_to_the_loops(name):
    """bfloat16 keeps 8 bits: a handful of roundings. The choice is given: it may flip."""
    options = OPTIONS[name][0]
    tensors = [x.bfloat16() for x in bench.inputs(16, heads=4, kv_heads=2)]
    exact = [x.double() for x in tensors]
    chosen = form(MECHANISMS[name], "select")(*exact[:2], **options)
    wanted = implementation(name, "loops")(*exact, selection=chosen, **options)
    for rung in {"dense", "blocked"} & set(rungs(name)):
        got = implementation(name, rung)(*tensors, selection=chosen, **options)
        assert got.dtype == torch.bfloat16
        bench.assert_close(got.double(), wanted, rung, tolerance=8 * 2**-8)


@every_case
def test_exact_when_tells_the_truth(name, options):
    exact = [length for length in (1, 2, 4, 5, 6, 9)
             if MECHANISMS[name](**options).exact_when(length)]
    assert exact
    for length in exact:
        bench.check_full_limit(implementation(name, "loops"), options, length=length)
    if 9 not in exact and not options.get("kept", [[]])[0]:  # with one KV head, that is all
        with pytest.raises(AssertionError, match="against full attention"):
            bench.check_full_limit(implementation(name, "loops"), options, length=9)


# ---------------------------------------------------------------- who reaches whom

@every_linear_case
def test_partition_of_unity(name, options):
    """Where rows hold their whole past, in all of it; else in what the columns say."""
    read = None if name in WHOLE_PAST else form(MECHANISMS[name], "represented")
    bench.check_partition_of_unity(implementation(name, "loops"), options, read)


@every_case
def test_represented_is_what_the_loops_read(name, options):
    bench.check_represented(form(MECHANISMS[name], "loops"), options,
                            form(MECHANISMS[name], "represented"), heads=4, kv_heads=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] in WHOLE_PAST],
                         ids=label)
def test_no_token_is_lost_whose_weight_is_rounded_to_0(name, options, dtype):
    """The mutant that looks at P alone loses tokens of cores whose logits differ by hundreds."""
    q, k, _ = (x.to(dtype) for x in bench.inputs(12, heads=4, kv_heads=2))
    whole = MECHANISMS[name](**options).represented(300 * q, k).sum(-1)
    assert torch.equal(whole, torch.arange(1, 13).expand_as(whole))


@pytest.mark.parametrize(("name", "options"), [case for case in CASES
                                               if trains_a_module(MECHANISMS[case[0]])], ids=label)
def test_represented_is_what_the_loops_read_with_a_module(name, options):
    """A module that is blind to the values, so that the output is a matrix times them."""
    module = deepcopy(seeded_module(MECHANISMS[name], 4, 2, 4, json.dumps(options)))
    with torch.no_grad():
        module.conv.weight[:, 4:] = 0
    loops, represented = (partial(form(MECHANISMS[name], method), module=module)
                          for method in ("loops", "represented"))
    bench.check_represented(loops, options, lambda q, k, **given: represented(q, k, k, **given),
                            heads=4, kv_heads=2)


@every_case
def test_causality_is_what_is_declared(name, options):
    scope = SCOPES[MECHANISMS[name](**options).causal_scope]
    scope(implementation(name, "loops"), options, form(MECHANISMS[name], "select"), length=10)


@every_linear_case
def test_effective_is_what_v_identity_reads(name, options):
    for rotation in (None, bench.rope_tables(11, 4)):
        bench.check_effective(implementation(name, "loops"), {**options, "rotation": rotation},
                              form(MECHANISMS[name], "effective"), heads=4, kv_heads=2)


# ---------------------------------------------------------------- what must not matter

@every_case
def test_symmetries(name, options):
    loops = implementation(name, "loops")
    for title, check in SYMMETRIES.items():
        exempt = EXEMPT.get((name, title))
        if exempt is not None and exempt.items() <= options.items():
            with pytest.raises((AssertionError, ValueError)):
                check(loops, options)
        elif applies(title, MECHANISMS[name](**options)):
            check(loops, options)


@every_case
def test_gradients(name, options):
    bench.check_gradients(implementation(name, "dense"), options)
    rotated = {**options, "rotation": bench.rope_tables(11, 4)}
    bench.check_same_gradients(implementation(name, "dense"), rotated,
                               implementation(name, "loops"), heads=4, kv_heads=2)


# ---------------------------------------------------------------- what is given beside q, k and v

@every_name
def test_a_selection_that_is_none_is_refused(name):
    mechanism, tensors = MECHANISMS[name](**OPTIONS[name][0]), bench.inputs()
    for selection in ("x", 3, torch.ones(2), [1, 2], (torch.ones(2), 3), {"columns": 1}):
        with pytest.raises(ValueError, match="selection: got"):
            mechanism.attention(*tensors, selection=selection)


@pytest.mark.parametrize(("name", "options"), [
    ("vertical_slash", {"vertical": 1, "slash": 2, "last": 3, "block": 10**12}),
    ("block_sparse", {"block": 10**12}),
    ("dga", {"choose": "blocks", "block": 10**12}),
    ("cca", {"group": 10**12, "window": 4}),
    ("lococo", {"slots": 10**12, "segment": 10**12})], ids=label)
def test_sizes_above_any_text_take_no_memory(name, options):
    """Dies: a table of DGA's block by its block, of which none is over."""
    mechanism, tensors = MECHANISMS[name](**options), bench.inputs()
    bench.assert_close(mechanism.attention(*tensors), mechanism.loops(*tensors), "output")
