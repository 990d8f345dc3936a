"""Published numbers that arithmetic alone can check: ratios, averages, sums, and numbers printed twice."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction

from cca_lab.theory.claim import Finding
from cca_lab.theory.published import tables

Number = Decimal | Fraction | int


def last_digit(printed: str) -> Fraction:
    """Return one unit of the last digit of a printed number: 1/10 for "5.7"."""
    return Fraction(10) ** Decimal(printed).as_tuple().exponent


def rounds_to(exact: Number, printed: str) -> bool:
    """Whether a printed number is the rounded exact one; a half may be rounded up or down."""
    return abs(Fraction(exact) - Fraction(printed)) <= last_digit(printed) / 2


def cut_to(exact: Number, printed: str) -> bool:
    """Whether a printed number is the exact one with the further digits cut off."""
    return 0 <= Fraction(exact) - Fraction(printed) < last_digit(printed)


# ---------------------------------------------------------------- checks

def check_number(printed: str, exact: Number, formula: str, agrees: Callable = rounds_to) -> Finding:
    """Compare a printed number with its formula."""
    return Finding(agrees(exact, printed), f"{formula} = {float(exact):.6g}; claimed {printed}",
                   {"exact": float(exact)})


def check_averages(rows: tuple[tables.Row, ...]) -> Finding:
    """Compare the printed average of every row with the mean of its columns."""
    worst = Fraction(0)
    for name, numbers, average in rows:
        mean = sum(map(Fraction, numbers)) / len(numbers)
        if not rounds_to(mean, average):
            return Finding(False, f"{name}: the mean is {float(mean):.4g}, printed {average}", {"mean": float(mean)})
        worst = max(worst, abs(mean - Fraction(average)) / last_digit(average))
    return Finding(True, f"{len(rows)} rows; the largest deviation is {float(worst):.2f} units of the last digit",
                   {"rows": len(rows), "worst": float(worst)})


def check_ratios(rows: tuple[tables.Ratio, ...]) -> Finding:
    """Compare printed ratios with the times from which they are computed."""
    for name, before, after, printed in rows:
        exact = Fraction(before) / Fraction(after)
        if not rounds_to(exact, printed):
            return Finding(False, f"{name}: {before}/{after} = {float(exact):.3f}, printed {printed}",
                           {"exact": float(exact)})
    return Finding(True, f"all {len(rows)} quotients round to what is printed", {"rows": len(rows)})


def check_reductions(rows: tuple[tables.Ratio, ...]) -> Finding:
    """Judge printed percentages by one rule for all of them, rounding or cutting."""
    exact = {name: 100 * (1 - Fraction(after) / Fraction(before)) for name, before, after, _ in rows}
    wrong = {rule: [(name, printed) for name, _, _, printed in rows if not rule(exact[name], printed)]
             for rule in (rounds_to, cut_to)}
    rule, least = min(wrong.items(), key=lambda item: len(item[1]))
    if not least:
        return Finding(True, f"all {len(rows)} percentages follow one rule", {"rows": len(rows)})
    listed = "; ".join(f"{name}: {float(exact[name]):.2f} %, printed {printed} %" for name, printed in least)
    name = "rounded" if rule is rounds_to else "cut"
    return Finding(False, f"{name}, {len(rows) - len(least)} of {len(rows)} agree; not {listed}", {"wrong": len(least)})


def check_best(ranks: Mapping[str, tuple[str, Mapping[str, str]]]) -> Finding:
    """Judge "the first is at least as good as all others" at every place: place -> (its score, the others')."""
    for place, (score, others) in ranks.items():
        for name, other in others.items():
            if Decimal(other) > Decimal(score):
                lead = float(Decimal(other) - Decimal(score))
                return Finding(False, f"{place}: {score}, but {name} has {other}", {"lead": lead})
    return Finding(True, f"first at {', '.join(ranks)}", {"places": len(ranks)})


def check_same(printed: Mapping[str, tuple[str, ...]]) -> Finding:
    """Judge numbers printed more than once for one setting: they must agree in the digits that all of them print."""
    for name, numbers in printed.items():
        unit = max(map(last_digit, numbers))
        low, high = min(map(Fraction, numbers)), max(map(Fraction, numbers))
        if high - low > unit / 2:
            return Finding(False, f"{name}: {' and '.join(numbers)}", {"spread": float(high - low)})
    return Finding(True, f"the same wherever it is printed: {', '.join(printed)}", {"settings": len(printed)})


def check_sum(parts: tuple[tuple[str, ...], str]) -> Finding:
    """Compare a printed total with the sum of its printed parts."""
    numbers, total = parts
    exact = sum(map(Decimal, numbers))
    return Finding(exact == Decimal(total), f"{' + '.join(numbers)} = {exact}; printed {total}", {"sum": float(exact)})


def check_degrades(falls: Mapping[str, tuple[str, str]]) -> Finding:
    """Judge columns said to fall without complementary tokens (DGA, Table 7): column -> (with them, without)."""
    full = tables.columns(tables.DGA_AVERAGES, "Table 1, DGA-LLM")
    without = tables.columns(tables.DGA_AVERAGES, "Table 7, w/o complementary tokens")
    vanilla = tables.columns(tables.DGA_AVERAGES, "Table 1, LLaMA2-7B")
    scores = dict(zip(tables.LONGBENCH, zip(full, without, strict=True), strict=True))
    for name, printed in falls.items():
        before, after = scores[name]
        if after >= before or (before, after) != tuple(map(Decimal, printed)):
            return Finding(False, f"{name}: {before} with them, {after} without; claimed {' to '.join(printed)}")
    rises = sum(after > before for before, after in scores.values())
    equal = sum(after == other for other, after in zip(vanilla, without, strict=True))
    return Finding(True, f"{' and '.join(falls)} fall; {rises} of {len(full)} columns rise (Single-Doc. QA 3.61 to "
                   f"6.43), and {equal} equal Table 1's row of vanilla attention", {"rises": rises, "equal": equal})


def check_compression(ratio: Callable[[int], str]) -> Finding:
    """Compare a claimed ratio for each memory size M with 4096/M."""
    for memory in (128, 256, 512):
        if not rounds_to(Fraction(4096, memory), ratio(memory)):
            return Finding(False, f"M={memory}: 4096/{memory} = {4096 // memory}, claimed {ratio(memory)}",
                           {"memory": memory, "ratio": 4096 // memory})
    return Finding(True, "4096/M = 32, 16, 8 for M = 128, 256, 512", {"ratio": 32})


def kernel_parameters(layers: int = 32, features: int = 256, memory: int = 128, kernel: int = 21) -> int:
    """Return the parameters of LoCoCo's convolutional heads without bias: one kernel per layer, features to slots."""
    return layers * features * memory * kernel


def training_tokens(gpus: int, rows: int, accumulation: int, length: int, steps: int) -> int:
    """Return the number of tokens that a training run reads."""
    return gpus * rows * accumulation * length * steps
