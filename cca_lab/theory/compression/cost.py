"""What LoCoCo's convolution costs, relative to attention and to a layer, directly and by Fourier transform.

Cai et al., ICML 2024, Section 3.2.2. The counts are the multiplications of the convolution (Eq. 6) and of attention
(scores and values), for M slots, B new tokens and 2 d channels of keys and values in each head. The softmax, the
normalisation of Eq. 7 and the mixing of Eq. 4 are left out; the mixing alone is M / B times the attention.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import log2

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.compression import KERNEL
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape

HEAD_DIM = 128
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


def check_overhead(ratio: Callable[[int, int, int], Fraction]) -> Finding:
    """Judge the ratio of convolution to attention by counts: M, B <= 4, kernels 1, 3, 5, head dims 1, 2, exact."""
    for slots, block, kernel, head_dim in product(range(1, 5), range(1, 5), (1, 3, 5), (1, 2)):
        convolution, attention = count_multiplications(slots, block, kernel, head_dim)
        if ratio(slots, block, kernel) != Fraction(convolution, attention):
            transform = by_fourier(512, 512) / attention_multiplications(512, 512, HEAD_DIM)
            return Finding(False, f"M={slots}, B={block}, kernel {kernel}: {convolution} multiplications against "
                                  f"{attention} of attention (M=B=512, kernel {KERNEL}: "
                                  f"{overhead(512, 512, KERNEL)} times as many, {transform:.1f} by Fourier transform)")
    paper = {f"M={m}, B={b}": float(ratio(m, b, KERNEL)) for m, b in SIZES}
    shown = "; ".join(f"{name}: {value:g}" for name, value in paper.items())
    return Finding(True, f"{shown} times the attention", paper)


CLAIMS = (
    Claim(
        id="LC.overhead", paper="LoCoCo", place="Section 3.2.2", check=check_overhead,
        statement="with negligible computational overhead, LoCoCo achieves constant memory",
        printed=lambda slots, block, kernel: Fraction(0), corrected=overhead, verdict=Verdict.DEPENDS,
        strength=Strength.EXACT,
        repair="directly, the convolution takes 21 M / B times the multiplications of attention (scores and values); "
               "by Fourier transform, which the paper names, about 2 M / B. Of a LLaMA2-7B layer that is 13 % or 1.4 % "
               "for M=128, B=512, and 84 % or 8 % for M=B=512; for B=1 it is more than the layer in both ways",
        proof="Convolution: M outputs at M+B positions, 21 taps of 2 d channels: 42 d M (M+B). Attention of a block: B "
              "queries, M+B entries, d for q k and d for the values: 2 d B (M+B). The quotient is 21 M / B. By "
              "transform, 2 d M products of spectra of (M+B)/2 complex numbers take 4 d M (M+B), and the transforms "
              "little more. A layer: 4 width^2 + 3 width inner for each token, and attention. The paper's O(L log L) "
              "is right in L; its constant holds the 2 d M pairs of channels."),
)
