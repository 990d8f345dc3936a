"""Published numbers as claims: what the papers print, and what follows from their own numbers."""

from fractions import Fraction
from functools import partial

from cca_lab.theory.claim import Claim, Strength, Verdict
from cca_lab.theory.published import (
    check_averages,
    check_best,
    check_compression,
    check_degrades,
    check_number,
    check_ratios,
    check_reductions,
    check_same,
    check_sum,
    cut_to,
    kernel_parameters,
    tables,
    training_tokens,
)

CCA_AT_4K = {"StreamingLLM": "33.6", "LM-Infinite": "31.6", "MInference": "39.0"}
CCA_RULER = {"8K": ("68.15", "67.78"), "16K": ("66.31", "65.32"), "32K": ("60.89", "61.43"), "64K": ("54.88", "52.77")}
RULER = {length: (ours, {"MInference": other}) for length, (ours, other) in CCA_RULER.items()}
DGA_EM = {"4K": ("35.0", {"StreamingLLM": "30.2", "LM-Infinite": "29.4", "MInference": "29.2"}),
          "16K": ("25.6", {"StreamingLLM": "22.2", "LM-Infinite": "23.8", "MInference": "23.6"}),
          "32K": ("22.6", {"StreamingLLM": "20.8", "LM-Infinite": "22.4", "MInference": "17.0"})}
ROUNDED_MEMORY = tuple((*row, {"35": "36", "37": "38"}.get(printed, printed)) for *row, printed in tables.CCA_MEMORY)

EXACT = partial(Claim, strength=Strength.EXACT)
HOLDS = partial(EXACT, verdict=Verdict.HOLDS, corrected=None, repair="")
FALSE = partial(EXACT, verdict=Verdict.FALSE)

