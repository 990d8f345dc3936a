"""LoCoCo: sentences about published numbers, judged on its own tables and settings."""

from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight
from cca_lab.theory.published import (
    check_compression,
    check_equal,
    check_number,
    check_same,
    joined,
    kernel_parameters,
    tables,
    training_tokens,
)
from cca_lab.theory.published.scores import Pair, check_ahead

Runs = tuple[tuple[str, int, bool], ...]  # (place, tokens of a sequence, whether the full sequence fits)


def pairs(table: Mapping[str, str], name: str, *, lower: bool) -> tuple[Pair, ...]:
    """Return the columns of LoCoCo against each other method but full sequences, for one table."""
    return tuple(Pair(f"{name}, column {column}", ours, method, other, lower)
                 for method, numbers in table.items() if method not in ("LoCoCo", "full")
                 for column, (ours, other) in enumerate(zip(table["LoCoCo"].split(), numbers.split(), strict=True), 1))


PERPLEXITY = tuple(pair for name, table in tables.LC_PERPLEXITY.items()
                   for pair in pairs(table, f"Table 2, {name}", lower=True))
BEST = (*PERPLEXITY,
        *(pair for name, table in tables.LC_SCROLLS.items() for pair in pairs(table, name, lower=False)))
VARIANTS = tuple(Pair(f"{method}, Table 6", perplexity, "H2O", other, lower=True)
                 for method, perplexity in tables.LC_EVICTION.items() if method != "H2O"
                 for other in (tables.LC_EVICTION["H2O"], "3.5706"))
SHORTER = tuple(Pair(f"Table 2, {name}, 2048", tables.LC_PERPLEXITY[name]["StreamingLLM"].split()[0], "LongLoRA",
                     tables.LC_PERPLEXITY[name]["LongLoRA"].split()[0], lower=True)
                for name in ("7B, 8192", "7B, 16384", "7B, 32768"))
TWICE = ({"H2O": {"Table 2": "3.5706"}, "LoCoCo with H2O": {"Table 2": "3.5414"}},
         {"H2O": {"Table 6": "3.5714"}, "LoCoCo with H2O": {"Table 6": "3.5414"}, "kernel 21": {"Table 6": "3.5451"}},
         {"kernel 21": {"Table 7": "3.53"}})
DEVICES = ({"GPU": {"Section 4.1": "A6000"}}, {"GPU": {"Section 4.4": "A100"}})
TRAINED: Runs = tuple(("Table 2", length, True) for length in (8192, 16384, 32768))
OUT_OF_MEMORY: Runs = (("Table 5", 16384, False),)


def check_fits(runs: Runs) -> Finding:
    """Judge what fits in memory: no sequence may fit that is as long as one that does not."""
    fits = [length for _, length, fitting in runs if fitting]
    fails = [length for _, length, fitting in runs if not fitting]
    told = (f"{place}: {length} tokens {'fit' if fitting else 'do not fit'}" for place, length, fitting in runs)
    return Finding(not fits or not fails or max(fits) < min(fails), "; ".join(told))


def check_range(ends: tuple[int, int]) -> Finding:
    """Compare a range of kernel sizes with those of Table 7."""
    exact = min(tables.LC_KERNELS), max(tables.LC_KERNELS)
    return Finding(ends == exact, f"Table 7 has kernels of {exact[0]} to {exact[1]}; printed {ends[0]} to {ends[1]}",
                   {"smallest": exact[0], "largest": exact[1]})


def check_efficiency(more: Mapping[str, int]) -> Finding:
    """Judge GB that LoCoCo needs more than other methods, and that no method has its throughput (Table 5)."""
    exact = {method: tables.LC_GIGABYTES["LoCoCo"] - tables.LC_GIGABYTES[method] for method in more}
    rates = tables.LC_THROUGHPUT
    return Finding(exact == dict(more) and all(rates["LoCoCo"] > rates[name] for name in rates if name != "LoCoCo"),
                   f"{', '.join(f'{size} GB more than {name}' for name, size in exact.items())}; tokens a second: "
                   f"{', '.join(f'{name} {speed}' for name, speed in rates.items())}", {"rate": rates["LoCoCo"]})


