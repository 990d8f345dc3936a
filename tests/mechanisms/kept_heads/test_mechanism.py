"""Kept heads: a layer by hand, any mechanism beside them, layers that differ, refused options."""

import json

import pytest
import torch

from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms import CCA, MECHANISMS, Full, KeptHeads, mechanism_of
from cca_lab.mechanisms.kept_heads.mechanism import OTHERS, best_heads
from cca_lab.models import attention_maps, attention_of, load_pretrained, save_pretrained
from cca_lab.models.plugin import group_size, swap_attention
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mechanisms.options import OPTIONS
from tests.models.tiny import TWO, logits, text, tiny
from tests.mutants import kept_heads as wrong

BESIDE = [(name, options) for name in OTHERS for options in OPTIONS[name][:2]]
GROUPED = {"heads": 6, "kv_heads": 3}
CCA_OTHERS = {"name": "cca", "group": 2, "window": 3, "sinks": 1}


def test_heads_worked_by_hand():
    """Two heads, logits 0, values 1, 2, 9: one reads all tokens, the other the last alone."""
    q = k = torch.zeros(1, 2, 3, 1, dtype=torch.float64)
    v = torch.tensor([1.0, 2.0, 9.0], dtype=torch.float64).expand(1, 2, 3).unsqueeze(-1)
    window = MECHANISMS["streaming_llm"](sinks=0, recent=0)
    got = KeptHeads.around(window, [[1]]).loops(q, k, v)[0, :, 2, 0]
    assert got.tolist() == pytest.approx([9.0, 4.0], abs=1e-12)


def by_hand(other, kept, q, k, v, **keywords):
    """Both mechanisms on their own KV heads, one head at a time."""
    each, outputs = q.shape[1] // k.shape[1], []
    for head in range(k.shape[1]):
        own = q[:, head * each:(head + 1) * each], k[:, head:head + 1], v[:, head:head + 1]
        mechanism = Full() if head in kept else other
        outputs.append(mechanism.loops(*own, **keywords))
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("kept", [[], [0], [2], [0, 2], [0, 1, 2]], ids=str)
def test_each_head_is_that_of_its_mechanism(kept):
    for name in ("cca", "streaming_llm", "random_tokens"):
        check_each_head(KeptHeads, mechanism_of(name, OPTIONS[name][0]), kept)


def check_each_head(cls, other, kept):
    tensors = bench.inputs(11, batch=2, **GROUPED)
    wanted = by_hand(other, kept, *tensors)
    for method in ("loops", "attention"):
        got = getattr(cls.around(other, [kept]), method)(*tensors)
        bench.assert_close(got, wanted, "heads")


@pytest.mark.parametrize("mutant", [wrong.KeepsQueryHeads, wrong.OutOfOrder])
def test_mutants_are_killed(mutant):
    with pytest.raises(AssertionError, match="heads"):
        check_each_head(mutant, CCA(group=2, window=3), [1])


@pytest.mark.parametrize(("name", "options"), BESIDE, ids=str)
def test_any_mechanism_beside_kept_heads(name, options):
    """Loops, attention and the matrix E agree; a choice of tokens can be used again."""
    mechanism = KeptHeads.around(mechanism_of(name, options), [[1]])
    q, k, v = bench.inputs(11, batch=2, **GROUPED)
    given = {"selection": mechanism.select(q, k)}
    wanted = mechanism.loops(q, k, v, **given)
    bench.assert_close(mechanism.attention(q, k, v, **given), wanted, "attention")
    matrix = mechanism.effective(q, k, **given)
    bench.assert_close(matrix @ expand_heads(v, 6), wanted, "the matrix times v")
    assert torch.equal(matrix > 0, mechanism.represented(q, k, **given))
    assert mechanism.causal_scope == mechanism.other.causal_scope


def test_the_bench_with_one_of_two_kv_heads_kept():
    """What the bench asks of every mechanism, at sizes at which some heads are not kept."""
    options, sizes = {"kept": [[1]], "others": CCA_OTHERS}, {"heads": 4, "kv_heads": 2}
    attend, loops = form(KeptHeads, "attention"), form(KeptHeads, "loops")
    bench.check_same(attend, options, loops, **sizes)
    bench.check_partition_of_unity(attend, options, **sizes)
    bench.check_causality(attend, options, **sizes)
    bench.check_effective(attend, options, form(KeptHeads, "effective"), **sizes)
    bench.check_represented(loops, options, form(KeptHeads, "represented"), **sizes)
    bench.check_same_gradients(attend, options, loops, **sizes)


def test_a_model_keeps_the_heads_of_each_layer(tmp_path):
    check_layers(KeptHeads, tmp_path)
    with pytest.raises(AssertionError, match="a kept head has no core"):
        check_layers(wrong.OfTheFirstLayer, tmp_path / "wrong")


