"""DGA: sentences about published numbers, judged on its own tables."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight
from cca_lab.theory.published import check_averages, check_citations, check_number, check_ratios, check_sum, tables
from cca_lab.theory.published.scores import (
    Pair,
    check_ahead,
    check_curves,
    check_degrades,
    check_ranks,
    check_rise,
    check_steeper,
    check_words,
)

OTHERS = ("MInference", "StreamingLLM", "LM-Infinite")
SLOWER = tuple(Pair(f"Table 3, {length}", vanilla, method, latency, lower=True) for method in OTHERS
               for length, vanilla, latency in zip(("4K", "8K", "16K"), tables.DGA_LATENCY["vanilla"],
                                                   tables.DGA_LATENCY[method], strict=True))
TOP_K = (Pair("Table 5, accuracy", "67.00", "random", "66.91"),
         Pair("Table 5, perplexity", "3.59", "random", "3.60", lower=True))
WORDS = {"m from 4 to 64, 70.17 to 65.00": ("slight", "5.17"), "gamma from 0.1 to 0.9, 67.00 to 70.58":
         ("substantial", "3.58")}
TRENDS = {"perplexity with m": "rises", "accuracy with m": "falls", "latency with m": "falls",
          "perplexity with gamma": "falls", "accuracy with gamma": "rises", "latency with gamma": "rises"}
CONTENTS = {"Table 1": "69.70 and 102.22 ms", "Table 2": "EM scores", "Table 6": "what gamma does",
            "Table 7": "what complementary tokens do"}
MODELS = ("LLaMA-7B", "LLaMA2-7B", "Qwen2.5-7B", "GPT2-S", "OPT-125M")
Focal = tuple[Callable[[int], float], tuple[int, ...]]  # number of focal tokens of a length, and the lengths trained


def rate(length: int) -> float:
    """Return the number of focal tokens at an importance rate of 0.1."""
    return 0.1 * length


def floored(length: int) -> float:
    """Return the number of focal tokens of Appendix C.2, at least 1k, read as 1000 so that some tokens are left."""
    return max(rate(length), 1000)


def check_small_subset(focal: Focal) -> Finding:
    """Judge "the focal tokens are a small subset": fewer than half, at each length that is trained."""
    number, lengths = focal
    worst = max(lengths, key=lambda length: number(length) / length)
    return Finding(all(2 * number(length) < length for length in lengths),
                   f"L = {worst}: {number(worst):g} focal tokens; groups of 16 that the others fill: "
                   f"{(worst - number(worst)) // 16:g}")


def check_model(name: str) -> Finding:
    """Judge the name of a model: the paper must evaluate one of this name."""
    return Finding(name in MODELS, f"'{name} model'; the experiments are on {', '.join(MODELS)}")


ARITHMETIC = partial(Claim, paper="DGA", strength=Strength.ARITHMETIC)
HOLDS = partial(ARITHMETIC, verdict=Verdict.HOLDS)
WRONG = partial(ARITHMETIC, repaired=Strength.ARITHMETIC)

CLAIMS: tuple[Claim, ...] = (
    HOLDS(id="DGA.averages", place="Table 1; Table 2; Table 7", quote="", printed=tables.DGA_AVERAGES,
          check=check_averages, reading="The column Avg. is the mean of the other scores, rounded or cut.",
          proof="Recomputed from the printed scores of 11 rows."),
    HOLDS(id="DGA.speedups", place="Section 6.3; Section 6.4", printed=tables.DGA_SPEEDUPS, check=check_ratios,
          quote=("faster than LM-Infinite (102.22 ms)", "faster than StreamingLLM (78.28 ms)"),
          reading="DGA decodes 2.42x, 3.55x, 3.28x and 2.72x faster at 16K [the quotients of the latencies].",
          proof="Latencies of Tables 1 and 3. DGA's own is 28.80 ms and 28.79 ms, which one number may be printed as."),
    HOLDS(id="DGA.best", place="Section 6.3; Table 2", check=check_ranks,
          quote="our DGA-LLM achieves the highest performance at 4K, 16K, and 32K context lengths, and the second "
                "highest at 8K compared to other baselines", printed={"4K": 1, "8K": 2, "16K": 1, "32K": 1},
          reading="DGA-LLM has these ranks among the baselines [Section 6.1 lists three, all efficient].",
          proof="Table 2. Full self-attention, which is no baseline there, is above all of them at every length."),
    WRONG(id="DGA.degradation", place="Section 6.3", verdict=Verdict.FALSE, weight=Weight.SUBSTANCE,
          printed=("StreamingLLM", "LM-Infinite"), corrected=("MInference",), check=check_steeper,
          quote="In contrast, methods like StreamingLLM and LM-Infinite exhibit significant performance degradation as "
                "context length increases",
          reading="From 4K to 16K, or to 32K, both lose more EM than DGA-LLM does [in points, or as a share].",
          repair="DGA-LLM loses more than both, in points and as a share, to 16K and to 32K; only MInference loses a "
                 "larger share to 32K. DGA-LLM's scores are above those of both at either length.",
          proof="Table 2, 4K to 16K: DGA-LLM 35.0 to 25.6, StreamingLLM 30.2 to 22.2, LM-Infinite 29.4 to 23.8.",
          example="""
