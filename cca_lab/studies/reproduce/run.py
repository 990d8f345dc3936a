"""`cca-lab reproduce`: train and measure what an artefact needs, and print it beside what the paper printed."""

from collections.abc import Iterable
from pathlib import Path

from cca_lab.files import models_folder, new_result
from cca_lab.reporting import print_table
from cca_lab.settings import check_sizes
from cca_lab.studies.reproduce.artefact import QUICK_STEPS, Artefact
from cca_lab.studies.reproduce.registry import chosen
from cca_lab.studies.reproduce.variants import registered
from cca_lab.studies.trials import Study

MOST_SEEDS = 100
# windows of text, and questions for each place of the answer
SIZES = {"short": (32, 16), "long": (64, 48), "plain": (32, 16)}
QUICK = (16, 16)


def reproduce(names: Iterable[str] = (), *, seeds: int = 3, quick: bool = False, steps: int | None = None,
              out: Path | None = None) -> dict[str, dict]:
    """Train and measure the settings of some artefacts, seed by seed, and print each with its verdict.

    What the files hold already is not measured again, so an interrupted command continues.

    Args:
        names: artefacts; all if empty.
        seeds: training runs per setting, with the seeds 0, 1, ...
        quick: one seed, few steps, few windows and questions: a look in minutes, not a result.
        steps: optimizer steps in place of the recipe's.
        out: folder of the studies' files; None for data/results. With `quick` or `steps` it must be another.

    Returns:
        The measurements by trial, of each study by its file's name.

    Raises:
        ValueError: for an unknown name, or `quick` or `steps` without a folder.
    """
    artefacts = chosen(list(names))
    check_sizes(seeds=(seeds, 1, MOST_SEEDS))
    if steps is not None:
        check_sizes(steps=(steps, 1, 10**6))
    if (quick or steps is not None) and out is None:
        raise ValueError("out: got none, wanted a folder, so that quick results do not stand among the shipped ones")
    if quick:
        seeds, steps = 1, QUICK_STEPS if steps is None else steps
    files = {artefact.file: artefact for artefact in artefacts}
    studies = {file: _study(artefact, file, out, quick) for file, artefact in files.items()}
    with registered():
        for seed in range(seeds):
            for artefact in artefacts:
                studies[artefact.file].run(artefact.trials(seed, steps))
    for artefact in artefacts:
        show(artefact, studies[artefact.file])
    return {file: study.result["trials"] for file, study in studies.items()}


def _study(artefact: Artefact, file: str, out: Path | None, quick: bool) -> Study:
    windows, questions = QUICK if quick else SIZES[artefact.recipe]
    place = new_result(file) if out is None else out / file
    return Study(str(models_folder() / artefact.model), place, windows=windows, questions=questions)


def list_all() -> None:
    """Print every artefact with its claim."""
    print_table("cca-lab reproduce NAME", ["name", "where", "claim"],
                [[one.name, f"{one.paper}, {one.place}", one.claim] for one in chosen([])])


def show(artefact: Artefact, study: Study) -> None:
    """Print an artefact: the printed numbers, ours, and whether they agree."""
    found = artefact.found(study.result)
    if found is None:
        return
    rows = [[label, numbers] for label, numbers in found.numbers.items()]
    print_table(f"{artefact.name}: {artefact.claim} ({artefact.paper}, {artefact.place}): {found.verdict}",
                ["setting", "perplexity over the base's, answers"], rows)
    if artefact.printed:
        print_table(f"printed, {artefact.unit}", list(artefact.printed), [[str(n) for n in artefact.printed.values()]])
