"""Tables of README and docs/ that put several results of a model's studies together."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cca_lab.files import results_folder
from cca_lab.mechanisms import MECHANISMS, mechanism_of
from cca_lab.studies import lengths as by_length
from cca_lab.studies.lengths import STAR, starred
from cca_lab.studies.study import label, markdown
from cca_lab.studies.summary import COLUMNS, Spread, spoken, summaries

FINDING = [{"group": group, "window": 64} for group in (8, 16)]  # of CCA in the table `finding`
# rows of the table `lengths` beside those of mechanisms; a row names its options
SINKS = ("cca-sinks-0", "cca-sinks-4", "window-399")
# those of the adapters trained alike that differ in more than the mechanism
ALIKE = {"full": "full attention, the control", "grow": "the same cores, in groups that grew"}

Row = dict[str, Any]


def results(pattern: str) -> list[Row]:
    """Return the contents of the files of results whose name matches a pattern."""
    return [json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(results_folder().glob(pattern), key=lambda path: path.stem)]


def finding() -> str:
    """Return the README's table: a swap's cost, and what finetuning recovers, in eight rows."""
    (study,) = results("recovery-gpt2-mini.json")
    trials = {name: row for name, row in study["trials"].items()
              if row["trial"]["reading"]["varied"]
              and (row["trial"]["attention"] in ("full", "dga")
                   or row["trial"]["attention"] == "cca" and row["trial"]["options"] in FINDING)}
    columns = (0, 2, 3, 5)
    return markdown(["attention", *(COLUMNS[at] for at in columns)],
                    [[spoken(name), *(mean.cells()[at] for at in columns)]
                     for name, mean in summaries(trials).items()])


def answers() -> dict[str, tuple[float, float, float]]:
    """Return the share of questions answered before and after finetuning: mean, lowest, highest."""
    (study,), (plain,) = (results(f"{name}-gpt2-mini.json")
                          for name in ("recovery", "reproduce-plain"))
    found, text = summaries(study["trials"]), summaries(plain["trials"])
    cca = "cca group={} window=64"
    shown = {"full attention": found["full"],
             "CCA, swapped in": found[cca.format(8)],
             "CCA, finetuned on text alone": text[f"{cca.format(8)}, full"],
             "CCA, groups of 16, finetuned": found[f"{cca.format(16)}, full"],
             "CCA, groups of 8, finetuned": found[f"{cca.format(8)}, full"]}
    return {title: (mean.fixed.value, mean.fixed.low, mean.fixed.high)
            for title, mean in shown.items()}


def lengths() -> str:
    """Return the table of SmolLM2's perplexity by context length, untrained."""
    (study,) = results("lengths-smollm2.json")
    return by_length.table(study, {
        name: spoken(label(name, {})) if name in MECHANISMS else name
        for name in study["rows"] if name in MECHANISMS or name in SINKS})


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
        rows.append([ALIKE.get(kind) or starred(_other(row), row),
                     *(Spread(sum(each) / len(each), min(each), max(each)).number(3)
                       if each else "-" for each in texts),
                     *(_found(needles, length) for length in lengths)])
    edges = [list(pairwise(study["buckets"]))[place] for study, place in spans]
    return markdown(
        ["in the other heads", *(f"text, {low} to {high}" for low, high in edges),
         *(f"needles, {length} tokens" for length in lengths)], rows,
        "Perplexity over the control's with the same seed, and its range over three seeds; "
        + ", ".join(f"{study['windows']} windows of {study['length']} tokens" for study in studies)
        + ". Needles: five questions a seed, each at depths of 0, 25, 50 and 75 %; "
        f"{asked[0]['precision']}. {STAR}")


def _other(row: Row) -> str:
    """Return the mechanism of the heads that are not kept, with its options."""
    options = dict(row["options"]["others"])
    return label(mechanism_of(options.pop("name"), options).title, options)


def _task(study: Row) -> str:
    """Return the task of `study needles`, and whether it was told in the other wording."""
    return str(study["task"].split(" ")[0]) + ", other wording" * ("wording=" in study["task"])


def _found(studies: Sequence[Mapping[str, Any]], length: int) -> str:
    """Return how many needles before the end are found in prompts of a length, of how many."""
    far = [each["exact"] for study in studies for each in study["cells"]
           if each["length"] == length and each["depth"] < 1]
    asked = sum(each["samples"] for each in far)
    hits = sum(round(each["value"] * each["samples"]) for each in far)
    return f"{hits} of {asked}" if asked else "-"
