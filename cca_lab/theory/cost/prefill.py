"""LLaMA2-7B at 128K tokens: bytes of the KV cache, floating-point operations of the prefill, Amdahl's law.

A prefill multiplies every token by the weights, and computes two products for every query-key pair (scores, values):

    operations(L) = 2 W L + 4 layers width pairs,    W = layers (4 width^2 + 3 width inner).

The language-model head reads one token and is left out, as are normalisations and softmax.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from cca_lab.mechanisms.cca import groups
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.cost.pairs import full_pairs

GIB = 2**30
CONTEXT = 2**17  # "128K"
GROUP, WINDOW = 16, 1024
SECONDS = Fraction("124.85"), Fraction("15.89")  # measured: full self-attention, CCA-Attention
GPU = 80         # GB of an A800


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer with gated feed-forward blocks.

    Attributes:
        layers: number of blocks.
        width: residual width, which queries, keys and values have too.
        inner: inner width of the feed-forward block, which has three matrices.
        bytes_each: bytes of a stored number.
    """

    layers: int
    width: int
    inner: int
    bytes_each: int = 2

    def kv_bytes(self, tokens: int) -> int:
        """Return the bytes of keys and values of all layers for this number of cached tokens."""
        return 2 * self.layers * self.width * self.bytes_each * tokens

    def weights(self) -> int:
        """Return W, the parameters of all linear maps that every token passes through."""
        return self.layers * (4 * self.width**2 + 3 * self.width * self.inner)

    def prefill_operations(self, length: int, pairs: int) -> int:
        """Return the floating-point operations of a prefill whose attention computes this number of pairs."""
        return 2 * self.weights() * length + 4 * self.layers * self.width * pairs


LLAMA2_7B = Shape(layers=32, width=4096, inner=11008)


def amdahl(share: float | Fraction, gain: float | Fraction) -> float | Fraction:
    """Return the total speed-up if a share of the work is `gain` times as fast: 1 / (1 - share + share/gain)."""
    return 1 / (1 - share + share / gain)


def cache_bytes(length: int = CONTEXT, shape: Shape = LLAMA2_7B) -> tuple[int, int]:
    """Return the bytes of the KV cache of full attention, and of CCA-Attention with the paper's g and s."""
    return shape.kv_bytes(length), shape.kv_bytes(groups.cache_tokens(length, GROUP, WINDOW))


def prefill_speedup(length: int = CONTEXT, shape: Shape = LLAMA2_7B) -> tuple[Fraction, Fraction]:
    """Return the speed-up of the prefill by CCA-Attention, if every operation takes equally long, and its limit.

    The limit is the speed-up if attention cost nothing.
    """
    attention = 4 * shape.layers * shape.width
    before = shape.prefill_operations(length, full_pairs(length))
    share = Fraction(attention * full_pairs(length), before)
    gain = Fraction(full_pairs(length), groups.pairs(length, GROUP, WINDOW))
    return Fraction(amdahl(share, gain)), 1 / (1 - share)


class Baseline(NamedTuple):
    """How the full self-attention that is compared with computes its scores.

    Attributes:
        square: all L^2 pairs instead of the causal half.
        slower: how many times as long one of its operations takes as any other.
    """

    square: bool = False
    slower: Fraction = Fraction(1)


def explained(baseline: Baseline, length: int = CONTEXT, shape: Shape = LLAMA2_7B) -> Fraction:
    """Return the speed-up of the prefill against such a baseline; with `Baseline()` that of `prefill_speedup`."""
    linear = shape.prefill_operations(length, 0)
    pairs = length**2 if baseline.square else full_pairs(length)
    full = shape.prefill_operations(length, pairs) - linear
    return (linear + baseline.slower * full) / Fraction(
        shape.prefill_operations(length, groups.pairs(length, GROUP, WINDOW)))


SLOW = Baseline(slower=Fraction(16, 5))


def stages(length: int, group: int, window: int, shape: Shape = LLAMA2_7B) -> tuple[Fraction, Fraction]:
    """Return how many times fewer operations the prefill takes, and fewer entries the next token reads."""
    before, after = (shape.prefill_operations(length, pairs)
                     for pairs in (full_pairs(length), groups.pairs(length, group, window)))
    read = groups.pairs(length + 1, group, window) - groups.pairs(length, group, window)
    return Fraction(before, after), Fraction(length + 1, read)


