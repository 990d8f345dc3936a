"""A bad call is answered in one line with exit status 2, before any work, and leaves nothing."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.models import load_pretrained, save_pretrained
from tests.studies import small


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0])
    (folder / "file").write_text("")
    (folder / "list.json").write_text("[]")
    save_pretrained(small.model(), folder / "base", small.tokenizer())
    return folder


def refused(words, *told):
    """Run a command line, which must end in one line that says all of `told`."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 2, (done.exit_code, done.output, repr(done.exception))
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and done.stdout == "", done.output
    for words in told:
        assert words in lines[0], lines[0]


def evaluate(home, *more, model=None):
    text = [] if "--text" in more else ["--text", home / "text.txt"]
    return ["evaluate", "--model", model or home / "base", "--length", 64, *text, *more]


FINETUNE = ["finetune", "--model", "{home}/base", "--text", "{home}/text.txt", "--out",
            "{home}/run"]
PRETRAIN = ["pretrain", "--text", "{home}/text.txt", "--out", "{home}/pre"]
RECOVER = ["study", "recover", "--model", "{home}/base", "--text", "{home}/text.txt"]
NOISE = ["study", "noise", "--model", "{home}/base", "--text", "{home}/text.txt", "--out",
         "{home}/n.json"]
SPARSITY = ["study", "sparsity", "--model", "{home}/base", "--text", "{home}/text.txt", "--out",
            "{home}/s.json"]


@pytest.mark.parametrize("option, told", [
    ("name=cca", "name: not an option"), ("model=", "model: not an option"),
    ("attention=", "attention: not an"), ("path_or_name=", "path_or_name: not an option"),
    ("backend=[1]", "backend: got [1], wanted text"),
    ("per_query_head=maybe", "per_query_head: got 'maybe', wanted true or false"),
    ("per_query_head=1", "wanted true or false"),
    ("window=true", "window: got True, wanted a whole number"), ("window=1e400", "window: got inf"),
    (f"window={10**30}", f"window: got {10**30}"), (f"window={'9' * 5000}", "window: got"),
    ("group=8", "group: given twice"), ("scale", "wanted NAME=VALUE")])
@pytest.mark.parametrize("command", ["evaluate", "finetune", "pretrain"])
def test_an_option_of_a_mechanism_has_its_own_name_and_type(home, command, option, told):
    start = {"evaluate": evaluate(home), "finetune": FINETUNE, "pretrain": PRETRAIN}[command]
    refused([str(word).format(home=home) for word in start] +
            ["--attention", "cca", "--group", 4, "--option", option], told)


@pytest.mark.parametrize(
    "words, told",
    [([*FINETUNE, "--learning-rate", "inf"], "learning-rate: got inf"),
     ([*FINETUNE, "--learning-rate", "nan"], "learning-rate: got nan"),
     ([*FINETUNE, "--group", 10**30], "group: got 1"),
     ([*FINETUNE, "--seed", 10**30], "seed: got 1"),
     ([*FINETUNE, "--rows", 10**9], "rows: got 1000000000"),
     ([*FINETUNE, "--group", 4, "--group", 8], "group: given 2 times"),
     ([*FINETUNE, "--attention", "cca", "--attention", "dga"], "attention: given 2 times"),
     ([*FINETUNE, "--attention", ""], "attention: got an empty text"),
     ([*PRETRAIN, "--heads", 0], "heads: got 0"), ([*PRETRAIN, "--heads", -1], "heads: got -1"),
     ([*PRETRAIN, "--width", 0], "width: got 0"), ([*PRETRAIN, "--width", -32], "width: got -32"),
     ([*PRETRAIN, "--width", 16384, "--layers", 100], "3.2e+11 weights"),
     ([*PRETRAIN, "--context", 10**9], "context: got 1000000000"),
     ([*PRETRAIN, "--tokens", "nan"], "tokens: got nan"),
     ([*PRETRAIN, "--tokens", "inf"], "tokens: got inf"),
     ([*PRETRAIN, "--threads", -1], "threads: got -1"),
     ([*PRETRAIN, "--learning-rate", 0], "learning_rate: got 0"),
     ([*PRETRAIN, "--group", 4], "group: not an option of 'full'"),
     ([*RECOVER, "--out", "{home}/r.json", "--seeds", 10**9], "seeds: got 1000000000"),
     ([*RECOVER, "--out", "{home}/r.json", "--group", 0], "group: got 0"),
     ([*RECOVER, "--out", "{home}/list.json"], "list.json holds something else than a study"),
     ([*SPARSITY, "--length", 0], "length: got 0"), ([*SPARSITY, "--length", -5], "length: got -5"),
     ([*NOISE, "--seeds", 0], "seeds: got 0"), ([*NOISE, "--seeds", -1], "seeds: got -1"),
     ([*NOISE, "--length", 0], "length: got 0"), ([*NOISE, "--steps", -1], "steps: got -1"),
     (["study", "attention", "--length", 1], "length: got 1"),
     (["study", "attention", "--length", 10**9], "length: got 1000000000"),
     (["study", "decode", "--length", 10**9], "length: got 1000000000"),
     (["study", "model", "--width", 0], "width: got 0"),
     (["study", "model", "--prompt", 10**9], "prompt: got"),
     (["verify", ""], "ids: got an empty text")])
