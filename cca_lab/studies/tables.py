"""The README's tables, generated from the committed results so that they always agree with them."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from cca_lab.files import models_folder, repository, results_folder
from cca_lab.mechanisms import (
    CCA,
    DGA,
    MECHANISMS,
    Full,
    LoCoCo,
    StreamingLLM,
    mechanism_of,
)
from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.mechanisms.reading import held
from cca_lab.reporting import write_figure
from cca_lab.studies.benchmarks import attention, decode, gpu, model, peers
from cca_lab.studies.study import label, ranked_heads
from cca_lab.studies.summary import COLUMNS, Spread, spoken, summaries, swept
from cca_lab.views.figures.caches import holdings
from cca_lab.views.figures.training import comparison, recipes

READS, LENGTH, HEAD_DIM = "docs/reads.png", 48, 16
READERS = {"full attention: every token": Full(), "CCA: cores and a window": CCA(group=4, window=8),
           "DGA: focal tokens and groups": DGA(group=4, gamma=0.1),
           "LoCoCo: a memory of 8 slots": LoCoCo(slots=8, segment=8),
           "StreamingLLM: the nearest": StreamingLLM(sinks=2, recent=10)}
COMPARISON, RECIPES = "docs/results/comparison.png", "docs/results/recipes.png"
MARKED = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
GROUPS, WINDOW = (4, 8, 16), 64  # of CCA in the table `recovery`
FINDING = [{"group": group, "window": WINDOW} for group in (8, 16)]  # of CCA in the table `finding`
# the tokens of a document, by which the table `phases` is ordered
DOCUMENT = ("A", "map", "drawn", "by", "first name", "surname", "full stop", "line's end")
# of SmolLM2's adapters beside kept heads: trained on the same tokens, with full attention
CONTROLS = {"gates": "smollm2-full", "gain": "smollm2-full-long"}
# those of the adapters trained alike that differ in more than the mechanism
ALIKE = {"full": "full attention, the control", "grow": "the same cores, in groups that grew"}
STAR = "* chooses with the help of later tokens."
PLACES = {"0.0": "first", "0.5": "middle", "1.0": "last"}

Row = dict[str, Any]


def read_json(path: Path) -> Row:
    """Return the content of a JSON file."""
    content: Row = json.loads(path.read_text(encoding="utf-8"))
    return content


def results(pattern: str) -> list[Row]:
    """Return the contents of the files of results whose name matches a pattern."""
    return [read_json(path) for path in sorted(results_folder().glob(pattern),
                                               key=lambda path: path.stem)]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.0f} %"


def written(value: float | None, unit: float = 1, digits: int = 0) -> str:
    """Write a number in units; a dash for None."""
    return "-" if value is None else f"{value / unit:.{digits}f}"


def models() -> str:
    """Return the table of the shipped base models: size, perplexity and exact match."""
    rows = []
    for path in sorted(models_folder().glob("*/pretraining.json")):
        card = read_json(path)
        measured, context = card["results"], str(card["options"]["context"])
        rows.append([f"`data/models/{path.parent.name}`", f"{card['parameters'] / 1e6:.1f} M",
                     context, f"{measured['perplexity']['value']:.1f}",
                     f"{min(measured['ngram_perplexity'].values()):.1f}",
                     percent(measured["exact_match"][context]["all"]["value"]),
                     f"{card['seconds'] / 60:.0f} min, {card['device']}"])
    return table(["model", "parameters", "context", "perplexity", "best n-gram", "exact match",
                  "trained in"], rows)


def recovery(shown: Callable[[Row], bool] = lambda trial: not is_variant(trial)) -> str:
    """Return the table of what the swap costs, and what finetuning recovers."""
    rows = []
    for study in results("recovery-*.json"):
        trials = {name: row for name, row in study["trials"].items() if shown(row["trial"])}
        rows += [[f"`{study['model']}`", spoken(name), *mean.cells()]
                 for name, mean in summaries(trials).items()]
    return table(["model", "attention", *COLUMNS], rows)


def variants() -> str:
    """Return the same table for CCA with other windows, groups and poolings."""
    return recovery(is_variant)


def is_variant(trial: Row) -> bool:
    """Return whether a trial has CCA with options that are not in the table `recovery`."""
    return trial["attention"] == "cca" and trial["options"] not in [{"group": g, "window": WINDOW}
                                                                    for g in GROUPS]


def phases() -> str:
    """Return the table of the answers with groups of 8, by the token that begins a group."""
    rows = []
    for study in results("recovery-*.json"):
        seeds: dict[str, list[list[float]]] = {}
        for name, row in study["trials"].items():
            trial = row["trial"]
            if (trial["attention"] == "cca" and trial["options"]["group"] == len(DOCUMENT)
                    and trial["config"]["strategy"] != "none" and trial["reading"]["varied"]):
                shares = [each["value"] for each in row["exact_match"]["by_offset"]]
                # behind t tokens of text, a group begins with the token t before a document's end
                seeds.setdefault(name.rpartition(",")[0], []).append(
                    [(shares[-token % 8] + shares[-token % 8 + 8]) / 2 for token in range(8)])
        rows += [[f"`{study['model']}`", spoken(name), str(len(each)),
                  *(percent(sum(column) / len(each)) for column in zip(*each, strict=True))]
                 for name, each in seeds.items()]
    return table(["model", "attention", "seeds", *DOCUMENT], rows)


def finding() -> str:
    """Return the README's table: a swap's cost, and what finetuning recovers, in eight rows."""
    (study,) = results("recovery-gpt2-mini.json")
    chosen = {name: row for name, row in study["trials"].items()
              if row["trial"]["reading"]["varied"]
              and (row["trial"]["attention"] in ("full", "dga")
                   or row["trial"]["attention"] == "cca" and row["trial"]["options"] in FINDING)}
    rows = [[spoken(name), *(mean.cells()[at] for at in (0, 2, 3, 5))]
            for name, mean in summaries(chosen).items()]
    return table(["attention", *(COLUMNS[at] for at in (0, 2, 3, 5))], rows)


def compare() -> str:
    """Return the table of every mechanism on one model at an equal budget."""
    (study,) = results("compare-gpt2-mini.json")
    rows = []
    for row in study["rows"].values():
        matches, size = row["exact_match"], row["cache_bytes"]
        rows.append([row["title"], f"{row['perplexity']['value']:.1f}",
                     *(percent(matches[place]["value"]) for place in (*PLACES, "all")),
                     "all" if size is None else f"{size / 1024:.0f}",
                     written(row["prefill_seconds"], 1e-3),
                     written(row["decode_seconds"], 1e-3, 1)])
    return table(["mechanism", "perplexity", *PLACES.values(), "all places", "cache KiB",
                  "prefill ms", "ms a token"], rows) + (
        f"\n{study['model']}, {study['length']} tokens, {study['entries']} entries a KV head, "
        f"{study['questions']} questions a place; {study['device']}.\n")


def lengths() -> str:
    """Return the table of SmolLM2's perplexity by the length of the context."""
    (study,) = results("lengths-smollm2.json")
    rows = []
    for name, row in study["rows"].items():
        if row["attention"] == "kept_heads" or name in CONTROLS.values():  # in `kept_frontier`
            continue
        title = spoken(label(name, {})) if name in MECHANISMS else name
        rows.append([_starred(title, row), *(f"{each['value']:.1f}" for each in row["perplexity"])])
    machines = [row["machine"] for row in study["rows"].values()]
    cpus = " and ".join(dict.fromkeys(machine["cpu"] for machine in machines))
    ends = pairwise(study["buckets"])
    return table(["attention", *(f"{low} to {high}" for low, high in ends)], rows) + (
        f"\n{study['model']}, {study['windows']} windows of {study['length']} tokens, "
        f"{study['entries']} entries a KV head if a cache can be sized and no options are named; "
        f"{cpus}, torch {machines[0]['torch']}. {STAR}\n")


