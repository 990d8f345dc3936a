"""P_sparse on the heads of a model, and its prediction for independent Gaussian logits.

The row of length L is the query at token L, which attends to L tokens (DGA, Section 6.2 and
Appendix C.4). Its logits are, up to a constant, the logarithms of its weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.attention import statistics as analysis
from cca_lab.models import attention_maps

RATES = (0.05, 0.02, 0.01)  # those of the paper's Figures 2(b), 2(c) and 7
SHORTEST, LONGEST, STEP = 100, 1000, 16


@dataclass(frozen=True)
class HeadRows:
    """Statistics of single rows, (texts, layers, H, n) float64 each, n lengths."""

    lengths: Tensor  # (n,) int64, tokens each row attends to
    largest: Tensor  # the largest weight
    k90: Tensor  # number of keys with 90 % of the weight
    effective: Tensor  # effective number of tokens, exp of the entropy
    variance: Tensor  # of the row's logits, over its tokens
    zeros: Tensor  # share of weights that are 0 in the model's precision; not in the variance

    def p_sparse(self, rho: float) -> Tensor:
        """Return the share of texts whose row is rho-sparse, (layers, H, n); see `p_sparse`."""
        return p_sparse(self.largest, self.lengths, rho)

    @property
    def tau(self) -> Tensor:
        """The spread of a head's logits, (layers, H): root of the mean variance of its rows.

        A row's mean cancels in the softmax, so only the spread within a row counts.
        """
        return self.variance.mean(dim=(0, -1)).sqrt()

    @property
    def tau_entropy(self) -> Tensor:
        """Tau of a long Gaussian row with the head's entropy, (layers, H): tau^2 / 2 = ln L - H.

        Not in the paper. The variance counts tokens of negligible weight too; the entropy does not.
        """
        return (2 * (self.lengths.double().log() - self.effective.log()).mean(dim=(0, -1))).sqrt()


def p_sparse(largest: Tensor, lengths: Tensor, rho: float) -> Tensor:
    """Estimate P_sparse(L, rho): the share of texts with a weight over 1/(L rho) (Theorem 1).

    Args:
        largest: (texts, ..., n) largest weight of each row.
        lengths: (n,) tokens each row attends to.
        rho: the sparse rate.

    Returns:
        (..., n) float64; 0 wherever L rho <= 1, for any model.
    """
    return (largest.double() * lengths * rho > 1).double().mean(dim=0)


def row_lengths(context: int) -> Tensor:
    """Return the lengths to measure: 100, 116, ... up to the context, at most 1000."""
    last = min(LONGEST, context)
    if last <= SHORTEST:
        raise ValueError(
            f"context: got {context} tokens, wanted over {SHORTEST}, where the paper's curves "
            "start; "
            "use a model or a length that reads more")
    return torch.tensor([*range(SHORTEST, last, STEP), last])


def row_statistics(maps: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """Return statistics of rows: largest, k90, effective tokens, variance, share of zeros.

    Args:
        maps: (..., L, L) causal maps whose rows sum to 1.
        lengths: (n,) row lengths, each from 2 to L.

    Returns:
        Five tensors (..., n) float64, as in `HeadRows`.
    """
    rows = maps[..., lengths - 1, :].double()  # (..., n, L)
    readable = torch.arange(maps.shape[-1]) < lengths[:, None]  # (n, L)
    known = readable & (rows > 0)
    count = known.sum(dim=-1)  # (..., n)
    logits = torch.where(known, rows, 1.0).log()  # 0 where the weight is left out
    mean = logits.sum(dim=-1) / count
    squares = torch.where(known, logits - mean[..., None], 0.0).square()
    return (rows.amax(dim=-1), analysis.k90(rows).double(), analysis.effective_tokens(rows),
            squares.sum(dim=-1) / count, 1 - count / lengths)


def measure(model: PreTrainedModel, texts: Tensor, lengths: Tensor | None = None,
            progress: Callable[[float, str], None] | None = None) -> HeadRows:
    """Measure rows of every head on texts (count, length); progress(texts done, "") after each."""
    lengths = row_lengths(texts.shape[1]) if lengths is None else lengths
    if lengths.min() < 2 or lengths.max() > texts.shape[1]:
        raise ValueError(
            f"lengths: got {lengths.min()} to {lengths.max()}, wanted 2 to {texts.shape[1]}, the "
            "length "
            "of the texts")
    found = []
    for done, text in enumerate(texts, start=1):
        found.append(row_statistics(attention_maps(model, text).cpu(), lengths))
        if progress:
            progress(done, "")
    return HeadRows(lengths, *(torch.stack(values) for values in zip(*found, strict=True)))
