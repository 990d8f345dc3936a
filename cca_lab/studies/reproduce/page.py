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

The folded lists have the paper's numbers and ours: the perplexity divided by that of the base (in
Figure 3 of CCA by that of the trained model) with full attention, and the share of questions that
are answered, both averaged over seeds. Behind each place stands the name that `cca-lab study
reproduce` takes to run the comparison again, or the whole command.
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
            text += [f"\n## {paper[0].upper() + paper[1:]}\n", "| artefact | claim | verdict |",
                     "| --- | --- | --- |",
                     *(f"| {artefact.place} | {artefact.claim} | **{measured.verdict}** |"
                       for artefact, measured in rows),
                     "\n<details><summary>Numbers and reasons</summary>\n",
                     *(_details(*row) for row in rows), "\n</details>"]
    text += ["\n## Out of reach\n", "| artefact | claim | what it would take |",
             "| --- | --- | --- |",
             *(f"| {each.paper}, {each.place} | {each.claim} | {each.why} |"
               for each in OUT_OF_REACH)]
    return "\n".join(text) + "\n"


def _details(artefact: Artefact | Measured, found: Found) -> str:
    numbers, place, printed = found.numbers, f"`{getattr(artefact, 'command', artefact.name)}`", ""
    if isinstance(artefact, Artefact):
        numbers = {label: numbers[label] for label in artefact.order if label in numbers}
        if found.seeds:
            place += f", {found.seeds} seed{'s' * (found.seeds != 1)}"
        if artefact.printed:
            listed = "; ".join(f"{key}: {value:g}" for key, value in artefact.printed.items())
            printed = f"*Printed*: {listed} ({artefact.unit}). "
    else:
        place += f", {found.device}"
    here = "; ".join(f"{label}: {measured}" for label, measured in numbers.items())
    return f"* **{artefact.place}** ({place}). {printed}*Here*: {here}. {artefact.why}".rstrip()


def write() -> Path:
    """Write the page again, and its figure beside it; return the page's path."""
    path = repository() / PAGE
    path.write_text(page(results_folder()), encoding="utf-8")
    curves, full = points(results_folder())
    write_figure(repository() / FRONTIER,
                 frontier(curves, full, "keys and values of the model, KiB"))
    return path
