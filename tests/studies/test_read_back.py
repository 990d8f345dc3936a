"""Result files that are read back, numbers that are not finite, and two commands on one file."""

import json
import math

import pytest
from cca_lab.studies.record import Record, RecordRow
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.files import held
from cca_lab.models import save_pretrained
from cca_lab.models.mini import new_model
from cca_lab.models.recipe import Diverged
from cca_lab.reporting import as_json
from cca_lab.studies.compare import Compare, CompareRow
from cca_lab.studies.lengths import Lengths, LengthsRow
from cca_lab.studies.mqar import Recall, RecallRow
from cca_lab.studies.pretrain import Pretrain
from cca_lab.studies.study import continued
from cca_lab.studies.trials import TrialRow, Trials
from tests.studies import small

INTERVAL = {"value": 1.5, "low": 1, "high": 2.0}
TRIAL = {"perplexity": INTERVAL, "perplexity_ratio": INTERVAL, "trial": {}, "machine": {}}
ROWS = {
    Trials: (TrialRow, TRIAL),
    Record: (RecordRow, TRIAL | {"cpu_seconds": 5.0, "command": "cca-lab record x"}),
    Lengths: (LengthsRow, {"attention": "cca", "options": {}, "perplexity": [INTERVAL]}),
    Compare: (CompareRow, {"title": "CCA", "perplexity": INTERVAL, "cache_bytes": None,
                           "prefill_seconds": 0.1, "decode_seconds": None}),
    Recall: (RecallRow, {"attention": "cca", "options": {}, "entries": None, "state_bytes": 8,
                         "accuracy": 0.5, "seed": 0})}


def changed(value, way=()):
    """Yield copies of a value of JSON in which one part is of another kind, and its way."""
    yield way, 5 if not isinstance(value, int | float) or isinstance(value, bool) else "x"
    if isinstance(value, dict):
        for key, inner in value.items():
            for deeper, other in changed(inner, (*way, key)):
                yield deeper, {**value, key: other}
    if isinstance(value, list):
        for at, inner in enumerate(value):
            for deeper, other in changed(inner, (*way, at)):
                yield deeper, [*value[:at], other, *value[at + 1:]]


@pytest.mark.parametrize("study", ROWS)
def test_a_row_of_another_form_is_named_before_any_work(study, tmp_path):
    """The mutant that reads the rows as they are ends in a KeyError or TypeError, hours later."""
    kind, row = ROWS[study]
    assert study.row is kind
    path, checked = tmp_path / "r.json", 0
    path.write_text(json.dumps({"rows": {"a": row}}))
    assert continued(path, {}, "rows", kind) == {"rows": {"a": row}}
    for way, other in changed(row):
        if way and row.get(way[0]) is None:
            continue  # a number or nothing
        path.write_text(json.dumps({"rows": {"a": other}}))
        with pytest.raises(ValueError, match=r"^out: .*r\.json: rows: \['a'\].*: got"):
            continued(path, {}, "rows", kind)
        checked += 1
    for key in kind.__required_keys__:
        path.write_text(json.dumps({"rows": {"a": {k: v for k, v in row.items() if k != key}}}))
        with pytest.raises(ValueError, match=f"{key}: got nothing"):
            continued(path, {}, "rows", kind)
    assert checked >= 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap, named", [
    (lambda x: {"a": x}, "result.a"), (lambda x: {"a": [1.0, {"b": x}]}, "result.a.1.b"),
    (lambda x: [x], "result.0")])
def test_a_result_that_is_no_number_is_named_and_not_written(wrap, named, number):
    with pytest.raises(ValueError, match=f"^{named}: is "):
        as_json(wrap(number))


def not_a_number(model):
    next(model.parameters()).data[0, 0] = math.nan


def test_a_model_of_numbers_that_are_not_finite_is_never_saved(tmp_path):
    model = small.model()
    not_a_number(model)
    with pytest.raises(ValueError, match="^model: it holds weights that are not finite"):
        save_pretrained(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def base(tmp_path):
    save_pretrained(small.model(), tmp_path / "base", small.tokenizer())
    return tmp_path / "base"


def test_a_pretraining_that_diverges_writes_no_model(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(small.corpus().train[0])
    settings = Pretrain(out=tmp_path / "new", text=str(text), context=64, width=32, layers=1,
                        heads=2, vocabulary=600, tokens=30_000, learning_rate=1e30)
    with pytest.raises(Diverged, match="learning rate"):
        settings.run()
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("command", [["study", "recover", "--seeds", 1], ["finetune"]])
def test_a_second_command_on_one_file_is_told_who_writes_it(base, tmp_path, command):
    """The mutant without a lock: the file held the trials of one of two commands."""
    (tmp_path / "text.txt").write_text(small.corpus().train[0])
    out = tmp_path / "r"
    words = [*command, "--model", base, "--text", tmp_path / "text.txt", "--length", 64, "--group",
             4, "--window", 8, "--steps", 2, "--rows", 2, "--out", out]
    with held(out):
        done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 2 and "is being written by process" in done.stderr, done.output
    assert not out.exists()


@pytest.mark.parametrize("name", ["x.gif", "x", "x.png.json"])
def test_a_figure_is_a_png(base, tmp_path, name):
    done = CliRunner().invoke(app, ["study", "needles", "--model", str(base), "--figure",
                                    str(tmp_path / name)])
    assert done.exit_code == 2 and "wanted a name that ends in .png" in done.stderr


def test_every_option_given_twice_by_name_and_value_is_refused(base, tmp_path):
    done = CliRunner().invoke(app, [
        "study", "recover", "--model", str(base), "--out", str(tmp_path / "r.json"), "--group", "4",
        "--option", "group=8"])
    assert done.exit_code == 2 and "option: got group=8; give it as --group" in done.stderr


def test_a_trained_model_of_fewer_tokens_is_refused_before_any_is_measured(base, tmp_path):
    """The mutant that looks when its turn comes has measured all others by then."""
    (tmp_path / "text.txt").write_text(small.corpus().train[0])
    save_pretrained(new_model("gpt2", vocabulary=64, context=512, width=32, layers=1, heads=2,
                              end_of_text=0), tmp_path / "few")
    save_pretrained(small.model(context=512), tmp_path / "long", small.tokenizer())
    study = Lengths(model=str(tmp_path / "long"), text=str(tmp_path / "text.txt"), length=256,
                    windows=1, attention=("full",), trained=(f"few={tmp_path / 'few'}",))
    with pytest.raises(ValueError, match="^trained: .*few has a vocabulary of 64 tokens, wanted"):
        study.cells()