class Memory(NamedTuple):
    """What is printed of the memory of full self-attention.

    Attributes:
        cache_128k: GB of the cache at 128K tokens, if printed.
        total_64k: GB of everything at 64K tokens, if printed.
        gpus: how many share it.
    """

    cache_128k: str = "0"
    total_64k: str = "0"
    gpus: int = 1


# ---------------------------------------------------------------- checks

def check_cache(printed: tuple[float, float]) -> Finding:
    """Compare claimed sizes of the two caches with the exact ones, in GiB to one decimal."""
    exact = [Fraction(size, GIB) for size in cache_bytes()]
    agrees = all(abs(Fraction(claimed) - size) <= Fraction(1, 20) for claimed, size in zip(printed, exact, strict=True))
    return Finding(agrees, f"131072 tokens x 512 KiB = {float(exact[0]):g} GiB; CCA keeps {CONTEXT // GROUP} cores and "
                           f"{WINDOW} raw tokens: {float(exact[1]):g} GiB; claimed {printed[0]:g} and {printed[1]:g}",
                   {"full": float(exact[0]), "cca": float(exact[1])})


def check_saving(percent: float) -> Finding:
    """Compare a claimed reduction of the cache with the exact one, to the nearest percent."""
    full, cca = cache_bytes()
    saving = 1 - Fraction(cca, full)
    return Finding(abs(100 * saving - Fraction(percent)) <= Fraction(1, 2),
                   f"1 - {Fraction(cca, full)} = {float(100 * saving):.2f} %; claimed {percent:g} %",
                   {"percent": float(100 * saving)})


def check_speedup(baseline: Baseline) -> Finding:
    """Compare the measured speed-up with the one that less computation explains against such a baseline, to 0.05."""
    expected, cap = explained(baseline), prefill_speedup()[1]
    measured = SECONDS[0] / SECONDS[1]
    return Finding(abs(expected - measured) <= Fraction(1, 20),
                   f"fewer pairs explain {float(expected):.2f}x of the measured {float(measured):.2f}x at 128K; "
                   f"attention for free would bring {float(cap):.2f}x if all operations took equally long",
                   {"expected": float(expected), "cap": float(cap)})


def check_stages(setting: tuple[int, int]) -> Finding:
    """Judge whether both stages take less from 4K to 128K with these g and s."""
    fewer = {length: stages(length * 2**10, *setting) for length in (4, 8, 16, 32, 64, 128)}
    shown = "; ".join(f"{length}K: {float(first):.2f}x, {float(other):.1f}x"
                      for length, (first, other) in fewer.items() if length in (4, 32, 128))
    return Finding(all(min(pair) > 1 for pair in fewer.values()),
                   f"operations of the prefill, entries that a generated token reads: {shown} fewer",
                   {"prefill at 4K": float(fewer[4][0]), "decoding at 4K": float(fewer[4][1])})


def check_one_gpu(memory: Memory) -> Finding:
    """Judge whether full self-attention fits at 128K: what it takes at 64K, and the cache of 64K more tokens."""
    cache, total = Fraction(memory.cache_128k), Fraction(memory.total_64k)
    needed = total + cache / 2 if cache and total else max(cache, total)
    printed = (total, "in all at 64K"), (cache, "of cache at 128K")
    shown = ", ".join(f"{float(size):g} GB {what}" for size, what in printed if size)
    return Finding(needed <= memory.gpus * GPU, f"{shown}: {float(needed):g} GB or more, and {memory.gpus} x {GPU} GB",
                   {"GB": float(needed)})


