"""Numbers of the papers' tables, copied by hand, so that arithmetic can compare them with each other."""

from decimal import Decimal

Row = tuple[str, tuple[str, ...], str]  # (name, the columns that are averaged, the printed average), as printed


def _row(name: str, numbers: str) -> Row:
    *columns, average = numbers.split()
    return name, tuple(columns), average


# CCA: Tables 1 and 2 (LongBench-E), 3 (exact match), 4 (RULER), 10 (what is finetuned).
CCA_AVERAGES: tuple[Row, ...] = (
    _row("Table 1, LLaMA2-7B-32K", "2.75 1.85 12.43 66.28 0.34 48.99 22.11"),
    _row("Table 1, 32K StreamingLLM", "4.75 2.94 2.97 48.20 0.66 30.16 14.95"),
    _row("Table 1, 32K LM-Infinite", "2.04 2.33 1.98 57.45 0.3 48.46 18.76"),
    _row("Table 1, 32K MInference", "3.68 3.05 10.97 66.26 0.61 42.30 21.14"),
    _row("Table 1, 32K CCA-LLM", "3.63 3.98 7.79 61.79 2.64 51.36 21.86"),
    _row("Table 1, LLaMA2-7B-80K", "3.22 2.71 3.90 64.98 0.56 59.16 22.42"),
    _row("Table 1, 80K StreamingLLM", "2.07 2.32 0.37 45.03 2.67 37.17 14.94"),
    _row("Table 1, 80K LM-Infinite", "2.54 1.53 2.22 61.29 1.08 58.54 21.20"),
    _row("Table 1, 80K MInference", "2.44 3.49 4.41 64.26 0.28 57.60 22.08"),
    _row("Table 1, 80K CCA-LLM", "5.62 4.34 8.99 59.60 0.48 54.40 22.24"),
    _row("Table 2, LLaMA3.1-8B-128K", "16.71 10.75 20.32 68.75 48.93 62.10 37.93"),
    _row("Table 2, LLaMA3.1 MInference", "16.33 10.71 20.44 68.41 48.06 62.50 37.74"),
    _row("Table 2, LLaMA3.1 CCA-LLM", "17.90 16.41 19.63 67.20 43.76 61.98 37.81"),
    _row("Table 2, Qwen2.5-7B-128K", "16.67 18.18 18.70 66.81 45.34 64.56 38.38"),
    _row("Table 2, Qwen2.5 MInference", "16.20 17.21 18.59 67.10 38.28 62.95 36.72"),
    _row("Table 2, Qwen2.5 CCA-LLM", "16.91 17.07 18.60 66.89 45.50 63.52 38.08"),
    _row("Table 3, LLaMA2-7B-80K", "39.4 37.8 37.6 36.2 34.6 30.3 36.0"),
    _row("Table 3, StreamingLLM", "33.6 26.0 32.2 30.6 27.4 25.1 29.2"),
    _row("Table 3, LM-Infinite", "31.6 25.6 32.4 32.2 28.2 26.3 29.4"),
    _row("Table 3, MInference", "39.0 32.4 37.4 36.0 32.3 28.9 34.3"),
    _row("Table 3, CCA-LLM", "39.3 33.2 35.4 31.4 35.3 32.0 34.4"),
    _row("Table 4, LLaMA2-7B-80K", "71.90 66.26 61.54 55.15 63.71"),
    _row("Table 4, MInference", "67.78 65.32 61.43 52.77 61.83"),
    _row("Table 4, CCA-LLM", "68.15 66.31 60.89 54.88 62.56"),
    _row("Table 10, partial", "5.39 3.62 9.21 60.41 1.34 51.77 21.96"),
    _row("Table 10, full", "5.62 4.34 8.99 59.60 0.48 54.40 22.24"),
)