def _starred(title: str, row: Row) -> str:
    """Return the title, with a star if what a row reads depends on later tokens."""
    return title + " *" * (row["causal_scope"] != EVERY_ROW)


def needles() -> str:
    """Return the table of the answers that SmolLM2 finds at each depth, over all lengths."""
    rows, study = [], {}
    for study in results("needles-smollm2*.json"):
        cells = [[cell["exact"] for cell in study["cells"] if cell["depth"] == depth]
                 for depth in study["depths"]]
        rows.append([study["model"],
                     *(f"{sum(cell['value'] * cell['samples'] for cell in at_depth):.0f} of "
                       f"{sum(cell['samples'] for cell in at_depth)}" for at_depth in cells)])
    return table(["model", *(f"at {percent(depth)}" for depth in study["depths"])], rows) + (
        f"\n{study['task']}, prompts of {', '.join(map(str, study['lengths']))} tokens, "
        f"{study['samples']} for each length and depth; {study['machine']['cpu']}.\n")


def retrieval() -> str:
    """Return the table of the answers' loss with a few heads of SmolLM2 kept, by how they score."""
    studies = results("retrieval-smollm2*.json")  # of the same heads beside the kept ones
    study, rows = studies[0], []
    for each in studies:
        for name in each["scores"]:
            losses = each["losses"][name]
            rows.append([name, *map(_between, losses.values()),
                         f"{each['seconds'][name] / 60:.0f} min"])
    columns = study["losses"][study["best"]]
    (none,), (every,) = (study["losses"][name].values() for name in ("none kept", "all kept"))
    return table(["kept by", *(f"{count} heads" for count in columns), "to find them"], rows) + (
        f"\n{study['model']}, {study['attention']} in the other heads ({_options(study)}), loss of "
        f"the answers in nats a token, and its 95 % interval; none kept: {_between(none)}, all: "
        f"{_between(every)}. Prompts of {study['length']} tokens; {study['machine']['cpu']}.\n")


