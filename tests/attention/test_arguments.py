"""What is no tensor, whole number, finite scale or pair of tables is refused by name."""

import numpy as np
import pytest
import torch

from cca_lab.attention import (
    causal_intervals,
    count_pairs,
    interval_attention,
    masked_attention,
    pool_groups,
    pooling_matrix,
    visible_mask,
)
from cca_lab.mechanisms import MECHANISMS
from cca_lab.settings import LARGEST
from tests.mechanisms import bench
from tests.mechanisms.forms import with_module
from tests.mechanisms.options import OPTIONS

Q, K, V = bench.inputs(6)
TABLE, MASK = causal_intervals(6), torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
ATTENTIONS = {
    "interval_attention": lambda q=Q, k=K, v=V, **more: interval_attention(q, k, v, TABLE, **more),
    "masked_attention": lambda q=Q, k=K, v=V, **more: masked_attention(q, k, v, MASK, **more),
    "pool_groups": lambda q=Q, k=K, v=V, **more: pool_groups(q, k, v, **{"group": 2, **more}),
}
every_attention = pytest.mark.parametrize("attend", ATTENTIONS.values(), ids=ATTENTIONS)
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
NO_TENSORS = {"a list": [[1.0]], "None": None, "numpy": Q.numpy(), "text": "q"}
no_tensor = pytest.mark.parametrize("value", NO_TENSORS.values(), ids=NO_TENSORS)
not_finite = pytest.mark.parametrize("scale",
                                     [float("nan"), float("inf"), -float("inf"), "1", [1.0]])


def run(name: str, *tensors, **options):
    return with_module(MECHANISMS[name], "attention")(*tensors, **{"backend": "dense", **options})


@no_tensor
@every_attention
def test_attention_takes_tensors(attend, value):
    for name in "qk":
        with pytest.raises(ValueError, match=f"{name}: got .*wanted a tensor"):
            attend(**{name: value})


@every_mechanism
def test_mechanisms_take_tensors(name):
    for place, tensors in enumerate([([[1.0]], K, V), (Q, None, V), (Q, K, V.numpy())]):
        with pytest.raises(ValueError, match=f"{'qkv'[place]}: got .*wanted a tensor"):
            MECHANISMS[name](**OPTIONS[name][0]).attention(*tensors)


@every_mechanism
def test_mechanisms_take_one_floating_dtype(name):
    for tensors, words in (((Q.float(), K, V), "k: got torch.float64, wanted torch.float32"),
                           ((Q.long(), K.long(), V.long()),
                            "q: got torch.int64, wanted a floating dtype")):
        with pytest.raises(ValueError, match=words):
            MECHANISMS[name](**OPTIONS[name][0]).attention(*tensors)


@no_tensor
@pytest.mark.parametrize(
    "call", [lambda x: visible_mask(x, 6), count_pairs, lambda x: pooling_matrix(x, 6),
             lambda x: masked_attention(Q, K, V, x), lambda x: interval_attention(Q, K, V, x),
             lambda x: MECHANISMS["dga"](group=2, gamma=0.3).select(x, K)])
def test_what_stands_beside_takes_tensors_too(call, value):
    with pytest.raises(ValueError, match="wanted a .*tensor"):
        call(value)


@pytest.mark.parametrize(("name", "options"), [("dga", {"group": 2, "gamma": 0.3}),
                                               ("block_sparse", {"block": 2, "top_k": 2})])
def test_choices_are_named(name, options):
    with pytest.raises(ValueError, match="selection: got list"):
        MECHANISMS[name](**options).attention(Q, K, V, selection=[1])


@pytest.mark.parametrize("patterns", [3, None, "x", [1.0], [{"pattern": [1]}]])
def test_patterns_are_named(patterns):
    with pytest.raises(ValueError, match="patterns: got"):
        MECHANISMS["minference"](patterns=patterns)


@every_mechanism
def test_a_backend_is_a_name(name):
    for backend in (None, 3, "fast"):
        with pytest.raises(ValueError, match="backend"):
            MECHANISMS[name](**OPTIONS[name][0], backend=backend)


@not_finite
@every_attention
def test_attention_takes_a_finite_scale(attend, scale):
    with pytest.raises(ValueError, match="scale: got .*wanted a finite number"):
        attend(scale=scale)


@pytest.mark.parametrize("rotation", [3, "cos", (Q,), (Q[0, 0], [1.0]), (Q[0, 0], Q[0, 0, :3])])
def test_rotary_tables_are_a_pair_of_tensors(rotation):
    for call in (lambda: pool_groups(Q, K, V, 2, rotation=rotation),
                 lambda: MECHANISMS["cca"](group=2, window=2).attention(Q, K, V,
                                                                        rotation=rotation)):
        with pytest.raises(ValueError, match="rotation: got .*wanted .cos, sin."):
            call()


def integers_of(name: str) -> list[tuple[dict, str]]:
    """Return each set of options with the name of each integer option in it."""
    return [(options, option) for options in OPTIONS[name]
            for option, value in options.items() if type(value) is int]


@every_mechanism
def test_numpy_integers_are_integers_and_others_are_not(name):
    for options, option in integers_of(name):
        value = options[option]
        got = run(name, Q, K, V, **options | {option: np.int64(value)})
        assert torch.equal(got, run(name, Q, K, V, **options)), option
        for wrong in (True, 2.5, "2", None, np.uint8(2), LARGEST + 1, 10**30, -1):
            if (option, wrong) in {("prompt", None), ("limit", None), ("group", 2.5),
                                   ("heavy", 2.5), ("recent", 2.5)}:
                continue
            with pytest.raises(ValueError, match=option):
                MECHANISMS[name](**options | {option: wrong})
