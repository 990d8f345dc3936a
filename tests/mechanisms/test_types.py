"""A bool is a bool, and no number is one, in every public dataclass of the mechanisms."""

from dataclasses import fields
from typing import get_type_hints

import pytest
import torch

from cca_lab import MECHANISMS, MInference, pool_groups
from cca_lab.mechanisms.caches import CacheSizes
from cca_lab.mechanisms.dga.selection import FocalRule
from cca_lab.mechanisms.lococo import Settings

SIZES = {CacheSizes: {"layers": 2, "kv_heads": 2, "head_dim": 4}}
WRONG = {bool: ("no", 1, 0.0, None), float: (True, False)}
CASES = [(kind, each.name, wrong)
         for kind in (*MECHANISMS.values(), FocalRule, Settings, CacheSizes)
         for each in fields(kind) if each.init
         for wrong in WRONG.get(get_type_hints(kind)[each.name], ())]


def test_the_cases_are_those_of_every_mechanism_with_such_options():
    assert {(kind.__name__, name) for kind, name, _ in CASES} >= {
        ("CCA", "per_query_head"), ("DGA", "gamma"),
        ("BlockSparse", "force_diagonal"), ("CacheSizes", "rotary")}


@pytest.mark.parametrize("kind, name, wrong", CASES)
def test_another_type_is_refused_by_name(kind, name, wrong):
    """The mutant that goes by truth takes "no" for True."""
    kind(**SIZES.get(kind, {}))
    with pytest.raises(ValueError, match=f"^{name}: got {wrong!r}, wanted"):
        kind(**SIZES.get(kind, {}), **{name: wrong})


def test_pool_groups_takes_no_word_for_true():
    x = torch.randn(1, 2, 8, 4)
    with pytest.raises(ValueError, match="per_query_head: got 'yes', wanted true or false"):
        pool_groups(x, x, x, 4, per_query_head="yes")


def test_a_list_of_patterns_that_changes_later_changes_no_mechanism():
    patterns = [{"pattern": "a_shape", "sinks": 2, "window": 4}]
    mechanism = MInference(patterns=patterns)
    patterns[0]["window"] = -1
    assert mechanism.patterns == [{"pattern": "a_shape", "sinks": 2, "window": 4}]
