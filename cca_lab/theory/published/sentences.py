"""Sentences about scores, times and trends, judged on the printed tables of tables.toml."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.published.printed import TABLES

OURS = {"CCA": "CCA-LLM", "DGA": "DGA-LLM"}
LONGBENCH = ("Single-Doc. QA", "Multi-Doc. QA", "Summary", "FS. Learning", "Synthetic", "Code")
LATENCY = {method: tuple(numbers.split()) for method, numbers in TABLES["DGA"]["latency"].items()}
CURVES = {name: tuple(numbers.split()) for paper in ("CCA", "DGA")
          for name, numbers in TABLES[paper]["curves"].items()}
KERNELS = tuple(map(int, TABLES["LoCoCo"]["kernels"]))
MODELS = ("LLaMA-7B", "LLaMA2-7B", "Qwen2.5-7B", "GPT2-S", "OPT-125M")  # that DGA evaluates
SHOWN = 4  # losses that the evidence lists


class Pair(NamedTuple):
    """The number of the method that a sentence is about, and another method's, in a table."""

    place: str  # table and column
    ours: str
    other: str  # method
    theirs: str
    lower: bool = False  # whether the lower number is the better one

    @property
    def gain(self) -> Decimal:
        """By how much the first is better."""
        return (Decimal(self.ours) - Decimal(self.theirs)) * (-1 if self.lower else 1)

    def __str__(self) -> str:
        return f"{self.place}: {self.ours} against {self.theirs} ({self.other})"


class Fall(NamedTuple):
    """A score, or a time, of one method at a short length and at a longer one."""

    method: str
    start: str
    end: str

    @property
    def change(self) -> Decimal:
        """The change to the longer length."""
        return Decimal(self.end) - Decimal(self.start)

    @property
    def share(self) -> Decimal:
        """The change as a share of the value at the short length."""
        return self.change / Decimal(self.start)

    def __str__(self) -> str:
        return f"{self.method} {self.change:+} ({100 * self.share:+.1f} %)"


def columns(paper: str, block: str, names: Sequence[str]) -> tuple[Pair, ...]:
    """Return the columns of the paper's method against those of each other one, for one table."""
    rows = scores(paper, block)
    ours = rows[OURS[paper]]
    return tuple(Pair(f"{block}, {name}", numbers[0], method, numbers[1])
                 for method, other in rows.items() if method != OURS[paper]
                 for name, *numbers in zip(names, ours, other, strict=False))


def averages(paper: str, blocks: Iterable[str]) -> tuple[Pair, ...]:
    """Return the method's printed average against that of each other one, for some tables."""
    return tuple(Pair(f"{block}, average", rows[OURS[paper]][-1], method, other[-1])
                 for block in blocks for rows in [scores(paper, block)]
                 for method, other in rows.items() if method != OURS[paper])


