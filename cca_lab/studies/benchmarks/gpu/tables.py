"""The output of `cca-lab study gpu`: targets, tables, speed against length, the roofline.

A kernel is compared with flash attention per visible pair, at the same length, in the same rounds;
the tables compare times with SDPA's, which on a recent GPU chooses a faster kernel than flash.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cca_lab.reporting import print_table, write_figure

MOST_LINES = 6  # per figure
Table = tuple[list[str], list[list[str]]]  # columns and rows
TARGETS = (
    # what, contender, pass, key of the row, wanted
    ("useful FLOP/s of flash's, forward", "CCA, kernel", "forward", "of_flash", 0.9),
    ("useful FLOP/s of flash's, backward", "CCA, kernel", "backward", "of_flash", 0.8),
)


def show(result: dict[str, Any]) -> None:
    """Print every section and the targets."""
    where, sections = result["machine"], result["sections"]
    if checked := _rows(sections, "correctness"):
        print_table(
            f"{where['gpu'] or where['cpu']}, torch {where['torch']}, triton {where['triton']}, "
            f"{result['sizes']} sizes: right?",
            ("case", "dtype", "head_dim", "errors in eps", "allowed", "right"),
            [(row["case"], row["dtype"], row["head_dim"],
              ", ".join(f"{name} {_number(value, '.2f')}"
                        for name, value in row["errors_in_eps"].items()),
              row["tolerance_in_eps"], "yes" if row["right"] else "NO")
             for row in checked])
    for title, make in TABLES.items():
        columns, rows = make(sections)
        if rows:
            print_table(title, columns, rows)
    print_table(f"targets; {result['seconds']:.0f} s in all",
                ("target", "L", "wanted", "got", "met"),
                [(row["target"], row.get("length") or "-", row["wanted"],
                  _number(row["got"], ".3g"), {True: "yes", False: "NO", None: "-"}[row["met"]])
                 for row in result["targets"]])
    for name, section in sections.items():
        for text in _problems(section):
            print(f"{name}: {text}")


def speed_table(sections: dict[str, dict]) -> Table:
    """Return milliseconds by length, and how many times as long PyTorch's attention takes."""
    rows = _rows(sections, "speed")
    sdpa = {(row["pass"], row["length"]): row["seconds"] for row in rows
            if row["contender"] == "sdpa"}

    def cell(row: dict[str, Any]) -> str:
        baseline = sdpa.get((row["pass"], row["length"]))
        ratio = f" ({baseline / row['seconds']:.2f})" if baseline and row["pairs"] else ""
        return f"{1e3 * row['seconds']:.2f}{ratio}"

    return by_length(rows, ("pass", "contender"), cell)


def rate_table(sections: dict[str, dict]) -> Table:
    """Return useful operations by length, in 10^12 per second; of the peak at the longest."""
    rows = [row for row in _rows(sections, "speed") if row.get("rate")]
    columns, cells = by_length(rows, ("pass", "contender"),
                               lambda row: f"{row['rate'] / 1e12:.0f}")
    longest = max((row["length"] for row in rows), default=0)
    shares = {(row["pass"], row["contender"]): row["of_peak"] for row in rows
              if row["length"] == longest}
    return [*columns, "of the peak"], [
        [*line, f"{100 * share:.0f} %" if (share := shares.get((line[0], line[1]))) else "-"]
        for line in cells]


def decode_table(sections: dict[str, dict]) -> Table:
    """Return microseconds of one row against a cache, by length."""
    return by_length(_rows(sections, "decode"), ("kv_heads", "contender"),
                     lambda row: f"{1e6 * row['seconds']:.0f}")


def model_table(sections: dict[str, dict]) -> Table:
    """Return what a stack of layers takes for the first token and for the next ones."""
    return (["attention", "prompt", "first token s", "full / it", "next token ms", "full / it",
             "cache MiB"],
            [[row["attention"], str(row["prompt"]), f"{row['first_seconds']:.3f}",
              f"{row['first_ratio']:.2f}", f"{row['token_seconds'] * 1e3:.2f}",
              f"{row['token_ratio']:.2f}", f"{row['cache_bytes'] / 2**20:.0f}"]
             for row in _rows(sections, "model")])


def tiles_table(sections: dict[str, dict]) -> Table:
    """Return milliseconds by kernel and tile, the fastest of a kernel first."""
    rows = sorted(_rows(sections, "tiles"),
                  key=lambda row: (row["kernel"], row["head_dim"], row["seconds"]))
    return ["kernel", "head dim", "rows x columns", "warps", "stages", "ms", "in the table"], [
        [row["kernel"], str(row["head_dim"]), f"{row['rows']} x {row['columns']}",
         str(row["warps"]), str(row["stages"]), f"{1e3 * row['seconds']:.2f}",
         "yes" if row["of_table"] else ""] for row in rows]


