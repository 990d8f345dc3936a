"""Mean pooling: what CCA-Attention is without its weights. A baseline.

Each group of g tokens older than the local window becomes the plain mean of its keys and values; everything
else is `cca.py`'s: which groups a row sees, which tokens stay raw, where a pooled key stands under RoPE.

    core_p = (1 / g) sum_t x_t,    t in [pg, pg + g)

Chen et al., "Core Context Aware Transformers for Long Context Language Modeling", ICML 2025 report it as an
ablation (Table 7). A method that pools with learned or chosen weights should beat it at the same g and s.
"""

from typing import Any

from torch import Tensor

from cca_lab.mechanisms import cca
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation


def loops(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, scale: float | None = None,
          rotation: Rotation | None = None) -> Tensor:
    """Attend to mean-pooled older groups and raw nearby tokens, row by row; see `cca.loops`.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        group: g, tokens in a group.
        window: s, the fewest nearest tokens (the row's own included) that stay raw.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables (cos, sin) that rotated q and k, (L, D) or (B, L, D), or None.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    return cca.loops(q, k, v, group=group, window=window, scale=scale, rotation=rotation, pooling="mean")


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """The same, vectorised: `cca.attention` with the mean. Args, Returns, Raises: those of `loops`."""
    return cca.attention(q, k, v, group=group, window=window, scale=scale, rotation=rotation, pooling="mean",
                         backend=backend)


def effective(q: Tensor, k: Tensor, *, group: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None) -> Tensor:
    """Return E, (B, H, L, L), with attention(q, k, v) = E v; see `cca.effective`."""
    return cca.effective(q, k, group=group, window=window, scale=scale, rotation=rotation, pooling="mean")


def exact_when(length: int, **options: Any) -> bool:
    """As CCA: no row sees a pooled token, or groups have one token."""
    return cca.exact_when(length, **options)


MECHANISM = Mechanism(
    name="mean_pooling",
    title="Mean pooling",
    paper="A baseline; Chen et al., Core Context Aware Transformers for Long Context Language Modeling, "
          "ICML 2025, Table 7 (mean)",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"group": 16, "window": 64},
    paper_presets={"ablation of CCA (Table 7)": {"group": 16, "window": 1024}},
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
)
