"""An explorer of given queries and keys, without a model."""

from typing import Any

from torch import Tensor

from cca_lab.views.explorer import Explorer
from cca_lab.views.explorer.reading import Tensors


def explore_tensors(q: Tensor, k: Tensor, words: Any = (), attention: str = "cca",
                    query: int | None = None, **options: Any) -> Explorer:
    """Show q and k (1, H, L, D), or (L, D) of one head."""
    q, k = (x if x.dim() == 4 else x[None, None] for x in (q, k))
    source = Tensors(q, k, words=tuple(words))
    return Explorer(source, attention, options, query=query)
