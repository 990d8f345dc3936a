"""The tables and figures that a finetuned small model can tell something about."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from transformers import AutoConfig, PreTrainedConfig

from cca_lab.files import models_folder
from cca_lab.mechanisms.caches import fitted
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.studies.reproduce.artefact import (
    AGREES,
    DISAGREES,
    UNSEEN,
    Arm,
    Artefact,
    Converging,
    study_file,
    values,
)

BASE, LENGTH = "gpt2-mini", 512
BUDGETS = (48, 96, 192)  # entries for each KV head, of 512
MIDDLE = 96  # the budget at which exact match is measured at other lengths, too
LENGTHS = (128, 256, 384)
METHODS = {"CCA": "cca", "DGA": "dga", "LoCoCo": "lococo", "H2O": "h2o",
           "StreamingLLM": "streaming_llm", "LM-Infinite": "lm_infinite",
           "mean pooling": "mean_pooling", "random tokens": "random_tokens"}


@cache
def _config() -> PreTrainedConfig:
    return AutoConfig.from_pretrained(models_folder() / BASE)


def arms_at(entries: int, methods: Mapping[str, str]) -> dict[str, Arm]:
    """Return arms by label, with the largest caches of `entries` per KV head; "full" keeps all."""
    return {
        name: Arm(method,
                  {} if method == "full" else fitted(_config(), method, entries, LENGTH).options(),
                  lengths=LENGTHS if method == "full" or entries == MIDDLE else ())
        for name, method in methods.items()}


def _all(entries: int) -> dict[str, Arm]:
    """Return every method, trained and only swapped, and full attention."""
    trained = arms_at(entries, METHODS)
    return {**arms_at(entries, {"full": "full"}), **trained,
            **{f"{name}, swapped": Arm(arm.attention, arm.options, "none")
               for name, arm in trained.items()}}


WINDOW, GROUP = 64, 8


def cca(strategy: str = "full", **options: object) -> Arm:
    """Return CCA with some options other than g = 8 and s = 64."""
    return Arm("cca", {"group": GROUP, "window": WINDOW, **options}, strategy)


SIZES = {f"g = {g}": cca(group=g) for g in (2, 4, 8, 16, 32, 64)}
READ = {f"g = {g}": cca("none", group=g) for g in (2, 4, 8, 16, 32)}
READ_WINDOWS = {f"s = {s}": cca("none", window=s) for s in (128, 64, 32)}

OF_CCA = (
    Artefact(
        "cca-table7", "CCA", "Table 7, mean", "weighted pooling reads better than mean pooling",
        {"weighted": 2.85, "mean": 2.99}, {"weighted": cca(), "mean": cca(pooling="mean")},
        ("weighted", "mean"), "perplexity", recipe="long", verdict=UNSEEN,
        why="Three seeds cannot tell the two apart by perplexity: held-out text hardly needs "
            "what lies beyond the window. By answers they can, and weighted pooling is far "
            "ahead, as claimed."),
    Artefact(
        "cca-table7-max", "CCA", "Table 7, max", "weighted pooling reads better than max pooling",
        {"weighted": 2.85, "max": 2.99}, {"weighted": cca(), "max": cca(pooling="max")},
        ("weighted", "max"), "perplexity", recipe="long", verdict=UNSEEN,
        why="If anything, max pooling reads a little better here than weighted pooling, and "
            "answers no worse. A maximum over eight tokens may keep just the feature that a "
            "question asks for; this was not tested."),
    Artefact(
        "cca-table8", "CCA", "Table 8, perplexity", "perplexity rises with the group size",
        {"2": 2.75, "4": 2.78, "8": 2.81, "16": 2.86, "32": 2.9, "64": 2.93}, SIZES, tuple(SIZES),
        "perplexity", recipe="long", verdict=AGREES,
        why="The rise is steep up to 8 and then flat: text barely needs what is far away. "
            "Questions do, and answers keep falling."),
    Artefact(
        "cca-table9", "CCA", "Table 9, perplexity", "perplexity falls with the local window",
        {"256": 2.98, "512": 2.92, "1024": 2.86, "2048": 2.79, "4096": 2.73},
        {f"s = {s}": cca(window=s) for s in (16, 32, 64, 128)},
        ("s = 128", "s = 64", "s = 32", "s = 16"), "perplexity", recipe="long", verdict=AGREES,
        why="Windows of 1/32 to 1/4 of the context, as printed (1/64 to 1/4). Answers do not "
            "depend on the window."),
    Artefact(
        "cca-table10", "CCA", "Table 10",
        "training all weights gives more right answers than W^Q, W^K, W^V alone",
        {"full": 22.24, "partial": 21.96}, {"full": cca(), "partial": cca("qkv")},
        ("full", "partial"), "LongBench-E score", metric="answers", recipe="long", model="opt-mini",
        verdict=AGREES,
        why="By answers, on opt-mini. The printed gap is small (22.24 to 21.96); here it is "
            "large, with a model that has to learn more in fewer steps."),
    Artefact(
        "cca-figure3-group", "CCA", "Figure 3, group size",
        "one trained model, read with smaller groups, answers more",
        {"g 16, s 4096": 20.54, "g 2, s 1024": 22.69}, READ, tuple(READ), "LongBench-E score",
        metric="answers", model="gpt2-mini-cca", verdict=AGREES,
        why="Trained with groups of 8, read with others; training grew the groups from 2 to 8, "
            "so small groups are not new to it. The paper changes window and group together."),
    Artefact(
        "cca-figure3-window", "CCA", "Figure 3, window",
        "one trained model, read with a longer window, reads better", {}, READ_WINDOWS,
        tuple(READ_WINDOWS), "", model="gpt2-mini-cca", verdict=AGREES,
        why="The window is where most of the perplexity is."),
    Converging(
        "cca-figure6", "CCA", "Figure 6",
        "finetuning converges within the first tenth of its steps, and stays", {},
        {"CCA": Arm("cca", {"group": GROUP, "window": WINDOW}, plain=True),
         "full": Arm("full", plain=True)},
        ("CCA", "full"), "", recipe="plain", verdict=UNSEEN,
        why="Most of the gain comes early with each seed, but the two are far apart: the gap to "
            "the control is a tenth of a nat, which the batches nearly hide."),
    Artefact(
        "cca-table3", "CCA", "Table 3, average",
        "answers: full attention, then CCA, then LM-Infinite and StreamingLLM",
        {"full": 36.0, "CCA": 34.4, "LM-Infinite": 29.4, "StreamingLLM": 29.2},
        arms_at(MIDDLE, {"full": "full", "CCA": "cca", "LM-Infinite": "lm_infinite",
                         "StreamingLLM": "streaming_llm"}),
        ("full", "CCA", "LM-Infinite"), "exact match, %", metric="answers", verdict=AGREES,
        why="Full attention answers everything and CCA more than the windows in each of three "
            "seeds; how much more differs widely from seed to seed. StreamingLLM and LM-Infinite "
            "coincide on a model with learned positions."),
    Artefact(
        "cca-table3-long", "CCA", "Table 3, 64K and 128K",
        "at the longest contexts CCA answers more than full",
        {"CCA, 128K": 32.0, "full, 128K": 30.3}, arms_at(MIDDLE, {"CCA": "cca", "full": "full"}),
        ("CCA", "full"), "exact match, %", metric="answers", verdict=DISAGREES,
        why="Our base answers every question at the longest text it can read, so nothing is left "
            "for CCA to gain. What happens near or beyond a base's limit cannot be seen with 512 "
            "learned positions."),
)


def dga(attention: str = "dga", **options: object) -> Arm:
    """Return DGA, or a variant, with options other than m = 16 and gamma = 0.1 (Appendix C.5)."""
    return Arm(attention, {"group": 16, "gamma": 0.1, **options})


OF_DGA = (
    Artefact(
        "dga-table4", "DGA", "Table 4, perplexity", "perplexity rises with the group size m",
        {"4": 3.2, "8": 3.42, "16": 3.59, "32": 3.77, "64": 3.87},
        {f"m = {m}": dga(group=m) for m in (4, 16, 64)}, ("m = 4", "m = 16", "m = 64"),
        "perplexity", verdict=DISAGREES,
        why="Perplexity falls with m here. A row reads its own open group token by token, so "
            "larger groups leave more recent tokens raw, and DGA has no other window; our text "
            "needs the recent tokens most. Answers, which need what is far, get worse with m on "
            "average, as claimed."),
    Artefact(
        "dga-table5", "DGA", "Table 5", "focal tokens chosen by score read better than random ones",
        {"top-k": 3.59, "random": 3.6}, {"top-k": dga(), "random": dga("dga_random")},
        ("top-k", "random"), "perplexity", verdict=AGREES,
        why="The printed gap is 0.01; here it is large, by perplexity and by answers."),
    Artefact(
        "dga-table6", "DGA", "Table 6, perplexity",
        "perplexity falls with the importance rate gamma",
        {"0.1": 3.59, "0.3": 3.43, "0.5": 3.27, "0.7": 3.22, "0.9": 3.2},
        {f"gamma = {gamma}": dga(gamma=gamma) for gamma in (0.1, 0.3, 0.9)},
        ("gamma = 0.9", "gamma = 0.3", "gamma = 0.1"), "perplexity", verdict=AGREES,
        why="By perplexity and by answers; with nine tokens of ten focal it reads as full "
            "attention does."),
    Artefact(
        "dga-table7", "DGA", "Table 7", "without complementary tokens the scores drop",
        {"with": 21.14, "without": 20.33}, {"with": dga(), "without": dga("dga_open")},
        ("with", "without"), "LongBench-E score", verdict=AGREES,
        why="By perplexity. Without complementary tokens a row loses its most recent tokens, "
            "itself included, and the gap is far larger than the printed one."),
    Artefact(
        "dga-table2", "DGA", "Table 2, average",
        "answers: full attention, then DGA, then LM-Infinite and StreamingLLM",
        {"full": 33.6, "DGA": 27.7, "LM-Infinite": 26.1, "StreamingLLM": 24.8},
        arms_at(MIDDLE, {"full": "full", "DGA": "dga", "LM-Infinite": "lm_infinite",
                         "StreamingLLM": "streaming_llm"}),
        ("full", "DGA", "LM-Infinite"), "exact match, %", metric="answers", verdict=AGREES,
        why="DGA answers three times as often as the windows. By perplexity it is the other way "
            "round: it reads text worse than a window of the same memory."),
)

SEGMENT = 48


def lococo(strategy: str = "full", **options: object) -> Arm:
    """Return LoCoCo with the paper's ratio as weights, equation 7, and some other options."""
    return Arm("lococo", {"slots": 48, "segment": SEGMENT, "weights": "relu", **options}, strategy)


