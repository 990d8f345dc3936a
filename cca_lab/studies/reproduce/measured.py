"""Artefacts about speed, memory, noise, convergence and sparsity, read from the lab's other measurements."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cca_lab.studies.reproduce.artefact import Found, Measured
from cca_lab.studies.reproduce.ordering import AGREES, DISAGREES, UNSEEN

WINDOW, IMPLEMENTATION = 256, "native"
LARGE = "8 / 8 x 64"
RHO = "0.02"
SITE, SIGMA, STEPS = "logits", 1.0, 30


def device(data: dict) -> str:
    """Return the machine of a measurement."""
    machine = data.get("machine", {})
    return str(machine.get("gpu") or machine.get("cpu") or data["device"])


def rises(numbers: Sequence[float]) -> str:
    """Return AGREES if each number is larger than the one before it, DISAGREES otherwise."""
    return AGREES if all(left < right for left, right in pairwise(numbers)) else DISAGREES


def prefill(data: dict) -> Found:
    """Full attention's time over CCA's, by length, forward."""
    rows = [row for row in data["rows"] if (row["pass"], row["window"], row["implementation"]) ==
            ("forward", WINDOW, IMPLEMENTATION)]
    ratios = {row["length"]: row["ratio"] for row in rows}
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in sorted(ratios.items())},
                 rises([ratios[n] for n in sorted(ratios)]), 0, device(data))


def by_cache(data: dict, cache: str, key: str) -> dict[int, float]:
    """Return a ratio of full attention to a cache, by length, for 8 heads of 64."""
    return {row["length"]: row[key] for row in sorted(data["rows"], key=lambda row: row["length"])
            if row["cache"] == cache and (row["heads"], row["head_dim"]) == (8, 64)}


def memory(data: dict) -> Found:
    """Full attention's entries over CCA's, by length."""
    ratios = by_cache(data, "cca", "entry_ratio")
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in ratios.items()}, rises(list(ratios.values())), 0,
                 device(data))


def token_latency(data: dict) -> Found:
    """Full attention's time for one token over DGA's, by length; the claim is a gain from 4K on that grows."""
    ratios = by_cache(data, "dga", "ratio")
    whole = rises(list(ratios.values())) if min(ratios.values()) > 1 else DISAGREES
    return Found({f"{n // 1024}K": f"{ratio:.1f} x" for n, ratio in ratios.items()}, whole, 0, device(data))


def sliding_latency(data: dict) -> Found:
    """Full attention's time for one token over a sliding window's, at 16K; the claim is a loss."""
    ratios = {cache: by_cache(data, cache, "ratio")[16384] for cache in ("streaming_llm", "lm_infinite")}
    return Found({cache: f"{ratio:.1f} x" for cache, ratio in ratios.items()},
                 AGREES if max(ratios.values()) < 1 else DISAGREES, 0, device(data))


def throughput(data: dict) -> Found:
    """Full attention's time to read a prompt over LoCoCo's; the claim is a gain of 3."""
    rows = {row["prompt"]: row for row in data["writing"] if row["attention"] == "lococo"}
    ratios = {n: rows[n]["first_ratio"] for n in sorted(rows)}
    return Found({f"{n} tokens": f"{ratio:.2f} x" for n, ratio in ratios.items()},
                 AGREES if ratios[max(ratios)] > 1 else DISAGREES, 0, device(data))


def convergence(data: dict) -> Found:
    """The held-out loss of DGA minus that of full attention after equal steps; the claim is that it is lower."""
    last = data["rows"]["DGA"]["minus_full"][-1]
    verdict = {"lower": AGREES, "higher": DISAGREES}.get(data["rows"]["DGA"]["verdict"], UNSEEN)
    return Found({"DGA - full": f"{last['value']:+.3f} +- {last['error']:.3f} nats"}, verdict, data["seeds"],
                 device(data))


def noise(data: dict) -> Found:
    """KL between the outputs without and with noise on the logits; the claim is that DGA's is smaller."""
    found = {row["attention"]: row["kl"] for row in data["rows"]
             if (row["site"], row["sigma"], row["steps"]) == (SITE, SIGMA, STEPS)}
    full, dga = found["full attention"], found["DGA"]
    verdict = AGREES if dga["high"] < full["low"] else DISAGREES if dga["low"] > full["high"] else UNSEEN
    return Found({name: f"{kl['value']:.2f} [{kl['low']:.2f}, {kl['high']:.2f}]" for name, kl in found.items()},
                 verdict, data["noise_seeds"], device(data))


