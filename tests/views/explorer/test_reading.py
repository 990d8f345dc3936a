"""What the explorer shows is what the mechanisms compute, to 1e-12, for every row of each."""

import json

import numpy as np
import pytest
import torch

from cca_lab.attention import statistics as analysis
from cca_lab.mechanisms import MECHANISMS, Full, mechanism_of
from cca_lab.views.explorer.reading import Inputs, Reading
from tests.mechanisms.forms import seeded_module, trains_a_module
from tests.mechanisms.options import OPTIONS

LENGTH, HEADS, KV_HEADS, CLOSE = 11, 4, 2, 1e-12
CASES = [(name, listed[0]) for name, listed in OPTIONS.items()]
ROTATING = [("cca", {"group": 3, "window": 2}), ("cca", {"group": 3, "window": 2, "sinks": 2}),
            ("streaming_llm", {"sinks": 2, "recent": 2, "positions": "cache"}),
            ("lm_infinite", {"local": 3, "global_tokens": 2}), ("dga", {"group": 2, "gamma": 0.3})]


def inputs(dim=6, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, HEADS, LENGTH, dim, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 1, KV_HEADS, LENGTH, dim, generator=generator, dtype=torch.float64)
    return Inputs(2 * q, k, v, 0.7, **more)


def rotation(dim):
    angles = torch.arange(LENGTH)[:, None] * 10.0 ** -torch.arange(0, 2, 4 / dim)[None].repeat(1, 2)
    return angles.cos().double(), angles.sin().double()


@torch.no_grad()
def check(reading):
    """Raise AssertionError unless all rows of a reading are those that the package computes."""
    q, k, v, scale, rotated, module = reading.given
    mechanism, options = reading.mechanism, {"scale": scale, "rotation": rotated, "module": module}
    effective = mechanism.effective(q, k, v, **options)[0].numpy()
    read = mechanism.represented(q, k, v, **options)[0].numpy()
    full = Full().effective(q, k, scale=scale)[0]
    for head in range(HEADS):
        columns = reading.columns(head)
        for query in range(LENGTH):
            row = reading.row(head, query)
            # what a reader can compute from the view
            shown, held = np.zeros(LENGTH), np.zeros(LENGTH, dtype=bool)
            for column, weight in zip(row.seen, row.weights, strict=True):
                shown[columns[column].tokens] += weight * columns[column].weights
                held[columns[column].tokens] = True
            assert row.query == query
            assert abs(row.weights.sum() - 1) < CLOSE and (row.weights >= 0).all()
            assert not held[query + 1:].any(), "a column holds a later token"
            assert np.abs(row.effective - effective[head, query]).max() < CLOSE
            assert np.abs(shown - effective[head, query]).max() < CLOSE, "A P differs from E"
            assert np.abs(row.full - full[head, query].numpy()).max() < CLOSE
            assert (held == read[head, query]).all()
            check_numbers(row.numbers, row, read[head, query])


def check_numbers(numbers, row, read):
    own, full = row.effective.tolist(), row.full.tolist()
    assert abs(numbers.lost - sum(weight for weight, seen in zip(full, read, strict=True)
                                  if not seen)) < CLOSE
    assert abs(numbers.distance - sum(abs(a - b) for a, b in zip(own, full, strict=True))
               / 2) < 1e-9
    assert (numbers.k90, numbers.k90_full) == tuple(analysis.keys_for_mass_loops(x, 0.9)
                                                    for x in (own, full))
    assert abs(numbers.entropy - analysis.entropy_loops(own)) < 1e-9
    assert abs(numbers.entropy_full - analysis.entropy_loops(full)) < 1e-9


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_mechanism(name, options):
    module = None
    if trains_a_module(MECHANISMS[name]):
        module = seeded_module(MECHANISMS[name], HEADS, KV_HEADS, 6, json.dumps(options))
    check(Reading(mechanism_of(name, options), inputs(module=module)))


@pytest.mark.parametrize(("name", "options"), ROTATING)
def test_rotary_positions(name, options):
    reading = Reading(mechanism_of(name, options), inputs(rotation=rotation(6)))
    check(reading)
    if name in ("streaming_llm", "lm_infinite"):
        assert len(reading.column_sets) == 2 and reading.kinds[-2:] == ["sink", "sink"]


@pytest.mark.parametrize(("name", "options", "wanted"), [
    ("full", {}, ["raw"] * 11),
    ("cca", {"group": 3, "window": 4, "sinks": 2}, ["core"] + ["sink"] * 2 + ["raw"] * 9),
    ("cca", {"sinks": 20}, ["sink"] * 11),
    ("random_tokens", {"group": 3, "window": 4, "sinks": 1},
     ["kept"] * 2 + ["sink"] + ["raw"] * 10),
    ("dga", {"group": 3, "gamma": 0.2}, ["focal"] * 2 + ["group"] * 3 + ["raw"] * 9),
    ("lococo", {"slots": 3, "segment": 2}, ["slot"] * 12 + ["raw"] * 11),
    ("streaming_llm", {"sinks": 2, "recent": 3}, ["sink"] * 2 + ["raw"] * 9),
    ("h2o", {"heavy": 2, "recent": 2}, ["raw"] * 11),
    ("kept_heads", {"kept": [[0]], "others": {"name": "cca", "group": 3, "window": 4}},
     ["raw"] * 11 + ["core"] * 2 + ["raw"] * 11),
    ("kept_heads", {"kept": [[0, 1]]}, ["raw"] * 11)])
def test_kinds(name, options, wanted):
    reading = Reading(mechanism_of(name, options), inputs())
    assert reading.kinds == wanted
    pooled = {"core", "group", "slot"}
    assert all(kind in pooled or len(column.tokens) == 1
               for kind, column in zip(wanted, reading.columns(0), strict=True))


def test_pairs_are_the_closed_form():
    from cca_lab.mechanisms.cca.groups import pairs

    assert Reading(mechanism_of("cca", {"group": 3, "window": 4}),
                   inputs()).pairs(1) == pairs(LENGTH, 3, 4)