em = {"StreamingLLM": (30.2, 22.2, 20.8), "LM-Infinite": (29.4, 23.8, 22.4), "DGA-LLM": (35.0, 25.6, 22.6)}
for column in (1, 2):  # 16K, 32K
    share = {name: 1 - scores[column] / scores[0] for name, scores in em.items()}
    print(share)
    assert max(share, key=share.get) == "DGA-LLM"
"""),
    WRONG(id="DGA.rise", place="Section 6.4", verdict=Verdict.HOLDS_IF, weight=Weight.SUBSTANCE, check=check_rise,
          quote="As the context length increases from 4K to 16K, other baseline methods show a sharp ITL rise",
          reading="From 4K to 16K each baseline's latency rises more than that of DGA-LLM, which is called stable.",
          printed=OTHERS, corrected=OTHERS[1:], repair="It does for StreamingLLM and LM-Infinite.",
          hypothesis=Hypothesis("MInference is left out", lambda method: method != "MInference"),
          proof="Table 3: MInference rises from 93.13 to 94.34 ms, less than DGA-LLM from 26.26 to 28.79 ms, in "
                "milliseconds and in percent.",
          example="""
rise = {"MInference": 94.34 / 93.13, "DGA-LLM": 28.79 / 26.26}
print(rise)
assert rise["MInference"] < rise["DGA-LLM"]
"""),
    HOLDS(id="DGA.slower", place="Section 6.4", printed=SLOWER, check=check_ahead,
          quote="Notably, other methods are slower than vanilla self-attention",
          reading="The three baselines need more time per token than full self-attention at 4K, 8K and 16K.",
          proof="Table 3, nine comparisons."),
    WRONG(id="DGA.2.4-3.5x", place="Appendix F; Table 7", verdict=Verdict.FALSE, weight=Weight.SUBSTANCE, printed="3.5",
          corrected="2.4",
          quote=r"$2.4 \sim 3.5 \times$ faster than vanilla self-attention (Table 2: 69.70 $\sim$ 102.22 ms)",
          check=partial(check_number, exact=Fraction("69.70") / Fraction("28.8"), formula="69.70/28.8"),
          reading="At 28.8 ms DGA is 2.4x to 3.5x faster than full self-attention.",
          repair="2.4x faster than full self-attention, 3.5x faster than LM-Infinite.",
          proof="102.22 ms is LM-Infinite's latency. At 4K and 8K DGA is 1.40x and 1.57x faster (Table 3).",
          example="""
