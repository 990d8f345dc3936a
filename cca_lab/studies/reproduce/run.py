"""`cca-lab study reproduce`: measure artefacts, and print them beside the paper's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cca_lab.files import held, models_folder, new_result
from cca_lab.reporting import print_table
from cca_lab.settings import check, option
from cca_lab.studies.reproduce.artefact import QUICK_STEPS, Artefact
from cca_lab.studies.reproduce.trained import chosen
from cca_lab.studies.reproduce.variants import registered
from cca_lab.studies.study import MOST_SEEDS, Study
from cca_lab.studies.trials import Trials

# windows of text, and questions for each place of the answer
SIZES = {"short": (32, 16), "long": (64, 48), "plain": (32, 16)}
QUICK = (16, 16)


@dataclass(frozen=True, kw_only=True)
class Reproduce(Study):
    """Re-enact the papers' tables and figures, where the files hold no measurement yet."""

    names: tuple[str, ...] = option((), "Such as cca-table7.", argument=True, metavar="NAME",
                                    shown="all")
    seeds: int = option(3, "Training runs per setting, with seeds 0, 1, ...", least=1,
                        most=MOST_SEEDS)
    quick: bool = option(False, "One seed and few steps, in minutes; needs --out.")
    steps: int | None = option(None, "Optimizer steps per training; needs --out.", least=1,
                               most=10**6, shown="the recipe's")
    out: Path | None = option(
        None, "Folder for the JSON files; what they hold is not measured again.", output="folder")
    list: bool = option(False, "List the tables and figures, and stop.")

    def run(self) -> dict[str, Any]:
        """Measure seed by seed, print the verdicts; return the trials by the file's name."""
        check(self)
        artefacts = chosen(self.names)
        if self.list:
            if self.quick or self.steps is not None or self.out is not None:
                raise ValueError("list: given with --quick, --steps or --out, which it does not "
                                 "use; leave one or the other out")
            print_table("cca-lab study reproduce NAME", ["name", "where", "claim"],
                        [[each.name, f"{each.paper}, {each.place}", each.claim]
                         for each in artefacts])
            return {}
        if (self.quick or self.steps is not None) and self.out is None:
            raise ValueError(
                "out: got none, wanted a folder, so that quick results do not stand among the "
                "shipped ones")
        seeds, steps = self.seeds, self.steps
        if self.quick:
            seeds, steps = 1, QUICK_STEPS if steps is None else steps
        studies = {artefact.file: self._trials(artefact) for artefact in artefacts}
        with held(self.out or new_result("reproduce")), registered():
            for seed in range(seeds):
                for artefact in artefacts:
                    studies[artefact.file].run_trials(artefact.trials(seed, steps))
        for artefact in artefacts:
            show(artefact, studies[artefact.file].held)
        return {file: trials.held["trials"] for file, trials in studies.items()}

    def _trials(self, artefact: Artefact) -> Trials:
        windows, questions = QUICK if self.quick else SIZES[artefact.recipe]
        out = new_result(artefact.file) if self.out is None else self.out / artefact.file
        return Trials(model=str(models_folder() / artefact.model), out=out, windows=windows,
                      questions=questions)


def show(artefact: Artefact, study: Mapping[str, Any]) -> None:
    """Print an artefact: the printed numbers, ours, and whether they agree."""
    found = artefact.found(study)
    if found is None:
        return
    rows = [[label, numbers] for label, numbers in found.numbers.items()]
    print_table(
        f"{artefact.name}: {artefact.claim} ({artefact.paper}, {artefact.place}): {found.verdict}",
        ["setting", "perplexity over the base's, answers"], rows)
    if artefact.printed:
        print_table(f"printed, {artefact.unit}", list(artefact.printed),
                    [[str(n) for n in artefact.printed.values()]])
