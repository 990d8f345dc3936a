"""The targets of the kernels, evaluated on the measurements.

A kernel is compared with flash attention per visible pair: its useful operations per second over flash's, at the
same length, in the same rounds. 7.9x is the paper's speed-up at 128K tokens (Section 4.4), there against an
attention that is not named; here for the whole layer against flash.
"""

from typing import Any

TARGETS = (
    # what, contender, pass, key of the row, wanted
    ("useful FLOP/s of flash's, forward", "CCA, kernel", "forward", "of_flash", 0.9),
    ("useful FLOP/s of flash's, backward", "CCA, kernel", "backward", "of_flash", 0.8),
    ("times faster than flash, forward, pooling included", "CCA", "forward", "speedup", 7.9),
)


def targets(sections: dict[str, dict]) -> list[dict[str, Any]]:
    """Evaluate every target at the longest measured length; `met` is None if there is no measurement.

    Correctness is met once every case was checked: if some were left out, `met` is None unless one is wrong.

    Args:
        sections: sections by name, each with its "rows".
    """
    correctness = sections.get("correctness", {})
    right = [row.get("right", False) for row in correctness.get("rows", [])]
    whole = right and not correctness.get("left_out") and not correctness.get("error")
    found: list[dict[str, Any]] = [{"target": "kernels right at real sizes", "wanted": len(right), "got": sum(right),
                                    "met": False if not all(right) else True if whole else None}]
    rows = [row for row in sections.get("speed", {}).get("rows", []) if row.get("setting")]
    first = rows[0]["setting"] if rows else None
    for what, contender, kind, key, wanted in TARGETS:
        own = [row for row in rows if row["contender"].split(", s =")[0] == contender and row["pass"] == kind
               and row["setting"] == first and row.get(key) is not None]
        longest = max(own, key=lambda row: row["length"], default=None)
        got = longest and longest[key]
        found.append({"target": what, "length": longest and longest["length"], "setting": first, "wanted": wanted,
                      "got": got, "met": None if got is None else got >= wanted})
    return found
