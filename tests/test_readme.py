"""The README says what the committed results and the commands say."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.files import repository
from cca_lab.studies.tables import MARKED, PAGES, updated

README = (repository() / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
COMMANDS = sorted({line.split("#")[0].strip() for language, block in BLOCKS
                   for line in block.splitlines() if not language and line.startswith("cca-lab ")})


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_results(page):
    text = (repository() / page).read_text(encoding="utf-8")
    assert updated(text) == text, f"run `cca-lab readme` and commit {page}"


def test_a_changed_number_in_a_table_would_be_seen():
    name, body = next((mark["name"], mark["body"]) for mark in MARKED.finditer(README) if mark["body"])
    digit = re.search(r"\d", body).group()
    forged = README.replace(body, body.replace(digit, str((int(digit) + 1) % 10), 1))
    assert updated(forged) != forged, name


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="'nonsense'"):
        updated("<!-- table: nonsense -->\n<!-- end -->")


def test_there_are_commands_to_check():
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist_with_the_options_shown(command):
    words = shlex.split(command)[1:]
    path = [word for word in words[:2] if not word.startswith("-") and "/" not in word]
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    for option in (word for word in words if word.startswith("--")):
        assert option in shown.output, f"{option} is no option of {' '.join(path)}"


def test_the_python_block_runs(monkeypatch):
    monkeypatch.chdir(repository())
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), {})
