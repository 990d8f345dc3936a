"""The table of mechanisms: one row each, read by the tests, the plug-in, the figures and the notebooks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cca_lab.mechanisms import cca, full

EVERY_ROW = "every row sees its past only"


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism:
    """One way for row i to attend to its past, with what a reader must know to use it.

    Attributes:
        name: the key in `MECHANISMS`.
        title: the name in prose.
        paper: citation and section.
        loops: the paper's algorithm row by row; the specification.
        attention: the vectorised form, (q, k, v, **options, backend=...) -> (B, H, L, D).
        effective: (q, k, **options) -> E, (B, H, L, L), with attention(q, k, v) = E v.
        defaults: the options used when none are given; sized for contexts of about 512 tokens.
        paper_presets: the options the paper reports results with, by where it reports them.
        causal_scope: which tokens may influence a row.
        needs_training: whether the paper finetunes a pretrained model before using the mechanism.
        exact_when: exact_when(L, **options) is True where the output equals full attention's.
    """

    name: str
    title: str
    paper: str
    loops: Callable[..., Tensor]
    attention: Callable[..., Tensor]
    effective: Callable[..., Tensor]
    defaults: dict[str, Any]
    paper_presets: dict[str, dict[str, Any]]
    causal_scope: str
    needs_training: bool
    exact_when: Callable[..., bool]


def cca_is_exact(length: int, *, group: int, window: int, **_: Any) -> bool:
    """No row sees a core (Section 3.2: L < g + s), or every core is its one token."""
    return length < group + window or group == 1


FULL = Mechanism(
    name="full",
    title="Full causal attention",
    paper="Vaswani et al., Attention Is All You Need, NeurIPS 2017, Section 3.2.1",
    loops=full.loops,
    attention=full.attention,
    effective=full.effective,
    defaults={},
    paper_presets={},
    causal_scope=EVERY_ROW,
    needs_training=False,
    exact_when=lambda length, **_: True,
)

CCA = Mechanism(
    name="cca",
    title="CCA-Attention",
    paper="Chen et al., Core Context Aware Transformers for Long Context Language Modeling, ICML 2025, "
          "Sections 3.2-3.4, Algorithm 1",
    loops=cca.loops,
    attention=cca.attention,
    effective=cca.effective,
    defaults={"group": 16, "window": 64},
    paper_presets={
        "default (Tables 8 and 9)": {"group": 16, "window": 1024},
        "fastest of Figure 3": {"group": 16, "window": 4096},
        "most accurate of Figure 3": {"group": 2, "window": 1024},
    },
    causal_scope=EVERY_ROW,
    needs_training=True,
    exact_when=cca_is_exact,
)

MECHANISMS: dict[str, Mechanism] = {row.name: row for row in (FULL, CCA)}
