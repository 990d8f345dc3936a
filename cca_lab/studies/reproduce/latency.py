"""`cca-lab reproduce latency`: the time of one layer of CCA and DGA by their options, as in the papers' ablations."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from cca_lab.files import check_file, new_result
from cca_lab.mechanisms import CCA, DGA, Full, Mechanism
from cca_lab.reporting import command_line, device, machine, print_table, write_json
from cca_lab.studies.benchmarks.timing import interleave, median_and_range, ratios
from cca_lab.studies.reproduce.artefact import Found, Measured
from cca_lab.studies.reproduce.measured import device as device_of
from cca_lab.studies.reproduce.ordering import AGREES, DISAGREES

FILE, COMMAND = "reproduce-latency.json", "cca-lab reproduce latency"
LENGTH, HEADS, HEAD_DIM, ROUNDS = 8192, 8, 64, 5
SWEEPS: dict[str, dict[str, Mechanism]] = {
    "cca group": {str(g): CCA(group=g, window=256) for g in (2, 4, 8, 16, 32, 64)},
    "cca window": {str(s): CCA(group=16, window=s) for s in (256, 512, 1024, 2048, 4096)},
    "dga group": {str(m): DGA(group=m, gamma=0.1, recent=64) for m in (4, 8, 16, 32, 64)},
    "dga gamma": {str(gamma): DGA(group=16, gamma=gamma, recent=64) for gamma in (0.1, 0.3, 0.5, 0.7, 0.9)},
}


def measure(out: Path | None = None, *, length: int = LENGTH, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure the forward pass of a layer for every option of `SWEEPS`, beside full attention in the same rounds.

    DGA samples the last 64 rows for its scores (Eq. 17); with all rows, choosing alone costs as much as attention.

    Args:
        out: JSON file; None for data/results.
        length: tokens.
        rounds: interleaved rounds.

    Returns:
        What is written: seconds, and full attention's time over it, by sweep and option.
    """
    out = check_file(new_result(FILE) if out is None else out / FILE)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, generator=generator).to(device()) for _ in "qkv")
    layers: dict[tuple[str, str], Mechanism] = {("full", ""): Full()}
    layers |= {(sweep, key): layer for sweep, options in SWEEPS.items() for key, layer in options.items()}
    with torch.no_grad():
        times = interleave({name: partial(layer.attention, q, k, v) for name, layer in layers.items()}, rounds)
    full = times["full", ""]
    sweeps: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in SWEEPS}
    for (sweep, key), taken in times.items():
        if sweep != "full":
            middle, span = median_and_range(taken)
            sweeps[sweep][key] = {"seconds": middle, "range": span, "ratio": median_and_range(ratios(full, taken))[0]}
    result = {"command": command_line(), "machine": machine(), "rounds": rounds,
              "shape": {"length": length, "heads": HEADS, "head_dim": HEAD_DIM, "dtype": "float32"},
              "full_seconds": median_and_range(full)[0], "sweeps": sweeps}
    write_json(out, result)
    print_table(f"one layer, {length} tokens, {result['machine']['cpu']}", ["option", "ms", "full / it"],
                [[f"{sweep} {key}", f"{1e3 * row['seconds']:.0f}", f"{row['ratio']:.2f}"]
                 for sweep, rows in sweeps.items() for key, row in rows.items()])
    return result


def _row(sweep: str, sign: int) -> dict[str, Any]:
    """Return how to read a sweep whose times are claimed to rise (sign 1) or to fall (-1) from end to end."""
    def read(data: dict[str, Any]) -> Found:
        rows = data["sweeps"][sweep]
        ends = [rows[key]["seconds"] for key in (min(rows, key=float), max(rows, key=float))]
        verdict = AGREES if sign * (ends[1] - ends[0]) > 0 else DISAGREES
        return Found({key: f"{1e3 * row['seconds']:.0f} ms" for key, row in rows.items()}, verdict, 0, device_of(data))

    return {"file": FILE, "command": COMMAND, "read": read}


LATENCY = (
    Measured("cca-table8-latency", "CCA", "Table 8, latency", "time falls with the group size (547 to 456 ms, 2 to 64)",
             **_row("cca group", -1), verdict=AGREES,
             why="Beyond groups of 16 the window's pairs dominate, here as there."),
    Measured("cca-table9-latency", "CCA", "Table 9, latency", "time rises with the window (457 to 473 ms, 256 to 4096)",
             **_row("cca window", 1), verdict=AGREES,
             why="Here by far more than the printed 3 %: the layer alone is timed, not the whole model."),
    Measured("dga-table4-latency", "DGA", "Table 4, latency", "time falls with the group size (190 to 162 ms, 4 to 64)",
             **_row("dga group", -1), verdict=AGREES, why="One layer, the scores from the last 64 rows (Eq. 17)."),
    Measured("dga-table6-latency", "DGA", "Table 6, latency", "time rises with gamma (172 to 555 ms, 0.1 to 0.9)",
             **_row("dga gamma", 1), verdict=AGREES, why="More focal tokens are more columns for every row."),
)
