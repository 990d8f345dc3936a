"""docs/results/reproduction.md, from the committed results: claims, what came out, and why."""

import json
from pathlib import Path

from cca_lab.files import repository, results_folder
from cca_lab.reporting import write_figure
from cca_lab.studies.mqar import figure_of, lines
from cca_lab.studies.reproduce.artefact import VERDICTS, Artefact, Found, Measured
from cca_lab.studies.reproduce.measured import LATENCY, MEASURED, OUT_OF_REACH
from cca_lab.studies.reproduce.trained import TRAINED, points
from cca_lab.studies.study import continued
from cca_lab.views.figures.training import frontier

PAGE, FRONTIER = "docs/results/reproduction.md", "docs/results/frontier.png"
RECALL, RECALL_FIGURE = "mqar-64-4.json", "docs/results/mqar.png"
RECALL_TEXT = """
## A public benchmark: multi-query associative recall

Zoology's task (Arora et al., ICLR 2024): {pairs} pairs of a key and a value at the beginning of
{length} tokens; each key comes once more, and its value is asked. Most are asked soon after the
pairs, so that a window alone answers most of them, and four sinks hold half of the pairs for ever.
A GPT-2 without MLPs, two layers, width {width}, is trained from nothing with each mechanism, until
it answers {solved:.0%} or {steps} steps are taken (`cca-lab study mqar`). *State* is what a
decoder keeps for one text, in float32, at its largest. Of two shapes of one size (small groups, or
a long window) both are trained.
Published: attention answers at least {published:.0%}.

![recall against memory](mqar.png)

| attention | state, KiB | answered | seeds |
| --- | --- | --- | --- |
"""
RECALL_READ = """
Of these seeds: plain means of groups of two answer {mean:.0f} %, CCA's pooling of the same groups,
trained from nothing, {cca:.0f} %. A model that can attend already does learn to answer with CCA
(README, "What the swap costs, and what finetuning brings back"). StreamingLLM and LM-Infinite
coincide on a model with learned positions."""
PAPERS = ("CCA", "DGA", "LoCoCo", "all three")
HEAD = """# The papers' tables and figures, re-enacted

Made by `cca-lab readme` from the files in `data/results/`, which `cca-lab study reproduce NAME`
and the commands named below wrote.

The papers finetune models of 7 billion parameters on long texts. Here, models of 1.1 million
parameters and a context of 512 tokens are finetuned for {short} or {long} steps of 8 x 512 tokens
(three quarters text, one quarter questions over documents), each setting on the same tokens; a row
that differs says so, and Figure 6 trains on text alone. So numbers cannot be compared, but orders
and slopes can: each claim is read as one. A setting's two numbers are its perplexity over the
full-attention base's, and the share of questions that it answers, averaged over seeds.

*agrees*: the two ends of the claimed order differ as claimed, with 95 % confidence, and no two
neighbours differ the other way round. *disagrees*: two neighbours, or the ends, do. *not seen
here*: no difference is large enough to tell. Trained settings are paired by seed (Student's t),
settings that were only read by window or by question (bootstrap). Times, bytes and shares of
sparse rows are judged by the order of the medians, without an interval. *one seed*: a single
training says nothing about the spread of trainings, so nothing is concluded.

{counts}
"""


def found_for(artefact: Artefact | Measured, folder: Path) -> Found | None:
    """Return what a folder of results says about an artefact; None if it holds nothing about it."""
    file = folder / artefact.file
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    return artefact.found(data) if isinstance(artefact, Artefact) else artefact.read(data)


def page(folder: Path) -> str:
    """Return the page for a folder of results."""
    rows: dict[str, list[str]] = {paper: [] for paper in PAPERS}
    counts, later = dict.fromkeys(VERDICTS, 0), []
    artefacts: list[Artefact | Measured] = [*TRAINED.values(), *MEASURED, *LATENCY]
    for artefact in artefacts:
        found = found_for(artefact, folder)
        if found is None:
            later.append(f"* {artefact.paper}, {artefact.place}: {artefact.claim}")
            continue
        counts[found.verdict] += 1
        rows[artefact.paper].append(_row(artefact, found))
    text = [HEAD.format(short=100, long=300,
                        counts="; ".join(f"{n} {verdict}" for verdict, n in counts.items())
                        + f"; {len(OUT_OF_REACH)} out of reach.")]
    for paper in PAPERS:
        if rows[paper]:
            text += [f"\n## {paper[0].upper() + paper[1:]}\n",
                     "| artefact | claim | printed | here | verdict | why |",
                     "| --- | --- | --- | --- | --- | --- |", *rows[paper]]
    text += [recall(folder), "\n## Out of reach\n", "| artefact | claim | what it would take |",
             "| --- | --- | --- |",
             *(f"| {each.paper}, {each.place} | {each.claim} | {each.why} |"
               for each in OUT_OF_REACH)]
    text += ["\n## Not measured yet\n", *later] if later else []
    return "\n".join(text) + "\n"


def recall(folder: Path) -> str:
    """Return the section on associative recall; empty if the folder holds no such result."""
    result = continued(folder / RECALL, {})
    if result is None:
        return ""
    task, recipe = result["task"], result["recipe"]
    measured = lines(result)
    percent = {line.options: 100 * line.mean for line in measured}
    mean, cca = (percent.get(f"{name} group=2 window=1") for name in ("mean_pooling", "cca"))
    read = "\n" + RECALL_READ.format(mean=mean, cca=cca) if mean and cca else ""
    rows = [f"| {line.options} | {line.state_bytes / 1024:.0f} | {100 * line.mean:.0f} % | "
            f"{len(line.accuracies)} |" for line in measured]
    text = RECALL_TEXT.format(**task, width=recipe["width"], solved=recipe["solved"],
                              steps=recipe["steps"], published=result["published"]["accuracy"])
    return text + "\n".join(rows) + read


def _row(artefact: Artefact | Measured, found: Found) -> str:
    printed, command = "-", getattr(artefact, "command", f"cca-lab study reproduce {artefact.name}")
    if isinstance(artefact, Artefact) and artefact.printed:
        printed = "; ".join(f"{key}: {value:g}" for key, value in artefact.printed.items())
        printed += f" ({artefact.unit})"
    seeds = f"; {found.seeds} seed{'s' * (found.seeds != 1)}" if found.seeds else ""
    here = "; ".join(f"{label}: {numbers}" for label, numbers in found.numbers.items())
    cells = [artefact.place, artefact.claim, printed,
             f"{here}{seeds}; {found.device}; `{command}`", f"**{found.verdict}**", artefact.why]
    return f"| {' | '.join(cells)} |"


def write() -> Path:
    """Write the page again, and its figure beside it; return the page's path."""
    path = repository() / PAGE
    path.write_text(page(results_folder()), encoding="utf-8")
    curves, full = points(results_folder())
    write_figure(repository() / FRONTIER,
                 frontier(curves, full, "keys and values of the model, KiB"))
    if (found := continued(results_folder() / RECALL, {})) is not None:
        write_figure(repository() / RECALL_FIGURE, figure_of(found))
    return path