vanilla, lm_infinite, ours = 69.70, 102.22, 28.8
print(vanilla / ours, lm_infinite / ours)
assert vanilla / ours < 2.5 and lm_infinite / ours > 3.5
"""),
    WRONG(id="DGA.citations", place="Appendix F; Appendix G; Table 7", verdict=Verdict.FALSE, weight=Weight.SLIP,
          check=partial(check_citations, holds=CONTENTS),
          quote=("faster than vanilla self-attention (Table 2: 69.70",
                 "Experimental analysis in Tables 4 and 7 reveals that smaller group sizes"),
          reading="Latencies of 69.70 to 102.22 ms are in Table 2, and what gamma does is in Table 7.",
          printed=(("69.70 and 102.22 ms", "Table 2"), ("what gamma does", "Table 7")),
          corrected=(("69.70 and 102.22 ms", "Table 1"), ("what gamma does", "Table 6")),
          repair="The latencies are in Tables 1 and 3, and what gamma does is in Table 6.",
          proof="Table 2 has EM scores, and Table 7 is about complementary tokens."),
    HOLDS(id="DGA.table7", place="Appendix F; Table 7", check=check_degrades,
          quote="degrades performance on tasks like Multi-Doc QA from 3.58 to 2.37 and Code from 53.45 to 48.00",
          reading="Without complementary tokens these two scores fall, by these numbers.",
          printed={"Multi-Doc. QA": ("3.58", "2.37"), "Code": ("53.45", "48.00")},
          proof="Both fall, few-shot learning too, and the average (21.14 to 20.33). Single-Doc. QA, summary and "
                "synthetic tasks rise, which the text leaves out when it calls these tokens critical. Four of the six "
                "numbers without them equal those of full self-attention in Table 1, and no sentence says why: the row "
                "should be measured again."),
    HOLDS(id="DGA.table5", place="Appendix F; Table 5", printed=TOP_K, check=check_ahead,
          quote="our Top-K approach achieves an improvement in accuracy from 66.91% to 67.00%",
          reading="Focal tokens by Top-K give a higher accuracy and a lower perplexity than random ones.",
          proof="By 0.09 points, and by one unit of the last digit of the perplexity. For 0.09 points to be two "
                "standard errors of a difference, 2.2 million independent answers would be needed; how many there were "
                "is not printed."),
    HOLDS(id="DGA.trends", place="Appendix G; Table 6", check=partial(check_curves, curves=tables.DGA_CURVES),
          quote="reveals that smaller group sizes (m) and higher importance rates", printed=TRENDS,
          reading="With m perplexity rises, accuracy and latency fall; with gamma the other way round.",
          proof="Tables 4 and 6, each column against the next. Both have 3.59, 67.00 and 172.12 ms at the default."),
    WRONG(id="DGA.slight", place="Appendix F; Table 4; Table 6", verdict=Verdict.INCONSISTENT, check=check_words,
          quote=("we observe only a slight degradation in model performance",
                 "the model accuracy improves substantially from 67.00% to 70.58%"),
          reading="A change of accuracy of 5.17 points is slight, and one of 3.58 points is substantial.",
          printed=WORDS, sides={f"Table {table}": {what: word} for table, (what, word) in
                                zip((4, 6), WORDS.items(), strict=True)},
          corrected={what: ("substantial", size) for what, (_, size) in WORDS.items()}, weight=Weight.SUBSTANCE,
          repair="Both are of one size: what m costs is more than what gamma gains.",
          proof="Perplexity says the same: 3.20 to 3.87 is called slight, and 3.59 to 3.20 comes with substantially.",
          example="""
slight, substantial = 70.17 - 65.00, 70.58 - 67.00
print(slight, substantial)
assert slight > substantial
"""),
    WRONG(id="DGA.focal", place="Appendix C.2; Appendix C.5; Section 5", verdict=Verdict.INCONSISTENT, formula=True,
          quote=(r"the number of the focal tokens is $\max{\{\gamma L, 1k\}}$ , remain consistent across different "
                 "experiments", "we set the group size m to 16 and the importance rate to 0.1",
                 "a small subset of significant tokens"),
          reading="At least 1k tokens are focal in all experiments; GPT2-S and OPT-125M are trained at 1K and 2K, and "
                  "focal tokens are a small subset.",
          check=check_small_subset, weight=Weight.SLIP, printed=(floored, (1024, 2048)),
          sides={"Appendix C.2, LLaMA2-7B at 8K": (floored, (8192,)), "Appendix C.5": (rate, (1024, 2048))},
          corrected=(rate, (1024, 2048)), repair="Without the floor 102 of 1024 tokens are focal, and 205 of 2048.",
          proof="With the floor DGA on GPT2-S would be full self-attention but for one group, and Figure 4 could not "
                "show another loss.",
          example="""
length, group = 1024, 16
focal = max(0.1 * length, 1000)
print(focal, (length - focal) // group)
assert (length - focal) // group == 1
"""),
    WRONG(id="DGA.xxx", place="Remark 3", verdict=Verdict.FALSE, weight=Weight.TYPOGRAPHY, check=check_model,
          quote="evaluated on xxx model rises sharply", printed="xxx", corrected="LLaMA2-7B",
          reading="Figure 2(b) shows P_sparse of a model of this name.",
          repair="LLaMA2-7B, by Appendix C.4; Section 6.2 has LLaMA-7B.",
          proof="A placeholder that was not filled in."),
    HOLDS(id="DGA.longbench", place="Appendix C.1", printed=(("14", "5", "2"), "21"), check=check_sum,
          quote="The benchmark comprises 14 English tasks, 5 Chinese tasks, and 2 code tasks",
          reading="LongBench has 21 tasks: 14 English, 5 Chinese, 2 code.", proof="The parts add up."),
)
