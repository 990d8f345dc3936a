"""Rows of different length go on in one state as each goes on alone, row by row."""

import pytest

from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching import segmented, state
from cca_lab.mechanisms.caching.segmented import Ragged
from cca_lab.mechanisms.kept_heads.cache import KeptHeadsState
from cca_lab.models import swap_attention
from tests.mechanisms.caching.checks import check_ragged, each_alone
from tests.models.tiny import tiny
from tests.studies.benchmarks.test_decode import SMALL

BLOCKS = {"group": 3, "gamma": 0.2, "choose": "blocks", "block": 8}
PROMPT = {"group": 4, "gamma": 0.25}
LOCOCO = {"slots": 4, "segment": 6, "kernel": 3, "sinks": 1, "heavy": 1}
CASES = [
    ("lococo", LOCOCO), ("lococo", {**LOCOCO, "segment": 2}), ("dga", PROMPT), ("dga", BLOCKS),
    *(("kept_heads", {"kept": [[1], [0]], "others": {"name": name, **SMALL[name]}})
      for name in ("cca", "dga", "random_tokens")),
]


def kinds_of(read):
    """The kinds of state of the layers, and of the parts of kept heads."""
    return {type(part) for one in read
            for part in (one.states.values() if isinstance(one, KeptHeadsState) else [one])}


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_rows_go_on_together_as_each_alone(name, options, monkeypatch):
    """In buffers, and in copies; the rows by themselves where much would be read in vain."""
    model = swap_attention(tiny("llama"), name, **options)
    alone = each_alone(model, CACHES[name])
    monkeypatch.setattr(segmented, "TIMES_FEW", 2**40)
    assert Ragged not in kinds_of(check_ragged(model, CACHES[name], alone))
    together = options.get("others", {}).get("name") != "random_tokens"
    for few in (1, 2**14):
        monkeypatch.setattr(state, "FEW", few)
        read = check_ragged(model, CACHES[name], alone)
        assert (Ragged in kinds_of(read)) == together


def shifted(hidden, *rest, right=segmented._mask):
    """Mutant: a row sees as many columns as its neighbour."""
    return right(hidden[1:] + hidden[:1], *rest)


def told_the_first_row(rows):
    """Mutant: what rows close together is written to the first one."""
    return slice(0, len(rows))


@pytest.mark.parametrize(("place", "mutant"), [("_mask", shifted), ("_index", told_the_first_row)])
def test_a_row_that_takes_its_neighbour_s_columns_is_caught(place, mutant, monkeypatch):
    monkeypatch.setattr(state, "FEW", 2**14)
    model = swap_attention(tiny("llama"), "lococo", **LOCOCO)
    alone = each_alone(model, CACHES["lococo"])
    monkeypatch.setattr(segmented, place, mutant)
    with pytest.raises(AssertionError, match="max error"):
        check_ragged(model, CACHES["lococo"], alone)
