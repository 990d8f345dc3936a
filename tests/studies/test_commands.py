"""The training commands end to end, on a model small enough for seconds."""

import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.files import repository
from cca_lab.mechanisms import mechanism_of
from cca_lab.models import attention_of, load_pretrained, save_pretrained
from cca_lab.models.evaluate import OFFSETS, POSITIONS
from cca_lab.models.run_folder import read_log
from cca_lab.studies.trials import Trials
from cca_lab.tasks.reading import SHIFT
from tests.studies import small


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text and a model that has attention dropout, as gpt2 of the hub does."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0] * 3)
    model = small.model()
    model.config.attn_pdrop = 0.1
    save_pretrained(model, folder / "base", small.tokenizer())
    return folder


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def options(home, *more):
    return ["--model", home / "base", "--text", home / "text.txt", "--length", 64, *more]


def instead(words, *other):
    """The words with some options given otherwise; each may be given once."""
    kept = list(words)
    for name in other[::2]:
        if name in kept:
            at = kept.index(name)
            del kept[at : at + 2]
    return [*kept, *other]


def identity(folder):
    """What a run was given, as its state tells."""
    return json.loads((folder / "state" / "progress.json").read_text())["run"]


def test_finetune_then_resume_then_evaluate(home, tmp_path):
    run = ["finetune", *options(home), "--group", 4, "--window", 8, "--steps", 3, "--rows", 2,
           "--out", tmp_path / "run"]
    first = invoke(*run)
    assert first.exit_code == 0, first.output
    assert [record["step"] for record in read_log(tmp_path / "run")] == [1, 2, 3]
    assert attention_of(load_pretrained(tmp_path / "run" / "model")[0]) == mechanism_of("cca", CCA)
    again = invoke(*run)
    assert again.exit_code == 2 and "--resume" in again.output
    assert invoke(*run, "--resume").exit_code == 0
    found = invoke("evaluate", "--model", tmp_path / "run" / "model", "--text", home / "text.txt",
                   "--length", 64, "--windows", 2, "--questions", 20, "--out",
                   tmp_path / "found.json")
    assert found.exit_code == 0, found.output
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["attention"] == "cca" and written["perplexity"]["samples"] == 2
    for kind in ("exact_match", "varied_match"):
        check_matches(written[kind],
                      questions=2)  # of each place and offset: 20 rounded up to twice 16


def check_matches(found, questions):
    """Every place and every offset has its share, with Wilson's interval."""
    assert set(found) == {*map(str, POSITIONS), "all", "by_offset", "documents", "hits"
                          } and found["documents"] >= 1
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(found["hits"]),
                                       dtype=np.uint8))[:found["all"]["samples"]]
    assert bits.mean() == pytest.approx(found["all"]["value"])
    assert len(found["by_offset"]) == OFFSETS
    samples = {"all": questions * OFFSETS * len(POSITIONS), "position": questions * OFFSETS}
    for share, count in [(found["all"], samples["all"]),
                         *((found[str(at)], samples["position"]) for at in POSITIONS),
                         *((offset, questions * len(POSITIONS)) for offset in found["by_offset"])]:
        assert share["samples"] == count
        assert (share["low"], share["high"]) == pytest.approx(wilson(share["value"], count),
                                                              abs=1e-6)
    for parts in (found["by_offset"], [found[str(at)] for at in POSITIONS]):
        assert found["all"]["value"] == pytest.approx(
            sum(part["value"] for part in parts) / len(parts))


def wilson(share, count, z=1.959964):
    middle, half = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count +
                                                              (z / (2 * count))**2)
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


def test_finetune_takes_its_recipe_and_says_what_it_trains_on(home, tmp_path):
    """On stderr, before the first step, so that a wrong run of hours is stopped at once."""
    run = ["finetune", *options(home), "--group", 8, "--window", 8, "--steps", 2, "--rows", 2,
           "--optimizer", "muon", "--precision", "bf16", "--grow", 0.5, "--out", tmp_path / "run"]
    done = invoke(*run)
    assert done.exit_code == 0, done.output
    given = identity(tmp_path / "run")
    assert (given["optimizer"], given["precision"], given["grow"]) == ("muon", "bf16", 0.5)
    path = "kernels" if torch.cuda.is_available() else "blocked"  # tests build no native op
    said = " ".join(done.stderr.split())
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} threads"
    assert f"{threads}, cca attention ({path}), bf16; 2 steps of 2 x 64 tokens" in said
    assert said.index(threads) < said.index("finetuning base") and "threads" not in done.stdout
    other = invoke(*instead(run, "--optimizer", "adamw"), "--resume")
    assert other.exit_code == 2 and "optimizer differ" in other.output


