"""CCA-Attention's tables and figures that a finetuned small model can tell something about."""

from collections.abc import Mapping
from types import MappingProxyType

from cca_lab.studies.reproduce.artefact import Arm, Artefact, Converging
from cca_lab.studies.reproduce.budget import MIDDLE, arms_at
from cca_lab.studies.reproduce.ordering import AGREES, DISAGREES, UNSEEN

WINDOW, GROUP = 64, 8


def cca(strategy: str = "full", **options: object) -> Arm:
    """Return CCA with some options other than g = 8 and s = 64."""
    return Arm("cca", {"group": GROUP, "window": WINDOW, **options}, strategy)


SIZES: Mapping[str, Arm] = MappingProxyType({f"g = {g}": cca(group=g) for g in (2, 4, 8, 16, 32, 64)})
READ = {f"g = {g}": cca("none", group=g) for g in (2, 4, 8, 16, 32)}
READ_WINDOWS = {f"s = {s}": cca("none", window=s) for s in (128, 64, 32)}

ARTEFACTS = (
    Artefact(
        "cca-table7", "CCA", "Table 7, mean", "weighted pooling reads better than mean pooling",
        {"weighted": 2.85, "mean": 2.99}, {"weighted": cca(), "mean": cca(pooling="mean")}, ("weighted", "mean"),
        "perplexity", recipe="long",
        verdict=UNSEEN,
        why="Three seeds cannot tell the two apart by perplexity: held-out text hardly needs what lies beyond the "
            "window. By answers they can, and weighted pooling is far ahead, as claimed."),
    Artefact(
        "cca-table7-max", "CCA", "Table 7, max", "weighted pooling reads better than max pooling",
        {"weighted": 2.85, "max": 2.99}, {"weighted": cca(), "max": cca(pooling="max")}, ("weighted", "max"),
        "perplexity", recipe="long",
        verdict=UNSEEN,
        why="If anything, max pooling reads a little better here than weighted pooling, and answers no worse. A "
            "maximum over eight tokens may keep just the feature that a question asks for; this was not tested."),
    Artefact(
        "cca-table8", "CCA", "Table 8, perplexity", "perplexity rises with the group size",
        {"2": 2.75, "4": 2.78, "8": 2.81, "16": 2.86, "32": 2.90, "64": 2.93}, SIZES, tuple(SIZES), "perplexity",
        recipe="long",
        verdict=AGREES,
        why="The rise is steep up to 8 and then flat: text barely needs what is far away. Questions do, and "
            "answers keep falling."),
    Artefact(
        "cca-table9", "CCA", "Table 9, perplexity", "perplexity falls with the local window",
        {"256": 2.98, "512": 2.92, "1024": 2.86, "2048": 2.79, "4096": 2.73},
        {f"s = {s}": cca(window=s) for s in (16, 32, 64, 128)}, ("s = 128", "s = 64", "s = 32", "s = 16"),
        "perplexity", recipe="long",
        verdict=AGREES,
        why="Windows of 1/32 to 1/4 of the context, as printed (1/64 to 1/4). Answers do not depend on the "
            "window."),
    Artefact(
        "cca-table10", "CCA", "Table 10", "training all weights gives more right answers than W^Q, W^K, W^V alone",
        {"full": 22.24, "partial": 21.96}, {"full": cca(), "partial": cca("qkv")}, ("full", "partial"),
        "LongBench-E score", metric="answers", recipe="long", model="opt-mini",
        verdict=AGREES,
        why="By answers, on opt-mini. The printed gap is small (22.24 to 21.96); here it is large, with a model "
            "that has to learn more in fewer steps."),
    Artefact(
        "cca-figure3-group", "CCA", "Figure 3, group size", "one trained model, read with smaller groups, answers more",
        {"g 16, s 4096": 20.54, "g 2, s 1024": 22.69}, READ, tuple(READ), "LongBench-E score", metric="answers",
        model="gpt2-mini-cca",
        verdict=AGREES,
        why="Trained with groups of 8, read with others; training grew the groups from 2 to 8, so small groups "
            "are not new to it. The paper changes window and group together."),
    Artefact(
        "cca-figure3-window", "CCA", "Figure 3, window", "one trained model, read with a longer window, reads better",
        {}, READ_WINDOWS, tuple(READ_WINDOWS), "", model="gpt2-mini-cca",
        verdict=AGREES,
        why="The window is where most of the perplexity is."),
    Converging(
        "cca-figure6", "CCA", "Figure 6", "finetuning converges within the first tenth of its steps, and stays", {},
        {"CCA": Arm("cca", {"group": GROUP, "window": WINDOW}, plain=True), "full": Arm("full", plain=True)},
        ("CCA", "full"), "", recipe="plain",
        verdict=UNSEEN,
        why="Most of the gain comes early with each seed, but the two are far apart: the gap to the control is a "
            "tenth of a nat, which the batches nearly hide."),
    Artefact(
        "cca-table3", "CCA", "Table 3, average", "answers: full attention, then CCA, then LM-Infinite and StreamingLLM",
        {"full": 36.0, "CCA": 34.4, "LM-Infinite": 29.4, "StreamingLLM": 29.2},
        arms_at(MIDDLE, {"full": "full", "CCA": "cca", "LM-Infinite": "lm_infinite", "StreamingLLM": "streaming_llm"}),
        ("full", "CCA", "LM-Infinite"), "exact match, %", metric="answers",
        verdict=AGREES,
        why="Full attention answers everything and CCA more than the windows in each of three seeds; how much "
            "more differs widely from seed to seed. StreamingLLM and LM-Infinite coincide on a model with "
            "learned positions."),
    Artefact(
        "cca-table3-long", "CCA", "Table 3, 64K and 128K", "at the longest contexts CCA answers more than full",
        {"CCA, 128K": 32.0, "full, 128K": 30.3}, arms_at(MIDDLE, {"CCA": "cca", "full": "full"}),
        ("CCA", "full"), "exact match, %", metric="answers",
        verdict=DISAGREES,
        why="Our base answers every question at the longest text it can read, so nothing is left for CCA to gain. "
            "What happens near or beyond a base's limit cannot be seen with 512 learned positions."),
)
