"""Artefacts that are read from the lab's other measurements, and those out of reach.

The latency of a layer by its options is measured here: `cca-lab study latency`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from cca_lab.mechanisms import CCA, DGA, Full, Mechanism
from cca_lab.reporting import command_line, device, machine, print_table
from cca_lab.settings import option
from cca_lab.studies.benchmarks.timing import (
    MOST_ROUNDS,
    ROUNDS,
    interleave,
    median_and_range,
    ratios,
)
from cca_lab.studies.reproduce.artefact import (
    AGREES,
    DISAGREES,
    UNSEEN,
    Found,
    Measured,
    OutOfReach,
)
from cca_lab.studies.study import Study

WINDOW, IMPLEMENTATION = 256, "native"
LARGE = "8 / 8 x 64"
RHO = "0.02"
SITE, SIGMA, STEPS = "logits", 1.0, 30


def device_of(data: dict) -> str:
    """Return the machine of a measurement."""
    machine = data.get("machine", {})
    return str(machine.get("gpu") or machine.get("cpu") or data["device"])


def rises(numbers: Sequence[float]) -> str:
    """Return AGREES if each number is larger than the one before it, DISAGREES otherwise."""
    return AGREES if all(left < right for left, right in pairwise(numbers)) else DISAGREES


def prefill(data: dict) -> Found:
    """Full attention's time over CCA's, by length, forward."""
    rows = [row for row in data["rows"]
            if (row["pass"], row["window"], row["implementation"]) == ("forward", WINDOW,
                                                                       IMPLEMENTATION)]
    ratios = {row["length"]: row["ratio"] for row in rows}
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in sorted(ratios.items())},
                 rises([ratios[n] for n in sorted(ratios)]), 0, device_of(data))


def by_cache(data: dict, cache: str, key: str) -> dict[int, float]:
    """Return a ratio of full attention to a cache, by length, for 8 heads of 64."""
    return {row["length"]: row[key] for row in sorted(data["rows"], key=lambda row: row["length"])
            if row["cache"] == cache and (row["heads"], row["head_dim"]) == (8, 64)}


def memory(data: dict) -> Found:
    """Full attention's entries over CCA's, by length."""
    ratios = by_cache(data, "cca", "entry_ratio")
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in ratios.items()},
                 rises(list(ratios.values())), 0, device_of(data))


def token_latency(data: dict) -> Found:
    """Full attention's time for a token over DGA's, by length; the claim is a gain that grows."""
    ratios = by_cache(data, "dga", "ratio")
    whole = rises(list(ratios.values())) if min(ratios.values()) > 1 else DISAGREES
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in ratios.items()}, whole, 0,
                 device_of(data))


def sliding_latency(data: dict) -> Found:
    """Full attention's time for one token over a sliding window's, at 16K; the claim is a loss."""
    ratios = {cache: by_cache(data, cache, "ratio")[16384]
              for cache in ("streaming_llm", "lm_infinite")}
    return Found({cache: f"{ratio:.1f} x" for cache, ratio in ratios.items()},
                 AGREES if max(ratios.values()) < 1 else DISAGREES, 0, device_of(data))


def throughput(data: dict) -> Found:
    """Full attention's time to read a prompt over LoCoCo's; the claim is a gain of 3."""
    rows = {row["prompt"]: row for row in data["writing"] if row["attention"] == "lococo"}
    ratios = {n: rows[n]["first_ratio"] for n in sorted(rows)}
    return Found({f"{n} tokens": f"{ratio:.2f} x" for n, ratio in ratios.items()},
                 AGREES if ratios[max(ratios)] > 1 else DISAGREES, 0, device_of(data))


def convergence(data: dict) -> Found:
    """The held-out loss of DGA minus full attention after equal steps; the claim is a lower one."""
    last = data["rows"]["DGA"]["minus_full"][-1]
    verdict = {"lower": AGREES, "higher": DISAGREES}.get(data["rows"]["DGA"]["verdict"], UNSEEN)
    return Found({"DGA - full": f"{last['value']:+.3f} +- {last['error']:.3f} nats"}, verdict,
                 data["seeds"], device_of(data))


def noise(data: dict) -> Found:
    """KL between the outputs without and with noise on logits; the claim is that DGA's is less."""
    found = {row["attention"]: row["kl"] for row in data["rows"]
             if (row["site"], row["sigma"], row["steps"]) == (SITE, SIGMA, STEPS)}
    full, dga = found["full attention"], found["DGA"]
    verdict = AGREES if dga["high"] < full[
        "low"] else DISAGREES if dga["low"] > full["high"] else UNSEEN
    return Found({name: f"{kl['value']:.2f} [{kl['low']:.2f}, {kl['high']:.2f}]"
                  for name, kl in found.items()},
                 verdict, data["noise_seeds"], device_of(data))


