"""docs/results/reproduction.md, from the committed results: claims, what came out, and why."""

import json
from pathlib import Path

from cca_lab.files import repository, results_folder
from cca_lab.reporting import write_figure
from cca_lab.studies.reproduce.artefact import VERDICTS, Artefact, Found
from cca_lab.studies.reproduce.measured import MEASURED, OUT_OF_REACH, Measured
from cca_lab.studies.reproduce.trained import TRAINED, points
from cca_lab.views.figures.training import frontier

PAGE, FRONTIER = "docs/results/reproduction.md", "docs/results/frontier.png"
PAPERS = ("CCA", "DGA", "LoCoCo", "all three")
HEAD = """# The papers' tables and figures, re-enacted

**Question.** Do the orders and slopes of the papers' tables come out again at a small scale?

**Answer.** {counts}

The papers finetune models of 7 billion parameters on long texts. Here models of 1.1 million
parameters with a context of 512 tokens are finetuned for {short} or {long} steps of 8 x 512 tokens,
three quarters of them text and one quarter questions over documents. Numbers cannot be compared at
this scale; orders can.

* **agrees**: the two ends of the claimed order differ as claimed, with 95 % confidence, and no two
  neighbours differ the other way round.
* **disagrees**: two neighbours, or the ends, differ the other way round.
* **not seen here**: no difference is large enough to decide.
* **one seed**: there is one training, which does not show how far trainings differ.

Trained settings are paired by seed (Student's t), others by window or question (bootstrap). Times
and bytes are judged by the order of their medians.

*Printed* are the paper's numbers, perplexities or scores. *Here* are ours: the perplexity divided
by that of the base with full attention (in Figure 3 of CCA, of the trained model), the share of
questions that are answered, averaged over seeds, or how many times as much time or memory full
attention takes. Of more than three settings the first and the last are shown. Below each table
stands the name by which `cca-lab study reproduce` runs a comparison again and prints all its
settings, or the whole command.
"""


def found_for(artefact: Artefact | Measured, folder: Path) -> Found | None:
    """Return what a folder of results says about an artefact; None if it holds nothing about it."""
    file = folder / artefact.file
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    return artefact.found(data)


def page(folder: Path) -> str:
    """Return the page for a folder of results: verdicts first, numbers folded."""
    found: dict[str, list[tuple[Artefact | Measured, Found]]] = {paper: [] for paper in PAPERS}
    counts = dict.fromkeys(VERDICTS, 0)
    artefacts: list[Artefact | Measured] = [*TRAINED.values(), *MEASURED]
    for artefact in artefacts:
        measured = found_for(artefact, folder)
        if measured is not None:
            counts[measured.verdict] += 1
            found[artefact.paper].append((artefact, measured))
    told = ", ".join(f"*{verdict}* {count}" for verdict, count in counts.items())
    text = [HEAD.format(short=100, long=300, counts=f"{sum(counts.values())} claims were tried: "
                        f"{told}. {len(OUT_OF_REACH)} more are out of reach.")]
    for paper, rows in found.items():
        if rows:
            text += [f"\n## {paper[0].upper() + paper[1:]}\n",
                     "| artefact | claim | printed | here | verdict |",
                     "| --- | --- | --- | --- | --- |", *(_row(*row) for row in rows),
                     "\n<details><summary>Commands and reasons</summary>\n",
                     *(_reason(*row) for row in rows), "\n</details>"]
    text += ["\n## Out of reach\n", "| artefact | claim | what it would take |",
             "| --- | --- | --- |",
             *(f"| {each.paper}, {each.place} | {each.claim} | {each.why} |"
               for each in OUT_OF_REACH)]
    return "\n".join(text) + "\n"


def _row(artefact: Artefact | Measured, found: Found) -> str:
    printed, here = "", dict(found.numbers)
    if isinstance(artefact, Artefact):
        printed = _ends([f"{number:g}" for number in artefact.printed.values()])
        metric = artefact.metric == "answers"
        here = {label: here[label].split(", ")[metric] for label in artefact.arms
                if label in artefact.order and label in here}
    listed = _ends([f"{number} ({label})" for label, number in here.items()])
    return f"| {artefact.place} | {artefact.claim} | {printed} | {listed} | **{found.verdict}** |"


def _ends(numbers: list[str]) -> str:
    """Return up to three numbers, or the first and the last."""
    return ", ".join(numbers) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"


def _reason(artefact: Artefact | Measured, found: Found) -> str:
    name = f"`{getattr(artefact, 'command', artefact.name)}`"
    if isinstance(artefact, Measured):
        name += f", {found.device}"
    elif found.seeds:
        name += f", {found.seeds} seed{'s' * (found.seeds != 1)}"
    return f"* **{artefact.place}** ({name}). {artefact.why}".rstrip()


def write() -> Path:
    """Write the page again, and its figure beside it; return the page's path."""
    path = repository() / PAGE
    path.write_text(page(results_folder()), encoding="utf-8")
    curves, full = points(results_folder())
    write_figure(repository() / FRONTIER,
                 frontier(curves, full, "keys and values of the model, KiB"))
    return path