H2O = Arm("h2o", {"heavy": 48, "recent": 48})

OF_LOCOCO = (
    Artefact(
        "lococo-figure3", "LoCoCo", "Figure 3", "perplexity falls with the memory", {},
        {f"{slots} slots": lococo(slots=slots) for slots in (16, 48, 96)},
        ("96 slots", "48 slots", "16 slots"), "perplexity", verdict=AGREES,
        why="By perplexity. Answers stay where a window has them, whatever the memory: nothing "
            "is read from slots."),
    Artefact(
        "lococo-table7", "LoCoCo", "Table 7",
        "kernels of 17 to 41 read equally well, and better than 3",
        {"3": 3.68, "7": 3.57, "17": 3.53, "21": 3.53, "31": 3.54, "41": 3.53,
         "51": 3.57, "61": 3.58},
        {f"kernel {kernel}": lococo(kernel=kernel) for kernel in (3, 7, 21)},
        ("kernel 21", "kernel 7", "kernel 3"), "perplexity", verdict=UNSEEN,
        why="If anything, the shortest kernel reads best. With 300 steps none of the three "
            "learns to answer more than a window does."),
    Artefact(
        "lococo-table6", "LoCoCo", "Table 6",
        "LoCoCo with heavy hitters, with sinks, and alone read better than H2O",
        {"with H2O": 3.5414, "with sinks": 3.5439, "alone": 3.5451, "H2O": 3.5714},
        {"with H2O": lococo(heavy=24, scores="sum"), "with sinks": lococo(sinks=4),
         "alone": lococo(), "H2O": H2O},
        ("with H2O", "with sinks", "alone", "H2O"), "perplexity", verdict=DISAGREES,
        why="Among the three of LoCoCo the order is as printed, but H2O, which keeps the nearest "
            "tokens raw, reads far better here than any of them."),
    Artefact(
        "lococo-figure2", "LoCoCo", "Figure 2",
        "dropped in, only its convolutions trained, LoCoCo loses less than H2O", {},
        {"LoCoCo": lococo("compressor"), "H2O": Arm("h2o", H2O.options, "none")}, ("LoCoCo", "H2O"),
        "accuracy", verdict=DISAGREES,
        why="H2O keeps the 48 most recent tokens raw, LoCoCo none at the moment of a "
            "compression, and our text needs those. With 300 steps LoCoCo answers no more than a "
            "window does, here and with all weights trained."),
)

