"""Find what the rows of any mechanism read from its matrix E alone, by the choice of queries.

E = A P, where A holds the weights of the columns that a row sees and P the tokens of each column. A
query of zeros gives all columns the same weight, so that E shows the sum of their rows of P.
"""

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
    choice = mechanism.select(queries, keys, scale=scale)
    queries[rows, :, rows] = 0
    matrix = mechanism.effective(queries, keys, scale=scale, rotation=rotation, selection=choice)
    weights = matrix[rows, :, rows].movedim(1, 0)  # (H, L, L)
    diagonal = weights.diagonal(dim1=-2, dim2=-1)
    # 1 for a raw column
    return weights / torch.where(diagonal > 0, diagonal, weights.amax(-1))[..., None]