def test_numbers_have_ranges_and_options_are_given_once(home, words, told):
    before = sorted(home.iterdir())
    refused([str(word).format(home=home) for word in words], told)
    assert sorted(home.iterdir()) == before


def test_questions_have_a_range(home):
    for number in (-5, 10**9):
        refused(evaluate(home, "--questions", number), f"questions: got {number}")
    refused(evaluate(home, "--option", "attention=cca"), "attention: given without --attention")


FILES = {"evaluate": ["evaluate", "--model", "m"], "recover": ["study", "recover", "--model", "m"],
         "sweep": ["study", "sweep", "--model", "m"],
         "compare": ["study", "compare", "--model", "m"],
         "sparsity": ["study", "sparsity", "--model", "m"],
         "needles": ["study", "needles", "--model", "m"], "noise": ["study", "noise"],
         "convergence": ["study", "convergence"], "attention": ["study", "attention"],
         "decode": ["study", "decode"], "model": ["study", "model"], "report": ["study", "kernels"]}
FOLDERS = {"finetune": ["finetune", "--model", "m"], "pretrain": ["pretrain"],
           "walkthrough": ["walkthrough"], "gpu": ["study", "gpu"]}


@pytest.mark.parametrize("words", [*FILES.values(), *FOLDERS.values()], ids=[*FILES, *FOLDERS])
@pytest.mark.parametrize("place", ["below a file", "of the wrong "
                                                   "kind", "too long", "nowhere", "empty"])
def test_a_place_that_cannot_be_written_is_refused_at_once(home, words, place):
    wrong = home if words in FILES.values() else home / "file"
    places = {"below a file": (home / "file" / "x", "is a file"),
              "of the wrong kind": (wrong, f"out: {wrong} is a f"),
              "too long": (home / ("x" * 300), "cannot be written"),
              "empty": ("", "out: got an empty text"),
              "nowhere": ("/proc/x/y", "cannot be written")}
    out, told = places[place]
    refused([*words, "--out", out], told)


@pytest.mark.parametrize("command", ["evaluate", "finetune"])
def test_what_is_read_is_not_written_over(home, command):
    for place in ("base", "base/config.json" if command == "evaluate" else "base/run"):
        words = [command, "--model", home / "base", "--out", home / place]
        if command == "finetune" or place != "base":
            refused(words, "in the folder of the model itself")
    shutil.copy(home / "text.txt", home / "own.txt")
    if command == "evaluate":
        refused(evaluate(home, "--text", home / "own.txt", "--out", home / "own.txt"),
                "is the text itself")
    else:
        shutil.copytree(home / "base", home / "other", dirs_exist_ok=True)
        refused(["finetune", "--model", home / "base", "--out", home / "other"],
                "other is a model's folder")


TEXT = "the group pools its keys and the window keeps the last of them " * 40


@pytest.mark.parametrize(
    "content, told", [(TEXT.encode("utf-16"), "is not UTF-8 (byte 0xff at 0)"),
                      ("é".encode("latin-1") + TEXT.encode(), "is not UTF-8"),
                      (TEXT.encode() + b"\0", "NUL"), (b" " * 5000, "nothing but white space"),
                      (b"", "fewer than 1000"), (b"short", "fewer than 1000"),
                      (TEXT.encode() + b" " * 30000, "30001 characters or spaces without a break"),
                      (b"a" * 30000, "30000 characters or spaces without a break")])
@pytest.mark.parametrize("folder", [False, True])
def test_a_text_that_is_none_is_named(home, tmp_path, content, told, folder):
    (tmp_path / "a.txt").write_bytes(content)
    if folder and told == "nothing but white space":
        told = "fewer than 1000"
    refused(evaluate(home, "--text", tmp_path if folder else tmp_path / "a.txt"), told)


def config(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return change


def attention(value):
    return config(cca_lab_attention=value)


def weights(edit):
    def change(folder):
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return change


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4000])


def renamed(tensors):
    for name in [name for name in tensors if ".h.1." in name]:
        tensors[name.replace(".h.1.", ".layer.1.")] = tensors.pop(name)


