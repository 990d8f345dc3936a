"""A wrong version of each published number: one digit, one part or one setting changed."""

from typing import Any

from cca_lab.theory.published import printed, sentences
from cca_lab.theory.published.printed import Printed
from cca_lab.theory.published.sentences import Pair, efficient


def misprint(rows: tuple[Printed, ...], name: str, formula: str, wrong: str) -> tuple[Printed, ...]:
    """Return rows with one printed number replaced."""
    assert sum((row.name, row.formula) == (name, formula) for row in rows) == 1
    return tuple(row._replace(printed=wrong) if (row.name, row.formula) == (name, formula) else row
                 for row in rows)


def without_the_last_part(rows: tuple[Printed, ...], name: str) -> tuple[Printed, ...]:
    """Return rows with one part of a sum left out."""
    assert [row.name for row in rows].count(name) == 1
    return tuple(row._replace(numbers=row.numbers[:-1]) if row.name == name else row
                 for row in rows)


def turned(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Return pairs with the numbers of the first one exchanged."""
    return (pairs[0]._replace(ours=pairs[0].theirs, theirs=pairs[0].ours), *pairs[1:])


MEMORY = "reduction in percent"
MISPRINTS = (  # each number is one unit or more off
    ("CCA.printed", misprint(printed.CCA_RIGHT, "Table 10 full", "mean", "22.25")),
    ("CCA.printed", misprint(printed.CCA_RIGHT, "Table 3 CCA-LLM", "quotient", "7.7")),
    ("CCA.printed", misprint(printed.CCA_RIGHT, "Table 2, Qwen2.5 CCA-LLM", MEMORY, "46")),
    ("CCA.printed", misprint(printed.CCA_RIGHT, printed.CCA[-4].name, "product", "2.11")),
    ("CCA.printed", misprint(printed.CCA_RIGHT, printed.CCA[-3].name, "product", "6")),
    ("CCA.printed", without_the_last_part(printed.CCA_RIGHT,
                                          "Appendix B.2, percent of the mixture")),
    ("DGA.printed", misprint(printed.DGA, "Table 2 DGA-LLM", "mean", "27.9")),
    ("DGA.printed", misprint(printed.DGA, "Section 6.4, StreamingLLM", "quotient", "2.73")),
    ("DGA.printed", without_the_last_part(printed.DGA, "Appendix C.1, tasks of LongBench")),
    ("LC.printed", misprint(printed.LOCOCO, printed.LOCOCO[0].name, "product", "23")),
    ("LC.printed", misprint(printed.LOCOCO, printed.LOCOCO[1].name, "product", "106")),
    ("LC.printed", misprint(printed.LOCOCO, printed.LOCOCO[2].name, "product", "0.0053")),
    ("LC.printed", misprint(printed.LOCOCO, printed.LOCOCO[3].name, "product", "2.791")),
)
BROKEN: dict[str, Any] = {
    "CCA.printed": MISPRINTS[0][1],
    "DGA.printed": MISPRINTS[7][1],
    "LC.printed": MISPRINTS[9][1],
    "CCA.superior": sentences.MEANS,  # with full self-attention
    "CCA.best-4k": (*efficient(sentences.EM_AT_4K), Pair("Table 3, 4K", "39.3", "vanilla", "39.4")),
    "CCA.best-longbench": turned(efficient(sentences.ON_LONGBENCH)),
    "CCA.accuracy": tuple(pair for pair in sentences.ACCURACY
                          if pair.place in ("Table 3, 32K", "Table 3, 64K")),
    "CCA.advantages": tuple(pair for pair in sentences.EM_LEADS
                            if pair.place != "Table 3, 8K"),  # falls from 16K to 32K
    "CCA.long": tuple(pair for pair in sentences.EM_LEADS if pair.place != "Table 3, 4K"),
    "CCA.ruler": tuple(pair for pair in sentences.ON_RULER if pair.place == "Table 4, 32K"),
    "CCA.citations": (("RULER scores", "Table 4"), ("the updating strategies", "Section 3.4")),
    "CCA.em": "RULER",
    "CCA.mmlu": turned(sentences.MMLU),
    "CCA.ablations": {"perplexity with g": "rises", "latency with g": "rises"},
    "CCA.5.7x": (printed.FACTOR[0]._replace(printed="5.2"),),
    "CCA.lowest": (*sentences.LOWEST, sentences.CACHES[1]),  # LM-Infinite's entries
    "CCA.larger-s": (*sentences.LOWER_PPL, sentences.LARGER_S),
    "CCA.same-memory": {"GB": {"Section 4.4": "35.58", "Table 1": "33.52"}},
    "CCA.ablated-model": {"model": {"Appendix C.5": "LLaMA2-7B-16K", "Table 1": "LLaMA2-7B-32K"}},
    "CCA.three-metrics": turned(sentences.THREE_METRICS),
    "CCA.minference": {"MInference": {"Section 4.4": "20.28", "Table 3": "20.18"}},
    "CCA.devices": {"GPUs": {"Table 3": "2", "Poster": "1"}},
    "CCA.default": {"perplexity": {"Table 8": "2.86", "Table 9": "2.84"}},
    "DGA.best": {"4K": 1, "8K": 1, "16K": 1, "32K": 1},
    "DGA.degradation": ("MInference", "LM-Infinite"),
    "DGA.rise": ("MInference", "StreamingLLM"),
    "DGA.slower": turned(sentences.SLOWER),
    "DGA.2.4-3.5x": (printed.TWO_TO_THREE._replace(printed="2.5"),),
    "DGA.citations": (("69.70 and 102.22 ms", "Table 1"), ("what gamma does", "Table 7")),
    "DGA.table7": {"Multi-Doc. QA": ("3.58", "2.37"),
                   "Single-Doc. QA": ("3.61", "6.43")},  # one falls, one rises
    "DGA.table5": turned(sentences.TOP_K),
    "DGA.trends": {"perplexity with m": "rises", "accuracy with gamma": "falls"},
    "DGA.eq7": {"the scale": {"Eq. 6": "sqrt d", "Eq. 7": "d"}},
    "DGA.focal": (lambda length: max(0.1 * length, 512), (1024, 2048)),
    "DGA.xxx": "LLaMA3.1-8B",
    "LC.best": turned(sentences.BEST),
    "LC.variants": turned(sentences.VARIANTS),
    "LC.shorter": turned(sentences.SHORTER),
    "LC.table5": {"LongLoRA": 0, "H2O": 1},
    "LC.ratio": lambda memory: str(3482 // memory),
    "LC.twice": {"LoCoCo and LoCoCo with H2O": {"Table 6": "3.5451", "Table 2": "3.5414"}},
    "LC.kernels": (3, 51),
    "LC.devices": {"GPU for training": {"Section 4.1": "A6000", "Section 4.4": "A100"}},
    "LC.full-sequence": (("Table 2", 16384, True), ("Table 5", 16384, False)),
}