# By entries: the verdict, and why. Those of one seed have none.
JUDGED: Mapping[int, dict[str, str]] = MappingProxyType({
    96: {"verdict": UNSEEN,
         "why": "CCA answers more in each of three seeds, but so differently that the interval of "
                "the difference includes none (Student's t). DGA answers most; DGA and LoCoCo read "
                "text worst, and the plain window reads it best."}})

EQUAL_MEMORY = tuple(
    Artefact(f"budget-{entries}", "all three", f"equal memory, {entries} of {LENGTH} entries",
             "at equal memory, CCA answers more than methods that forget (StreamingLLM)",
             {}, _all(entries), ("CCA", "StreamingLLM"), "", metric="answers",
             **JUDGED.get(entries, {}))
    for entries in BUDGETS)

TRAINED: dict[str, Artefact] = {artefact.name: artefact
                                for artefact in (*OF_CCA, *OF_DGA, *OF_LOCOCO, *EQUAL_MEMORY)}


def chosen(names: Sequence[str]) -> list[Artefact]:
    """Return the artefacts of some names, or all; ValueError for an unknown name."""
    for name in names:
        if name not in TRAINED:
            raise ValueError(f"name: got {name!r}, wanted one of {', '.join(TRAINED)}")
    return [TRAINED[name] for name in names] if names else list(TRAINED.values())


