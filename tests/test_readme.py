"""README and docs/ say what the committed results and the commands say."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.files import repository
from cca_lab.studies.tables import MARKED, marked_pages, updated

ROOT = repository()
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
         for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*/*.md"), *ROOT.glob("data/*.md"),
                      ROOT / "lab" / "README.md")}
README = PAGES["README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")  # a colon means a scheme
COMMANDS = sorted({line.split("#")[0].strip() for text in PAGES.values()
                   for language, block in BLOCK.findall(text) if not language
                   for line in block.splitlines() if line.startswith("cca-lab ")})
RUN = ("README.md", "docs/use/models.md")  # test_names.py and test_docs.py run those of other pages


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert updated(text) == text, f"run `cca-lab readme` and commit {page}"


def test_a_changed_number_in_a_table_would_be_seen():
    name, body = next((mark["name"], mark["body"])
                      for mark in MARKED.finditer(README) if mark["body"])
    digit = re.search(r"\d", body).group()
    forged = README.replace(body, body.replace(digit, str((int(digit) + 1) % 10), 1))
    assert updated(forged) != forged, name


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="'nonsense'"):
        updated("<!-- table: nonsense -->\n<!-- end -->")


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150
    (table,) = (mark["body"] for mark in MARKED.finditer(README))
    assert len(table.splitlines()) <= 2 + 8


def test_there_are_commands_to_check():
    assert len(COMMANDS) >= 25


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist_with_the_options_shown(command):
    words = shlex.split(command)[1:]
    path = [word for word in words[:2] if not word.startswith("-") and "/" not in word]
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    for option in (word for word in words if word.startswith("--")):
        assert option in shown.output, f"{option} is no option of {' '.join(path)}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_of_the_clone(page):
    folder = (ROOT / page).parent
    assert [target for target in LINK.findall(BLOCK.sub("", PAGES[page]))
            if not (folder / target).exists()] == []


@pytest.mark.parametrize("page", RUN)
def test_the_python_blocks_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = [block for language, block in BLOCK.findall(PAGES[page]) if language == "python"]
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
