"""CCA: sentences about times, memory, settings and the amount of training, judged on its own numbers."""

from fractions import Fraction
from functools import partial

from cca_lab.theory.claim import Claim, Strength, Verdict, Weight
from cca_lab.theory.published import (
    check_equal,
    check_number,
    check_ratios,
    check_reductions,
    check_same,
    check_sum,
    joined,
    tables,
    training_tokens,
)
from cca_lab.theory.published.scores import Pair, averages, check_ahead


def costs(rows: tuple[tables.Ratio, ...], what: str, table: str) -> tuple[Pair, ...]:
    """Return a cost of CCA-LLM against those of full self-attention and of the other methods in one table."""
    split = [(*row.name.rpartition(" ")[::2], row) for row in rows if row.name.startswith(table)]
    own = {block: row for block, method, row in split if method == "CCA-LLM"}
    others = [(block, method, row.after) for block, method, row in split if method != "CCA-LLM"]
    others += [(block, "vanilla", row.before) for block, row in own.items()]
    return tuple(Pair(f"{block} {what}", own[block].after, method, cost, lower=True) for block, method, cost in others)


LOWEST = (*costs(tables.CCA_SPEEDUPS, "seconds", "Table 1"), *costs(tables.CCA_MEMORY, "GB", "Table 1"))
THREE_METRICS = tuple(pair for pair in (
    *costs(tables.CCA_SPEEDUPS, "seconds", "Table 2"), *costs(tables.CCA_MEMORY, "GB", "Table 2"),
    *averages(tables.CCA_AVERAGES, "CCA-LLM", ("Table 2, LLaMA3.1", "Table 2, Qwen2.5"))) if pair.other == "MInference")
TIMES_IN_TEXT = {"CCA-LLM": {"Section 4.4": "15.89"}, "full self-attention": {"Section 4.4": "124.85"},
                 "MInference": {"Section 4.4": "44.50"}}
TIMES_IN_TABLE = {"CCA-LLM": {"Table 3": "15.89"}, "full self-attention": {"Table 3": "124.85"},
                  "MInference": {"Table 3": "20.18"}}
TIMES = joined(TIMES_IN_TEXT, TIMES_IN_TABLE)
SAME = "GPUs for 15.89 s and 124.85 s"
GPUS = ({SAME: {"Section 4.4": "1"}}, {SAME: {"Table 3": "2"}}, {SAME: {"Poster": "2"}})
DEFAULT = ({"perplexity": {"Table 8": "2.86"}, "latency in ms": {"Table 8": "462.8"}},
           {"perplexity": {"Table 9": "2.86"}, "latency in ms": {"Table 9": "461.4"}})
RIGHT_SPEEDUPS = tuple(row._replace(printed="5.1") if row.printed == "5.7" else row for row in tables.CCA_SPEEDUPS)

ARITHMETIC = partial(Claim, paper="CCA", strength=Strength.ARITHMETIC)
HOLDS = partial(ARITHMETIC, verdict=Verdict.HOLDS)
FALSE = partial(ARITHMETIC, verdict=Verdict.FALSE, repaired=Strength.ARITHMETIC, weight=Weight.SLIP)
INCONSISTENT = partial(ARITHMETIC, verdict=Verdict.INCONSISTENT, repaired=Strength.ARITHMETIC)

