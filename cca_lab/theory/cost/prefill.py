"""LLaMA2-7B at 128K tokens: bytes of the KV cache, floating-point operations of the prefill, Amdahl's law.

A prefill multiplies every token by the weights, and computes two products for every query-key pair (scores, values):

    operations(L) = 2 W L + 4 layers width pairs,    W = layers (4 width^2 + 3 width inner).

The language-model head reads one token and is left out, as are normalisations and softmax.
"""

from dataclasses import dataclass
from fractions import Fraction

from cca_lab.mechanisms import groups
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.cost import full_pairs

GIB = 2**30
CONTEXT = 2**17  # "128K"
GROUP, WINDOW = 16, 1024


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
    return amdahl(share, gain), 1 / (1 - share)


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


def check_speedup(claimed: float) -> Finding:
    """Compare a speed-up attributed to less computation with the one that the operations allow, to 0.05."""
    expected, cap = prefill_speedup()
    return Finding(abs(claimed - expected) <= 0.05,
                   f"operations fall {float(expected):.2f}x at 128K, and {float(cap):.2f}x if attention were free; "
                   f"claimed {claimed:g}x", {"expected": float(expected), "cap": float(cap)})


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="P1c.kv", paper="CCA", place="Section 4.4, Figure 4", strength=Strength.EXACT, verdict=Verdict.HOLDS,
        statement="At 128K tokens the KV cache of LLaMA2-7B falls from 64 GB to 4.5 GB.",
        printed=(64.0, 4.5), corrected=None, check=check_cache, repair="",
        proof="2 x 32 layers x 4096 x 2 bytes = 512 KiB a token; 131072/16 cores and 1024 raw tokens are 9216 "
              "entries. Both numbers are exact in GiB. At other lengths up to 15 more raw tokens (7.5 MiB) wait for "
              "their group to close."),
    Claim(
        id="P1c.93", paper="CCA", place="poster", strength=Strength.EXACT, verdict=Verdict.HOLDS,
        statement="The KV cache shrinks by 93 % at 128K tokens.",
        printed=93.0, corrected=None, check=check_saving, repair="",
        proof="1 - 1/16 - 1024/131072 = 119/128. The cache only: with the weights, Table 1 reports 44 % less memory "
              "at 64K."),
    Claim(
        id="P1c.amdahl", paper="CCA", place="Sections 3.6 and 4.4", strength=Strength.EXACT, verdict=Verdict.DEPENDS,
        statement="The 7.9x speed-up of the 128K prefill comes from the reduced computational complexity.",
        printed=7.9, corrected=3.03, check=check_speedup,
        repair="At equal efficiency of the kernels the operations explain 3.03x, and 3.65x is the cap; the rest of the "
               "measured 124.85 s / 15.89 s needs another cause, such as a baseline with less efficient attention.",
        proof="W = 6.48e9: the linear maps cost 1.70e15 operations, causal attention 4.50e15, CCA-Attention 0.35e15. "
              "By Amdahl's law (1.70 + 4.50)/(1.70 + 0.35) = 3.03. A baseline that computes the full square instead of "
              "its causal half would explain 5.2x of it."),
)
