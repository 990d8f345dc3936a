"""All artefacts that are trained, by name."""

from cca_lab.studies.reproduce import budget, cca, dga, lococo
from cca_lab.studies.reproduce.artefact import Artefact

TRAINED: dict[str, Artefact] = {artefact.name: artefact for artefact in (
    *cca.ARTEFACTS, *dga.ARTEFACTS, *lococo.ARTEFACTS, *budget.ARTEFACTS)}


def chosen(names: list[str]) -> list[Artefact]:
    """Return the artefacts of some names, or all.

    Raises:
        ValueError: for an unknown name.
    """
    for name in names:
        if name not in TRAINED:
            raise ValueError(f"name: got {name!r}, wanted one of {', '.join(TRAINED)}")
    return [TRAINED[name] for name in names] if names else list(TRAINED.values())
