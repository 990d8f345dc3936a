"""What the rows of any mechanism read, found from outside: from its matrix E alone, with chosen queries.

E = A P, where A weighs the columns a row sees and P says which tokens each column is made of. A query of
zeros weighs all columns alike, which leaves the sum of P's rows; and tokens inside one column keep their
proportions whatever the query is, which tells the columns apart.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.mechanisms.mechanism import Mechanism


def held(mechanism: Mechanism, q: Tensor, k: Tensor, **options: Any) -> Tensor:
    """Return how much of each token is in the columns that a row sees.

    Row i of the result comes from a forward in which the query of row i, and only that, is zero: everything
    else, groups, weights of the pooling, the choice of tokens, is that of q and k.

    Args:
        mechanism: a row of `MECHANISMS`.
        q, k: (1, H, L, D) and (1, Hk, L, D).
        options: of the mechanism, and `scale` or `rotation`.

    Returns:
        (H, L, L): 1 for a raw token, its weight in the pooling for a pooled one (the sum, if several columns
        hold it), 0 for one that is not represented.
    """
    length = q.shape[2]
    rows = torch.arange(length, device=q.device)
    queries, keys = q.expand(length, -1, -1, -1).clone(), k.expand(length, -1, -1, -1)
    frozen = with_choice(mechanism, queries, keys, options)
    queries[rows, :, rows] = 0
    weights = mechanism.effective(queries, keys, **frozen)[rows, :, rows].movedim(1, 0)   # (H, L, L)
    own = weights.diagonal(dim1=-2, dim2=-1)
    return weights / torch.where(own > 0, own, weights.amax(-1))[..., None]               # 1 for a raw column


def columns_of_row(mechanism: Mechanism, q: Tensor, k: Tensor, row: int, head: int = 0,
                   **options: Any) -> Tensor:
    """Return the pooling matrix of the columns that one row sees: which tokens each is made of.

    Two random queries are tried in the row. Tokens whose weight changes by the same factor share a column.

    Args:
        mechanism, q, k, options: as in `held`.
        row: the row.
        head: the query head.

    Returns:
        (columns, L): rows sum to 1, in the order of their first tokens. Columns with the same proportions of
        the same tokens count as one, and so do columns that share tokens.
    """
    queries, keys = q.expand(2, -1, -1, -1).clone(), k.expand(2, -1, -1, -1)
    frozen = with_choice(mechanism, queries, keys, options)
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(2, q.shape[1], q.shape[3], generator=generator, dtype=torch.float64)
    queries[:, :, row] = tried.to(queries)
    one, other = mechanism.effective(queries, keys, **frozen)[:, head, row].double()      # (L,) each
    columns: list[list[int]] = []
    for token in one.nonzero().flatten().tolist():
        factor = one[token] / other[token]
        own = [members for members in columns if abs(one[members[0]] / other[members[0]] / factor - 1) < 1e-4]
        if own:
            own[0].append(token)
        else:
            columns.append([token])
    pooling = torch.zeros(len(columns), len(one), dtype=torch.float64)
    for column, members in enumerate(columns):
        pooling[column, members] = one[members].cpu() / one[members].sum().cpu()
    return pooling


def with_choice(mechanism: Mechanism, q: Tensor, k: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the choice of tokens frozen, where the mechanism makes one."""
    if mechanism.select is None:
        return options
    return {**options, "selection": mechanism.select(q, k, **options)}
