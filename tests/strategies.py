"""Hypothesis strategies of awkward attention inputs: ragged intervals, grouped heads, strides."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """Inputs of one call: q (B, H, L, D), k and v (B, Hk, N, D), intervals (b, h, L, n, 2)."""

    q: Tensor
    k: Tensor
    v: Tensor
    intervals: Tensor
    scale: float

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v


LAYOUTS = ("contiguous", "heads last", "heads innermost", "every other row", "features outside",
           "one row", "one batch and head")


def laid_out(shape: tuple[int, ...], layout: str, generator: torch.Generator) -> Tensor:
    """A random float64 tensor of `shape` (B, H, L, D) whose memory is laid out in the way named."""
    batch, heads, length, head_dim = shape

    def randn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    match layout:
        case "contiguous":
            return randn(*shape)
        case "heads last":
            return randn(batch, length, heads, head_dim).transpose(1, 2)
        case "heads innermost":
            return randn(batch, length, head_dim, heads).permute(0, 3, 1, 2)
        case "every other row":
            return randn(batch, heads, 2 * length, head_dim)[:, :, ::2]
        case "features outside":
            return randn(batch, heads, head_dim, length).mT
        case "one row":
            return randn(batch, heads, 1, head_dim).expand(shape)
        case "one batch and head":
            return randn(1, 1, length, head_dim).expand(shape)
    raise ValueError(layout)


def random_table(rows: int, columns: int, intervals: int, generator: torch.Generator) -> Tensor:
    """Random valid intervals (L, n, 2); sorting along rows, then in each row, keeps both orders."""
    points = torch.randint(0, columns, (rows, 2 * intervals), generator=generator)
    points = points.sort(dim=0).values.sort(dim=1).values
    points[:, -1] += 1  # so that no row is empty
    order = torch.randperm(intervals, generator=generator)
    return points.unflatten(1, (intervals, 2))[:, order]


@st.composite
def tables(draw: st.DrawFn, most_rows: int = 40, most_columns: int = 40) -> tuple[Tensor, int]:
    """One head's intervals (L, n, 2), and the number of columns."""
    rows, columns = draw(st.integers(1, most_rows)), draw(st.integers(1, most_columns))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    return random_table(rows, columns, draw(st.integers(1, 4)), generator), columns


@st.composite
def cases(draw: st.DrawFn, most_rows: int = 20, most_columns: int = 20) -> Case:
    """Any inputs that interval attention promises to take, in float64."""
    rows, columns = draw(st.integers(1, most_rows)), draw(st.integers(1, most_columns))
    batch, key_heads, share, head_dim = (draw(st.integers(1, most)) for most in (2, 2, 3, 5))
    heads = key_heads * share
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    q = laid_out((batch, heads, rows, head_dim), draw(st.sampled_from(LAYOUTS)), generator)
    k, v = (laid_out((batch, key_heads, columns, head_dim), draw(st.sampled_from(LAYOUTS)),
                     generator) for _ in range(2))
    of_batch, of_heads = draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads]))
    count = draw(st.integers(1, 4))
    each = [random_table(rows, columns, count, generator) for _ in range(of_batch * of_heads)]
    intervals = torch.stack(each).unflatten(0, (of_batch, of_heads))
    return Case(q, k, v, intervals, draw(st.sampled_from([0.3, 1.0, -0.5])))
