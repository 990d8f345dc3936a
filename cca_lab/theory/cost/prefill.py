"""LLaMA2-7B at 128K tokens: bytes of the KV cache, operations of the prefill, Amdahl's law.

A prefill multiplies every token by the weights, and computes two products for every query-key pair
(scores, values):

    operations(L) = 2 W L + 4 layers width pairs,    W = layers (4 width^2 + 3 width inner).

The language-model head reads one token and is left out, as are normalisations and softmax.
"""

from dataclasses import dataclass
from fractions import Fraction

from cca_lab.mechanisms.cca import groups
from cca_lab.theory.cost.pairs import full_pairs

CONTEXT = 2**17  # "128K"
GROUP, WINDOW = 16, 1024


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer with gated feed-forward blocks."""

    layers: int
    width: int  # of the residual stream, and of queries, keys and values
    inner: int  # width of the feed-forward block, which has three matrices
    bytes_each: int = 2  # of a stored number

    def kv_bytes(self, tokens: int) -> int:
        """Return the bytes of keys and values of all layers for this number of cached tokens."""
        return 2 * self.layers * self.width * self.bytes_each * tokens

    def weights(self) -> int:
        """Return W, the parameters of all linear maps that every token passes through."""
        return self.layers * (4 * self.width**2 + 3 * self.width * self.inner)

    def prefill_operations(self, length: int, pairs: int) -> int:
        """Return the floating-point operations of a prefill with this number of pairs."""
        return 2 * self.weights() * length + 4 * self.layers * self.width * pairs


LLAMA2_7B = Shape(layers=32, width=4096, inner=11008)


def amdahl(share: float | Fraction, gain: float | Fraction) -> float | Fraction:
    """Return 1 / (1 - share + share/gain), the speed-up if a share is `gain` times as fast."""
    return 1 / (1 - share + share / gain)


def cache_bytes(length: int = CONTEXT, shape: Shape = LLAMA2_7B) -> tuple[int, int]:
    """Return the bytes of the KV cache of full attention and of CCA-Attention."""
    return shape.kv_bytes(length), shape.kv_bytes(groups.cache_tokens(length, GROUP, WINDOW))


def prefill_speedup(length: int = CONTEXT, shape: Shape = LLAMA2_7B) -> tuple[Fraction, Fraction]:
    """Return the prefill's speed-up at one rate for all operations, and if attention is free."""
    attention = 4 * shape.layers * shape.width
    before = shape.prefill_operations(length, full_pairs(length))
    share = Fraction(attention * full_pairs(length), before)
    gain = Fraction(full_pairs(length), groups.pairs(length, GROUP, WINDOW))
    return Fraction(amdahl(share, gain)), 1 / (1 - share)
