"""README and docs/ say what the committed results and the commands say."""

import json
import re
import runpy
import shlex

import pytest

from cca_lab.cli import found, prepared
from cca_lab.files import repository
from cca_lab.studies.model_tables import answers
from cca_lab.studies.tables import marked_pages, updated

ROOT = repository()
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
         for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*/*.md"), *ROOT.rglob("data/**/*.md"),
                      ROOT / "lab" / "README.md")}
README = PAGES["README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")  # a colon means a scheme
COMMANDS = sorted({line.split("#")[0].strip() for text in PAGES.values()
                   for language, block in BLOCK.findall(text) if not language
                   for line in block.splitlines() if line.startswith("cca-lab ")})
# test_names.py and test_docs.py run those of other pages
RUN = ("README.md", *(f"docs/use/{name}.md" for name in ("models", "mechanisms", "generating")))


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert updated(text) == text, f"run `cca-lab readme` and commit {page}"


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="'nonsense'"):
        updated("<!-- table: nonsense -->\n<!-- end -->")


def test_the_readme_is_short_and_its_first_finding_is_measured():
    assert len(README.splitlines()) <= 110
    finding = README[README.index("1. **"):README.index("2. **")]
    measured = {f"{share:.0%}".replace("%", " %") for share, _, _ in answers().values()}
    told = set(re.findall(r"\d+ %", finding.replace("\n", " ")))
    assert len(told) == 4 and told <= measured


def test_the_quick_start_prints_what_the_readme_shows(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    runpy.run_path("examples/quickstart.py")
    assert ("text", capsys.readouterr().out) in BLOCK.findall(README)


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_are_understood(command):
    name, function, words = found(shlex.split(command)[1:])
    prepared(name, function, words)  # which reads and checks the options, and runs nothing


def recorded() -> set[str]:
    """Return the commands that the results were measured by."""
    commands = set()

    def note(record: dict) -> dict:
        commands.add(record.get("command"))
        return record

    for path in (ROOT / "data" / "results").glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), object_hook=note)
    return {command for command in commands if isinstance(command, str)}


def test_recorded_commands_are_understood():
    wrong = []
    for command in sorted(recorded()):
        try:
            prepared(*found(shlex.split(command)[1:]))
        except ValueError as error:
            wrong.append(f"{command}: {error}")
    assert not wrong, "\n".join(wrong)


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
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
