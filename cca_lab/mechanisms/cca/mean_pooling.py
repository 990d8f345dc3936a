"""Mean pooling: CCA-Attention with the plain mean instead of softmax weights. A baseline.

Each group of g tokens older than the local window becomes the plain mean of its keys and values. All else is as
in `cca.py`: the groups that a row sees, the tokens that stay raw, the position of a pooled key under RoPE.

    core_p = (1 / g) sum_t x_t,    t in [pg, pg + g)

Chen et al., "Core Context Aware Transformers for Long Context Language Modeling", ICML 2025 report it as an
ablation (Table 7). A method that pools with learned or chosen weights should beat it at the same g and s.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from cca_lab.mechanisms.cca.mechanism import CCA


@dataclass(frozen=True, kw_only=True)
class MeanPooling(CCA):
    """CCA-Attention in which a core is the plain mean of its group."""

    per_query_head: bool = field(default=False, init=False)
    pooling: str = field(default="mean", init=False)

    name: ClassVar[str] = "mean_pooling"
    title: ClassVar[str] = "Mean pooling"
    paper: ClassVar[str] = ("A baseline; Chen et al., Core Context Aware Transformers for Long Context Language "
                            "Modeling, ICML 2025, Table 7 (mean)")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "ablation of CCA (Table 7)": {"group": 16, "window": 1024}}
    needs_training: ClassVar[bool] = False