@pytest.mark.parametrize("content", [
    "", "{", "[]", "{}", "3", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
    '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": null}',
    '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"a": 1}]}',
    '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"cca_lab": 3}, "cells": []}',
    '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"cca_lab": {"seconds": "x"}}, "cells": []}'])
def test_a_broken_notebook_is_named(tmp_path, content):
    (tmp_path / "01_broken.ipynb").write_text(content)
    refused(["notebooks", "--folder", tmp_path], "01_broken.ipynb cannot be read")


ATTN = "transformer.h.0.attn.c_attn.weight"
BROKEN = {
    "no JSON": (written("config.json", b"{"), "config.json of"),
    "null": (written("config.json", b"null"), "config.json"),
    "another type": (config(n_layer=[2]), "n_layer"),
    "no heads": (config(n_head=0), "config.json of"), "wider": (config(n_embd=64), "another shape"),
    "longer": (config(n_positions=256), "wpe.weight"),
    "more layers": (config(n_layer=3), "lack transformer.h.2"),
    "fewer layers": (config(n_layer=1), "transformer.h.1"),
    "no layers": (config(n_layer=-1), "-1 layers"),
    "endless layers": (config(n_layer=10**8), "100000000 layers"),
    "BERT": (config(model_type="bert", vocab_size=1200), "got a 'bert', wanted one of gpt2"),
    "a Llama of 7 billion": (config(model_type="llama"), "it asks for 6.48e+09 weights"),
    **{f"attention {value}": (attention(value), "cca_lab_attention in config.json")
       for value in (3, None, "", [], {}, {"name": ["cca"]}, {"name": "nope"},
                     {"name": "cca", "model": 3}, {"name": "cca", "group": 10**30},
                     {"name": "cca", "per_query_head": "maybe"})},
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(),
                   "no file named model.safetensors"),
    "empty weights": (written("model.safetensors", b""), "the weights of"),
    "cut weights": (cut, "the weights of"),
    "a weight missing": (weights(lambda tensors: tensors.pop(ATTN)), f"lack {ATTN}"),
    "names of another": (weights(renamed), "lack transformer.h.1"),
    "a weight more": (weights(lambda tensors: tensors.update(foo=torch.ones(3))), "foo"),
    "another shape": (weights(lambda tensors: tensors.update({ATTN: torch.ones(3, 3)})),
                      f"another shape than the config's {ATTN}"),
    "not a number": (weights(lambda tensors: tensors[ATTN][3].fill_(math.nan)), f"{ATTN} of"),
    "infinite": (weights(lambda tensors: tensors[ATTN][0, 0].fill_(math.inf)), "not finite"),
    "tokenizer a list": (written("tokenizer_config.json", b"[]"), "the tokenizer of"),
    "tokenizer no JSON": (written("tokenizer_config.json", b"{"), "the tokenizer of"),
    "tokenizer in bytes": (written("tokenizer.json", b"\xff\xfe\0"), "the tokenizer of"),
    "tokenizer too large": (
        lambda folder: (config(vocab_size=800)(folder), weights(lambda tensors: tensors.update(
            {"transformer.wte.weight": tensors["transformer.wte.weight"][:800].clone()})) (folder)),
        "embeddings for 800")}


@pytest.mark.parametrize("broken, told", BROKEN.values(), ids=BROKEN)
def test_a_model_whose_files_are_broken_or_do_not_fit_is_not_measured(home, tmp_path, broken, told):
    shutil.copytree(home / "base", tmp_path / "model")
    broken(tmp_path / "model")
    refused(evaluate(home, model=tmp_path / "model"), told)


def test_a_killed_save_is_cleared_by_the_next_and_what_it_had_moved_comes_back(tmp_path):
    model = small.model()
    for name, part in ((".model.abcd1234", "new"), (".model.ABCD_123", "old")):
        save_pretrained(model, tmp_path / name / part)
    (tmp_path / ".model.settings").mkdir()  # not of a save
    (tmp_path / ".model.settings" / "mine").write_text("")
    save_pretrained(model, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.settings", "model"]
    load_pretrained(tmp_path / "model")


def test_a_mechanism_that_reads_all_of_a_text_is_said_to(home):
    words = evaluate(home, "--windows", 1, "--questions", 0, "--attention", "cca", "--group", 4,
                     "--window")
    for window, noted in ((8, False), (5000, True)):
        done = CliRunner().invoke(app, [*map(str, words), str(window)])
        assert done.exit_code == 0, done.output
        assert ("note: cca with group 4, window 5000 attends in full to 64 tokens"
                in done.stderr) is noted
