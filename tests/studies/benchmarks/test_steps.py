"""`cca-lab study steps` measures every attention, and its file gives the tables."""

import json

import pytest

from cca_lab.studies.benchmarks import steps


@pytest.fixture
def small(monkeypatch):
    sizes = dict(LAYERS=1, LONG_LAYERS=1, PROMPT=40, TOKENS=3, LONG_PROMPT=50, PADS=(0, 3),
                 REAL_LENGTHS=(164,), REAL_TOKENS=1, smollm2=lambda: steps.llama(2))
    for name, value in sizes.items():
        monkeypatch.setattr(steps, name, value)


def test_every_attention_is_measured(small, tmp_path, capsys):
    steps.Steps(rounds=2, out=tmp_path / "steps.json").run()
    result = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    names = [row["attention"] for row in result["rows"]]
    assert names == ["full", *steps.OPTIONS] and set(steps.LONG) == set(steps.OPTIONS)
    assert [row["attention"] for row in result["next"]] == ["full", *steps.REAL]
    of_full = result["rows"][0]
    assert of_full["beyond_full"] == [0, [0, 0]] and of_full["prompt_ratio"] == [1, [1, 1]]
    out = capsys.readouterr().out
    assert steps.table(result) in out and steps.next_table(result) in out


def test_static_caches_are_compiled(small, monkeypatch, capsys):
    monkeypatch.setattr(steps, "COMPILER", "eager")
    steps.Steps(rounds=1, compiled=True).run()
    rows = capsys.readouterr().out.splitlines()[2:5]
    assert [row.split()[1] for row in rows] == ["full", *steps.STATIC]