def check_layers(cls, folder):
    """In a model of two layers, the maps of the kept heads alone are those of full attention."""
    kept, ids = [[0], [1]], text(23)
    mechanism = cls.around(CCA(group=4, window=3), kept)
    model = tiny("llama").float()
    for layer, heads in enumerate(kept):
        tensors = bench.inputs(23, heads=4, kv_heads=2)
        got = mechanism.at_layer(layer).effective(*tensors)
        full = Full().effective(*tensors)
        same = [bool(torch.equal(got[:, h], full[:, h])) for h in range(4)]
        assert same == [h // 2 in heads for h in range(4)], "a kept head has no core"
    swap_attention(model, KeptHeads.around(CCA(group=4, window=3), kept))
    save_pretrained(model, folder / "model")
    loaded, _ = load_pretrained(folder / "model")
    assert attention_of(loaded) == attention_of(model)
    assert torch.equal(logits(loaded, ids), logits(model, ids))


@pytest.mark.parametrize("family", TWO)
def test_all_heads_kept_is_the_model_itself(family):
    model, ids = tiny(family), text(23, rows=2)
    wanted, kv_heads = logits(model, ids), 4 if family == "gpt2" else 2
    swap_attention(model, KeptHeads.around(CCA(group=4, window=3), [list(range(kv_heads))]))
    bench.assert_close(logits(model, ids), wanted, "logits", 1e-10)
    maps = attention_maps(model, ids[:1])
    swap_attention(model, "full")
    # transformers computes them in float32
    bench.assert_close(maps, attention_maps(model, ids[:1]), "maps", 1e-6)


@pytest.mark.parametrize(("options", "words"), [
    ({"kept": [[0, 0]]}, "wanted each head once"),
    ({"kept": [[-1]]}, r"kept\[0\]: got -1"),
])
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        KeptHeads(**options)


def test_heads_that_the_model_does_not_have_are_refused():
    q, k, v = bench.inputs(5, heads=4, kv_heads=2)
    with pytest.raises(ValueError, match="kept: got head 2, wanted numbers of the 2 KV heads"):
        KeptHeads(kept=[[2]]).attention(q, k, v)
    with pytest.raises(ValueError, match="kept: got lists for 3 layers and the tensors of one"):
        KeptHeads(kept=[[], [], []]).attention(q, k, v)
    with pytest.raises(ValueError, match="kept: got lists for 3 layers, and no layer 3"):
        KeptHeads(kept=[[], [], []]).at_layer(3)
    with pytest.raises(ValueError, match="kept: got lists for 3 layers, wanted one for each of 2"):
        swap_attention(tiny("llama"), KeptHeads(kept=[[], [], []]))
    with pytest.raises(ValueError, match="kept: got head 3"):
        swap_attention(tiny("llama"), KeptHeads(kept=[[0], [3]]))


def test_what_the_caller_keeps_may_change():
    kept, others = [[0]], {"name": "cca", "group": 4}
    mechanism = KeptHeads(kept=kept, others=others)
    kept[0].append(7)
    others["group"] = 0
    assert mechanism == KeptHeads(kept=[[0]], others={"name": "cca", "group": 4})
    assert mechanism_of("kept_heads", json.loads(json.dumps(mechanism.options()))) == mechanism


def test_sizes_are_written_though_they_are_defaults():
    """Else groups would not grow while a model is trained."""
    assert KeptHeads(others={"name": "cca"}) == KeptHeads.around(CCA(), [[0]])
    model = swap_attention(tiny("llama"), KeptHeads(others={"name": "cca"}))
    with group_size(model, lambda size: size // 4):
        assert attention_of(model).other == CCA(group=4)
    assert attention_of(model).other == CCA()


def test_a_choice_is_refused_where_all_heads_are_kept():
    q, k, v = bench.inputs(11, heads=4, kv_heads=2)
    dga = MECHANISMS["dga"](group=2, gamma=0.3)
    with pytest.raises(ValueError, match="selection: got Tensor, wanted None"):
        KeptHeads.around(dga, [[0, 1]]).attention(q, k, v, selection=dga.select(q, k))


def test_the_best_heads_are_those_of_the_highest_scores():
    scores = [[0.1, 0.5], [0.5, 0.2], [0.0, 0.9]]
    assert best_heads(scores, 0) == [[], [], []]
    assert best_heads(scores, 2) == [[1], [], [1]]
    assert best_heads(scores, 4) == [[1], [0, 1], [1]]
    for count in (-1, 7, True, 1.0):
        with pytest.raises(ValueError, match="count: got"):
            best_heads(scores, count)
