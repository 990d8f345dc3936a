"""Published numbers that arithmetic alone can check: ratios, averages, sums, and numbers printed twice.

One rule of rounding for all of them: a printed number is right if it is the exact one rounded at its last digit, a
half either way, or cut there. So 104.86 may be printed as 104 or 105, and 35.53 as 35 or 36. Two printed numbers agree
if one exact number would be right as both: 28.79 and 28.80 do, 3.5706 and 3.5714 do not. Counts are not rounded.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction

from cca_lab.theory.claim import Finding, chosen
from cca_lab.theory.published import tables

Number = Decimal | Fraction | int | str
Printed = Mapping[str, Mapping[str, str]]  # what is printed -> place -> the number there


def last_digit(printed: str) -> Fraction:
    """Return one unit of the last digit of a printed number: 1/10 for "5.7"."""
    return Fraction(10) ** int(Decimal(printed).as_tuple().exponent)


def room(printed: str) -> tuple[Fraction, Fraction]:
    """Return the ends of the numbers that may be printed so; the lower end may, the upper may not."""
    return Fraction(printed) - last_digit(printed) / 2, Fraction(printed) + last_digit(printed)


def right(exact: Number, printed: str) -> bool:
    """Whether a printed number that is not negative is the exact one, rounded or cut at its last digit."""
    low, end = room(printed)
    return low <= Fraction(exact) < end


def agree(printed: tuple[str, ...]) -> bool:
    """Whether one exact number would be right as each of the printed ones."""
    lows, ends = zip(*map(room, printed), strict=True)
    return max(lows) < min(ends)


# ---------------------------------------------------------------- checks

def check_number(printed: str, exact: Number, formula: str) -> Finding:
    """Compare a printed number with its formula."""
    value = float(Fraction(exact))
    return Finding(right(exact, printed), f"{formula} = {value:.6g}; printed {printed}", {"exact": value})


def check_averages(rows: tuple[tables.Row, ...]) -> Finding:
    """Compare the printed average of every row with the mean of its columns."""
    worst = Fraction(0)
    for row in rows:
        mean = sum(map(Fraction, row.numbers), Fraction(0)) / len(row.numbers)
        if not right(mean, row.average):
            return Finding(False, f"{row.block} {row.method}: the mean is {float(mean):.4g}, printed {row.average}",
                           {"mean": float(mean)})
        worst = max(worst, abs(mean - Fraction(row.average)) / last_digit(row.average))
    return Finding(True, f"{len(rows)} rows; the largest deviation is {float(worst):.2f} units of the last digit",
                   {"rows": len(rows), "worst": float(worst)})


def check_ratios(rows: tuple[tables.Ratio, ...]) -> Finding:
    """Compare printed ratios with the amounts of which they are the quotients."""
    return _compare(rows, lambda row: Fraction(row.before) / Fraction(row.after), "{}/{}", "x")


def check_reductions(rows: tuple[tables.Ratio, ...]) -> Finding:
    """Compare printed percentages with the amounts that are reduced."""
    return _compare(rows, lambda row: 100 * (1 - Fraction(row.after) / Fraction(row.before)), "{} to {}", " %")


def _compare(rows: tuple[tables.Ratio, ...], formula: Callable[[tables.Ratio], Fraction], shown: str,
             unit: str) -> Finding:
    wrong = [row for row in rows if not right(formula(row), row.printed)]
    if not wrong:
        return Finding(True, f"all {len(rows)} printed numbers are right", {"rows": len(rows), "wrong": 0})
    listed = "; ".join(f"{row.name}, {shown.format(row.before, row.after)}: {float(formula(row)):.2f}{unit}, printed "
                       f"{row.printed}{unit}" for row in wrong)
    return Finding(False, f"{len(rows) - len(wrong)} of {len(rows)} are right; not {listed}",
                   {"rows": len(rows), "wrong": len(wrong)})


def check_same(printed: Printed) -> Finding:
    """Judge numbers printed more than once for one setting: all of them must be printed forms of one number."""
    return _agreed(printed, agree)


def check_equal(printed: Printed) -> Finding:
    """Judge counts and names printed more than once: they must be equal."""
    return _agreed(printed, lambda words: len(set(words)) == 1)


def _agreed(printed: Printed, same: Callable[[tuple[str, ...]], bool]) -> Finding:
    shown = {what: ", ".join(f"{number} in {place}" for place, number in places.items())
             for what, places in printed.items()}
    wrong = [what for what, places in printed.items() if not same(tuple(places.values()))]
    told = wrong or list(printed)
    return Finding(not wrong, "; ".join(f"{what}: {shown[what]}" for what in told), {"disagree": len(wrong)})


def joined(*sides: Printed) -> Printed:
    """Return everything that several places print."""
    names = {what: None for side in sides for what in side}
    return {what: {place: number for side in sides for place, number in side.get(what, {}).items()} for what in names}


def check_sum(parts: tuple[tuple[str, ...], str]) -> Finding:
    """Compare a printed total with the sum of its printed parts."""
    numbers, total = parts
    exact = sum(map(Decimal, numbers), Decimal(0))
    return Finding(exact == Decimal(total), f"{' + '.join(numbers)} = {exact}; printed {total}", {"sum": float(exact)})


def check_compression(ratio: Callable[[int], str], within: Callable[[int], bool] | None = None) -> Finding:
    """Compare a claimed ratio for each memory size M with 4096/M."""
    cases = chosen((128, 256, 512), within)
    for memory in cases:
        if not right(Fraction(4096, memory), ratio(memory)):
            return Finding(False, f"M={memory}: 4096/{memory} = {4096 // memory}, claimed {ratio(memory)}",
                           {"memory": memory, "ratio": 4096 // memory})
    return Finding(True, "; ".join(f"M={memory}: 4096/{memory} = {4096 // memory}" for memory in cases),
                   {"ratio": 4096 // cases[0]})


def check_citations(cited: tuple[tuple[str, str], ...], holds: Mapping[str, str]) -> Finding:
    """Judge references: (what is cited, the place named) against what each place holds."""
    wrong = [f"{place} holds {holds[place]}, not {what}" for what, place in cited if holds[place] != what]
    return Finding(not wrong, "; ".join(wrong) or "; ".join(f"{place} holds {what}" for what, place in cited),
                   {"wrong": len(wrong)})


def kernel_parameters(layers: int = 32, features: int = 256, memory: int = 128, kernel: int = 21) -> int:
    """Return the parameters of LoCoCo's convolutional heads without bias: one kernel per layer, features to slots."""
    return layers * features * memory * kernel


def training_tokens(gpus: int, rows: int, accumulation: int, length: int, steps: int) -> int:
    """Return the number of tokens that a training run reads."""
    return gpus * rows * accumulation * length * steps
