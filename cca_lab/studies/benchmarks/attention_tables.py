"""The output of `cca-lab bench attention`: tables and the roofline."""

from pathlib import Path
from typing import Any

from cca_lab.reporting import print_table, write_figure
from cca_lab.studies.benchmarks.peak import least_bytes, useful_flops

FORWARD = "forward"


def show(result: dict[str, Any]) -> None:
    """Print the rows of `bench.attention.run`, one table per pass."""
    where, shape, roof = result["machine"], result["shape"], result["roof"]
    print_table(f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}", [*shape, "GFLOP/s", "GB/s"],
                [[*shape.values(), f"{roof['flops'] / 1e9:.0f}", f"{roof['bandwidth'] / 1e9:.1f}"]])
    columns = ("L", "s", "CCA", "full ms", "CCA ms", "ratio", "range", "pairs", "share", "full/peak", "CCA/peak",
               "MiB")
    for kind in dict.fromkeys(row["pass"] for row in result["rows"]):
        rows = [(row["length"], row["window"], row["implementation"], f"{row['full_seconds'] * 1e3:.1f}",
                 f"{row['cca_seconds'] * 1e3:.1f}", f"{row['ratio']:.2f}", "{:.2f}-{:.2f}".format(*row["ratio_range"]),
                 f"{row['pair_ratio']:.2f}", f"{row['share']:.0%}", f"{row['full_of_peak']:.0%}",
                 f"{row['cca_of_peak']:.0%}", _mib(row.get("full_peak")) + " / " + _mib(row.get("cca_peak")))
                for row in result["rows"] if row["pass"] == kind]
        print_table(f"{kind}: full / CCA, beside the ratio of pairs; useful operations beside a matrix product's",
                    columns, rows)


def points(result: dict[str, Any]) -> dict[str, list]:
    """Return the forward measurements as points of the roofline, full attention first."""
    from cca_lab.mechanisms.cca import groups
    from cca_lab.views.figures.costs import Point

    shape = result["shape"]
    heads, head_dim, group = shape["batch"] * shape["heads"], shape["head_dim"], shape["group"]
    found: dict[str, dict[int, Point]] = {}
    for row in (row for row in result["rows"] if row["pass"] == FORWARD):
        length, window = row["length"], row["window"]
        traffic = least_bytes(length, length, heads, heads, head_dim, 4)
        for name, pairs, key in (("full", length * (length + 1) // 2, "full_seconds"),
                                 (f"{row['implementation']}, s = {window}", groups.pairs(length, group, window),
                                  "cca_seconds")):
            found.setdefault(name, {})[length] = Point(heads * pairs, useful_flops(pairs, heads, head_dim), traffic,
                                                       row[key])
    return {name: list(by_length.values()) for name, by_length in found.items()}


def draw(result: dict[str, Any], path: str | Path) -> None:
    """Draw the roofline into a PNG file."""
    from cca_lab.views.figures.costs import roofline

    roof, where = result["roof"], result["machine"]
    write_figure(path, roofline(points(result), peak=roof["flops"], bandwidth=roof["bandwidth"],
                                peak_name=roof["product"],
                                title=f"Attention, forward: {where['cpu']}, {where['threads']} threads"))


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f}"