def test_finetune_with_full_attention_says_so(home, tmp_path):
    done = invoke("finetune", *options(home), "--attention", "full", "--steps", 1, "--rows", 2,
                  "--precision", "float32", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "full attention (PyTorch's), float32; 1 steps of 2 x 64 tokens" in " ".join(
        done.stderr.split())


@pytest.mark.parametrize("length", [64, 128])
def test_the_shift_is_less_than_a_short_sequence(home, tmp_path, length):
    """A sequence of 64 tokens has no room for 64 tokens of text and a document."""
    done = invoke("finetune", *instead(options(home), "--length", length), "--steps", 1, "--rows",
                  2, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert identity(tmp_path / "run")["shift"] == min(SHIFT, length - 1) and SHIFT == 64


def test_a_run_that_diverges_is_one_line_and_an_exit_status_of_its_own(home, tmp_path):
    done = invoke("finetune", *options(home), "--steps", 5, "--rows", 2, "--learning-rate", 1e30,
                  "--out", tmp_path / "run")
    assert done.exit_code == 3
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("diverged: ")]
    assert "step 2: loss" in line and line.endswith(
        "Lower the learning rate") and done.stderr.endswith(line + "\n")
    assert "written" not in done.output and not (tmp_path / "run" / "model").exists()


def test_a_run_that_died_before_its_first_checkpoint_can_start_again(home, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text('{"step": 1}\n')
    run = ["finetune", *options(home), "--steps", 1, "--rows", 2, "--out", tmp_path / "run"]
    assert invoke(*run, "--resume").exit_code == 2
    assert invoke(*run).exit_code == 0
    assert len(list(read_log(tmp_path / "run"))) == 1


RECOVER = ["--group", 4, "--window", 8, "--steps", 2, "--rows", 2, "--seeds", 2, "--aligned"]
CCA = {"group": 4, "window": 8}


@pytest.fixture(scope="module")
def recovered(home, tmp_path_factory):
    """A recovery.

    Its file, what it printed, and of each trial the attention after its training and its steps.
    """
    out, trained = tmp_path_factory.mktemp("recovery") / "recovery.json", {}
    train = Trials.train

    def watched(study, trial, title):
        model, records = train(study, trial, title)
        trained[title.partition(" ")[2]] = attention_of(model).name, attention_of(
            model).options(), len(records)
        return model, records

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trials, "train", watched)
        done = invoke("study", "recover", *options(home), *RECOVER, "--out", out)
    assert done.exit_code == 0, done.output
    return out, done.stdout, trained


def trials_in(path):
    return json.loads(path.read_text())["trials"]


def test_recover_measures_before_the_swap_after_it_and_after_each_training(recovered):
    out, _, trained = recovered
    rows = trials_in(out)
    assert list(rows) == list(trained) == [
        "full", "cca group=4 window=8", "full, full, seed 0", "cca group=4 window=8, full, seed 0",
        "cca group=4 window=8, aligned, seed 0", "full, full, seed 1",
        "cca group=4 window=8, full, seed 1", "cca group=4 window=8, aligned, seed 1"]
    for name, row in rows.items():
        options, strategy = {} if name.startswith(
            "full") else CCA, "full" if "seed" in name else "none"
        assert (row["trial"]["options"], row["trial"]["config"]["strategy"]) == (options, strategy)
        assert trained[name] == (name[:4].strip(), options, 2 if "seed" in name else 0
                                 )  # the control attends in full
        assert ("read_in_full" in row) == (name.startswith("cca") and "seed" in name)
        for kind in ("exact_match", "varied_match"):
            check_matches(row[kind], questions=3)
    assert rows["full"]["perplexity_ratio"]["value"] == 1.0
    assert len({row["perplexity"]["value"] for row in rows.values()}) == 8


def test_recover_trains_the_control_as_it_trains_cca_and_the_aligned_otherwise(recovered):
    rows = trials_in(recovered[0])
    for seed in (0, 1):
        control, cca, aligned = (rows[f"{name}, seed {seed}"]["trial"] for name in (
            "full, full", "cca group=4 window=8, full", "cca group=4 window=8, aligned"))
        assert (control["config"], control["reading"]) == (cca["config"], cca["reading"])
        assert (cca["reading"]["seed"], cca["reading"]["shift"],
                cca["reading"]["varied"]) == (seed, SHIFT, True)
        assert aligned["reading"] == cca["reading"] | {"shift": 0, "varied": False}
        assert aligned["config"] == cca["config"] | {"grow": 0.0} and cca["config"]["grow"] > 0


def test_recover_prints_one_line_a_setting(recovered):
    printed = recovered[1]
    for name in ("full", "cca group=4 window=8", "full, full", "cca group=4 window=8, full",
                 "cca group=4 window=8, aligned"):
        assert sum(line.strip().startswith(f"{name}  ") for line in printed.splitlines()) == 1, name
    assert "seed 0" not in printed
    assert "[lowest, highest seed]" in printed  # what the intervals are


def test_a_second_recovery_measures_nothing_again(home, recovered, tmp_path, monkeypatch):
    def refuse(study, trial, title):
        raise RuntimeError(f"measured {title}")

    out = shutil.copy(recovered[0], tmp_path / "recovery.json")
    monkeypatch.setattr(Trials, "measure", refuse)
    again = invoke("study", "recover", *options(home), *RECOVER, "--out", out)
    assert again.exit_code == 0, again.output
    assert trials_in(out) == trials_in(recovered[0]) and again.stdout == recovered[1]
    longer = invoke("study", "recover", *options(home), *instead(RECOVER, "--steps", 3), "--out",
                    out)
    assert longer.exit_code == 2 and "holds 'full, full, seed 0' trained otherwise" in longer.output
    assert trials_in(out) == trials_in(recovered[0])


@pytest.mark.parametrize("more, label, wanted", [
    (["--group", 2], "cca group=2 window=8", {"group": 2, "window": 8}),
    (["--option", "pooling=mean"], "cca group=4 window=8 "
                                   "pooling=mean", {**CCA, "pooling": "mean"})])
def test_other_settings_only_add(home, recovered, tmp_path, monkeypatch, more, label, wanted):
    before, asked = trials_in(recovered[0]), []

    def measure(study, trial, title):
        asked.append((title.partition(" ")[2], trial.options))
        return before["full"]

    out = shutil.copy(recovered[0], tmp_path / "recovery.json")
    monkeypatch.setattr(Trials, "measure", measure)
    done = invoke("study", "recover", *options(home),
                  *[word for word in RECOVER if word != "--aligned"], *more, "--out", out)
    assert done.exit_code == 0, done.output
    added = [f"{label}{training}" for training in ("", ", full, seed 0", ", full, seed 1")]
    assert asked == [(name, wanted) for name in added]
    after = trials_in(out)
    assert list(after) == [*before, *added] and {name: after[name] for name in before} == before


@pytest.mark.parametrize("other, named",
                         [(["--length", 100], "length"), (["--model", "other"], "model")])
def test_the_file_of_another_recovery_is_refused_in_one_line(home, recovered, tmp_path, monkeypatch,
                                                             other, named):
    out = shutil.copy(recovered[0], tmp_path / "recovery.json")
    shutil.copytree(home / "base", tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    done = invoke("study", "recover", *instead(options(home), *other), *RECOVER, "--out", out)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr == (
        f"error: out: {out} holds a study with another {named}; name another file, or remove it\n")
    assert out.read_bytes() == recovered[0].read_bytes()


@pytest.mark.parametrize("wrong, message", [
    (["--steps", 0], "steps, strategy: got 0"), (["--strategy", "none"], "wanted a training"),
    (["--seeds", 0], "seeds: got 0"), (["--mechanism", "nonsense"], "nonsense")])
def test_a_recovery_of_nothing_is_one_line(home, tmp_path, wrong, message):
    done = invoke("study", "recover", *options(home), *wrong, "--out", tmp_path / "recovery.json")
    assert done.exit_code == 2 and message in done.stderr, done.exception
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "recovery.json").exists()


def test_a_recovery_that_diverges_is_one_line_as_a_finetuning_is(home, recovered, tmp_path):
    """What was measured before stays."""
    out, study = tmp_path / "recovery.json", json.loads(recovered[0].read_text())
    study["trials"] = {name: row for name, row in study["trials"].items() if ", seed " not in name}
    out.write_text(json.dumps(study))
    done = invoke("study", "recover", *options(home), *RECOVER, "--learning-rate", 1e30, "--out",
                  out)
    assert done.exit_code == 3, repr(done.exception)
    assert done.stderr.splitlines()[-1].startswith("diverged: ")
    assert trials_in(out) == study["trials"] and "full" in study["trials"]


@pytest.mark.parametrize("wrong, message", [
    (["--rows", 0], "rows: got 0"), (["--text-share", 2], "text_share: got 2"),
    (["--length", 4096], "length: got 4096"), (["--strategy", "half"], "strategy: got 'half'"),
    (["--group", 0], "group")])
def test_a_wrong_option_is_one_line(home, tmp_path, wrong, message):
    done = invoke("finetune", *instead(options(home), *wrong), "--steps", 1, "--out",
                  tmp_path / "run")
    assert done.exit_code == 2 and message in done.output
    assert not (tmp_path / "run").exists()


def test_two_processes_from_the_command_line(home, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
               "2", "-m", "cca_lab", "finetune", *map(str, options(home)), "--group", "4",
               "--window", "8", "--rows", "2", "--steps", "2", "--save-every", "1", "--out",
               str(tmp_path / "run")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for extra in ([], ["--resume"]):
        done = subprocess.run([*command, *extra], env=environment, cwd=repository(),
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    assert [record["step"] for record in read_log(tmp_path / "run")] == [1, 2]
    states = sorted(path.name for path in (tmp_path / "run" / "state").glob("random_states_*"))
    assert states == ["random_states_0.pkl", "random_states_1.pkl"]
    load_pretrained(tmp_path / "run" / "model")
