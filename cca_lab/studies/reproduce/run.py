"""`cca-lab study reproduce`: measure artefacts, and print them beside the paper's numbers."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from cca_lab.files import check_file, check_folder, held, models_folder, new_result
from cca_lab.options import Count
from cca_lab.studies.reproduce.artefact import QUICK_STEPS, Artefact
from cca_lab.studies.study import markdown
from cca_lab.studies.trials import Trials

# windows of text, and questions for each place of the answer
SIZES = {"short": (32, 16), "long": (64, 48), "plain": (32, 16)}
QUICK = (16, 16)


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Re-enact the papers' tables and figures, where the files hold no measurement yet."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Such as cca-table7; by default all."""
    seeds: Count = 3
    """Training runs per setting, with seeds 0, 1, ..."""
    quick: bool = False
    """One seed and few steps, in minutes; needs --out."""
    out: Path | None = None
    """Folder for the JSON files, by default data/results; what they hold is not measured again."""
    list: bool = False
    """List the tables and figures, and stop."""

    def run(self) -> None:
        """Measure seed by seed, and print the verdicts."""
        from cca_lab.studies.reproduce.trained import chosen
        from cca_lab.studies.reproduce.variants import registered

        artefacts = chosen(self.names)
        if self.list:
            print(markdown(["name", "where", "claim"],
                           [[each.name, f"{each.paper}, {each.place}", each.claim]
                            for each in artefacts]))
            return
        if self.quick and self.out is None:
            raise ValueError("out: got none, wanted a folder, so that quick results do not stand "
                             "among the shipped ones")
        seeds, steps = (1, QUICK_STEPS) if self.quick else (self.seeds, None)
        studies = {each.file: self._trials(each) for each in artefacts}
        with ExitStack() as files:
            for trials in studies.values():
                files.enter_context(held(check_file(trials.out)))
            files.enter_context(registered())
            for seed in range(seeds):
                for artefact in artefacts:
                    studies[artefact.file].run_trials(artefact.trials(seed, steps))
        for artefact in artefacts:
            print(table(artefact, studies[artefact.file].content))

    def _trials(self, artefact: Artefact) -> Trials:
        windows, questions = QUICK if self.quick else SIZES[artefact.recipe]
        out = new_result(artefact.file) if self.out is None \
            else check_folder(self.out) / artefact.file
        return Trials(model=str(models_folder() / artefact.model), out=out, windows=windows,
                      questions=questions)


def table(artefact: Artefact, study: Mapping[str, Any]) -> str:
    """Return an artefact's table: ours and the printed numbers, and whether they agree."""
    found = artefact.found(study)
    if found is None:
        return f"{artefact.name}: nothing measured yet"
    printed = ", ".join(f"{name}: {value:g}" for name, value in artefact.printed.items())
    return markdown(
        ["setting", "perplexity over the base's, answers"], found.numbers.items(),
        f"{artefact.name}: {artefact.claim} ({artefact.paper}, {artefact.place}): {found.verdict}."
        + (f" Printed, {artefact.unit}: {printed}." if printed else ""))
