"""Artefacts that are read from the lab's other measurements, and those out of reach."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cca_lab.studies.reproduce.artefact import AGREES, DISAGREES, ROWS, Found, Measured

FORWARD = {"pass": "forward", "window": 256, "implementation": "native"}
LAYER = {"heads": 8, "head_dim": 64}
RHO = "0.02"


@dataclass(frozen=True)
class OutOfReach:
    """One artefact that nothing here can tell about, and what would be needed."""

    name: str
    paper: str
    place: str
    claim: str
    why: str


def rows_of(rows: Iterable[Mapping[str, Any]], wanted: Mapping[str, Any]) -> list[Any]:
    """Return the rows that have the wanted values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def found(data: Mapping[str, Any], numbers: Mapping[str, str], agrees: bool) -> Found:
    """Return what came out on the machine of a measurement."""
    machine = data.get("machine", {})
    where = str(machine.get("gpu") or machine.get("cpu") or data["device"])
    return Found(numbers, AGREES if agrees else DISAGREES, 0, where)


def by_length(data: Mapping[str, Any], ratios: Mapping[int, float], agrees: bool) -> Found:
    """Return full attention's costs over another's, by length."""
    numbers = {f"{length // 1024}K": f"{ratio:.1f} x" for length, ratio in ratios.items()}
    return found(data, numbers, agrees)


def rises(numbers: Iterable[float]) -> bool:
    """Return whether each number is larger than the one before it."""
    return all(left < right for left, right in pairwise(numbers))


def prefill(data: dict[str, Any]) -> Found:
    """Full attention's time over CCA's, by length, forward."""
    ratios = {row["length"]: row["ratio"] for row in rows_of(data["rows"], FORWARD)}
    return by_length(data, dict(sorted(ratios.items())),
                     rises(ratios[length] for length in sorted(ratios)))


def by_cache(data: dict[str, Any], cache: str, key: str) -> dict[int, float]:
    """Return a ratio of full attention to a cache, by length, for 8 heads of 64."""
    rows = rows_of(data["rows"], LAYER | {"cache": cache})
    return {row["length"]: row[key] for row in sorted(rows, key=lambda row: row["length"])}


def memory(data: dict[str, Any]) -> Found:
    """Full attention's entries over CCA's, by length."""
    ratios = by_cache(data, "cca", "entry_ratio")
    return by_length(data, ratios, rises(ratios.values()))


def token_latency(data: dict[str, Any]) -> Found:
    """Full attention's time for a token over DGA's, by length; the claim is a gain that grows."""
    ratios = by_cache(data, "dga", "ratio")
    return by_length(data, ratios, min(ratios.values()) > 1 and rises(ratios.values()))


def sliding_latency(data: dict[str, Any]) -> Found:
    """Full attention's time for one token over a sliding window's, at 16K; the claim is a loss."""
    ratios = {cache: by_cache(data, cache, "ratio")[16384]
              for cache in ("streaming_llm", "lm_infinite")}
    return found(data, {cache: f"{ratio:.1f} x" for cache, ratio in ratios.items()},
                 max(ratios.values()) < 1)


def throughput(data: dict[str, Any]) -> Found:
    """Full attention's time to read a prompt over LoCoCo's; the claim is a gain of 3."""
    rows = rows_of(data["writing"], {"attention": "lococo"})
    ratios = {row["prompt"]: row["first_ratio"]
              for row in sorted(rows, key=lambda row: row["prompt"])}
    return found(data, {f"{n} tokens": f"{ratio:.2f} x" for n, ratio in ratios.items()},
                 ratios[max(ratios)] > 1)


def sparse(data: dict[str, Any]) -> Found:
    """P_sparse(L, 0.02) averaged over heads, at several lengths; the claim is a rise."""
    mean = np.mean([head["p_sparse"][RHO] for head in data["heads"]], axis=0)
    at = {length: float(mean[data["lengths"].index(length)]) for length in (100, 196, 404)}
    return found(data, {f"L = {length}": f"{share:.2f}" for length, share in at.items()},
                 rises(at.values()))


READ = {read.__name__: read for read in (prefill, memory, token_latency, sliding_latency,
                                         throughput, sparse)}
MEASURED = tuple(Measured(name, **{**row, "read": READ[row["read"]]})
                 for name, row in ROWS["measured"].items())
OUT_OF_REACH = tuple(OutOfReach(name, **row) for name, row in ROWS["out-of-reach"].items())