def sparse(data: dict) -> Found:
    """P_sparse(L, 0.02) averaged over heads, at several lengths; the claim is a rise."""
    mean = np.mean([head["p_sparse"][RHO] for head in data["heads"]], axis=0)
    at = [data["lengths"].index(n) for n in (100, 196, 404)]
    return Found({f"L = {data['lengths'][i]}": f"{mean[i]:.2f}" for i in at},
                 rises(mean[at].tolist()), 0, device_of(data))


MEASURED = (
    Measured(
        "cca-figure4-time", "CCA", "Figure 4, latency; Table 3, FTL",
        "the speedup of reading a prompt grows with its length (7.9 x at 128K)",
        "attention-cpu.json", "cca-lab study attention", prefill, AGREES,
        "One layer on a CPU, up to 32K tokens, groups of 16 and a window of 256 (the paper's is "
        "1024). Notebook 10 derives the factor 7.9 from the pairs."),
    Measured(
        "cca-figure4-memory", "CCA", "Figure 4, memory",
        "the KV cache is smaller, by 14.2 x at 128K (4.5 GB, 64 GB)", "decode-cpu.json",
        "cca-lab study decode", memory, AGREES,
        "Groups of 16 and a window of 1024, as printed: 128K tokens leave 8192 cores and 1024 "
        "raw tokens."),
    Measured(
        "dga-table3", "DGA", "Table 3, DGA",
        "a token costs less than with full attention at 4K, 8K and 16K", "decode-cpu.json",
        "cca-lab study decode", token_latency, AGREES,
        "As long as its cache is written in place; one that copies what it keeps loses at 4K."),
    Measured(
        "dga-table3-others", "DGA", "Table 3, StreamingLLM and LM-Infinite",
        "with a sliding window, a token costs more than with full attention (78 and 102 ms "
        "against 70 at 16K)",
        "decode-cpu.json", "cca-lab study decode", sliding_latency, DISAGREES,
        "A window of fixed size cannot grow with the text. The printed times are those of public "
        "code that \"lack optimizations for the generation process\", in the paper's words."),
    Measured(
        "dga-figure3a", "DGA", "Figures 3a and 4", "with DGA, the validation loss falls faster",
        "convergence.json", "cca-lab study convergence", convergence, UNSEEN,
        "Paired over four seeds, no difference is seen; the paper shows one run of each."),
    Measured(
        "dga-figure3b", "DGA", "Figure 3b",
        "noise changes the output of DGA less than that of full attention", "noise-gpt2-mini.json",
        "cca-lab study noise", noise, DISAGREES,
        "Noise also changes which tokens are focal. With the choice held fixed, DGA and full "
        "attention differ little (notebook 04)."),
    Measured(
        "dga-figure2", "DGA", "Figure 2b, 2c",
        "the share of sparse rows, P_sparse(L, 0.02), rises with L", "sparsity-gpt2-mini.json",
        "cca-lab study sparsity --model data/models/gpt2-mini", sparse, AGREES,
        "The mean over all heads. The paper shows one head, whose share is 1 at L = 400; here "
        "some heads spread over hundreds of tokens at every length (notebook 03)."),
    Measured(
        "lococo-table5", "LoCoCo", "Table 5, throughput",
        "LoCoCo reads a prompt 3 x as fast as full attention", "model-cpu.json",
        "cca-lab study model", throughput, DISAGREES,
        "Segments are read one after the other; on a CPU, with 8192 tokens, that costs more than "
        "the pairs it saves. The printed baseline has 16K tokens of a 7B model on a GPU."),
)

FILE, COMMAND = "reproduce-latency.json", "cca-lab study latency"
LENGTH, HEADS, HEAD_DIM = 8192, 8, 64
SWEEPS: dict[str, dict[str, Mechanism]] = {
    "cca group": {str(g): CCA(group=g, window=256) for g in (2, 4, 8, 16, 32, 64)},
    "cca window": {str(s): CCA(group=16, window=s) for s in (256, 512, 1024, 2048, 4096)},
    "dga group": {str(m): DGA(group=m, gamma=0.1, recent=64) for m in (4, 8, 16, 32, 64)},
    "dga gamma": {str(gamma): DGA(group=16, gamma=gamma, recent=64)
                  for gamma in (0.1, 0.3, 0.5, 0.7, 0.9)}}