def points(folder: Path) -> tuple[dict[str, list[dict]], dict[str, float]]:
    """Return what `views.figures.training.frontier` draws: a line a method, and full attention."""
    study = json.loads((folder / study_file("short", BASE)).read_text(encoding="utf-8"))
    sizes = CacheSizes.of(_config())

    def scores(rows: list[dict]) -> dict[str, float] | None:
        if not rows:
            return None
        return {"answers": 1 - float(values(rows, "answers").mean()),
                "ratio": float(np.exp(values(rows, "perplexity").mean()))}

    def kib(entries: int) -> float:
        return sizes.layers * sizes.entries(entries) / 1024

    lines: dict[str, list[dict]] = {method: [] for method in METHODS}
    full: dict[str, float] = {}
    for entries, artefact in zip(BUDGETS, EQUAL_MEMORY, strict=True):
        rows = artefact.rows(study["trials"])
        full = {"kib": kib(LENGTH), **(scores(rows.get("full", [])) or {})}
        for method, line in lines.items():
            trained, swapped = scores(rows.get(method, [])), scores(rows.get(f"{method}, swapped",
                                                                             []))
            if trained or swapped:
                line.append({"kib": kib(entries), **(trained or {}), "swapped": swapped})
    return {method: line for method, line in lines.items() if line}, full
