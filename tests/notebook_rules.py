"""What every committed notebook keeps to, as one function that lists what breaks it."""

import json
import re

from nbformat import NotebookNode

from cca_lab.course.registry import TURNS
from cca_lab.course.solved import BEGIN, END, solution_of
from cca_lab.views.execution import is_run
from cca_lab.views.notebook_tools import CHECK_TYPE
from cca_lab.views.walkthrough import collect

KNOWN_TAGS = {"volatile", "trained"}  # see cca_lab/views/comparison.py
MOST_IMAGE_BYTES = 150_000
MOST_SECONDS = 180
MACHINE_PATH = re.compile(
    r"(?<![\w.~])/(?:home|root|tmp|work|Users|mnt|var|private|opt)/\w|\b[A-Z]:\\+\w")
ENDING = ("## What we saw", "**Further reading:**")  # in order


def rule_breaks(notebook: NotebookNode) -> list[str]:
    """List in words what is wrong with a committed notebook; the site's test follows its links."""
    return [*_form(notebook), *_run_through(notebook), *_outputs(notebook)]


def _form(notebook: NotebookNode) -> list[str]:
    breaks = []
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        breaks.append("the kernel is not named python3")
    first = notebook.cells[0] if notebook.cells else None
    if not first or first.cell_type != "markdown" or not first.source.startswith("# "):
        breaks.append("the first cell is not a Markdown title")
    for cell in notebook.cells:
        unknown = set(cell.metadata.get("tags", [])) - KNOWN_TAGS
        if unknown:
            breaks.append(f"unknown tags {sorted(unknown)}; known are {sorted(KNOWN_TAGS)}")
    seconds = notebook.metadata.get("cca_lab", {}).get("seconds")
    if seconds is None or seconds > MOST_SECONDS:
        breaks.append(
            f"records {seconds} seconds, wanted at most {MOST_SECONDS}; run `make notebooks`")
    return breaks


def _run_through(notebook: NotebookNode) -> list[str]:
    breaks = []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not all(map(is_run, code)):
        breaks.append("an empty code cell")
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        breaks.append("cells were not run once, in order, from a fresh kernel")
    if not collect(notebook, CHECK_TYPE):
        breaks.append("nothing is checked with cca_lab.views.notebook_tools.check")
    return breaks


