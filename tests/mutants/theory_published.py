"""A wrong version of each published number: one digit, one part or one setting changed."""

from typing import Any

from cca_lab.theory.published import cca, cca_costs, dga, lococo, tables
from cca_lab.theory.published.scores import Pair, efficient


def last(rows: tuple, wrong: str) -> tuple:
    """Return rows with the printed number of the last row replaced."""
    name = "average" if isinstance(rows[-1], tables.Row) else "printed"
    return (*rows[:-1], rows[-1]._replace(**{name: wrong}))


def turned(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Return pairs with the numbers of the first one exchanged."""
    return (pairs[0]._replace(ours=pairs[0].theirs, theirs=pairs[0].ours), *pairs[1:])


BROKEN: dict[str, Any] = {
    "CCA.averages": last(tables.CCA_AVERAGES, "22.25"),
    "CCA.superior": cca.MEANS,  # with full self-attention
    "CCA.best-4k": (*efficient(cca.EM_AT_4K), Pair("Table 3, 4K", "39.3", "vanilla", "39.4")),
    "CCA.best-longbench": turned(efficient(cca.ON_LONGBENCH)),
    "CCA.accuracy": tuple(pair for pair in cca.ACCURACY if pair.place in ("Table 3, 32K", "Table 3, 64K")),
    "CCA.advantages": tuple(pair for pair in cca.EM_LEADS if pair.place != "Table 3, 8K"),  # falls from 16K to 32K
    "CCA.long": tuple(pair for pair in cca.EM_LEADS if pair.place != "Table 3, 4K"),
    "CCA.ruler": tuple(pair for pair in cca.ON_RULER if pair.place == "Table 4, 32K"),
    "CCA.citations": (("RULER scores", "Table 4"), ("the updating strategies", "Section 3.4")),
    "CCA.em": "RULER",
    "CCA.mmlu": turned(cca.MMLU),
    "CCA.ablations": {"perplexity with g": "rises", "latency with g": "rises"},
    "CCA.7.9x": "7.7",
    "CCA.5.7x": "5.2",
    "CCA.speedups": last(cca_costs.RIGHT_SPEEDUPS, "7.7"),
    "CCA.memory": last(tables.CCA_MEMORY, "46"),
    "CCA.lowest": turned(cca_costs.LOWEST),
    "CCA.three-metrics": turned(cca_costs.THREE_METRICS),
    "CCA.minference": {"MInference": {"Section 4.4": "20.28", "Table 3": "20.18"}},
    "CCA.devices": {"GPUs": {"Table 3": "2", "Poster": "1"}},
    "CCA.default": {"perplexity": {"Table 8": "2.86", "Table 9": "2.84"}},
    "CCA.tokens-32k": "2.11",
    "CCA.tokens-80k": "6",
    "CCA.mixture": (("67", "15", "4.5", "4.5", "4.5", "2.5"), "100.0"),
    "DGA.averages": last(tables.DGA_AVERAGES, "27.9"),
    "DGA.speedups": last(tables.DGA_SPEEDUPS, "2.73"),
    "DGA.best": {"4K": 1, "8K": 1, "16K": 1, "32K": 1},
    "DGA.degradation": ("MInference", "LM-Infinite"),
    "DGA.rise": ("MInference", "StreamingLLM"),
    "DGA.slower": turned(dga.SLOWER),
    "DGA.2.4-3.5x": "2.5",
    "DGA.citations": (("69.70 and 102.22 ms", "Table 1"), ("what gamma does", "Table 7")),
    "DGA.table7": {"Multi-Doc. QA": ("3.58", "2.37"), "Single-Doc. QA": ("3.61", "6.43")},  # one falls, one rises
    "DGA.table5": turned(dga.TOP_K),
    "DGA.trends": {"perplexity with m": "rises", "accuracy with gamma": "falls"},
    "DGA.slight": {"m": ("slight", "5.17"), "gamma": ("substantial", "5.17")},
    "DGA.focal": (lambda length: max(0.1 * length, 512), (1024, 2048)),
    "DGA.xxx": "LLaMA3.1-8B",
    "DGA.longbench": (("14", "5"), "21"),
    "LC.best": turned(lococo.BEST),
    "LC.variants": turned(lococo.VARIANTS),
    "LC.shorter": turned(lococo.SHORTER),
    "LC.table5": {"LongLoRA": 0, "H2O": 1},
    "LC.parameters": "23",
    "LC.tokens": "106",
    "LC.share": "0.0053",
    "LC.points": "2.791",
    "LC.ratio": lambda memory: str(3482 // memory),
    "LC.twice": {"LoCoCo and LoCoCo with H2O": {"Table 6": "3.5451", "Table 2": "3.5414"}},
    "LC.kernels": (3, 51),
    "LC.devices": {"GPU for training": {"Section 4.1": "A6000", "Section 4.4": "A100"}},
    "LC.full-sequence": (("Table 2", 16384, True), ("Table 5", 16384, False)),
}
