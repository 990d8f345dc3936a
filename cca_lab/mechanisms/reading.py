"""Find what the rows of any mechanism read from its matrix E alone, by the choice of queries.

E = A P, where A holds the weights of the columns that a row sees and P the tokens of each column. A
query of zeros gives all columns the same weight, so that E shows the sum of their rows of P. The
tokens of one column keep their proportions for every query, which tells columns apart.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.base import Mechanism


def held(mechanism: Mechanism, q: Tensor, k: Tensor, *, scale: float | None = None,
         rotation: Rotation | None = None) -> Tensor:
    """Return how much of each token is in the columns that a row sees.

    Row i of the result comes from a forward pass in which only the query of row i is zero. All else
    (groups, pooling weights, the choice of tokens) follows from q and k.

    Args:
        mechanism: with its options.
        q, k: (1, H, L, D) and (1, Hk, L, D).
        scale, rotation: as in `Mechanism.attention`.

    Returns:
        (H, L, L): 1 for a raw token, the pooling weight for a pooled one (summed, if several
        columns contain it), 0 for a token that is not represented.
    """
    length = q.shape[2]
    rows = torch.arange(length, device=q.device)
    queries, keys = q.expand(length, -1, -1, -1).clone(), k.expand(length, -1, -1, -1)
    frozen = with_choice(mechanism, queries, keys, scale, rotation)
    queries[rows, :, rows] = 0
    weights = mechanism.effective(queries, keys, **frozen)[rows, :, rows].movedim(1, 0)  # (H, L, L)
    own = weights.diagonal(dim1=-2, dim2=-1)
    return weights / torch.where(own > 0, own, weights.amax(-1))[..., None]  # 1 for a raw column


def columns_of_row(mechanism: Mechanism, q: Tensor, k: Tensor, row: int, head: int = 0, *,
                   scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """Return the pooling matrix of the columns that a row sees: the weights of the tokens in each.

    The row gets two random queries. Tokens whose weights change by the same factor are in one
    column.

    Args:
        mechanism, q, k, scale, rotation: as in `held`.
        row: the row.
        head: the query head.

    Returns:
        (columns, L): rows sum to 1, in the order of their first tokens. Columns with the same
        proportions of the same tokens count as one, and so do columns that share tokens.
    """
    queries, keys = q.expand(2, -1, -1, -1).clone(), k.expand(2, -1, -1, -1)
    frozen = with_choice(mechanism, queries, keys, scale, rotation)
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(2, q.shape[1], q.shape[3], generator=generator, dtype=torch.float64)
    queries[:, :, row] = tried.to(queries)
    one, other = mechanism.effective(queries, keys, **frozen)[:, head, row].double()  # (L,) each
    columns: list[list[int]] = []
    for token in one.nonzero().flatten().tolist():
        factor = one[token] / other[token]
        own = [members for members in columns
               if abs(one[members[0]] / other[members[0]] / factor - 1) < 1e-4]
        if own:
            own[0].append(token)
        else:
            columns.append([token])
    pooling = torch.zeros(len(columns), len(one), dtype=torch.float64)
    for column, members in enumerate(columns):
        pooling[column, members] = one[members].cpu() / one[members].sum().cpu()
    return pooling


def with_choice(mechanism: Mechanism, q: Tensor, k: Tensor, scale: float | None,
                rotation: Rotation | None) -> dict[str, Any]:
    """Return the keywords of a call, with the choice of tokens fixed if the mechanism makes one."""
    return {"scale": scale, "rotation": rotation, "selection": mechanism.select(q, k, scale=scale)}