ARITHMETIC = partial(Claim, paper="LoCoCo", strength=Strength.ARITHMETIC)
HOLDS = partial(ARITHMETIC, verdict=Verdict.HOLDS)
SLIP = partial(ARITHMETIC, weight=Weight.SLIP, repaired=Strength.ARITHMETIC)

CLAIMS: tuple[Claim, ...] = (
    HOLDS(id="LC.best", place="Section 4.3; Section 4.2", printed=BEST, check=check_ahead,
          quote=("our method demonstrates superior performance over the aforementioned methods",
                 "our method again achieves superior performance", "again demonstrates our effectiveness over"),
          reading="LoCoCo is ahead of StreamingLLM, LongLoRA and H2O in each column of Tables 1 to 4.",
          proof="65 comparisons. In Table 2 full sequences are better still, by at most 2.3 % of the perplexity."),
    HOLDS(id="LC.variants", place="Section 5.2", printed=VARIANTS, check=check_ahead,
          quote="All variants of our methods show superior performance to solely using the previous token eviction "
                "method",
          reading="The three variants of Table 6 have a lower perplexity than H2O.",
          proof="3.5451, 3.5439 and 3.5414 against 3.5714 (Table 6) or 3.5706 (Table 2)."),
    HOLDS(id="LC.shorter", place="Section 1", printed=SHORTER, check=check_ahead,
          quote="the LongLoRA-tuned model may compromise its performance if we still use smaller context sizes",
          reading="At 2048 tokens LongLoRA's perplexity is above that of StreamingLLM [whose model is not tuned].",
          proof="Table 2, 7B: 4.0526, 4.0704 and 4.0891 against 4.0373. LoCoCo's grows with the training length too, "
                "3.9411 to 4.0253, but stays below."),
    HOLDS(id="LC.table5", place="Section 4.4", printed={"LongLoRA": 1, "H2O": 0}, check=check_efficiency,
          quote=("only requires an additional 1GB of memory compared to LongLoRA",
                 "our method achieves superior throughput compared to all baselines at inference"),
          reading="LoCoCo needs 1 GB more than LongLoRA and as much as H2O, and has the highest throughput.",
          proof="Table 5: 49, 50 and 50 GB; 25, 32, 33 and 11 tokens a second."),
    HOLDS(id="LC.parameters", place="Section 4.1", printed="22",
          check=partial(check_number, exact=Fraction(kernel_parameters(), 10**6),
                        formula="32 layers x 256 features x 128 slots x kernel 21 / 10^6"),
          quote="we only add 22 million parameters for compressing raw KV states to a memory of 128 tokens",
          reading="The convolutional heads add 22 million parameters to LLaMA2-7B at M = 128.",
          proof="Keys and values of one head together have 256 features; all heads of a layer share one kernel."),
    HOLDS(id="LC.tokens", place="Section 3.3", printed="104",
          check=partial(check_number, exact=Fraction(training_tokens(1, 128, 1, 4096, 200), 10**6),
                        formula="200 steps x 128 sequences x 4096 / 10^6"),
          quote="a minimal fraction of the training data (e.g., 104 million tokens",
          reading="The compressor is trained on 104 million tokens.",
          proof="The product of the settings of Section 4.1 is 104.86 million, cut after the third digit."),
    HOLDS(id="LC.share", place="Section 3.3", printed="0.0052",
          check=partial(check_number, exact=Fraction(104 * 100, 2 * 10**6), formula="100 x 104e6 / 2e12"),
          quote="or 0.0052% of the 2 trillion tokens used for Llama-2 pre-training",
          reading="104 million tokens are 0.0052 % of 2 trillion.", proof="Exact."),
    HOLDS(id="LC.points", place="Abstract; Section 6", printed="27.91",
          check=partial(check_number, exact=100 * Fraction("0.2791"), formula="100 x 0.2791"),
          quote=("an accuracy improvement of up to 0.2791 compared to baselines",
                 "outperforms baseline methods by up to 27.91% in accuracy"),
          reading="Both are one difference of two accuracies, [27.91 percentage points].",
          proof="Read as a relative gain the two would differ: 0.2791 is 27.91 % only of an accuracy of 1."),
    SLIP(id="LC.ratio", place="Section 4.1", verdict=Verdict.HOLDS_IF, check=check_compression,
         printed=lambda memory: "32", corrected=lambda memory: str(4096 // memory),
         quote="to fit in the memory size of 128, 256, 512, leading to the compression ratio of 32 : 1",
         reading="4096 tokens in a memory of 128, 256 or 512 are a compression of 32 : 1.",
         hypothesis=Hypothesis("M = 128", lambda memory: memory == 128),
         repair="32 : 1 for M = 128, 16 : 1 for 256 and 8 : 1 for 512.",
         proof="4096/M. The abstract reports up to 3482 tokens in 128 slots, 27.2 : 1; with 32K tokens in 512 slots "
               "(Section 4.3) it is 64 : 1.",
         example="""
ratios = [4096 / memory for memory in (128, 256, 512)]
print(ratios)
assert ratios == [32, 16, 8]
"""),
    SLIP(id="LC.twice", place="Section 5.2; Section 5.3; Table 2", verdict=Verdict.INCONSISTENT, check=check_same,
         quote=("In Table 6, to extend the maximum context length of Llama-2-7B to 8192 tokens",
                "on Proof-Pile-2 (Azerbayev et al., 2023), using a context length of 8192",
                "We fine-tuned Llama-2-7B (Touvron et al., 2023) to extend the context length from 4K to 8K"),
         reading="Tables 2, 6 and 7 print perplexities of one setting: LLaMA2-7B extended to 8192, M = 512, kernel 21.",
         printed=joined(*TWICE), sides=dict(zip(("Table 2", "Table 6", "Table 7"), TWICE, strict=True)),
         corrected={"LoCoCo with H2O": joined(*TWICE)["LoCoCo with H2O"]},
         repair="Tables 2 and 6 agree on LoCoCo with H2O, 3.5414; which numbers of H2O and of the kernel are right "
                "cannot be told.",
         proof="H2O differs by 0.0008. A kernel of 21 is the default, so Table 7 should repeat Table 6: neither 3.5451 "
               "nor 3.5414 is printed as 3.53, rounded or cut."),
    SLIP(id="LC.kernels", place="Section 5.3", verdict=Verdict.FALSE, check=check_range, printed=(3, 21),
         corrected=(3, 61), quote="employing kernel sizes ranging from 3 to 21",
         reading="The kernels of Table 7 have sizes from 3 to 21.", repair="From 3 to 61.",
         proof="Table 7 goes on with 31, 41, 51 and 61. The largest lose as much as a kernel of 7: 3.57 and 3.58; the "
               "text names the smallest only."),
    SLIP(id="LC.devices", place="Section 4.1; Section 4.4", verdict=Verdict.INCONSISTENT, check=check_equal,
         quote=("All experiments are run on A6000 (48GB memory) to intentionally test our efficacy",
                "The measurements are conducted on the NVIDIA A100 80GB GPU"),
         reading="All experiments are run on an A6000, and memory and throughput are measured on an A100.",
         printed=joined(*DEVICES), sides={"Section 4.1": DEVICES[0], "Section 4.4": DEVICES[1]},
         corrected={"GPU for training": {"Section 4.1": "A6000"}, "GPU for Table 5": {"Section 4.4": "A100"}},
         repair="All experiments but those of Table 5.",
         proof="Table 5's 49 and 50 GB are over 48 GB; in units of 10^9 bytes they would fit in 48 GiB, so they alone "
               "are no contradiction."),
    SLIP(id="LC.full-sequence", place="Section 4.4; Section 4.3", verdict=Verdict.INCONSISTENT, check=check_fits,
         quote=("performing training directly on the full sequence will exhaust all GPU memory",
                "Finally, we evaluate the model tuned with uncompressed full sequence length"),
         reading="Full sequences of 16K do not fit in memory, and the model is trained on those of 8K, 16K and 32K.",
         printed=(*TRAINED, *OUT_OF_MEMORY), corrected=(*TRAINED[:1], *OUT_OF_MEMORY),
         sides={"Table 2": TRAINED, "Table 5": OUT_OF_MEMORY},
         repair="Only full sequences of 8K are not contradicted; how those of 16K and 32K were trained is not said.",
         proof="Table 5: out of memory at 16K on 80 GB. Table 2: perplexities after training at 16384 and 32768, on "
               "GPUs of 48 GB by Section 4.1.",
         example="""
out_of_memory, trained = 16384, (8192, 16384, 32768)
print([length for length in trained if length >= out_of_memory])
assert any(length >= out_of_memory for length in trained)
"""),
)
