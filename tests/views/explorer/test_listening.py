"""What the explorer hears is what a model's attention computes; the model stays as it was."""

import pytest
import torch

from cca_lab.mechanisms import CCA, Full, KeptHeads, LoCoCo, StreamingLLM
from cca_lab.models import attention_maps, attention_of, swap_attention
from cca_lab.views.explorer.listening import MOST_TOKENS, ModelText
from cca_lab.views.explorer.reading import Reading
from tests.models.tiny import TWO, text, tiny

LENGTH = 23
MECHANISMS = (CCA(group=3, window=4), StreamingLLM(sinks=1, recent=4, positions="cache"),
              KeptHeads.around(CCA(group=3, window=4), [[1], [0]]))


def maps(source, mechanism):
    return torch.stack([Reading(mechanism.at_layer(layer),
                                source.inputs(layer, mechanism)).effective
                        for layer in range(source.layers)])


@pytest.mark.parametrize("family", TWO)
def test_full_attention_and_the_model_afterwards(family):
    model, ids = tiny(family), text(LENGTH)
    before, implementation = model(ids).logits, model.config._attn_implementation
    model.train()
    source = ModelText(model, None, ids, "tiny")
    # in the other families transformers' softmax is in float32
    close = 1e-12 if family == "gpt2" else 2e-7
    assert (maps(source, Full()) - attention_maps(model, ids)).abs().max() < close
    assert model.training and model.config._attn_implementation == implementation
    assert torch.equal(model.eval()(ids).logits, before)
    assert (source.layers, source.heads, len(source.words)) == (2, 4, LENGTH)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_swapped_model_is_heard_as_it_attends(mechanism):
    """What the model heard before the swap counts no more, from the second layer on."""
    model, ids = tiny("llama"), text(LENGTH)
    source = ModelText(model, None, ids)
    before = maps(source, mechanism)
    swapped = attention_maps(swap_attention(model, mechanism), ids)
    assert (before[0] - swapped[0]).abs().max() < 1e-12 and attention_of(model) == mechanism
    assert (before[1] - swapped[1]).abs().max() > 1e-6
    assert (maps(source, mechanism) - swapped).abs().max() < 1e-12


def test_a_trained_module_is_used_and_stays_as_it_is():
    torch.manual_seed(0)
    mechanism = LoCoCo(slots=4, segment=5)
    model, ids = swap_attention(tiny("gpt2").float(), mechanism), text(LENGTH)
    shown = maps(ModelText(model, None, ids), mechanism)
    assert (shown - attention_maps(model, ids)).abs().max() < 1e-5
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_bytes_are_the_caches_own():
    from cca_lab.mechanisms.caches import CacheSizes, CCACache

    model = tiny("llama")
    source = ModelText(model, None, text(LENGTH))
    sizes = CacheSizes.of(model.config, itemsize=8)
    own, full = source.cache_bytes(CCA(group=3, window=4))
    assert own == CCACache.bytes_of(CCA(group=3, window=4), LENGTH, sizes) // 2
    assert full == 2 * 2 * 8 * LENGTH * 8 == source.cache_bytes(Full())[0]


@pytest.mark.parametrize(("ids", "named"), [(torch.zeros(1, 0, dtype=torch.int64), "text"),
                                            (torch.zeros(MOST_TOKENS + 1, dtype=torch.int64),
                                             "text"),
                                            (torch.ones(129, dtype=torch.int64), "text"),
                                            ("words", "tokenizer")])
def test_a_text_that_cannot_be_read(ids, named):
    with pytest.raises(ValueError, match=f"^{named}: got"):
        ModelText(tiny("gpt2"), None, ids)