TABLES: dict[str, Callable[[dict[str, dict]], Table]] = {
    "attention, ms by length (times as fast as SDPA)": speed_table,
    "attention, useful operations in T/s by length": rate_table,
    "one row against a cache, us by length": decode_table,
    "layers of LLaMA2-7B": model_table, "tiles of the kernels": tiles_table}


def by_length(rows: list[dict[str, Any]], keys: tuple[str, str],
              cell: Callable[[dict[str, Any]], str]) -> Table:
    """Return a table with a row for each pair of values of `keys`, and a column for each length."""
    lengths = sorted({row["length"] for row in rows})
    cells = {(*(row[key] for key in keys), row["length"]): cell(row) for row in rows}
    names = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
    return [*keys, *map(str, lengths)], [
        [*map(str, name), *(cells.get((*name, length), "-") for length in lengths)]
        for name in names]


def draw(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw milliseconds by length, and the roofline, of what was measured; return the files."""
    from cca_lab.views.figures.caches import against_context
    from cca_lab.views.figures.costs import Point, roofline

    speed, by_name = result["sections"].get("speed", {}), drawn(_rows(result["sections"], "speed"))
    device, files = result["machine"]["gpu"] or f"{result['machine']['cpu']}, interpreted", []
    most = max(map(len, by_name.values()), default=0)
    everywhere = {name: rows for name, rows in by_name.items() if len(rows) == most}
    lengths = sorted(set.intersection(*map(set, everywhere.values()))) if everywhere else []
    if lengths:
        series = {name: [rows[n]["seconds"] * 1e3 for n in lengths]
                  for name, rows in everywhere.items()}
        files.append(out / "speed.png")
        write_figure(files[-1], against_context(lengths, series, ylabel="milliseconds, forward",
                                                title=f"Attention of a layer: {device}"))
    if by_name and speed.get("peak") and speed.get("bandwidth"):
        points = {name: [Point(result["heads"] * row["pairs"], row["flops"], row["bytes"],
                               row["seconds"])
                         for row in rows.values()]
                  for name, rows in by_name.items()}
        files.append(out / "roofline.png")
        write_figure(files[-1],
                     roofline(points, peak=speed["peak"], bandwidth=speed["bandwidth"],
                              peak_name=speed["product"], title=f"Attention, forward: {device}"))
    return files


def drawn(rows: list[dict[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the figures' forward rows by contender and length: full attention, one CCA setting."""
    rows = [row for row in rows if row["pass"] == "forward" and row["pairs"]]
    settings = list(dict.fromkeys(tuple(row["setting"]) for row in rows if row["setting"]))

    def order(row: dict[str, Any]) -> tuple[int, bool, str]:
        setting = settings.index(tuple(row["setting"])) if row["setting"] else -1
        return setting, "kernel" in row["contender"], row["contender"]

    names = list(dict.fromkeys(row["contender"] for row in sorted(rows, key=order)))[:MOST_LINES]
    return {name: {row["length"]: row for row in rows if row["contender"] == name}
            for name in names}


def _rows(sections: dict[str, dict], name: str) -> list[dict[str, Any]]:
    """Return the rows of a section that are not errors."""
    return [row for row in sections.get(name, {}).get("rows", []) if "error" not in row]


def _problems(section: dict[str, Any]) -> list[str]:
    """Return what failed and what was left out, in words."""
    failed = [" ".join(str(row[key]) for key in ("case", "contender", "pass", "length")
                       if key in row)
              + ": " + row["error"] for row in section["rows"] if "error" in row]
    return failed + [f"left out: {text}" for text in section["left_out"]] + [
        *filter(None, [section.get("error")])]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def targets(sections: dict[str, dict]) -> list[dict[str, Any]]:
    """Evaluate every target at the longest length; `met` is None without a measurement.

    Correctness is met once all cases are right; with some left out, it is None unless one is wrong.
    """
    correctness = sections.get("correctness", {})
    right = [row.get("right", False) for row in correctness.get("rows", [])]
    whole = right and not correctness.get("left_out") and not correctness.get("error")
    judged: list[dict[str, Any]] = [{
        "target": "kernels right at real sizes", "wanted": len(right), "got": sum(right),
        "met": False if not all(right) else True if whole else None}]
    rows = [row for row in sections.get("speed", {}).get("rows", []) if row.get("setting")]
    first = rows[0]["setting"] if rows else None
    for what, contender, kind, key, wanted in TARGETS:
        longest = max((row for row in rows if row["contender"].split(", s =")[0] == contender
                       and row["pass"] == kind and row["setting"] == first
                       and row.get(key) is not None), key=lambda row: row["length"], default=None)
        got = longest and longest[key]
        judged.append({"target": what, "length": longest and longest["length"], "setting": first,
                       "wanted": wanted, "got": got, "met": None if got is None else got >= wanted})
    return judged
