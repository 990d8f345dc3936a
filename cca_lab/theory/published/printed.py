"""Printed numbers that arithmetic can check: means, sums, quotients, numbers printed twice.

The tables stand in tables.toml. One rule of rounding for all of them: a printed number is right if
it is the exact one rounded at its last digit, a half either way, or cut there. So 104.86 may be
printed as 104 or 105, and 35.53 as 35 or 36. Two printed numbers agree if one exact number would be
right as both: 28.79 and 28.80 do, 3.5706 and 3.5714 do not. Counts and sums are not rounded.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from cca_lab.theory.claim import Outcome, Subjects

TABLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
Places = Mapping[str, Mapping[str, str]]  # what is printed -> place -> the number there
FORMULAS: dict[str, tuple[str, Callable[..., Fraction]]] = {  # name -> (sign, formula)
    "mean": (" ~ ", lambda *numbers: sum(numbers, Fraction(0)) / len(numbers)),
    "sum": (" + ", lambda *numbers: sum(numbers, Fraction(0))),
    "product": (" x ", lambda *numbers: prod(numbers, start=Fraction(1))),
    "quotient": ("/", lambda before, after: before / after),
    "reduction in percent": (" to ", lambda before, after: 100 * (1 - after / before)),
}


class Printed(NamedTuple):
    """A printed number that follows from others: its place, the formula, the others, the number."""

    name: str
    formula: str
    numbers: tuple[str, ...]
    printed: str

    @property
    def exact(self) -> Fraction:
        """What the formula gives."""
        return FORMULAS[self.formula][1](*map(Fraction, self.numbers))

    def __str__(self) -> str:
        shown = FORMULAS[self.formula][0].join(self.numbers)
        return f"{shown} = {float(self.exact):.6g}; printed {self.printed}"


def printed_numbers(paper: str) -> tuple[Printed, ...]:
    """Return every number of a paper that follows from others by a formula."""
    tables, rows = TABLES[paper], []
    for block, methods in tables.get("scores", {}).items():
        for method, numbers in methods.items():
            *columns, average = numbers.split()
            rows.append(Printed(f"{block} {method}", "mean", tuple(columns), average))
    for formula, unit in (("quotient", "seconds"), ("reduction in percent", "GB")):
        for block, methods in tables.get(unit, {}).items() if paper == "CCA" else ():
            for method, numbers in methods.items():
                if method != "vanilla":
                    after, printed = numbers.split()
                    before = (methods["vanilla"], after)
                    rows.append(Printed(f"{block} {method}", formula, before, printed))
    for row in tables["printed"]:
        formula = next(name for name in FORMULAS if name in row)
        rows.append(Printed(row["name"], formula, tuple(row[formula].split()), row["is"]))
    return tuple(rows)


# ---------------------------------------------------------------- the rule of rounding

def ends(printed: str) -> tuple[Fraction, Fraction]:
    """Return the ends of the numbers that may be printed so; the lower may, the upper may not."""
    last_digit = Fraction(10) ** int(Decimal(printed).as_tuple().exponent)
    return Fraction(printed) - last_digit / 2, Fraction(printed) + last_digit


def right(exact: Fraction | Decimal | int | str, printed: str) -> bool:
    """Whether a printed number, not negative, is the exact one, rounded or cut at its end."""
    low, end = ends(printed)
    return low <= Fraction(exact) < end


def agree(printed: Iterable[str]) -> bool:
    """Whether one exact number would be right as each of the printed ones."""
    lows, highs = zip(*map(ends, printed), strict=True)
    return max(lows) < min(highs)


# ---------------------------------------------------------------- checks

def check_printed(rows: tuple[Printed, ...]) -> Outcome:
    """Judge printed numbers by those that they follow from: all must be right, sums exactly."""
    wrong = [row for row in rows if not (row.exact == Fraction(row.printed) if row.formula == "sum"
                                         else right(row.exact, row.printed))]
    if len(rows) == 1:
        return Outcome(not wrong, str(rows[0]), {"exact": float(rows[0].exact)})
    shown = ", ".join(f"{row.name}: {row}" for row in wrong)
    counts = Counter(row.formula for row in rows)
    kinds = ", ".join(f"{count} by {name}" for name, count in counts.items())
    return Outcome(not wrong, f"{len(rows) - len(wrong)} of {len(rows)} printed numbers agree "
                   f"({kinds})" + (f"; not {shown}" if wrong else ""),
                   {"numbers": len(rows), "wrong": len(wrong)})


def check_same(printed: Places) -> Outcome:
    """Judge numbers printed more than once for one setting: each a printed form of one number."""
    return _agreed(printed, agree)


def check_equal(printed: Places) -> Outcome:
    """Judge counts and names printed more than once: they must be equal."""
    return _agreed(printed, lambda words: len(set(words)) == 1)


def _agreed(printed: Places, same: Callable[[Iterable[str]], bool]) -> Outcome:
    shown = {what: ", ".join(f"{number} in {place}" for place, number in places.items())
             for what, places in printed.items()}
    wrong = [what for what, places in printed.items() if not same(places.values())]
    return Outcome(not wrong, "; ".join(f"{what}: {shown[what]}" for what in wrong or printed),
                   {"disagree": len(wrong)})


def joined(*sides: Places) -> Places:
    """Return everything that several places print."""
    names = {what: None for side in sides for what in side}
    return {what: {place: number for side in sides for place, number in side.get(what, {}).items()}
            for what in names}


def check_compression(ratio: Callable[[int], str]) -> Outcome:
    """Compare a claimed ratio for each memory size M of Section 4.1 with 4096/M."""
    cases = (128, 256, 512)
    for memory in cases:
        if not right(Fraction(4096, memory), ratio(memory)):
            return Outcome(False, f"M={memory}: 4096/{memory} = {4096 // memory}, claimed "
                                  f"{ratio(memory)}", {"memory": memory, "ratio": 4096 // memory})
    return Outcome(True, "; ".join(f"M={memory}: 4096/{memory} = {4096 // memory}"
                                   for memory in cases), {"ratio": 4096 // cases[0]})


Runs = tuple[tuple[str, int, bool], ...]  # (place, tokens of a sequence, whether it fits in memory)


def check_fits(runs: Runs) -> Outcome:
    """Judge what fits in memory: no sequence may fit that is as long as one that does not."""
    fits = [length for _, length, fitting in runs if fitting]
    fails = [length for _, length, fitting in runs if not fitting]
    told = (f"{place}: {length} tokens {'fit' if fitting else 'do not fit'}"
            for place, length, fitting in runs)
    return Outcome(not fits or not fails or max(fits) < min(fails), "; ".join(told))


# ---------------------------------------------------------------- what is judged

CCA, DGA, LOCOCO = (printed_numbers(paper) for paper in ("CCA", "DGA", "LoCoCo"))
FACTOR = tuple(row for row in CCA if row.name == "Table 1, 80K CCA-LLM" and row.printed == "5.7")
CCA_RIGHT = tuple(row for row in CCA if row not in FACTOR)
TWO_TO_THREE = Printed("Appendix F", "quotient", ("69.70", "28.8"), "3.5")
TIMES = ({"CCA-LLM": {"Section 4.4": "15.89"}, "full self-attention": {"Section 4.4": "124.85"},
          "MInference": {"Section 4.4": "44.50"}},
         {"CCA-LLM": {"Table 3": "15.89"}, "full self-attention": {"Table 3": "124.85"},
          "MInference": {"Table 3": "20.18"}})
SAME = "GPUs for 15.89 s and 124.85 s"
GPUS = ({SAME: {"Section 4.4": "1"}}, {SAME: {"Table 3": "2"}}, {SAME: {"Poster": "2"}})
DEFAULT = ({"perplexity": {"Table 8": "2.86"}, "latency in ms": {"Table 8": "462.8"}},
           {"perplexity": {"Table 9": "2.86"}, "latency in ms": {"Table 9": "461.4"}})
# what MInference needs, as a share of full self-attention's
MEMORY = ({f"GB at {length}": {"Section 4.4": full} for length, full in
           (("32K", "35.58"), ("64K", "60.03"))},
          {f"GB at {length}": {"Table 1": TABLES["CCA"]["GB"][f"Table 1, {model}"]["MInference"]
                               .split()[0]} for length, model in (("32K", "32K"), ("64K", "80K"))})
ABLATED = "the model of the ablation in Table 10"
OF_TABLE_10 = {scores["CCA-LLM"]: f"LLaMA2-7B-{block.removeprefix('Table 1, ')}"
               for block, scores in TABLES["CCA"]["scores"].items() if "Table 1," in block}
MODELS = ({ABLATED: {"Appendix C.5": "LLaMA2-7B-16K"}},
          {ABLATED: {"Table 1, with the same seven scores":
                     OF_TABLE_10[TABLES["CCA"]["scores"]["Table 10"]["full"]]}})
DIVIDED = "what the products of queries and keys are divided by"
SCALES = ({DIVIDED: {"Eq. 6": "sqrt d"}}, {DIVIDED: {"Eq. 7": "1"}})
TWICE = ({"H2O": {"Table 2": "3.5706"}, "LoCoCo with H2O": {"Table 2": "3.5414"}},
         {"H2O": {"Table 6": "3.5714"}, "LoCoCo with H2O": {"Table 6": "3.5414"},
          "kernel 21": {"Table 6": "3.5451"}}, {"kernel 21": {"Table 7": "3.53"}})
DEVICES = ({"GPU": {"Section 4.1": "A6000"}}, {"GPU": {"Section 4.4": "A100"}})
TRAINED: Runs = tuple(("Table 2", length, True) for length in (8192, 16384, 32768))
OUT_OF_MEMORY: Runs = (("Table 5", 16384, False),)


def only(names: Iterable[str], printed: Places) -> Places:
    """Return some of what is printed."""
    return {name: printed[name] for name in names}


SUBJECTS = {
    "CCA.printed": Subjects(check_printed, CCA_RIGHT),
    "CCA.5.7x": Subjects(check_printed, FACTOR, corrected=(FACTOR[0]._replace(printed="5.1"),)),
    "CCA.minference": Subjects(check_same, joined(*TIMES), sides=TIMES,
                               corrected=only(("CCA-LLM", "full self-attention"), joined(*TIMES))),
    "CCA.devices": Subjects(check_equal, joined(*GPUS), corrected=joined(*GPUS[1:]), sides=GPUS),
    "CCA.default": Subjects(check_same, joined(*DEFAULT), sides=DEFAULT,
                            corrected=only(("perplexity",), joined(*DEFAULT))),
    "CCA.same-memory": Subjects(check_same, joined(*MEMORY), sides=MEMORY, corrected=MEMORY[1]),
    "CCA.ablated-model": Subjects(check_equal, joined(*MODELS), sides=MODELS, corrected=MODELS[1]),
    "DGA.eq7": Subjects(check_equal, joined(*SCALES), sides=SCALES, corrected=SCALES[0]),
    "DGA.printed": Subjects(check_printed, DGA),
    "DGA.2.4-3.5x": Subjects(check_printed, (TWO_TO_THREE,),
                             corrected=(TWO_TO_THREE._replace(printed="2.4"),)),
    "LC.printed": Subjects(check_printed, LOCOCO),
    "LC.ratio": Subjects(check_compression, lambda memory: "32",
                         corrected=lambda memory: str(4096 // memory)),
    "LC.twice": Subjects(check_same, joined(*TWICE), sides=TWICE,
                         corrected=only(("LoCoCo with H2O",), joined(*TWICE))),
    "LC.devices": Subjects(check_equal, joined(*DEVICES), sides=DEVICES,
                           corrected={"GPU for training": {"Section 4.1": "A6000"},
                                      "GPU for Table 5": {"Section 4.4": "A100"}}),
    "LC.full-sequence": Subjects(check_fits, (*TRAINED, *OUT_OF_MEMORY),
                                 corrected=(*TRAINED[:1], *OUT_OF_MEMORY),
                                 sides=(TRAINED, OUT_OF_MEMORY)),
}