CLAIMS: tuple[Claim, ...] = (
    HOLDS(id="CCA.averages", paper="CCA", place="Tables 1, 2, 3, 4, 10", printed=tables.CCA_AVERAGES,
          check=check_averages, statement="The column Avg. is the mean of the other scores.",
          proof="Recomputed from the printed scores; halves may be rounded either way."),
    HOLDS(id="CCA.speedups", paper="CCA", place="Tables 1, 2, 3", printed=tables.CCA_SPEEDUPS, check=check_ratios,
          statement="Speed-ups are the quotients of the printed latencies, 7.9x at 128K among them.",
          proof="124.85/15.89 = 7.86. All quotients but one (CCA.5.7x) agree."),
    FALSE(id="CCA.5.7x", paper="CCA", place="Table 1, LLaMA2-7B-80K", printed="5.7", corrected="5.1",
          check=partial(check_number, exact=Fraction("32.43") / Fraction("6.42"), formula="32.43/6.42"),
          statement="CCA-LLM needs 6.42 s to the first token, 5.7x less than 32.43 s.",
          repair="The printed times give 5.1x; 5.7x would need 5.69 s.",
          proof="32.43/6.42 = 5.05. We cannot tell whether the time or the factor is the slip."),
    FALSE(id="CCA.memory", paper="CCA", place="Tables 1 and 2", printed=tables.CCA_MEMORY, corrected=ROUNDED_MEMORY,
          check=check_reductions, statement="Memory reductions in percent follow from the printed GB.",
          repair="Rounded like the others, StreamingLLM saves 36 % (32K) and 38 % (80K).",
          proof="Two of the twelve are cut and not rounded; cutting fails on eight others, such as 5.79 % as 6 %."),
    FALSE(id="CCA.minference", paper="CCA", place="Section 4.4 and Table 3", printed="44.50", corrected="20.18",
          check=lambda seconds: check_ratios((("first token at 128K", "124.85", seconds, "6.2"),)),
          statement="MInference needs 44.50 s to the first token at 128K.",
          repair="Table 3 says 20.18 s, which agrees with its 6.2x; 44.50 s would be 2.8x.",
          proof="124.85/20.18 = 6.19. The text also says one A800 where Table 3 says two."),
    FALSE(id="CCA.best-4k", paper="CCA", place="Section 4.2", check=check_best,
          printed={"4K": ("39.3", {"vanilla self-attention": "39.4", **CCA_AT_4K})},
          corrected={"4K": ("39.3", CCA_AT_4K)},
          statement="For short contexts such as 4K, CCA-LLM has the highest exact match of all methods.",
          repair="It is the highest of the efficient methods.",
          proof="Table 3: vanilla self-attention has 39.4 at 4K, and 37.8 against 33.2 at 8K."),
    FALSE(id="CCA.ruler", paper="CCA", place="Appendix C.1, Table 4", check=check_best, printed=RULER,
          corrected={length: row for length, row in RULER.items() if length != "32K"},
          statement="On RULER CCA-LLM outperforms MInference at all context lengths.",
          repair="It does at 8K, 16K and 64K, and on average (62.56 against 61.83).",
          proof="Table 4: 60.89 against 61.43 at 32K. The text names Table 3; the numbers are in Table 4."),
    FALSE(id="CCA.default", paper="CCA", place="Tables 7, 8, 9", check=check_same,
          printed={"perplexity (Tables 7, 8)": ("2.85", "2.86"), "latency in ms (Tables 8, 9)": ("462.8", "461.4")},
          corrected={"perplexity (Tables 8, 9)": ("2.86", "2.86")},
          statement="(implied) The ablations agree at their common setting, g = 16 and s = 1024.",
          repair="Perplexity is 2.86 in Tables 8 and 9; 462.8 ms is the latency that Table 9 has for s = 2048.",
          proof="All three ablate LLaMA2-7B-16K around the default setting."),
    HOLDS(id="CCA.tokens-32k", paper="CCA", place="Appendix B.2", printed="2.10",
          check=partial(check_number, exact=Fraction(training_tokens(8, 1, 8, 2**15, 1000), 10**9),
                        formula="8 GPUs x 8 micro-steps x 1000 steps x 32768 / 10^9"),
          statement="Training at 32K takes 2.10 billion tokens.", proof="The product of the stated settings."),
    HOLDS(id="CCA.tokens-80k", paper="CCA", place="Appendix B.2", printed="5",
          check=partial(check_number, exact=Fraction(training_tokens(8, 1, 8, 80 * 2**10, 1000), 10**9),
                        formula="8 GPUs x 8 micro-steps x 1000 steps x 81920 / 10^9"),
          statement="Training at 80K takes 5 billion tokens.", proof="The product of the stated settings, 5.24."),
    HOLDS(id="CCA.mixture", paper="CCA", place="Appendix B.2", check=check_sum,
          printed=(("67", "15", "4.5", "4.5", "4.5", "2.5", "2.0"), "100.0"),
          statement="SlimPajama is 67 + 15 % web, 4.5 % each code, Wikipedia and books, 2.5 % Arxiv, 2 % Stack "
                    "Exchange.",
          proof="The shares add up, and 67 + 15 = 82 as stated."),
    HOLDS(id="DGA.averages", paper="DGA", place="Tables 1, 2, 7", printed=tables.DGA_AVERAGES, check=check_averages,
          statement="The column Avg. is the mean of the other scores.", proof="Recomputed from the printed scores."),
    HOLDS(id="DGA.speedups", paper="DGA", place="Sections 6.3 and 6.4", printed=tables.DGA_SPEEDUPS,
          check=check_ratios, statement="DGA decodes 2.42x, 3.55x, 3.28x and 2.72x faster at 16K.",
          proof="Quotients of the latencies in Tables 1 and 3, where DGA's own is 28.80 ms and 28.79 ms."),
    HOLDS(id="DGA.best", paper="DGA", place="Section 6.3, Table 2", printed=DGA_EM, check=check_best,
          statement="DGA-LLM has the highest exact match of the baselines at 4K, 16K and 32K.",
          proof="True among the efficient methods, which the paper calls baselines; vanilla attention is above all."),
    FALSE(id="DGA.2.4-3.5x", paper="DGA", place="Appendix F, Table 7", printed="3.5", corrected="2.4",
          check=partial(check_number, exact=Fraction("69.70") / Fraction("28.8"), formula="69.70/28.8"),
          statement="DGA stays 2.4 to 3.5x faster than vanilla self-attention (Table 2: 69.70 to 102.22 ms).",
          repair="2.4x faster than vanilla self-attention, 3.5x faster than LM-Infinite; the latencies are in Table 1.",
          proof="102.22 ms is LM-Infinite's latency, not that of vanilla self-attention."),
    HOLDS(id="DGA.table7", paper="DGA", place="Appendix F, Table 7", check=check_degrades,
          printed={"Multi-Doc. QA": ("3.58", "2.37"), "Code": ("53.45", "48.00")},
          statement="Removing complementary tokens degrades performance on tasks like Multi-Doc. QA, from 3.58 to "
                    "2.37, and Code, from 53.45 to 48.00.",
          proof="Both fall, few-shot learning too, and the average (21.14 to 20.33). Single-Doc. QA, summary and "
                "synthetic tasks rise, which the text leaves out when it calls these tokens critical. Four of the six "
                "numbers without them equal those of vanilla attention in Table 1: the row should be measured again."),
    HOLDS(id="DGA.longbench", paper="DGA", place="Appendix C.1", printed=(("14", "5", "2"), "21"), check=check_sum,
          statement="LongBench has 21 tasks: 14 English, 5 Chinese, 2 code.", proof="The parts add up."),
    HOLDS(id="LC.parameters", paper="LoCoCo", place="Section 4.1", printed="22",
          check=partial(check_number, exact=Fraction(kernel_parameters(), 10**6),
                        formula="32 layers x 256 features x 128 slots x kernel 21 / 10^6"),
          statement="The convolutional heads add 22 million parameters to LLaMA2-7B at M = 128.",
          proof="Keys and values of one head together have 256 features; all heads of a layer share one kernel."),
    HOLDS(id="LC.tokens", paper="LoCoCo", place="Section 3.3", printed="104",
          check=partial(check_number, exact=Fraction(training_tokens(1, 128, 1, 4096, 200), 10**6),
                        formula="200 steps x 128 sequences x 4096 / 10^6", agrees=cut_to),
          statement="The compressor is trained on 104 million tokens.",
          proof="The product of the settings of Section 4.1 is 104.86 million, cut after the third digit."),
    HOLDS(id="LC.share", paper="LoCoCo", place="Section 3.3", printed="0.0052",
          check=partial(check_number, exact=Fraction(104 * 100, 2 * 10**6), formula="100 x 104e6 / 2e12"),
          statement="104 million tokens are 0.0052 % of 2 trillion.", proof="Exact."),
    EXACT(id="LC.ratio", paper="LoCoCo", place="Section 4.1", verdict=Verdict.HOLDS_IF, check=check_compression,
          printed=lambda memory: "32", corrected=lambda memory: str(4096 // memory),
          statement="4096 tokens in a memory of 128, 256 or 512 are a compression of 32 : 1.",
          repair="32 : 1 for M = 128, 16 : 1 for 256 and 8 : 1 for 512; at most 27 : 1 for the 3482 tokens measured.",
          proof="4096/M. The abstract reports up to 3482 tokens in 128 slots, 27.2 : 1."),
    FALSE(id="LC.twice", paper="LoCoCo", place="Tables 2, 6, 7", check=check_same,
          printed={"H2O (Tables 2, 6)": ("3.5706", "3.5714"), "kernel 21 (Tables 6, 7)": ("3.5451", "3.53")},
          corrected={"LoCoCo with H2O (Tables 2, 6)": ("3.5414", "3.5414")},
          statement="(implied) The perplexities of LLaMA2-7B extended to 8192 agree wherever they are printed.",
          repair="LoCoCo with H2O is 3.5414 in both tables; the others differ, by 0.0008 and by 0.015.",
          proof="Table 7's kernel of 21 is the default, so it should repeat Table 6: neither 3.5451 nor 3.5414 rounds "
                "to 3.53. It also lists kernels up to 61 where the text says 3 to 21."),
)