def sparse(data: dict) -> Found:
    """P_sparse(L, 0.02) averaged over heads, at several lengths; the claim is a rise."""
    mean = np.mean([head["p_sparse"][RHO] for head in data["heads"]], axis=0)
    at = [data["lengths"].index(n) for n in (100, 196, 404)]
    return Found({f"L = {data['lengths'][i]}": f"{mean[i]:.2f}" for i in at},
                 rises(mean[at].tolist()), 0, device(data))


MEASURED = (
    Measured("cca-figure4-time", "CCA", "Figure 4, latency; Table 3, FTL",
             "the speedup of reading a prompt grows with its length (7.9 x at 128K)", "attention-cpu.json",
             "cca-lab bench attention", prefill, AGREES,
             "One layer on a CPU, up to 32K tokens, groups of 16 and a window of 256 (the paper's is 1024). Notebook "
             "10 derives the factor 7.9 from the pairs."),
    Measured("cca-figure4-memory", "CCA", "Figure 4, memory",
             "the KV cache is smaller, by 14.2 x at 128K (4.5 GB, 64 GB)", "decode-cpu.json",
             "cca-lab bench decode", memory, AGREES,
             "Groups of 16 and a window of 1024, as printed: 128K tokens leave 8192 cores and 1024 raw tokens."),
    Measured("dga-table3", "DGA", "Table 3, DGA", "a token costs less than with full attention at 4K, 8K and 16K",
             "decode-cpu.json", "cca-lab bench decode", token_latency, AGREES,
             "As long as its cache is written in place; one that copies what it keeps loses at 4K."),
    Measured("dga-table3-others", "DGA", "Table 3, StreamingLLM and LM-Infinite",
             "with a sliding window, a token costs more than with full attention (78 and 102 ms against 70 at 16K)",
             "decode-cpu.json", "cca-lab bench decode", sliding_latency, DISAGREES,
             "A window of fixed size cannot grow with the text. The printed times are those of public code that "
             "\"lack optimizations for the generation process\", in the paper's words."),
    Measured("dga-figure3a", "DGA", "Figures 3a and 4", "with DGA, the validation loss falls faster",
             "convergence.json", "cca-lab experiments convergence", convergence, UNSEEN,
             "Paired over four seeds, no difference is seen; the paper shows one run of each."),
    Measured("dga-figure3b", "DGA", "Figure 3b", "noise changes the output of DGA less than that of full attention",
             "noise-gpt2-mini.json", "cca-lab experiments noise", noise, DISAGREES,
             "Noise also changes which tokens are focal. With the choice held fixed, DGA and full attention differ "
             "little (notebook 04)."),
    Measured("dga-figure2", "DGA", "Figure 2b, 2c", "the share of sparse rows, P_sparse(L, 0.02), rises with L",
             "sparsity-gpt2-mini.json", "cca-lab sparsity --model data/models/gpt2-mini", sparse, AGREES,
             "The mean over all heads. The paper shows one head, whose share is 1 at L = 400; here some heads spread "
             "over hundreds of tokens at every length (notebook 03)."),
    Measured("lococo-table5", "LoCoCo", "Table 5, throughput", "LoCoCo reads a prompt 3 x as fast as full attention",
             "model-cpu.json", "cca-lab bench model", throughput, DISAGREES,
             "Segments are read one after the other; on a CPU, with 8192 tokens, that costs more than the pairs it "
             "saves. The printed baseline has 16K tokens of a 7B model on a GPU."),
)