def scores(paper: str, block: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of each method in one table of scores; the last is the average."""
    rows = TABLES[paper]["scores"][block]
    return {method: tuple(numbers.split()) for method, numbers in rows.items()}


def costs(unit: str, block: str) -> tuple[Pair, ...]:
    """Return the seconds or GB of CCA-LLM against those of each other method in one table."""
    rows = {method: numbers.split()[0] for method, numbers in TABLES["CCA"][unit][block].items()}
    ours = rows.pop("CCA-LLM")
    return tuple(Pair(f"{block} {unit}", ours, method, cost, lower=True)
                 for method, cost in rows.items())


def lococo(table: Mapping[str, str], name: str, *, lower: bool) -> tuple[Pair, ...]:
    """Return the columns of LoCoCo against each other method but full sequences, for one table."""
    others = {method: numbers.split() for method, numbers in table.items()
              if method not in ("LoCoCo", "full")}
    return tuple(Pair(f"{name}, column {column}", ours, method, other, lower)
                 for method, numbers in others.items() for column, (ours, other)
                 in enumerate(zip(table["LoCoCo"].split(), numbers, strict=True), 1))


def check_ahead(pairs: tuple[Pair, ...], within: Callable[[Pair], bool] | None = None) -> Outcome:
    """Judge "the first is at least as good as the other", place by place."""
    cases = chosen(pairs, within)
    lost = [pair for pair in cases if pair.gain < 0]
    if not lost:
        closest = min(cases, key=lambda pair: pair.gain)
        return Outcome(True, f"none of {len(cases)} is worse; the closest is {closest}",
                       {"cases": len(cases), "lost": 0})
    more = "" if len(lost) <= SHOWN else "; .."
    return Outcome(False, f"worse in {len(lost)} of {len(cases)}: "
                   f"{'; '.join(map(str, lost[:SHOWN]))}{more}",
                   {"cases": len(cases), "lost": len(lost)})


def check_ranks(ranks: Mapping[str, int]) -> Outcome:
    """Judge the rank of DGA-LLM's exact match among the efficient methods at each length."""
    pairs = efficient(columns("DGA", "Table 2", ("4K", "8K", "16K", "32K")))
    exact = {length: 1 + sum(pair.gain < 0 for pair in pairs if pair.place == f"Table 2, {length}")
             for length in ranks}
    return Outcome(exact == dict(ranks), f"ranks "
                   f"{', '.join(f'{rank} at {length}' for length, rank in exact.items())}",
                   {f"rank at {length}": rank for length, rank in exact.items()})


def not_full(pair: Pair) -> bool:
    """Whether the other method is not full self-attention."""
    return pair.other != "vanilla"


def efficient(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the pairs against methods other than full self-attention."""
    return tuple(filter(not_full, pairs))


def check_growth(pairs: tuple[Pair, ...],
                 within: Callable[[Pair], bool] | None = None) -> Outcome:
    """Judge "the lead grows from each column to the next"."""
    pairs = tuple(chosen(pairs, within))
    shown = ", ".join(f"{pair.gain:+} at {pair.place.split(', ')[-1]}" for pair in pairs)
    rises = [after.gain > before.gain for before, after in pairwise(pairs)]
    return Outcome(all(rises), f"the lead is {shown}", {"rises": sum(rises)})


def check_steeper(methods: tuple[str, ...]) -> Outcome:
    """Judge "these methods lose more EM than DGA-LLM" at 16K or 32K, in points or as a share."""
    rows = {method: scores("DGA", "Table 2")[method] for method in (*methods, "DGA-LLM")}
    told = []
    for column, length in ((2, "16K"), (3, "32K")):
        falls = {name: Fall(name, numbers[0], numbers[column]) for name, numbers in rows.items()}
        dga = falls.pop("DGA-LLM")
        told.append(f"4K to {length}: {', '.join(map(str, [*falls.values(), dga]))}")
        if (all(fall.change < dga.change for fall in falls.values())
                or all(fall.share < dga.share for fall in falls.values())):
            return Outcome(True, told[-1])
    return Outcome(False, "; ".join(told))


def check_rise(methods: tuple[str, ...]) -> Outcome:
    """Judge "from 4K to 16K these methods' latency rises more than DGA-LLM's", in ms or percent."""
    falls = {name: Fall(name, numbers[0], numbers[2]) for name, numbers in LATENCY.items()}
    dga, cases = falls["DGA-LLM"], [falls[name] for name in methods]
    slow = [fall for fall in cases if fall.change <= dga.change and fall.share <= dga.share]
    told = ", ".join(map(str, [*(slow or cases), dga]))
    return Outcome(not slow, f"4K to 16K, ms: {told}", {"slower": len(slow)})


def check_curves(directions: Mapping[str, str], curves: Mapping[str, tuple[str, ...]]) -> Outcome:
    """Judge "rises" or "falls" of columns of a table: strictly, from each column to the next."""
    wrong = [f"{name}: {', '.join(curves[name])}, claimed to be one that {way}"
             for name, way in directions.items()
             if not all((after > before) == (way == "rises") and after != before
                        for before, after in pairwise(map(Decimal, curves[name])))]
    told = wrong or [f"{name} {way}, {curves[name][0]} to {curves[name][-1]}"
                     for name, way in directions.items()]
    return Outcome(not wrong, "; ".join(told), {"curves": len(directions), "wrong": len(wrong)})


def check_degrades(falls: Mapping[str, tuple[str, str]]) -> Outcome:
    """Judge columns said to fall without complementary tokens (DGA, Table 7), with and without."""
    rows = (("Table 1", "DGA-LLM"), ("Table 7", "w/o complementary tokens"), ("Table 1", "vanilla"))
    full, without, vanilla = (tuple(map(Decimal, scores("DGA", table)[method][:-1]))
                              for table, method in rows)
    changes = dict(zip(LONGBENCH, zip(full, without, strict=True), strict=True))
    for name, printed in falls.items():
        before, after = changes[name]
        if after >= before or (before, after) != tuple(map(Decimal, printed)):
            return Outcome(False, f"{name}: {before} with them, {after} without; claimed "
                           f"{' to '.join(printed)}")
    rises = sum(after > before for before, after in changes.values())
    equal = sum(after == other for other, after in zip(vanilla, without, strict=True))
    return Outcome(True, f"{' and '.join(falls)} fall; {rises} of {len(full)} columns rise "
                   f"(Single-Doc. QA 3.61 to 6.43), and {equal} equal Table 1's row of vanilla "
                   "attention", {"rises": rises, "equal": equal})


def check_score(name: str, cited: Iterable[str], rows: Mapping[str, Sequence[str]]) -> Outcome:
    """Judge the name of a score: each cited number must be an average of a table of that score."""
    averages_of = {score: {numbers[-1] for block in blocks
                           for numbers in scores("CCA", block).values()}
                   for score, blocks in rows.items()}
    fitting = [score for score, numbers in averages_of.items() if set(cited) <= numbers]
    return Outcome(name in fitting,
                   f"{', '.join(cited)} are averages of {' and '.join(fitting)}; called {name}")


def check_citations(cited: tuple[tuple[str, str], ...], holds: Mapping[str, str]) -> Outcome:
    """Judge references: (what is cited, the place named) against what each place holds."""
    wrong = [f"{table} holds {holds[table]}, not {what}" for what, table in cited
             if holds[table] != what]
    told = wrong or [f"{table} holds {what}" for what, table in cited]
    return Outcome(not wrong, "; ".join(told), {"wrong": len(wrong)})


def rate(length: int) -> float:
    """Return the number of focal tokens at an importance rate of 0.1."""
    return 0.1 * length


def floored(length: int) -> float:
    """Return the focal tokens of Appendix C.2: at least 1k, read as 1000, so that some are left."""
    return max(rate(length), 1000)


Focal = tuple[Callable[[int], float], tuple[int, ...]]  # how many focal tokens; lengths trained


def check_small_subset(focal: Focal) -> Outcome:
    """Judge "the focal tokens are a small subset": under half at each length that is trained."""
    number, lengths = focal
    worst = max(lengths, key=lambda length: number(length) / length)
    return Outcome(all(2 * number(length) < length for length in lengths), f"L = {worst}: "
                   f"{number(worst):g} focal tokens; groups of 16 that the others fill: "
                   f"{(worst - number(worst)) // 16:g}")


def check_model(name: str) -> Outcome:
    """Judge the name of a model: the paper must evaluate one of this name."""
    return Outcome(name in MODELS, f"'{name} model'; the experiments are on {', '.join(MODELS)}")


def check_range(ends: tuple[int, int]) -> Outcome:
    """Compare a range of kernel sizes with those of Table 7."""
    exact = min(KERNELS), max(KERNELS)
    return Outcome(ends == exact, f"Table 7 has kernels of {exact[0]} to {exact[1]}; printed "
                   f"{ends[0]} to {ends[1]}", {"smallest": exact[0], "largest": exact[1]})


def check_efficiency(more: Mapping[str, int]) -> Outcome:
    """Judge the GB that LoCoCo needs more than others, and that it is fastest (Table 5)."""
    exact = {method: TABLES["LoCoCo"]["GB"]["LoCoCo"] - TABLES["LoCoCo"]["GB"][method]
             for method in more}
    rates = TABLES["LoCoCo"]["rate"]
    fastest = all(rates["LoCoCo"] > rates[name] for name in rates if name != "LoCoCo")
    more_than = ", ".join(f"{size} GB more than {name}" for name, size in exact.items())
    speeds = ", ".join(f"{name} {speed}" for name, speed in rates.items())
    return Outcome(exact == dict(more) and fastest, f"{more_than}; tokens a second: {speeds}",
                   {"rate": rates["LoCoCo"]})


# ---------------------------------------------------------------- what is judged

LONGBENCH_TABLES = ("Table 1, 32K", "Table 1, 80K", "Table 2, LLaMA3.1", "Table 2, Qwen2.5")
EM = columns("CCA", "Table 3", ("4K", "8K", "16K", "32K", "64K", "128K"))
EM_AT_4K = tuple(pair for pair in EM if pair.place == "Table 3, 4K")
EM_LEADS = tuple(pair for pair in EM if pair.other == "vanilla")
RULER = columns("CCA", "Table 4", ("8K", "16K", "32K", "64K"))
ON_RULER = tuple(pair for pair in RULER if pair.other == "MInference")
MEANS = averages("CCA", (*LONGBENCH_TABLES, "Table 3", "Table 4"))
ON_LONGBENCH = averages("CCA", LONGBENCH_TABLES[:2])
ACCURACY = tuple(pair for pair in (*MEANS, *EM, *RULER) if pair.other == "vanilla")
LONG = ("Table 3, 64K", "Table 3, 128K")
MMLU = tuple(Pair(f"Table 6, {model}", ours, "full self-attention", full)
             for model, (full, ours) in ((name, numbers.split())
                                         for name, numbers in TABLES["CCA"]["mmlu"].items()))
LONGLORA = {method: row.split()[0] for method, row in TABLES["CCA"]["longlora"].items()}
SUPERIOR = (*efficient(MEANS),
            Pair("Table 5", LONGLORA["CCA-LLM"], "LongLoRA", LONGLORA["LongLoRA"]))
LOWEST = tuple(pair for unit in ("seconds", "GB") for method in ("others", "vanilla")
               for block in LONGBENCH_TABLES[:2] for pair in costs(unit, block)
               if (pair.other == "vanilla") == (method == "vanilla"))
# Entries a KV head: s + L/g of CCA by default, 4 + 2000 of StreamingLLM, 1024 + 16 of LM-Infinite
CACHES = tuple(Pair(f"entries at {length}", str(1024 + tokens // 16), method, entries, lower=True)
               for length, tokens in (("32K", 32768), ("64K", 65536))
               for method, entries in (("StreamingLLM", "2004"), ("LM-Infinite", "1040"),
                                       ("MInference", str(tokens)), ("vanilla", str(tokens))))
LARGER_S = Pair("LongBench-E, g = 16, s = 4096 (Section 4.3)", "20.54", "s = 1024, Table 1",
                ON_LONGBENCH[0].ours)
LOWER_PPL = tuple(Pair(f"perplexity, s = {256 * 2**place}", after, "half of s", before, lower=True)
                  for place, (before, after) in enumerate(pairwise(CURVES["perplexity with s"]), 1))
ALL_METRICS = (*(pair for unit in ("seconds", "GB") for block in LONGBENCH_TABLES[2:]
                 for pair in costs(unit, block)), *averages("CCA", LONGBENCH_TABLES[2:]))
THREE_METRICS = tuple(pair for pair in ALL_METRICS if pair.other == "MInference")
CCA_CONTENTS = {"Table 3": "EM scores", "Table 4": "RULER scores",
                "Section 3.4": "the fusion of the two modules",
                "Section 3.5": "the updating strategies",
                "Chen et al., 2024": "LongLoRA", "Jiang et al., 2024": "MInference"}
CCA_TRENDS = {"perplexity with g": "rises", "latency with g": "falls", "perplexity with s": "falls",
              "latency with s": "rises"}
OTHERS = ("MInference", "StreamingLLM", "LM-Infinite")
SLOWER = tuple(Pair(f"Table 3, {length}", vanilla, method, latency, lower=True) for method in OTHERS
               for length, vanilla, latency in zip(("4K", "8K", "16K"), LATENCY["vanilla"],
                                                   LATENCY[method], strict=True))
TOP_K = (Pair("Table 5, accuracy", "67.00", "random", "66.91"),
         Pair("Table 5, perplexity", "3.59", "random", "3.60", lower=True))
DGA_TRENDS = {"perplexity with m": "rises", "accuracy with m": "falls", "latency with m": "falls",
              "perplexity with gamma": "falls", "accuracy with gamma": "rises",
              "latency with gamma": "rises"}
DGA_CONTENTS = {"Table 1": "69.70 and 102.22 ms", "Table 2": "EM scores",
                "Table 6": "what gamma does", "Table 7": "what complementary tokens do"}
PERPLEXITY, EVICTION = TABLES["LoCoCo"]["perplexity"], TABLES["LoCoCo"]["eviction"]
BEST = (*(pair for name, table in PERPLEXITY.items() for pair in lococo(table, name, lower=True)),
        *(pair for name, table in TABLES["LoCoCo"]["scrolls"].items()
          for pair in lococo(table, name, lower=False)))
VARIANTS = tuple(Pair(f"{method}, Table 6", perplexity, "H2O", other, lower=True)
                 for method, perplexity in EVICTION.items() if method != "H2O"
                 for other in (EVICTION["H2O"], "3.5706"))
SHORTER = tuple(Pair(f"{name}, 2048", table["StreamingLLM"].split()[0], "LongLoRA",
                     table["LongLoRA"].split()[0], lower=True)
                for name, table in PERPLEXITY.items() if "7B" in name)


def at_length(pair: Pair) -> bool:
    """Whether the score is the exact match at 64K or 128K."""
    return pair.place in LONG


def from_32k(pair: Pair) -> bool:
    """Whether the score is that at 32K or more."""
    return pair.place in ("Table 3, 32K", *LONG)


SUBJECTS = {
    "CCA.superior": Subjects(check_ahead, SUPERIOR),
    "CCA.best-4k": Subjects(check_ahead, EM_AT_4K, corrected=efficient(EM_AT_4K), within=not_full),
    "CCA.best-longbench": Subjects(check_ahead, efficient(ON_LONGBENCH)),
    "CCA.accuracy": Subjects(check_ahead, ACCURACY, corrected=tuple(filter(at_length, ACCURACY)),
                             within=at_length),
    "CCA.advantages": Subjects(check_growth, EM_LEADS, corrected=tuple(filter(from_32k, EM_LEADS)),
                               within=at_length),
    "CCA.long": Subjects(check_ahead, tuple(filter(at_length, EM_LEADS))),
    "CCA.ruler": Subjects(check_ahead, ON_RULER,
                          corrected=tuple(pair for pair in ON_RULER
                                          if pair.place != "Table 4, 32K")),
    "CCA.citations": Subjects(partial(check_citations, holds=CCA_CONTENTS),
                              (("RULER scores", "Table 3"),
                               ("the updating strategies", "Section 3.4"),
                               ("MInference", "Chen et al., 2024")),
                              corrected=(("RULER scores", "Table 4"),
                                         ("the updating strategies", "Section 3.5"),
                                         ("MInference", "Jiang et al., 2024"))),
    "CCA.em": Subjects(partial(check_score, cited=("22.24", "21.20", "22.08"),
                               rows={"LongBench-E": LONGBENCH_TABLES, "EM": ("Table 3",)}), "EM",
                       corrected="LongBench-E"),
    "CCA.mmlu": Subjects(check_ahead, MMLU),
    "CCA.ablations": Subjects(partial(check_curves, curves=CURVES), CCA_TRENDS),
    "CCA.lowest": Subjects(check_ahead, (*LOWEST, *CACHES), corrected=LOWEST),
    "CCA.larger-s": Subjects(check_ahead, (*LOWER_PPL, LARGER_S), corrected=LOWER_PPL),
    "CCA.three-metrics": Subjects(check_ahead, THREE_METRICS),
    "DGA.best": Subjects(check_ranks, {"4K": 1, "8K": 2, "16K": 1, "32K": 1}),
    "DGA.degradation": Subjects(check_steeper, ("StreamingLLM", "LM-Infinite"),
                                corrected=("MInference",)),
    "DGA.rise": Subjects(check_rise, OTHERS, corrected=OTHERS[1:]),
    "DGA.slower": Subjects(check_ahead, SLOWER),
    "DGA.citations": Subjects(partial(check_citations, holds=DGA_CONTENTS),
                              (("69.70 and 102.22 ms", "Table 2"), ("what gamma does", "Table 7")),
                              corrected=(("69.70 and 102.22 ms", "Table 1"),
                                         ("what gamma does", "Table 6"))),
    "DGA.table7": Subjects(check_degrades,
                           {"Multi-Doc. QA": ("3.58", "2.37"), "Code": ("53.45", "48.00")}),
    "DGA.table5": Subjects(check_ahead, TOP_K),
    "DGA.trends": Subjects(partial(check_curves, curves=CURVES), DGA_TRENDS),
    "DGA.focal": Subjects(check_small_subset, (floored, (1024, 2048)),
                          corrected=(rate, (1024, 2048)),
                          sides=((floored, (8192,)), (rate, (1024, 2048)))),
    "DGA.xxx": Subjects(check_model, "xxx", corrected="LLaMA2-7B"),
    "LC.best": Subjects(check_ahead, BEST),
    "LC.variants": Subjects(check_ahead, VARIANTS),
    "LC.shorter": Subjects(check_ahead, SHORTER),
    "LC.table5": Subjects(check_efficiency, {"LongLoRA": 1, "H2O": 0}),
    "LC.kernels": Subjects(check_range, (3, 21), corrected=(3, 61)),
}