def reader_breaks(notebook: NotebookNode, number: str) -> list[str]:
    """List what a notebook lacks in which the reader works; `number` ("05") begins its name."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    asked, told, turns = (re.findall(rf'\b{call}\("([^"]+)"', "\n".join(code))
                          for call in ("predict", "reveal", "your_turn"))
    breaks = []
    if len(asked) < 3 or asked != list(dict.fromkeys(asked)) or sorted(asked) != sorted(told):
        breaks.append(
            f"guesses {asked} are told {told}; wanted three or more, each asked and told once")
    if any(not rest.lstrip().startswith('"skip",') for source in code
           for rest in re.split(r'\bpredict\("[^"]+",', source)[1:]):
        breaks.append("a guess is filled in")
    if not 2 <= len(turns) <= 14 or len(set(turns)) < len(turns):
        breaks.append(f"turns {turns}, wanted two to fourteen")
    ids = re.findall(r'\b(?:predict|your_turn)\("([^"]+)"', "\n".join(code))
    if ids != [f"{number}.{place}" for place in range(1, len(ids) + 1)]:
        breaks.append(f"ids {ids}, wanted ones that begin with {number}.1 and follow one another")
    if sum(output.get("text", "").count(": done") for cell in notebook.cells
           if cell.cell_type == "code" for output in cell.outputs) < len(turns):
        breaks.append("a turn that is not done in the committed notebook")
    headings = re.findall(r"^## \d+ .*", "\n".join(cell.source for cell in notebook.cells
                                                   if cell.cell_type == "markdown"),
                          flags=re.MULTILINE)
    breaks += [f"no minutes in {line!r}"
               for line in headings if not re.search(r"\(\d+ min\)$", line)]
    said = sum(int(minutes) for cell in notebook.cells if cell.cell_type == "markdown"
               for minutes in re.findall(r"^## .*\((\d+) min\)$", cell.source, re.MULTILINE))
    minutes = reading_minutes(notebook)
    if abs(said - minutes) > max(2, 0.2 * minutes):
        breaks.append(f"its headings say {said} minutes to read, by the count it is {minutes:.0f}")
    if not any(cell.source.startswith("## You can now")
               for cell in notebook.cells) or "my_work()" not in code[-1]:
        breaks.append("no section 'You can now', or no my_work() in the last cell")
    breaks += _table_of_answers(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if "image/png" in output.get("data", {}) and not alt:
                breaks.append("a picture without alt text")
    return breaks


def reading_minutes(notebook: NotebookNode) -> float:
    """Return how long a notebook takes to read: 180 words, 15 lines of code or 2 pictures a minute.

    What the reader writes, imports and lines of brackets are not counted.
    """
    minutes = 0.0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes += len(cell.source.split()) / 180
            continue
        lines = re.sub(f"{BEGIN}.*?{END}", "", cell.source, flags=re.DOTALL).split("\n")
        read = [line for line in lines
                if re.search(r"\w\w", line) and not re.match(r"\s*(import|from) ", line)]
        pictures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        minutes += len(read) / 15 + pictures / 2
    return minutes


def turn_breaks(notebook: NotebookNode) -> list[str]:
    """List where the minutes and the difficulty of the turns do not stand as registered."""
    breaks, above = [], ""
    words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    read = sum(map(int, re.findall(r"^## .*\((\d+) min\)$", words, re.MULTILINE)))
    write = sum(TURNS[name].minutes for cell in notebook.cells
                for name in re.findall(r'\byour_turn\("([^"]+)"', cell.source))
    if f"**Time:** {read} minutes to read, {write} minutes to write" not in words:
        breaks.append(f"its beginning does not say {read} minutes to read, {write} to write")
    for cell in notebook.cells:
        for name in re.findall(r'\byour_turn\("([^"]+)"', cell.source):
            task = TURNS[name]
            head = f"**Your turn ({task.minutes} minutes, difficulty {task.difficulty} of 5).**"
            if above.count(head) != 1 or above.count("**Your turn (") != 1:
                breaks.append(f"{name}: above it stands not once {head}")
            above = ""
        above += cell.source if cell.cell_type == "markdown" else ""
    return breaks


def climb_breaks(notebook: NotebookNode) -> list[str]:
    """List what a notebook lacks that teaches by hints and says what to read next."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    breaks = []
    for number, source in enumerate(code):
        names = ", ".join(re.findall(r'\byour_turn\("([^"]+)"', source))
        hints, lost, _ = solution_of(source)
        if names and (len(hints) != 2 or not lost):
            breaks.append(f"{names}: {len(hints)} hints and {len(lost) and 1} help for who is "
                          "lost; wanted two and one")
        own = _solution_lines(source)
        shown = {line.strip() for earlier in code[:number] for line in earlier.split("\n")}
        if own and 2 * len(own & shown) >= len(own):
            breaks.append(f"{names}: a cell above shows the solution")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    if not re.search(".*".join(map(re.escape, ENDING)), text, flags=re.DOTALL):
        breaks.append(f"the end lacks one of {', '.join(ENDING)}, in this order")
    return breaks


def _solution_lines(source: str) -> set[str]:
    """Return the lines of a solution that say something: no comments, and no short ones."""
    inside = source.partition(BEGIN)[2].partition("### END")[0].split("\n")
    return {line.strip() for line in inside if len(line.strip()) > 24 and "# " not in line}


def _table_of_answers(notebook: NotebookNode) -> list[str]:
    """List what is wrong with the tag of the last table: as loose as the loosest of the answers."""
    tags = {call: {tag for cell in notebook.cells if cell.cell_type == "code"
                   and call in cell.source for tag in cell.metadata.get("tags", [])}
            for call in ("reveal(", "my_work()")}
    loosest = next((tag for tag in ("volatile", "trained") if tag in tags["reveal("]), None)
    missing = loosest and loosest not in tags["my_work()"]
    return [f"my_work() repeats {loosest} answers without that tag"] if missing else []


def _outputs(notebook: NotebookNode) -> list[str]:
    breaks = []
    outputs = [output for cell in notebook.cells if cell.cell_type == "code"
               for output in cell.outputs]
    for output in outputs:
        if output.output_type == "error":
            breaks.append(f"an error output: {output.ename}")
        if output.get("name") == "stderr":
            breaks.append(f"an output on stderr: {output.text[:60]!r}")
        if "[fail]" in output.get("text", ""):
            breaks.append(
                f"a check that failed: {output.text[output.text.index('[fail]'):][:60]!r}")
        data = output.get("data", {"text/plain": output.get("text", "")})
        for kind, value in data.items():
            if kind.startswith("image/"):
                size = len(value) * 3 // 4 if kind != "image/svg+xml" else len(value)
                if size > MOST_IMAGE_BYTES:
                    breaks.append(
                        f"a picture of {size // 1000} kB, at most {MOST_IMAGE_BYTES // 1000}")
            elif kind == "application/javascript" or "widget" in kind:
                breaks.append(f"an output that needs scripts: {kind}")
            else:
                path = MACHINE_PATH.search(value if isinstance(value, str) else json.dumps(value))
                if path:
                    breaks.append(f"a path of one machine: {path.group()!r}")
    return breaks