CCA = partial(Claim, paper="CCA", strength=Strength.ARITHMETIC)
CLAIMS: tuple[Claim, ...] = (
    CCA(
        id="P1c.kv", place="Section 4.4", verdict=Verdict.HOLDS, printed=(64.0, 4.5), check=check_cache,
        quote="a reduced KV cache memory usage than LLaMA2-7B-80K (4.5GB *vs.* 64GB in 128K context)",
        reading="The cache takes 64 GB with full self-attention and 4.5 GB with CCA-Attention [GB of 2^30 bytes, 16 "
                "bits a number, g = 16, s = 1024].",
        proof="2 x 32 layers x 4096 x 2 bytes = 512 KiB a token; 131072/16 cores and 1024 raw tokens are 9216 "
              "entries. Both numbers are exact in GiB. At other lengths up to 15 more raw tokens (7.5 MiB) wait for "
              "their group to close."),
    CCA(
        id="P1c.93", place="Poster", verdict=Verdict.HOLDS, printed=93.0, check=check_saving,
        quote="**93**% **KV cache memory reduction** compared to full self-attention when processing 128K token "
              "contexts",
        reading="The cache shrinks by 93 % at 128K tokens.",
        proof="1 - 1/16 - 1024/131072 = 119/128. The cache only: with the weights, Table 1 reports 44 % less memory "
              "at 64K."),
    CCA(
        id="P1c.amdahl", place="Section 3.6; Section 4.4", verdict=Verdict.DEPENDS, check=check_speedup,
        repaired=Strength.ARITHMETIC, weight=Weight.SUBSTANCE, printed=Baseline(),
        quote=("Acceleration via Reduced Computational Complexity",
               r"our CCA-Attention achieves a $7.9\times$ inference speedup than LLaMA2-7B-80K"),
        reading="The speed-up of the prefill at 128K, 124.85 s over 15.89 s, comes from the reduced complexity: from "
                "fewer pairs.",
        models={"operations that all take equally long": (Baseline(), False),
                "a baseline that computes the full square": (Baseline(square=True), False),
                "a baseline whose attention takes 3.2 times as long an operation": (SLOW, True)}, corrected=SLOW,
        repair="At equal efficiency fewer pairs explain 3.03x, and 3.65x is the cap. All of it follows if an operation "
               "of the baseline's attention takes 3.2 times as long as any other.",
        proof="W = 6.48e9: the linear maps cost 1.70e15 operations, causal attention 4.50e15, CCA-Attention 0.35e15. "
              "By Amdahl's law (1.70 + 4.50)/(1.70 + 0.35) = 3.03. The measured times are 50e12 operations a second "
              "for the baseline and 129e12 for CCA-Attention; which kernel the baseline ran is not said. The same 3.2 "
              "gives 2.9x and 4.7x at 32K and 64K, where Table 1 measured 3.5x and 5.1x.",
        example="""
linear = 2 * 32 * (4 * 4096**2 + 3 * 4096 * 11008) * 131072             # LLaMA2-7B without its head
full, cca = (4 * 32 * 4096 * pairs for pairs in (131072 * 131073 // 2, 663127488))
print((linear + full) / (linear + cca), (linear + full) / linear, 124.85 / 15.89)
assert (linear + full) / linear < 124.85 / 15.89 / 2                    # attention for free explains less than half
"""),
    CCA(
        id="P1c.stages", place="Section 4.4", verdict=Verdict.HOLDS, printed=(GROUP, WINDOW), check=check_stages,
        quote="our CCA-LLM is able to accelerate both pre-filling and decoding stages with reduced KV cache",
        reading="From 4K to 128K [with g = 16 and s = 1024] the prefill takes fewer operations, and a generated token "
                "reads fewer entries.",
        proof="Of LLaMA2-7B. At 4K little is saved in the prefill, for most of its work is in the linear maps."),
    CCA(
        id="CCA.a800", place="Section 4.4; Table 1", verdict=Verdict.INCONSISTENT, check=check_one_gpu,
        repaired=Strength.ARITHMETIC, weight=Weight.SLIP, root="CCA.devices",
        quote=("during forward-propagation on a single NVIDIA A800 GPU", "4.5GB *vs.* 64GB in 128K context",
               "59.16 22.42 32.43 60.03"),
        reading="Full self-attention runs at 128K on one A800 [of 80 GB], with a cache of 64 GB; at 64K it takes 60.03 "
                "GB.",
        printed=Memory("64", "60.03"), sides={"Section 4.4": Memory("64"), "Table 1": Memory(total_64k="60.03")},
        corrected=Memory("64", "60.03", gpus=2), repair="On two, as Table 3 says, it can fit.",
        proof="From 64K to 128K the cache alone grows by 32 GB: 92 GB and more activations. This holds whether a GB is "
              "10^9 or 2^30 bytes. Weights and cache alone, 12.6 and 64 GiB, would fit in 80 GiB, so Table 1 is "
              "needed.",
        example="""
at_64k, cache_at_128k = 60.03, 64
print(at_64k + cache_at_128k / 2)
assert at_64k + cache_at_128k / 2 > 80
"""),
)