def kept_frontier() -> str:
    """Return the table of perplexity against memory with a few heads of SmolLM2 kept."""
    (study,) = results("lengths-smollm2.json")
    scores = {"gates": ranked_heads(results_folder() / "retrieval-smollm2.json"),
              "gain": ranked_heads(results_folder() / "retrieval-gain-smollm2.json")}
    length, heads = study["length"], sum(map(len, scores["gates"]))
    ratios: dict[tuple[float, int, str, str], dict[bool, list[str]]] = {}
    for name, row in study["rows"].items():
        if row["attention"] != "kept_heads" or name in CONTROLS.values():
            continue
        other, kept_heads = dict(row["options"]["others"]), row["options"]["kept"]
        attention = mechanism_of(other.pop("name"), other)
        entries, count = attention.cache_entries(length), sum(map(len, kept_heads))
        (by,) = (score for score, ranked in scores.items()
                 if best_heads(ranked, count) == kept_heads)
        trained = not row["swapped"]
        whole = study["rows"][CONTROLS[by] if trained else "full"]["perplexity"]
        assert entries is not None  # kept heads have a cache, so their other mechanism has one
        share = (count + (heads - count) * entries / length) / heads
        cell = share, count, by, _starred(label(attention.title, other), row)
        ratios.setdefault(cell, {})[trained] = [
            f"{mine['value'] / full['value']:.2f}"
            for mine, full in zip(row["perplexity"][-2:], whole[-2:], strict=True)]
    rows = [[percent(share), f"{count}, by {by}", other, *values.get(False, "--"),
             *values.get(True, "--")]
            for (share, count, by, other), values in sorted(ratios.items())]
    spans = [f"{low} to {high}" for low, high in list(pairwise(study["buckets"]))[-2:]]
    return table([f"cache at {length} tokens", "heads kept", "in the others",
                  *(f"{when}, {span}" for when in ("untrained", "trained") for span in spans)],
                 rows) + ("\nPerplexity over that of full attention, untrained or trained alike; "
                          f"{study['windows']} windows of {length} tokens. {STAR}\n")