CLAIMS: tuple[Claim, ...] = (
    HOLDS(id="CCA.7.9x", place="Section 4.4", printed="7.9",
          quote="inference speedup than LLaMA2-7B-80K with the full self-attention (15.89s *vs.* 124.85s in 128K "
                "context)", reading="124.85 s over 15.89 s is 7.9.",
          check=partial(check_number, exact=Fraction("124.85") / Fraction("15.89"), formula="124.85/15.89"),
          proof="7.857, rounded. What the operations explain of it is another claim, P1c.amdahl."),
    FALSE(id="CCA.5.7x", place="Table 1; Poster", printed="5.7", corrected="5.1",
          quote=(r"6.42 (5.7\times)", "6.42 (5.7×)"),
          reading="At 64K CCA-LLM needs 6.42 s to the first token, 5.7x less than 32.43 s of full self-attention.",
          check=partial(check_number, exact=Fraction("32.43") / Fraction("6.42"), formula="32.43/6.42"),
          repair="The printed times give 5.1x; 5.7x would need 5.69 s.",
          proof="32.43/6.42 = 5.05. We cannot tell whether the time or the factor is the slip.",
          example="""
print(32.43 / 6.42)
assert not 5.65 <= 32.43 / 6.42 < 5.8
"""),
    FALSE(id="CCA.speedups", place="Table 1; Table 2; Table 3; Appendix C.2", printed=tables.CCA_SPEEDUPS,
          check=check_ratios, root="CCA.5.7x", corrected=RIGHT_SPEEDUPS,
          quote=r"achieves a first-token latency reduction of 3.5 \times",
          reading="Each of the 16 printed speed-ups is the quotient of the printed times to the first token.",
          repair="15 of the 16 are; the one for CCA-LLM at 64K is 5.1x.", proof="All quotients, rounded or cut."),
    HOLDS(id="CCA.memory", place="Table 1; Table 2; Appendix C.2", printed=tables.CCA_MEMORY, check=check_reductions,
          quote="a 46% decrease in memory usage",
          reading="Each of the 12 printed reductions of memory in percent follows from the printed GB, rounded or cut.",
          proof="Ten are rounded; 35.53 % and 37.61 % are cut to 35 and 37."),
    HOLDS(id="CCA.lowest", place="Section 4.2", printed=LOWEST, check=check_ahead,
          quote=("our CCA-LLM achieves the lowest inference latency", "and KV cache usage among all compared methods"),
          reading="In Table 1 no method needs less time to the first token or less memory [which contains the cache].",
          proof="2.59 s and 19.12 GB at 32K, 6.42 s and 33.86 GB at 64K."),
    HOLDS(id="CCA.three-metrics", place="Section 4.2; Table 2", printed=THREE_METRICS, check=check_ahead,
          quote="across three key metrics: computational efficiency, memory reduction, and model performance",
          reading="In Table 2 CCA-LLM needs less time and memory than MInference, and has a higher average.",
          proof="Both models. On LLaMA3.1 the averages are 37.81 and 37.74."),
    INCONSISTENT(
        id="CCA.minference", place="Section 4.4; Table 3", check=check_same, weight=Weight.SUBSTANCE, printed=TIMES,
        quote=("MInference (15.89s *vs.* 44.50s in 128K context)", r"20.18 (6.2 \times)"),
        reading="MInference needs 44.50 s to the first token at 128K in the text, and 20.18 s in Table 3.",
        sides={"Section 4.4": TIMES_IN_TEXT, "Table 3": TIMES_IN_TABLE},
        corrected={what: TIMES[what] for what in ("CCA-LLM", "full self-attention")},
        repair="Text and table agree on 15.89 s and 124.85 s only; whether CCA-LLM is 2.8x or 1.27x as fast as "
               "MInference cannot be told.",
        proof="44.50/15.89 = 2.80 and 20.18/15.89 = 1.27. Table 3's 6.2x goes with 20.18 s (124.85/20.18 = 6.19). Two "
              "measurements, on one GPU and on two, would explain it only if the other two times differed as well.",
        example="""
text, table, ours = 44.50, 20.18, 15.89
print(text / ours, table / ours)
assert text / table > 2
"""),
    INCONSISTENT(
        id="CCA.devices", place="Section 4.4; Table 3; Poster", check=check_equal, weight=Weight.SLIP,
        printed=joined(*GPUS), sides=dict(zip(("Section 4.4", "Table 3", "Poster"), GPUS, strict=True)),
        corrected=joined(*GPUS[1:]),
        quote=("during forward-propagation on a single NVIDIA A800 GPU",
               "We report the latency within a context of 128K on two A800 GPUs",
               "We report the latency within a context of 128K on two A800 GPUs"),
        reading="The same 15.89 s and 124.85 s at 128K are measured on one GPU and on two.",
        repair="Two, as Table 3 and the poster say.",
        proof="The times are equal to the digit, so they are one measurement. Two is likelier: 64 GiB of cache "
              "(P1c.kv) and 13.5 GB of weights in 16 bits are 82 GB, and an A800 has 80."),
    INCONSISTENT(
        id="CCA.default", place="Appendix C.5; Table 8; Table 9", check=check_same, weight=Weight.SLIP,
        quote=("we have selected $g=16$ as the default training setting",
               "we opted for $s=1024$ as the default training setting"),
        reading="Tables 8 and 9 vary g and s around one default, g = 16 and s = 1024, which is a column of both.",
        printed=joined(*DEFAULT), sides={"Table 8, g = 16": DEFAULT[0], "Table 9, s = 1024": DEFAULT[1]},
        corrected={"perplexity": joined(*DEFAULT)["perplexity"]},
        repair="The tables share the perplexity 2.86; 462.8 ms is what Table 9 has for s = 2048, whose perplexity is "
               "2.79.",
        proof="No column of Table 9 has both 2.86 and 462.8 ms. It may be noise: they differ by 0.3 %. Table 7's 2.85 "
              "is no contradiction: 2.857 is printed as 2.85 or 2.86."),
    HOLDS(id="CCA.tokens-32k", place="Appendix B.2", printed="2.10",
          check=partial(check_number, exact=Fraction(training_tokens(8, 1, 8, 2**15, 1000), 10**9),
                        formula="8 GPUs x 8 micro-steps x 1000 steps x 32768 / 10^9"),
          quote="we require only 2.10 billion tokens for 32K", reading="Training at 32K reads 2.10 billion tokens.",
          proof="The product of the stated settings."),
    HOLDS(id="CCA.tokens-80k", place="Appendix B.2", printed="5",
          check=partial(check_number, exact=Fraction(training_tokens(8, 1, 8, 80 * 2**10, 1000), 10**9),
                        formula="8 GPUs x 8 micro-steps x 1000 steps x 81920 / 10^9"),
          quote="and 5 billion tokens for 80K", reading="Training at 80K reads 5 billion tokens.",
          proof="The product of the stated settings, 5.24, rounded."),
    HOLDS(id="CCA.mixture", place="Appendix B.2", check=check_sum,
          printed=(("67", "15", "4.5", "4.5", "4.5", "2.5", "2.0"), "100.0"),
          quote="82% web data, split between 67% from CommonCrawl and 15% from C4",
          reading="The shares of SlimPajama add up to 100 %, and 67 + 15 to 82.",
          proof="67 + 15 % web, 4.5 % each of code, Wikipedia and books, 2.5 % Arxiv, 2 % Stack Exchange."),
)
