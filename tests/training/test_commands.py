"""The training commands end to end, on a model small enough for seconds."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.models import attention_of, load_pretrained, save_pretrained
from cca_lab.models.finetune import read_log
from cca_lab.paths import repository
from tests.training import small


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


def test_finetune_then_resume_then_evaluate(home, tmp_path):
    run = ["finetune", *options(home), "--group", 4, "--window", 8, "--steps", 3, "--rows", 2,
           "--out", tmp_path / "run"]
    first = invoke(*run)
    assert first.exit_code == 0, first.output
    assert [record["step"] for record in read_log(tmp_path / "run")] == [1, 2, 3]
    assert attention_of(load_pretrained(tmp_path / "run" / "model")[0]) == ("cca", {"group": 4, "window": 8})
    again = invoke(*run)
    assert again.exit_code == 2 and "--resume" in again.output
    assert invoke(*run, "--resume").exit_code == 0
    found = invoke("evaluate", "--model", tmp_path / "run" / "model", "--text", home / "text.txt", "--length", 64,
                   "--windows", 2, "--questions", 2, "--out", tmp_path / "found.json")
    assert found.exit_code == 0, found.output
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["attention"] == "cca" and written["perplexity"]["samples"] == 2


def test_a_run_that_died_before_its_first_checkpoint_can_start_again(home, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text('{"step": 1}\n')
    run = ["finetune", *options(home), "--steps", 1, "--rows", 2, "--out", tmp_path / "run"]
    assert invoke(*run, "--resume").exit_code == 2
    assert invoke(*run).exit_code == 0
    assert len(list(read_log(tmp_path / "run"))) == 1


def test_recover_writes_five_rows(home, tmp_path):
    done = invoke("recover", *options(home), "--group", 4, "--window", 8, "--steps", 2, "--rows", 2,
                  "--out", tmp_path / "recovery.json")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "recovery.json").read_text())["rows"]
    assert [row["strategy"] for row in rows.values()] == ["none", "full", "none", "full", "qkv"]
    assert len({row["perplexity"]["value"] for row in rows.values()}) == 5


@pytest.mark.parametrize("wrong, message", [
    (["--rows", 0], "rows: got 0"), (["--text-share", 2], "text_share: got 2"),
    (["--length", 4096], "length: got 4096"), (["--strategy", "half"], "strategy: got 'half'"),
    (["--group", 0], "group")])
def test_a_wrong_option_is_one_line(home, tmp_path, wrong, message):
    done = invoke("finetune", *options(home), "--steps", 1, *wrong, "--out", tmp_path / "run")
    assert done.exit_code == 2 and message in done.output
    assert not (tmp_path / "run").exists()


def test_two_processes_from_the_command_line(home, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "cca_lab",
               "finetune", *map(str, options(home)), "--group", "4", "--window", "8", "--rows", "2", "--steps", "2",
               "--save-every", "1", "--out", str(tmp_path / "run")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for extra in ([], ["--resume"]):
        done = subprocess.run([*command, *extra], env=environment, cwd=repository(), capture_output=True, text=True,
                              timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    assert [record["step"] for record in read_log(tmp_path / "run")] == [1, 2]
    states = sorted(path.name for path in (tmp_path / "run" / "state").glob("random_states_*"))
    assert states == ["random_states_0.pkl", "random_states_1.pkl"]
    load_pretrained(tmp_path / "run" / "model")
