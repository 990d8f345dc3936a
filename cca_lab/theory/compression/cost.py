"""What LoCoCo's convolution costs, relative to attention and to a layer, directly and by Fourier transform.

Cai et al., ICML 2024, Section 3.2.2. The counts are the multiplications of the convolution (Eq. 6) and of attention
(scores and values), for M slots, B new tokens and 2 d channels of keys and values in each head. The softmax, the
normalisation of Eq. 7 and the mixing of Eq. 4 are left out; the mixing alone is M / B times the attention.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import log2
from typing import NamedTuple

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.compression.convolution import KERNEL
from cca_lab.theory.compression.memory import CLAIMS as MEMORY
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape

HEAD_DIM = 128
NEGLIGIBLE = 0.1  # of a layer: our limit, not the paper's
SIZES = ((128, 512), (512, 512), (128, 1))  # (M, B) of Section 4.1; B = 1 in generation (Section 3.3)


class Counted(int):
    """An integer that counts the multiplications in which it takes part."""

    multiplications = 0

    def __mul__(self, other: int) -> "Counted":
        Counted.multiplications += 1
        return Counted(int(self) * int(other))


def count_multiplications(slots: int, block: int, kernel: int, head_dim: int) -> tuple[int, int]:
    """Return the multiplications (convolution, attention) of Eq. 6 and one block of attention, by running them."""
    entries = [[Counted(1)] * (2 * head_dim) for _ in range(slots + block)]
    pad = [[Counted(0)] * (2 * head_dim)] * (kernel // 2)
    padded = [*pad, *entries, *pad]
    Counted.multiplications = 0
    for _, position, tap in product(range(slots), range(slots + block), range(kernel)):
        sum(x * 1 for x in padded[position + tap])
    convolution, Counted.multiplications = Counted.multiplications, 0
    for _, entry in product(range(block), entries):
        sum(x * 1 for x in entry)              # q . k over head_dim, and weight times v over head_dim
    return convolution, Counted.multiplications


def overhead(slots: int, block: int, kernel: int) -> Fraction:
    """Return the multiplications of the convolution over those of the attention: kernel M / B."""
    return Fraction(kernel * slots, block)


def attention_multiplications(slots: int, block: int, head_dim: int) -> int:
    """Return the multiplications of one head's attention on a block: B queries, M + B entries, d for q k, d for v."""
    return 2 * head_dim * block * (slots + block)


def direct(slots: int, block: int, kernel: int = KERNEL, head_dim: int = HEAD_DIM) -> int:
    """Return the multiplications of one head's convolution, tap by tap."""
    return kernel * 2 * head_dim * slots * (slots + block)


def by_fourier(slots: int, block: int, kernel: int = KERNEL, head_dim: int = HEAD_DIM) -> float:
    """Return the multiplications of one head's convolution by Fourier transform, with the kernels' spectra stored.

    With n = M + B + kernel - 1 padded entries: 2 d M products of spectra of n/2 + 1 complex numbers, 4 real
    multiplications each, and 2 d + M real transforms of about n log2 n.
    """
    padded = slots + block + kernel - 1
    return 4 * 2 * head_dim * slots * (padded // 2 + 1) + (2 * head_dim + slots) * padded * log2(padded)


def share_of_layer(convolution: Callable[[int, int], float], slots: int, block: int, shape: Shape = LLAMA2_7B) -> float:
    """Return the convolution's multiplications in all heads over those of a layer: linear maps, scores, values."""
    heads = shape.width // HEAD_DIM
    layer = block * shape.weights() // shape.layers + heads * attention_multiplications(slots, block, HEAD_DIM)
    return heads * convolution(slots, block) / layer


class Setting(NamedTuple):
    """How the convolution is computed, and for which sizes.

    Attributes:
        way: (M, B) -> multiplications, `direct` or `by_fourier`.
        slots: M.
        block: B.
    """

    way: Callable[[int, int], float]
    slots: int
    block: int


def check_overhead(setting: Setting) -> Finding:
    """Judge whether the convolution takes at most a tenth of the multiplications of a LLaMA2-7B layer."""
    way, slots, block = setting
    share = share_of_layer(way, slots, block)
    to_attention = way(slots, block) / attention_multiplications(slots, block, HEAD_DIM)
    return Finding(share <= NEGLIGIBLE, f"M={slots}, B={block}: {100 * share:.3g} % of the multiplications of a layer "
                                        f"without it, and {to_attention:.3g} times those of its attention",
                   {"percent": 100 * share, "to attention": to_attention})


CLAIMS = (
    Claim(
        id="LC.overhead", paper="LoCoCo", place="Section 3.2.2", check=check_overhead, verdict=Verdict.DEPENDS,
        quote=("With negligible computational overhead",
               r"whose computation complexity can be as cheap as $\mathcal{O}(L \log L)$ by Fourier transformation"),
        reading="The convolution takes few multiplications beside the rest of a layer [at most a tenth].",
        printed=Setting(direct, 512, 512), corrected=Setting(by_fourier, 128, 512), strength=Strength.ARITHMETIC,
        repaired=Strength.ARITHMETIC, weight=Weight.SUBSTANCE, formula=True,
        models={"tap by tap, M = 128, B = 512": (Setting(direct, 128, 512), False),
                "tap by tap, M = B = 512": (Setting(direct, 512, 512), False),
                "Fourier transform, M = 128, B = 512": (Setting(by_fourier, 128, 512), True),
                "Fourier transform, M = B = 512": (Setting(by_fourier, 512, 512), True),
                "Fourier transform, M = 128, B = 1 (generation)": (Setting(by_fourier, 128, 1), False)},
        repair="Tap by tap, the convolution takes 21 M / B times the multiplications of attention (scores and values); "
               "by Fourier transform, which the paper names, about 2 M / B. Of a LLaMA2-7B layer that is 13 % or 1.4 % "
               "for M=128, B=512, and 84 % or 8 % for M=B=512; for B=1 it is more than the layer in both ways.",
        proof="Convolution: M outputs at M+B positions, 21 taps of 2 d channels: 42 d M (M+B). Attention of a block: B "
              "queries, M+B entries, d for q k and d for the values: 2 d B (M+B). The quotient is 21 M / B. By "
              "transform, 2 d M products of spectra of (M+B)/2 complex numbers take 4 d M (M+B), and the transforms "
              "little more. A layer: 4 width^2 + 3 width inner for each token, and attention. The paper's O(L log L) "
              "is right in L; its constant holds the 2 d M pairs of channels.",
        example="""
d, heads, weights = 128, 32, 4 * 4096**2 + 3 * 4096 * 11008             # a layer of LLaMA2-7B
shares = {}
for M, B in ((128, 512), (512, 512), (128, 1)):
    convolution, attention = 21 * 2 * d * M * (M + B), 2 * d * B * (M + B)
    shares[M, B] = heads * convolution / (B * weights + heads * attention)
print(shares)
assert shares[512, 512] > 0.8 and shares[128, 1] > 10
"""),
    *MEMORY,
)
