"""LoCoCo's tables and figures that a finetuned small model can tell something about."""

from cca_lab.studies.reproduce.artefact import Arm, Artefact
from cca_lab.studies.reproduce.ordering import AGREES, DISAGREES, UNSEEN

SEGMENT = 48


def lococo(strategy: str = "full", **options: object) -> Arm:
    """Return LoCoCo with the paper's ratio as weights (Eq. 7), and some options other than 48 slots and segments."""
    return Arm("lococo", {"slots": 48, "segment": SEGMENT, "weights": "relu", **options}, strategy)


H2O = Arm("h2o", {"heavy": 48, "recent": 48})

ARTEFACTS = (
    Artefact(
        "lococo-figure3", "LoCoCo", "Figure 3", "perplexity falls with the memory", {},
        {f"{slots} slots": lococo(slots=slots) for slots in (16, 48, 96)}, ("96 slots", "48 slots", "16 slots"),
        "perplexity",
        verdict=AGREES,
        why="By perplexity. Answers stay where a window has them, whatever the memory: nothing is read from slots."),
    Artefact(
        "lococo-table7", "LoCoCo", "Table 7", "kernels of 17 to 41 read equally well, and better than 3",
        {"3": 3.68, "7": 3.57, "17": 3.53, "21": 3.53, "31": 3.54, "41": 3.53, "51": 3.57, "61": 3.58},
        {f"kernel {kernel}": lococo(kernel=kernel) for kernel in (3, 7, 21)}, ("kernel 21", "kernel 7", "kernel 3"),
        "perplexity",
        verdict=UNSEEN,
        why="If anything, the shortest kernel reads best. With 300 steps none of the three learns to answer more than "
            "a window does."),
    Artefact(
        "lococo-table6", "LoCoCo", "Table 6", "LoCoCo with heavy hitters, with sinks, and alone read better than H2O",
        {"with H2O": 3.5414, "with sinks": 3.5439, "alone": 3.5451, "H2O": 3.5714},
        {"with H2O": lococo(heavy=24, scores="sum"), "with sinks": lococo(sinks=4), "alone": lococo(), "H2O": H2O},
        ("with H2O", "with sinks", "alone", "H2O"), "perplexity",
        verdict=DISAGREES,
        why="Among the three of LoCoCo the order is as printed, but H2O, which keeps the nearest tokens raw, reads far "
            "better here than any of them."),
    Artefact(
        "lococo-figure2", "LoCoCo", "Figure 2", "dropped in, only its convolutions trained, LoCoCo loses less than H2O",
        {}, {"LoCoCo": lococo("compressor"), "H2O": Arm("h2o", H2O.options, "none")}, ("LoCoCo", "H2O"), "accuracy",
        verdict=DISAGREES,
        why="H2O keeps the 48 most recent tokens raw, LoCoCo none at the moment of a compression, and our text "
            "needs those. With 300 steps LoCoCo "
            "answers no more than a window does, here and with all weights trained."),
)
