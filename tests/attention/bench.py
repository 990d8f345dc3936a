"""What an interval attention must satisfy, as checks that take an implementation.

An implementation is anything called as attend(q, k, v, intervals, scale) -> (out, lse), as all
backends are. A check returns nothing, or raises AssertionError with the largest error and its
ratio.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.dense import dense_attention
from cca_lab.attention.intervals import visible_mask
from tests.mechanisms.bench import assert_close
from tests.strategies import Case, random_table

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


# ---------------------------------------------------------------- inputs

def case_of(intervals: Tensor, columns: int, *, batch: int = 1, heads: int = 2, key_heads: int = 1,
            head_dim: int = 4, scale: float = 0.5, seed: int = 0) -> Case:
    """Random float64 inputs for given intervals (b, h, L, n, 2)."""
    generator = torch.Generator().manual_seed(seed)
    rows = intervals.shape[2]
    q, k, v = (torch.randn(batch, n, length, head_dim, generator=generator, dtype=torch.float64)
               for n, length in ((heads, rows), (key_heads, columns), (key_heads, columns)))
    return Case(q, k, v, intervals, scale)


def ragged_case(rows: int = 9, columns: int = 12, **sizes: int) -> Case:
    """Two ragged intervals that differ per head, four heads on two KV heads."""
    generator = torch.Generator().manual_seed(3)
    intervals = torch.stack([random_table(rows, columns, 2, generator) for _ in range(4)])[None]
    return case_of(intervals, columns, heads=4, key_heads=2, **sizes)


def window_table(rows: int, window: int, step: int, cores: bool) -> Tensor:
    """(L, n, 2): a raw window that slides `step` rows at a time, and the cores behind it."""
    row = torch.arange(rows)
    left = torch.div((row + 1 - window).clamp(min=0), step, rounding_mode="floor")
    first = int(left[-1]) if cores else 0
    raw = torch.stack([first + left * step, first + row + 1], dim=-1)
    if not cores:
        return raw[:, None]
    return torch.stack([torch.stack([torch.zeros_like(left), left], dim=-1), raw], dim=1)


def window_case(rows: int = 60, window: int = 8, step: int = 4, cores: bool = True,
                **sizes: int) -> Case:
    """Sliding window, with cores as in CCA if asked; rows for parts of several blocks."""
    table = window_table(rows, window, step, cores)
    return case_of(table[None, None], int(table.max()), **sizes)


# ---------------------------------------------------------------- the specification


def in_halves(attend: Attend) -> Attend:
    """The same implementation, which gets keys and values as views of their halves."""
    def attend_halves(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        middle = k.shape[2] // 2
        return attend(q, *((x[:, :, :middle], x[:, :, middle:]) for x in (k, v)), *rest)

    return attend_halves


# ---------------------------------------------------------------- checks

def check_same(attend: Attend, case: Case, reference: Attend = dense_attention,
               tolerance: float = 1e-12) -> None:
    """Output and log-sum-exp equal the reference's."""
    got, wanted = (form(*case.tensors, case.intervals, case.scale) for form in (attend, reference))
    assert_close(got[0], wanted[0], "output", tolerance)
    assert_close(got[1], wanted[1], "lse", tolerance)


def check_gradients(attend: Attend, case: Case, through_lse: bool = False,
                    tolerance: float = 1e-12) -> None:
    """Gradients of q, k, v, through out and if asked through lse, equal the dense ones."""
    generator = torch.Generator().manual_seed(1)
    grad_out = torch.randn(case.q.shape, generator=generator, dtype=torch.float64)
    # it arrives in any order of strides
    grad_out = grad_out.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    grad_lse = torch.randn(case.q.shape[:3], generator=generator, dtype=torch.float64) * through_lse

    def gradients(form: Attend) -> tuple[Tensor, ...]:
        inputs = [x.detach().requires_grad_() for x in case.tensors]
        out, lse = form(*inputs, case.intervals, case.scale)
        objective = (out * grad_out).sum() + ((lse * grad_lse).sum() if through_lse else 0.0)
        return torch.autograd.grad(objective, inputs)

    for name, got, wanted in zip("qkv", gradients(attend), gradients(dense_attention), strict=True):
        assert_close(got, wanted, f"gradient of {name}", tolerance)


def check_matrix(attend: Attend, case: Case) -> None:
    """V = identity shows A: rows sum to 1, positive on exactly the declared columns."""
    columns = case.k.shape[2]
    # One feature per column; zeros appended to q and k leave the logits alone.
    widen = (0, max(0, columns - case.q.shape[3]))
    q, k = (torch.nn.functional.pad(x, widen) for x in (case.q, case.k))
    identity = torch.eye(columns, k.shape[3], dtype=q.dtype).expand(k.shape)
    matrix, _ = attend(q, k, identity, case.intervals, case.scale)
    matrix = matrix[..., :columns]
    assert_close(matrix.sum(-1), torch.ones_like(matrix[..., 0]), "row sums of A")
    declared = visible_mask(case.intervals, columns).expand(matrix.shape)
    wrong = ((matrix > 0) != declared).nonzero()
    assert len(wrong) == 0, ("A differs from the declared support at (b, h, row, column) "
                             f"{wrong[:3].tolist()}")


def check_hidden_columns(attend: Attend, case: Case) -> None:
    """Edits of a column leave every row that does not see it bit-equal, and move the others."""
    before, _ = attend(*case.tensors, case.intervals, case.scale)
    for column in range(case.k.shape[2]):
        k, v = case.k.clone(), case.v.clone()
        k[:, :, column] += 3.0
        v[:, :, column] -= 5.0
        after, _ = attend(case.q, k, v, case.intervals, case.scale)
        sees = visible_mask(case.intervals, k.shape[2])[..., column].expand(before.shape[:3])
        moved = (after != before).any(-1)
        wrong = (moved != sees).nonzero()[:3].tolist()
        assert torch.equal(moved,
                           sees), f"edits of column {column} move or spare (b, h, row) {wrong}"


def check_large_logits(attend: Attend, case: Case, size: float = 1e5) -> None:
    """Logits of +-1e5 give finite results: one-hot rows wherever one logit leads."""
    for sign in (1.0, -1.0):
        q, k = torch.full_like(case.q, 1.0), torch.full_like(case.k, sign * size / case.q.shape[3])
        k[..., ::3, :] *= 0.5
        large = Case(q, k, case.v, case.intervals, 1.0)
        # logits of 1e5 carry errors of 1e5 * D * 2^-52 = 1e-10
        check_same(attend, large, tolerance=1e-9)
        check_gradients(attend, large, tolerance=1e-6)


def check_row_layouts(attend: Attend, case: Case) -> None:
    """Views give what their copies give: stride 0, features outside, heads inside."""
    views = ([x[:, :, :1].expand(x.shape) for x in case.tensors],
             [x.mT.contiguous().mT for x in case.tensors],
             [x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for x in case.tensors])
    for q, k, v in views:
        view, copy = Case(q, k, v, case.intervals, case.scale), [x.contiguous() for x in (q, k, v)]
        got, _ = attend(*view.tensors, case.intervals, case.scale)
        wanted, _ = attend(*copy, case.intervals, case.scale)
        assert_close(got, wanted, "view against copy")
        check_gradients(attend, view)