@dataclass(frozen=True, kw_only=True)
class Latency(Study):
    """Measure the forward pass of a layer for every option of `SWEEPS`, beside full attention.

    DGA samples the last 64 rows for its scores (Eq. 17); with all, choosing costs as much again.
    """

    length: int = option(LENGTH, "Tokens of the layer's text.", least=1, most=2**17)
    rounds: int = option(5, ROUNDS, least=1, most=MOST_ROUNDS)
    default_file = FILE

    def result(self) -> dict[str, Any]:
        """Return seconds, and full attention's time over them, by sweep and option."""
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, HEADS, self.length, HEAD_DIM, generator=generator).to(device())
                   for _ in "qkv")
        layers: dict[tuple[str, str], Mechanism] = {("full", ""): Full()}
        layers |= {(sweep, key): layer for sweep, options in SWEEPS.items()
                   for key, layer in options.items()}
        with torch.no_grad():
            times = interleave({name: partial(layer.attention, q, k, v)
                                for name, layer in layers.items()},
                               self.rounds)
        full = times["full", ""]
        sweeps: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in SWEEPS}
        for (sweep, key), taken in times.items():
            if sweep != "full":
                middle, span = median_and_range(taken)
                sweeps[sweep][key] = {"seconds": middle, "range": span,
                                      "ratio": median_and_range(ratios(full, taken))[0]}
        return {"command": command_line(), "machine": machine(), "rounds": self.rounds,
                "shape": {"length": self.length, "heads": HEADS, "head_dim": HEAD_DIM,
                          "dtype": "float32"},
                "full_seconds": median_and_range(full)[0], "sweeps": sweeps}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print a row for each option."""
        print_table(f"one layer, {result['shape']['length']} tokens, {result['machine']['cpu']}",
                    ["option", "ms", "full / it"],
                    [[f"{sweep} {key}", f"{1e3 * row['seconds']:.0f}", f"{row['ratio']:.2f}"]
                     for sweep, rows in result["sweeps"].items() for key, row in rows.items()])


def _row(sweep: str, sign: int) -> dict[str, Any]:
    """Return how to read a sweep whose times are claimed to rise (sign 1) or to fall (-1)."""
    def read(data: dict[str, Any]) -> Found:
        rows = data["sweeps"][sweep]
        ends = [rows[key]["seconds"] for key in (min(rows, key=float), max(rows, key=float))]
        verdict = AGREES if sign * (ends[1] - ends[0]) > 0 else DISAGREES
        return Found({key: f"{1e3 * row['seconds']:.0f} ms" for key, row in rows.items()}, verdict,
                     0, device_of(data))

    return {"file": FILE, "command": COMMAND, "read": read}


LATENCY = (
    Measured(
        "cca-table8-latency", "CCA", "Table 8, latency",
        "time falls with the group size (547 to 456 ms, 2 to 64)", **_row("cca group", -1),
        verdict=AGREES, why="Beyond groups of 16 the window's pairs dominate, here as there."),
    Measured(
        "cca-table9-latency", "CCA", "Table 9, latency",
        "time rises with the window (457 to 473 ms, 256 to 4096)", **_row("cca window", 1),
        verdict=AGREES,
        why="Here by far more than the printed 3 %: the layer alone is timed, not the whole "
            "model."),
    Measured(
        "dga-table4-latency", "DGA", "Table 4, latency",
        "time falls with the group size (190 to 162 ms, 4 to 64)", **_row("dga group", -1),
        verdict=AGREES, why="One layer, the scores from the last 64 rows (Eq. 17)."),
    Measured(
        "dga-table6-latency", "DGA", "Table 6, latency",
        "time rises with gamma (172 to 555 ms, 0.1 to 0.9)", **_row("dga gamma", 1), verdict=AGREES,
        why="More focal tokens are more columns for every row."),
)

# What needs models, data or lengths that a laptop does not have.
OUT_OF_REACH = (
    OutOfReach(
        "cca-longbench", "CCA", "Tables 1, 2 and 5",
        "LongBench-E: CCA scores above other efficient methods",
        "Needs a 7B model and 32K tokens a question; `cca-lab evaluate --task FILE` reads "
        "LongBench's files."),
    OutOfReach(
        "cca-table4", "CCA", "Table 4", "RULER at 8K to 64K: CCA scores above MInference",
        "Needs a model that solves all of RULER at 8K and more, and 64K tokens a prompt. The "
        "tasks that need no foreign text are in `cca_lab.tasks`; `cca-lab study needles` draws "
        "them by depth and length."),
    OutOfReach(
        "cca-table6", "CCA", "Table 6", "MMLU: CCA scores above full attention",
        "Needs a model that answers multiple-choice questions. Full attention's printed 27 for "
        "LLaMA2-13B is close to chance, 25."),
    OutOfReach(
        "dga-table1", "DGA", "Table 1", "LongBench-E: DGA scores close to full attention",
        "As for CCA's Table 1."),
    OutOfReach(
        "lococo-tables1-3", "LoCoCo", "Tables 1, 3 and 4",
        "SCROLLS and LongBench: LoCoCo scores above H2O",
        "Needs a model that summarises long documents."),
    OutOfReach(
        "lococo-table2", "LoCoCo", "Table 2", "finetuned, LoCoCo reads beyond the base's context",
        "The minis have learned positions and cannot read past 512 tokens; finetuning the 135M "
        "model beyond its 8192 tokens takes days on a CPU."),
)
