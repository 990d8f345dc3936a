"""Numbers of the papers' tables, copied by hand, so that arithmetic can compare them with each other."""

from collections.abc import Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """One row of a table of scores, as printed: the columns that are averaged, and the printed average."""

    block: str
    method: str
    numbers: tuple[str, ...]
    average: str


class Ratio(NamedTuple):
    """Two printed amounts and the printed quotient, or reduction in percent, of the first to the second."""

    name: str
    before: str
    after: str
    printed: str


def _row(block: str, method: str, numbers: str) -> Row:
    *columns, average = numbers.split()
    return Row(block, method, tuple(columns), average)


LONGBENCH = ("Single-Doc. QA", "Multi-Doc. QA", "Summary", "FS. Learning", "Synthetic", "Code")
CCA_EM_LENGTHS = ("4K", "8K", "16K", "32K", "64K", "128K")
CCA_RULER_LENGTHS = ("8K", "16K", "32K", "64K")
DGA_EM_LENGTHS = ("4K", "8K", "16K", "32K")

# CCA: Tables 1 and 2 (LongBench-E), 3 (exact match), 4 (RULER), 10 (what is finetuned).
CCA_AVERAGES: tuple[Row, ...] = (
    _row("Table 1, 32K", "vanilla", "2.75 1.85 12.43 66.28 0.34 48.99 22.11"),
    _row("Table 1, 32K", "StreamingLLM", "4.75 2.94 2.97 48.20 0.66 30.16 14.95"),
    _row("Table 1, 32K", "LM-Infinite", "2.04 2.33 1.98 57.45 0.3 48.46 18.76"),
    _row("Table 1, 32K", "MInference", "3.68 3.05 10.97 66.26 0.61 42.30 21.14"),
    _row("Table 1, 32K", "CCA-LLM", "3.63 3.98 7.79 61.79 2.64 51.36 21.86"),
    _row("Table 1, 80K", "vanilla", "3.22 2.71 3.90 64.98 0.56 59.16 22.42"),
    _row("Table 1, 80K", "StreamingLLM", "2.07 2.32 0.37 45.03 2.67 37.17 14.94"),
    _row("Table 1, 80K", "LM-Infinite", "2.54 1.53 2.22 61.29 1.08 58.54 21.20"),
    _row("Table 1, 80K", "MInference", "2.44 3.49 4.41 64.26 0.28 57.60 22.08"),
    _row("Table 1, 80K", "CCA-LLM", "5.62 4.34 8.99 59.60 0.48 54.40 22.24"),
    _row("Table 2, LLaMA3.1", "vanilla", "16.71 10.75 20.32 68.75 48.93 62.10 37.93"),
    _row("Table 2, LLaMA3.1", "MInference", "16.33 10.71 20.44 68.41 48.06 62.50 37.74"),
    _row("Table 2, LLaMA3.1", "CCA-LLM", "17.90 16.41 19.63 67.20 43.76 61.98 37.81"),
    _row("Table 2, Qwen2.5", "vanilla", "16.67 18.18 18.70 66.81 45.34 64.56 38.38"),
    _row("Table 2, Qwen2.5", "MInference", "16.20 17.21 18.59 67.10 38.28 62.95 36.72"),
    _row("Table 2, Qwen2.5", "CCA-LLM", "16.91 17.07 18.60 66.89 45.50 63.52 38.08"),
    _row("Table 3", "vanilla", "39.4 37.8 37.6 36.2 34.6 30.3 36.0"),
    _row("Table 3", "StreamingLLM", "33.6 26.0 32.2 30.6 27.4 25.1 29.2"),
    _row("Table 3", "LM-Infinite", "31.6 25.6 32.4 32.2 28.2 26.3 29.4"),
    _row("Table 3", "MInference", "39.0 32.4 37.4 36.0 32.3 28.9 34.3"),
    _row("Table 3", "CCA-LLM", "39.3 33.2 35.4 31.4 35.3 32.0 34.4"),
    _row("Table 4", "vanilla", "71.90 66.26 61.54 55.15 63.71"),
    _row("Table 4", "MInference", "67.78 65.32 61.43 52.77 61.83"),
    _row("Table 4", "CCA-LLM", "68.15 66.31 60.89 54.88 62.56"),
    _row("Table 10", "partial", "5.39 3.62 9.21 60.41 1.34 51.77 21.96"),
    _row("Table 10", "full", "5.62 4.34 8.99 59.60 0.48 54.40 22.24"),
)