def _between(estimate: Row) -> str:
    return f"{estimate['value']:.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}]"


def _options(study: Row) -> str:
    return label("", study["options"]).strip()


def kept() -> str:
    """Return the table of the needles that SmolLM2 finds before the end, by the prompt's length."""
    studies = sorted(results("kept-*.json"), key=lambda study: ("wording=" in study["task"],
                                                                study["task"]))
    lengths = sorted({length for study in studies for length in study["lengths"]})
    rows = []
    for study in studies:
        name = study["model"]
        if name == "smollm2":  # untrained
            name = "smollm2, full attention" if study["attention"] == "full" else (
                f"{sum(map(len, study['options']['kept']))} heads and {_other(study)}, untrained")
        rows.append([name, _task(study), *(_found([study], length) for length in lengths)])
    first = studies[0]
    return table(["model", "task", *(f"{length} tokens" for length in lengths)], rows) + (
        "\nNumbers of 7 digits, or all five names of variable_tracking, each of them right; the "
        f"same questions at depths of 0, 25, 50 and 75 %; {first['precision']}, "
        f"{first['machine']['cpu']}.\n")


def alike() -> str:
    """Return the table of SmolLM2's adapters trained alike: text and needles, over their seeds."""
    studies = [*results("lengths-alike-smollm2.json"), *results("lengths-4608-alike-smollm2.json")]
    spans = [(studies[0], -2), (studies[0], -1), (studies[1], -1)]
    asked = [each for each in results("alike-*.json") if _task(each) == "niah_multikey"]
    lengths, rows = asked[0]["lengths"], []
    for kind in dict.fromkeys(name.rpartition("-")[0] for name in studies[0]["rows"]):
        if not kind:  # the base model
            continue
        texts = [[study["rows"][name]["perplexity"][place]["value"]
                  / study["rows"][name.replace(kind, "full")]["perplexity"][place]["value"]
                  for name in study["rows"] if name.startswith(f"{kind}-")]
                 for study, place in spans]
        row = studies[0]["rows"][f"{kind}-0"]
        needles = [each for each in asked if f"-{kind}-" in each["model"]]
        rows.append([ALIKE.get(kind) or _starred(_other(row), row),
                     *(Spread(sum(each) / len(each), min(each), max(each)).number(3)
                       if each else "-" for each in texts),
                     *(_found(needles, length) for length in lengths)])
    edges = [list(pairwise(study["buckets"]))[place] for study, place in spans]
    return table(["in the other heads", *(f"text, {low} to {high}" for low, high in edges),
                  *(f"needles, {length} tokens" for length in lengths)], rows) + (
        "\nPerplexity over the control's with the same seed, and its range over three seeds; "
        + ", ".join(f"{study['windows']} windows of {study['length']} tokens" for study in studies)
        + ". Needles: five questions a seed, each at depths of 0, 25, 50 and 75 %; "
        f"{asked[0]['precision']}. {STAR}\n")


