"""A wrong version of each published number: one digit, one part or one setting changed."""

from typing import Any

from cca_lab.theory.published import tables
from cca_lab.theory.published.claims import CCA_AT_4K, DGA_EM, ROUNDED_MEMORY, RULER


def _last(rows: tuple, wrong: str) -> tuple:
    """Return rows with the last entry of the last row replaced."""
    return (*rows[:-1], (*rows[-1][:-1], wrong))


BROKEN: dict[str, Any] = {
    "CCA.averages": _last(tables.CCA_AVERAGES, "22.25"),
    "CCA.speedups": _last(tables.CCA_SPEEDUPS, "7.8"),
    "CCA.5.7x": "5.0",
    "CCA.memory": _last(ROUNDED_MEMORY, "46"),
    "CCA.minference": "20.58",
    "CCA.best-4k": {"4K": ("38.9", CCA_AT_4K)},
    "CCA.ruler": {"32K": RULER["32K"]},
    "CCA.default": {"perplexity (Tables 8, 9)": ("2.86", "2.87")},
    "CCA.tokens-32k": "2.11",
    "CCA.tokens-80k": "6",
    "CCA.mixture": (("67", "15", "4.5", "4.5", "4.5", "2.5"), "100.0"),
    "DGA.averages": _last(tables.DGA_AVERAGES, "27.9"),
    "DGA.speedups": _last(tables.DGA_SPEEDUPS, "2.71"),
    "DGA.best": {**DGA_EM, "8K": ("27.4", {"LM-Infinite": "28.6"})},
    "DGA.2.4-3.5x": "2.5",
    "DGA.table7": {"Multi-Doc. QA": ("3.58", "2.37"), "Single-Doc. QA": ("3.61", "6.43")},  # one falls, one rises
    "DGA.longbench": (("14", "5"), "21"),
    "LC.parameters": "23",
    "LC.tokens": "105",
    "LC.share": "0.0053",
    "LC.ratio": lambda memory: str(3482 // memory),
    "LC.twice": {"LoCoCo and LoCoCo with H2O": ("3.5451", "3.5414")},
}