# DGA: Tables 1 and 7 (LongBench-E), 2 (exact match).
DGA_AVERAGES: tuple[Row, ...] = (
    _row("Table 1", "vanilla", "6.43 2.37 13.65 56.65 3.04 48.0 21.69"),
    _row("Table 1", "MInference", "5.86 2.65 14.33 55.99 2.63 48.41 21.64"),
    _row("Table 1", "StreamingLLM", "4.99 4.13 11.51 45.43 2.16 30.38 16.43"),
    _row("Table 1", "LM-Infinite", "3.54 2.61 3.31 48.97 1.33 35.26 15.84"),
    _row("Table 1", "DGA-LLM", "3.61 3.58 6.81 57.90 1.47 53.45 21.14"),
    _row("Table 7", "w/o complementary tokens", "6.43 2.37 8.47 53.69 3.04 48.00 20.33"),
    _row("Table 2", "vanilla", "37.2 36.4 33.8 26.8 33.6"),
    _row("Table 2", "StreamingLLM", "30.2 25.8 22.2 20.8 24.8"),
    _row("Table 2", "LM-Infinite", "29.4 28.6 23.8 22.4 26.1"),
    _row("Table 2", "MInference", "29.2 24.8 23.6 17.0 23.7"),
    _row("Table 2", "DGA-LLM", "35.0 27.4 25.6 22.6 27.7"),
)

# Seconds to the first token of full attention and of the method, and the printed factor.
CCA_SPEEDUPS: tuple[Ratio, ...] = (
    Ratio("Table 1, 32K StreamingLLM", "9.15", "5.75", "1.6"), Ratio("Table 1, 32K LM-Infinite", "9.15", "4.72", "1.9"),
    Ratio("Table 1, 32K MInference", "9.15", "4.20", "2.2"), Ratio("Table 1, 32K CCA-LLM", "9.15", "2.59", "3.5"),
    Ratio("Table 1, 80K StreamingLLM", "32.43", "9.04", "3.6"),
    Ratio("Table 1, 80K LM-Infinite", "32.43", "8.27", "3.9"),
    Ratio("Table 1, 80K MInference", "32.43", "8.14", "4.0"), Ratio("Table 1, 80K CCA-LLM", "32.43", "6.42", "5.7"),
    Ratio("Table 2, LLaMA3.1 MInference", "9.55", "4.93", "1.9"),
    Ratio("Table 2, LLaMA3.1 CCA-LLM", "9.55", "3.08", "3.1"),
    Ratio("Table 2, Qwen2.5 MInference", "10.58", "4.86", "2.2"),
    Ratio("Table 2, Qwen2.5 CCA-LLM", "10.58", "2.74", "3.9"),
    Ratio("Table 3, StreamingLLM", "124.85", "34.74", "3.6"), Ratio("Table 3, LM-Infinite", "124.85", "32.57", "3.8"),
    Ratio("Table 3, MInference", "124.85", "20.18", "6.2"), Ratio("Table 3, CCA-LLM", "124.85", "15.89", "7.9"),
)
# GB of full attention and of the method, and the printed reduction in percent.
CCA_MEMORY: tuple[Ratio, ...] = (
    Ratio("Table 1, 32K StreamingLLM", "35.58", "22.94", "35"),
    Ratio("Table 1, 32K LM-Infinite", "35.58", "26.35", "26"),
    Ratio("Table 1, 32K MInference", "35.58", "33.52", "6"), Ratio("Table 1, 32K CCA-LLM", "35.58", "19.12", "46"),
    Ratio("Table 1, 80K StreamingLLM", "60.03", "37.45", "37"),
    Ratio("Table 1, 80K LM-Infinite", "60.03", "41.54", "31"),
    Ratio("Table 1, 80K MInference", "60.03", "54.09", "10"), Ratio("Table 1, 80K CCA-LLM", "60.03", "33.86", "44"),
    Ratio("Table 2, LLaMA3.1 MInference", "40.38", "35.95", "11"),
    Ratio("Table 2, LLaMA3.1 CCA-LLM", "40.38", "20.63", "49"),
    Ratio("Table 2, Qwen2.5 MInference", "35.11", "32.40", "8"),
    Ratio("Table 2, Qwen2.5 CCA-LLM", "35.11", "19.31", "45"),
)
DGA_SPEEDUPS: tuple[Ratio, ...] = (
    Ratio("Section 6.3, vanilla", "69.70", "28.80", "2.42"),
    Ratio("Section 6.3, LM-Infinite", "102.22", "28.80", "3.55"),
    Ratio("Section 6.4, MInference", "94.34", "28.79", "3.28"),
    Ratio("Section 6.4, StreamingLLM", "78.28", "28.79", "2.72"),
)

# CCA, Table 6 (MMLU): full self-attention, CCA-LLM. Table 5: score, seconds, GB of LongLoRA and of CCA-LLM.
CCA_MMLU = {"7B-8K": ("33.34", "37.55"), "7B-16K": ("28.19", "39.71"), "13B-16K": ("27.17", "48.11"),
            "13B-32K": ("26.72", "47.93")}
CCA_LONGLORA = {"score": ("21.58", "21.86"), "seconds": ("9.15", "2.59"), "GB": ("35.58", "19.12")}

# DGA, Table 3: milliseconds between tokens at 4K, 8K, 16K.
DGA_LATENCY = {"vanilla": ("36.87", "42.32", "69.70"), "MInference": ("93.13", "93.93", "94.34"),
               "StreamingLLM": ("40.00", "46.67", "78.28"), "LM-Infinite": ("49.70", "64.34", "102.22"),
               "DGA-LLM": ("26.26", "26.87", "28.79")}

