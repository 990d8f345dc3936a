"""Calls that would give a wrong result in silence, each refused in one ValueError."""

import pytest
import torch

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models import swap_attention
from tests.mechanisms.options import OPTIONS
from tests.models.tiny import FAMILIES, logits, text, tiny

OTHER_SIZES = {"layers": {"n_layer": 3}, "heads": {"n_head": 2}, "width": {"n_embd": 64}}


@pytest.mark.parametrize("size, name", [(size, "cca") for size in OTHER_SIZES]
                         + [("width", name) for name in CACHES if name != "cca"])
def test_a_cache_of_another_model_is_refused(size, name):
    """The mutant that compares mechanisms only ends in an IndexError or in sizes of tensors."""
    options, ids = OPTIONS[name][0], text(12)
    model = swap_attention(tiny("gpt2"), name, **options)
    other = swap_attention(tiny("gpt2", **OTHER_SIZES[size]), name, **options)
    for read in (0, 8):  # an empty cache, too
        cache = CACHES[name](model)
        if read:
            logits(model, ids[:, :read], past_key_values=cache)
        with pytest.raises(ValueError, match="^past_key_values: the cache was made for"):
            logits(other, ids[:, read:], past_key_values=cache)
    again = swap_attention(tiny("gpt2"), name, **options)  # of the same sizes
    assert torch.equal(logits(again, ids, past_key_values=CACHES[name](model)),
                       logits(model, ids, past_key_values=CACHES[name](model)))


@pytest.mark.parametrize(("name", "options"), [(name, options) for name in CACHES
                                               for options in OPTIONS[name][:2]
                                               if isinstance(options.get("segment", 1), int)],
                         ids=str)
def test_rows_of_a_cache_can_be_repeated_and_chosen(name, options):
    model, ids, rows = swap_attention(tiny("llama"), name, **options), text(25, rows=2), [1, 0, 1]
    caches = [CACHES[name](model) for _ in range(2)]
    for cache in caches:
        logits(model, ids[:, :21], past_key_values=cache)
    caches[1].batch_repeat_interleave(3)
    caches[1].batch_select_indices(torch.tensor([5, 0, 4]))
    for part in ids[:, 21:].split([1, 3], dim=1):
        wanted = logits(model, part, past_key_values=caches[0])
        got = logits(model, part[rows], past_key_values=caches[1])
        assert (got - wanted[rows]).abs().max() < 1e-10
    caches[1].reset()
    assert caches[1].get_seq_length() == caches[1].nbytes() == 0


@pytest.mark.parametrize("change, named", [
    (lambda cache: cache.reorder_cache(torch.tensor([0, -1])), "rows: got"),
    (lambda cache: cache.batch_select_indices(torch.tensor([], dtype=torch.long)), "rows: got"),
    (lambda cache: cache.batch_repeat_interleave(-1), "repeats: got -1"),
    (lambda cache: cache.batch_repeat_interleave(0), "repeats: got 0")])
def test_rows_that_a_cache_has_not_are_refused(change, named):
    """The mutant without the check takes the last row for -1, and leaves an empty cache."""
    model = swap_attention(tiny("gpt2"), "cca", **OPTIONS["cca"][0])
    cache = CACHES["cca"](model)
    logits(model, text(8, rows=2), past_key_values=cache)
    with pytest.raises(ValueError, match=f"^{named}"):
        change(cache)


IDS = text(9, rows=2)
FORWARDS = {  # what transformers would read, and give a wrong result
    "negative positions": (dict(input_ids=IDS, position_ids=torch.arange(9)[None] - 5),
                           "position_ids: got -5"),
    "a mask of weights": (dict(input_ids=IDS, attention_mask=torch.full((2, 9), 0.5)),
                          "attention_mask: got other numbers"),
    "a mask of twos": (dict(input_ids=IDS, attention_mask=torch.full((2, 9), 2)),
                       "attention_mask: got other numbers")}


@pytest.mark.parametrize("kind", FORWARDS)
def test_inputs_that_no_model_reads_are_named(kind):
    given, named = FORWARDS[kind]
    for family in FAMILIES:
        with pytest.raises(ValueError, match=f"^{named}"):
            swap_attention(tiny(family), "cca", group=3, window=4)(**given)