def alike_tasks() -> str:
    """Return the table of other tasks and wordings, by adapters trained alike, over their seeds."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for study in results("alike-*.json"):
        if (task := _task(study)) != "niah_multikey":
            kind = study["model"].split("-")[1]
            cells.setdefault((task, ALIKE.get(kind) or _other(study)), []).append(study)
    lengths = sorted({length for studies in cells.values() for length in studies[0]["lengths"]})
    return table(["task", "in the other heads", *(f"{length} tokens" for length in lengths)],
                 [[*names, *(_found(studies, length) for length in lengths)]
                  for names, studies in sorted(cells.items())]) + (
        "\nPrompts answered right in full; five questions a seed, each at depths of 0, 25, 50 and "
        "75 %; bf16.\n")


def _other(row: Row) -> str:
    """Return the mechanism of the heads that are not kept, with its options."""
    options = dict(row["options"]["others"])
    return label(mechanism_of(options.pop("name"), options).title, options)


def _task(study: Row) -> str:
    """Return the task of `study needles`, and whether it was told in the other wording."""
    return study["task"].split(" ")[0] + ", other wording" * ("wording=" in study["task"])


def _found(studies: Sequence[Row], length: int) -> str:
    """Return how many needles before the end are found in prompts of a length, of how many."""
    far = [cell["exact"] for study in studies for cell in study["cells"]
           if cell["length"] == length and cell["depth"] < 1]
    asked = sum(cell["samples"] for cell in far)
    hits = sum(round(cell["value"] * cell["samples"]) for cell in far)
    return f"{hits} of {asked}" if asked else "-"


def of_file(table: Callable[[Row], str], file: str) -> Callable[[], str]:
    """Return what writes the table of a file of results."""
    return lambda: table(results(file)[0])


TABLES: dict[str, Callable[[], str]] = {
    "finding": finding, "models": models, "recovery": recovery, "variants": variants,
    "phases": phases,
    "compare": compare,
    "attention": of_file(attention.table, "attention-cpu.json"),
    "families": lambda: attention.families_table(results("attention-*.json")),
    "decode": of_file(decode.table, "decode-cpu.json"),
    "model": of_file(model.table, "model-cpu.json"),
    "real-model": of_file(model.table, "model-smollm2.json"),
    "peers": of_file(peers.table, "peers-cpu.json"),
    "gpu-speed": of_file(gpu.speed_table, "gpu-h100.json"),
    "gpu-rates": of_file(gpu.rate_table, "gpu-h100.json"),
    "gpu-decode": of_file(gpu.decode_table, "gpu-h100-first.json"),
    "gpu-model": of_file(gpu.model_table, "gpu-h100-first.json"),
    "lengths": lengths, "needles": needles, "retrieval": retrieval, "kept": kept, "alike": alike,
    "alike-tasks": alike_tasks,
    "kept-frontier": kept_frontier}


def marked_pages() -> list[Path]:
    """Return the README and every document that holds a marked table."""
    documents = sorted((repository() / "docs").glob("*/*.md"))
    return [repository() / "README.md", *(path for path in documents
                                          if MARKED.search(path.read_text(encoding="utf-8")))]


def updated(text: str) -> str:
    """Return a text with every marked table written again; ValueError for an unknown one."""
    def fill(mark: re.Match[str]) -> str:
        name = mark["name"]
        if name not in TABLES:
            raise ValueError(f"table: got {name!r}, wanted one of {', '.join(TABLES)}")
        return mark[1] + TABLES[name]() + mark[4]

    return MARKED.sub(fill, text)


def write() -> list[Path]:
    """Write the marked tables of all pages again; return the pages."""
    pages = marked_pages()
    for path in pages:
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return pages


def reads() -> Figure:
    """Return the README's picture: what random queries read of 48 random keys."""
    q, k = torch.randn(2, 1, 1, LENGTH, HEAD_DIM, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0))
    return holdings({title: held(mechanism, q, k)[0] for title, mechanism in READERS.items()})


def draw() -> Path:
    """Draw the figures of README and docs/ again; return their folder."""
    (compared,), (sweep,) = results("compare-gpt2-mini.json"), results("sweep-gpt2-mini.json")
    write_figure(repository() / READS, reads())
    write_figure(repository() / COMPARISON, comparison(compared["rows"]))
    write_figure(repository() / RECIPES, recipes(*swept(sweep["trials"])))
    return repository() / "docs"