# What is measured against what, in the order of the table's columns (CCA, Tables 8, 9; DGA, Tables 4, 6).
CCA_CURVES: Mapping[str, tuple[str, ...]] = {
    "perplexity with g": ("2.75", "2.78", "2.81", "2.86", "2.90", "2.93"),
    "latency with g": ("546.7", "503.5", "479.6", "462.8", "457.74", "456.0"),
    "perplexity with s": ("2.98", "2.92", "2.86", "2.79", "2.73"),
    "latency with s": ("457.4", "460.1", "461.4", "462.8", "473.1"),
}
DGA_CURVES: Mapping[str, tuple[str, ...]] = {
    "perplexity with m": ("3.20", "3.42", "3.59", "3.77", "3.87"),
    "accuracy with m": ("70.17", "68.33", "67.00", "65.61", "65.00"),
    "latency with m": ("189.80", "189.10", "172.12", "169.40", "162.02"),
    "perplexity with gamma": ("3.59", "3.43", "3.27", "3.22", "3.20"),
    "accuracy with gamma": ("67.00", "68.25", "69.67", "70.29", "70.58"),
    "latency with gamma": ("172.12", "224.85", "386.36", "465.35", "555.25"),
}

# LoCoCo, Tables 1 and 3 (SCROLLS; H2O, LoCoCo and then LongLoRA), 4 (LongBench): higher is better.
LC_SCROLLS = {
    "Table 1": {"H2O": "0.4351 0.3919 0.2498 0.3411 0.2137 0.2433",
                "LoCoCo": "0.4689 0.4284 0.2611 0.3617 0.2310 0.2576"},
    "Table 3": {"LongLoRA": "0.3395 0.2421 0.1712 0.2891 0.1792 0.1754",
                "H2O": "0.3461 0.2659 0.1885 0.2924 0.1913 0.1849",
                "LoCoCo": "0.3528 0.2813 0.1903 0.3113 0.2089 0.1902"},
    "Table 4": {"LongLoRA": "34.7", "H2O": "36.9", "LoCoCo": "37.4"},
}
# LoCoCo, Table 2: perplexity at 2048, 4096, .. up to the training length; lower is better.
LC_PERPLEXITY = {
    "7B, 8192": {"StreamingLLM": "4.0373 4.0174 4.0551", "LongLoRA": "4.0526 3.8111 3.6877",
                 "H2O": "3.9653 3.7043 3.5706", "LoCoCo": "3.9411 3.6775 3.5414", "full": "3.9325 3.6558 3.5070"},
    "7B, 16384": {"StreamingLLM": "4.0373 4.0174 4.0551 4.0334", "LongLoRA": "4.0704 3.8125 3.6928 3.6279",
                  "H2O": "3.9842 3.7173 3.5974 3.5458", "LoCoCo": "3.9628 3.6958 3.5763 3.5058",
                  "full": "3.9491 3.6619 3.5094 3.4801"},
    "7B, 32768": {"StreamingLLM": "4.0373 4.0174 4.0551 4.0334 4.0171",
                  "LongLoRA": "4.0891 3.8348 3.7161 3.6276 3.5916", "H2O": "4.0564 3.8179 3.6570 3.5634 3.5102",
                  "LoCoCo": "4.0253 3.8078 3.5807 3.5145 3.4408", "full": "3.9803 3.7703 3.5011 3.4836 3.4012"},
    "13B, 8192": {"StreamingLLM": "3.6979 3.7013 3.7022", "LongLoRA": "3.7153 3.5902 3.4511",
                  "H2O": "3.6823 3.5482 3.4073", "LoCoCo": "3.6798 3.4953 3.3697", "full": "3.6412 3.4506 3.3421"},
}
# LoCoCo, Tables 5 (GB, tokens a second), 6 (perplexity with token eviction), 7 (perplexity by size of the kernel).
LC_GIGABYTES = {"LongLoRA": 49, "H2O": 50, "LoCoCo": 50}
LC_THROUGHPUT = {"LongLoRA": 25, "H2O": 32, "LoCoCo": 33, "full": 11}
LC_EVICTION = {"H2O": "3.5714", "LoCoCo": "3.5451", "LoCoCo w. StreamingLLM": "3.5439", "LoCoCo w. H2O": "3.5414"}
LC_KERNELS = {3: "3.68", 7: "3.57", 17: "3.53", 21: "3.53", 31: "3.54", 41: "3.53", 51: "3.57", 61: "3.58"}


def find(rows: tuple[Row, ...], block: str, method: str) -> Row:
    """Return the row of a method in a table.

    Raises:
        KeyError: if there is none.
    """
    for row in rows:
        if (row.block, row.method) == (block, method):
            return row
    raise KeyError(f"{block}: no row {method!r}")