# DGA: Tables 1 and 7 (LongBench-E), 2 (exact match).
DGA_AVERAGES: tuple[Row, ...] = (
    _row("Table 1, LLaMA2-7B", "6.43 2.37 13.65 56.65 3.04 48.0 21.69"),
    _row("Table 1, MInference", "5.86 2.65 14.33 55.99 2.63 48.41 21.64"),
    _row("Table 1, StreamingLLM", "4.99 4.13 11.51 45.43 2.16 30.38 16.43"),
    _row("Table 1, LM-Infinite", "3.54 2.61 3.31 48.97 1.33 35.26 15.84"),
    _row("Table 1, DGA-LLM", "3.61 3.58 6.81 57.90 1.47 53.45 21.14"),
    _row("Table 7, w/o complementary tokens", "6.43 2.37 8.47 53.69 3.04 48.00 20.33"),
    _row("Table 2, LLaMA2-7B", "37.2 36.4 33.8 26.8 33.6"),
    _row("Table 2, StreamingLLM", "30.2 25.8 22.2 20.8 24.8"),
    _row("Table 2, LM-Infinite", "29.4 28.6 23.8 22.4 26.1"),
    _row("Table 2, MInference", "29.2 24.8 23.6 17.0 23.7"),
    _row("Table 2, DGA-LLM", "35.0 27.4 25.6 22.6 27.7"),
)

LONGBENCH = ("Single-Doc. QA", "Multi-Doc. QA", "Summary", "FS. Learning", "Synthetic", "Code")

# (name, baseline seconds, seconds, printed ratio)
Ratio = tuple[str, str, str, str]
CCA_SPEEDUPS: tuple[Ratio, ...] = (
    ("Table 1, 32K StreamingLLM", "9.15", "5.75", "1.6"), ("Table 1, 32K LM-Infinite", "9.15", "4.72", "1.9"),
    ("Table 1, 32K MInference", "9.15", "4.20", "2.2"), ("Table 1, 32K CCA-LLM", "9.15", "2.59", "3.5"),
    ("Table 1, 80K StreamingLLM", "32.43", "9.04", "3.6"), ("Table 1, 80K LM-Infinite", "32.43", "8.27", "3.9"),
    ("Table 1, 80K MInference", "32.43", "8.14", "4.0"), ("Table 2, LLaMA3.1 MInference", "9.55", "4.93", "1.9"),
    ("Table 2, LLaMA3.1 CCA-LLM", "9.55", "3.08", "3.1"), ("Table 2, Qwen2.5 MInference", "10.58", "4.86", "2.2"),
    ("Table 2, Qwen2.5 CCA-LLM", "10.58", "2.74", "3.9"), ("Table 3, StreamingLLM", "124.85", "34.74", "3.6"),
    ("Table 3, LM-Infinite", "124.85", "32.57", "3.8"), ("Table 3, MInference", "124.85", "20.18", "6.2"),
    ("Table 3, CCA-LLM", "124.85", "15.89", "7.9"),
)
DGA_SPEEDUPS: tuple[Ratio, ...] = (
    ("Section 6.3, vanilla", "69.70", "28.80", "2.42"), ("Section 6.3, LM-Infinite", "102.22", "28.80", "3.55"),
    ("Section 6.4, MInference", "94.34", "28.79", "3.28"), ("Section 6.4, StreamingLLM", "78.28", "28.79", "2.72"),
)
# (name, GB of full attention, GB, printed reduction in percent)
CCA_MEMORY: tuple[Ratio, ...] = (
    ("Table 1, 32K StreamingLLM", "35.58", "22.94", "35"), ("Table 1, 32K LM-Infinite", "35.58", "26.35", "26"),
    ("Table 1, 32K MInference", "35.58", "33.52", "6"), ("Table 1, 32K CCA-LLM", "35.58", "19.12", "46"),
    ("Table 1, 80K StreamingLLM", "60.03", "37.45", "37"), ("Table 1, 80K LM-Infinite", "60.03", "41.54", "31"),
    ("Table 1, 80K MInference", "60.03", "54.09", "10"), ("Table 1, 80K CCA-LLM", "60.03", "33.86", "44"),
    ("Table 2, LLaMA3.1 MInference", "40.38", "35.95", "11"), ("Table 2, LLaMA3.1 CCA-LLM", "40.38", "20.63", "49"),
    ("Table 2, Qwen2.5 MInference", "35.11", "32.40", "8"), ("Table 2, Qwen2.5 CCA-LLM", "35.11", "19.31", "45"),
)


def columns(rows: tuple[Row, ...], name: str) -> tuple[Decimal, ...]:
    """Return the numbers of one row without its average."""
    return next(tuple(map(Decimal, numbers)) for row, numbers, _ in rows if row == name)
