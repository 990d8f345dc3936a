"""What the page holds: weights, mechanisms, questions, cache sizes; and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config

from cca_lab import files, load_pretrained, swap_attention
from cca_lab.attention import statistics
from cca_lab.mechanisms import MECHANISMS, Mechanism, mechanism_of
from cca_lab.models.mini import new_model
from cca_lab.views.page.data import page_data, vocabulary
from cca_lab.views.page.mechanisms import CONTROLS, check_options, controls, kept
from cca_lab.views.page.weights import MOST_ERROR, half, pack, steps, tensors
from tests.attention.test_statistics import causal_maps
from tests.views.page.conftest import SHIPPED
from tests.views.page.node import needs_node, run


def on_intervals(cls: type[Mechanism]) -> bool:
    """Whether the page can compute it: rows see intervals, and no module is trained."""
    mechanism = cls()
    heads, tokens, dim = 4, 8, 4
    q, k, v = torch.randn(3, 1, heads, tokens, dim, generator=torch.Generator().manual_seed(0))
    groups = mechanism.columns(q, k, v, mechanism.call(q, k, v))
    trained = mechanism.new_module(GPT2Config(n_head=heads, n_embd=heads * dim))
    return trained is None and all(columns.visible.dtype == torch.int64 for columns in groups)


def test_the_mechanisms_are_those_on_intervals():
    """A mechanism that is added to the package, and whose rows see intervals, is asked for here."""
    assert set(CONTROLS) == {name for name, cls in MECHANISMS.items() if on_intervals(cls)}
    for mechanism in controls(64):
        for option in mechanism["options"]:
            check_options(mechanism["name"], {option["name"]: option["value"]})


@needs_node
def test_the_program_has_the_same_mechanisms_and_a_label_for_each_option():
    names = run("names", {})
    assert set(names["mechanisms"]) == set(CONTROLS)
    assert set(names["labels"]) == {option for options in CONTROLS.values() for option in options}


@needs_node
def test_weights_are_unpacked_within_the_error_that_is_said(data):
    for number, (source, packed) in enumerate(zip(SHIPPED, data["packed"]["models"], strict=True)):
        answers = run("weights", {"packed": data["packed"], "model": number})
        weights = tensors(load_pretrained(source)[0])
        worst = max(float((torch.tensor(ours) - theirs.flatten()).abs().max())
                    for ours, theirs in zip(answers, weights.values(), strict=True))
        assert worst == pytest.approx(packed["error"], abs=1e-9) and packed["error"] < MOST_ERROR
    exact, finetuned = data["packed"]["models"]
    assert exact == {"parts": [0], "error": 0.0}, "a model saved in float16 is exact"
    assert finetuned["parts"] == [0, 1], "a finetuned model is a difference"


def test_steps_are_finer_than_float16():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    error = {make: float((make(x)[1] - x).abs().max()) for make in (half, steps)}
    assert error[steps] < error[half] / 5
    assert error[steps] <= float(x.abs().max()) / 32767 / 2 * 1.01


def test_another_model_in_float32_needs_no_base():
    model = new_model("gpt2", vocabulary=64, context=16, width=32, layers=1, heads=2)
    packed = pack([model], ["own"])
    assert [part["kind"] for part in packed.parts] == ["half", "steps"]
    assert packed.models[0]["error"] < MOST_ERROR


@needs_node
def test_rows_are_those_of_the_package(data):
    """What the view shows: E, the number of pairs and the entries of a cache."""
    model, tokenizer = load_pretrained(SHIPPED[0], "full")
    model.set_attn_implementation("eager")  # which returns its weights
    ids = tokenizer.encode("A map drawn by Marta Keller.\nA song written by Omar Lindt.\n" * 4)
    options = {"cca": {"group": 4, "window": 9, "pooling": "softmax"},
               "mean_pooling": {"group": 3, "window": 5},
               "random_tokens": {"group": 4, "window": 9},
               "streaming_llm": {"sinks": 2, "recent": 10},
               "lm_infinite": {"local": 11, "global_tokens": 3},
               "a_shape": {"sinks": 2, "window": 10}, "full": {}, "longlora": {"group": 9},
               "dga": {"group": 3, "gamma": 0.2, "choose": "blocks", "block": 20}}
    cases = [{"model": 0, "name": name,
              "options": own | ({"kept": kept(512)} if name == "random_tokens" else {})}
             for name, own in options.items()]
    lengths = [1, 7, 40, 500]
    answers = run("looks", {"packed": data["packed"], "cases": cases, "ids": ids, "layer": 1,
                          "head": 2, "lengths": lengths})
    for (name, own), ours in zip(options.items(), answers, strict=True):
        swap_attention(model, name, **own)
        with torch.no_grad():
            theirs = model(torch.tensor([ids]), output_attentions=True).attentions[1][0, 2]
        if name == "full":
            assert ours["cost"]["pairs"] == ours["cost"]["all"] == len(ids) * (len(ids) + 1) / 2
        for i, row in enumerate(ours["rows"]):
            effective = torch.tensor(row["effective"], dtype=torch.float32)
            assert torch.allclose(effective, theirs[i, :i + 1], atol=1e-5), (name, i)
            assert sum(row["weights"]) == pytest.approx(1)
            assert len(row["seen"]) == len(row["weights"])
        wanted = [mechanism_of(name, own).cache_entries(length) for length in lengths]
        assert ours["entries"] == (lengths if name == "full" else wanted), name


@needs_node
def test_questions_are_those_of_the_package(data):
    tokenizer = load_pretrained(SHIPPED[0])[1]
    words, positions, offsets = data["questions"], data["packed"]["config"]["positions"], [0, 1, 15]
    job = {"words": words, "positions": positions, "seeds": [0, 1, 2], "offsets": offsets}
    for kind, drawn in zip(words["kinds"], run("questions", job), strict=True):
        for one in drawn:
            lengths = {len(document["ids"]) for document in one["documents"]}
            assert lengths <= ({8} if "8 tokens" in kind["title"] else set(range(5, 21)))
            names = [document["ids"][document["at"] - 1] for document in one["documents"]]
            assert len(set(names)) == len(names) > 20 and set(names) <= set(words["first"])
            for offset, asked in zip(offsets, one["asked"], strict=True):
                for document, question in zip(one["documents"], asked, strict=True):
                    text = tokenizer.decode(question["ids"])
                    assert len(question["ids"]) <= positions and question["answer"] in words["last"]
                    before = tokenizer.decode(words["before"][len(words["before"]) - offset:])
                    assert text.startswith(before + tokenizer.decode(one["documents"][0]["ids"]))
                    assert text.endswith(tokenizer.decode(document["ids"][:document["at"]]))
        assert drawn[0]["documents"] != drawn[1]["documents"]


@needs_node
def test_numbers_are_those_of_the_package():
    own, full = causal_maps(9, 9, seed=1)[3], causal_maps(9, 9, seed=2)[3]
    rows = [{"query": i, "seen": list(range(0, i + 1, 2)) or [0],
             "effective": own[i, : i + 1].tolist(), "full": full[i, : i + 1].tolist()}
            for i in range(9)]
    columns = [{"tokens": [t], "weights": [1]} for t in range(9)]
    answers = run("numbers", {"rows": rows, "columns": columns})
    for i, numbers in enumerate(answers):
        lost = sum(float(full[i, t]) for t in range(i + 1) if t % 2)
        wanted = {"lost": lost, "distance": 1 - float(statistics.overlap(own[i], full[i])),
                  "k90": int(statistics.k90(own[i])), "k90Full": int(statistics.k90(full[i])),
                  "entropy": float(statistics.entropy(own[i])),
                  "entropyFull": float(statistics.entropy(full[i]))}
        assert numbers == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name, options, words", [
    ("h2o", {}, "attention: got 'h2o', wanted one of full, cca"),
    ("cca", {"group": 65}, "group: got 65, wanted 1 to 64"),
    ("cca", {"pooling": "max"}, "pooling: got 'max', wanted one of softmax, mean"),
    ("full", {"group": 8}, "group: not an option of 'full' on the page, wanted none"),
    ("cca", {"sinks": 4}, "sinks: not an option of 'cca' on the page, wanted group"),
])
def test_attention_is_refused_at_the_door(name, options, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        check_options(name, options)


def test_models_are_refused_at_the_door():
    def small(**sizes):
        return new_model("gpt2", **{"vocabulary": 64, "context": 16, "width": 32, "layers": 1,
                                    "heads": 2, **sizes})

    gelu = small()
    gelu.config.activation_function = "gelu_new"
    for call, message in [
            (lambda: page_data(["data/models/gpt2-mini", "data/models/opt-mini"]),
             "model: data/models/opt-mini is a 'opt', wanted a GPT-2"),
            (lambda: page_data(["no/such"]), "path_or_name: could not load 'no/such'"),
            (lambda: pack([gelu], ["mine"]),
             "model: mine has activation_function = 'gelu_new', wanted 'relu'"),
            (lambda: pack([load_pretrained(SHIPPED[0])[0], small()], [SHIPPED[0], "small"]),
             "model: small has .*, wanted the sizes of .*gpt2-mini"),
            (lambda: pack([small(width=30, heads=5)], ["narrow"]),
             "model: narrow has heads of 6 numbers, wanted a multiple of 4"),
            (lambda: pack([small(width=512)], ["large"]),
             "model: large would take 8.5 MB or more, wanted a page of at most 8 MB"),
            (lambda: vocabulary(None, "mine"), "tokenizer: mine has none, wanted byte-level BPE")]:
        with pytest.raises(ValueError, match=f"^{message}"):
            call()


def test_other_words_are_refused(tmp_path):
    """A model whose tokenizer differs in one merge.

    The first model's would read its text wrongly.
    """
    other = tmp_path / "other"
    shutil.copytree(files.shipped_model(Path(SHIPPED[0])), other)
    settings = json.loads((other / "tokenizer.json").read_text())
    settings["model"]["merges"] = settings["model"]["merges"][:-1]
    (other / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(
            ValueError,
            match="^tokenizer: that of .*other differs from that of data/models/gpt2-mini"):
        page_data([SHIPPED[0], str(other)])
