"""Two baselines with the groups, the local window and so the entries of CCA-Attention.

A method that pools with learned or chosen weights should beat both at the same g and s.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms.base import Call
from cca_lab.mechanisms.cca.groups import intervals
from cca_lab.mechanisms.cca.mechanism import CCA, Grouped
from cca_lab.mechanisms.columns import Columns, behind
from cca_lab.mechanisms.indices import behind_sinks, core_count
from cca_lab.mechanisms.tokens import attend_loops
from cca_lab.settings import check_integers


@dataclass(frozen=True, kw_only=True)
class MeanPooling(CCA):
    """Mean pooling: CCA-Attention whose cores are plain means of the keys and values of a group.

        core_p = (1 / g) sum_t x_t,    t in [pg, pg + g)

    Chen et al. report it as an ablation (Table 7). The groups that a row sees, the tokens that stay
    raw and the position of a pooled key under RoPE are those of CCA-Attention.

    Attributes:
        group, window, sinks, proportional: as in `CCA`.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    per_query_head: bool = field(default=False, init=False)
    pooling: str = field(default="mean", init=False)

    name: ClassVar[str] = "mean_pooling"
    title: ClassVar[str] = "Mean pooling"
    paper: ClassVar[str] = ("A baseline; Chen et al., Core Context Aware Transformers for Long "
                            "Context Language Modeling, ICML 2025, Table 7 (mean)")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "ablation of CCA (Table 7)": {"group": 16, "window": 1024}}
    needs_training: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class RandomTokens(Grouped):
    """Random tokens: each row reads one random token of each older group, and raw nearby tokens.

    Row i sees one token of each of the n(i) = max(0, floor((i + 1 - s) / g)) oldest groups, and the
    raw tokens [g n(i), i]. The draw of a group depends on `seed` alone, not on the text, the batch,
    the head or the length: every row sees its past only, and a prompt read at once or token by
    token gives the same result. One draw from each group keeps the subset fixed as the text grows
    and evenly spread over it. Keys keep their positions. Sinks are those of CCA-Attention. There is
    no paper.

    Attributes:
        group, window, sinks: as in `CCA`.
        seed: the seed of the draws, 0 or more.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    seed: int = 0

    name: ClassVar[str] = "random_tokens"
    title: ClassVar[str] = "Random tokens"
    paper: ClassVar[str] = "A baseline; no paper"
    sizes: ClassVar[tuple[str, ...]] = ("group", "window", "seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(0, seed=self.seed)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend to one token of each older group and to raw nearby tokens: the specification."""
        g, s, first = self.group, self.window, self.sinks  # group 0 begins at token `first`
        kept = [first + token for token in kept_tokens((q.shape[2] - first) // g, g, self.seed)]

        def seen(b: int, h: int, i: int) -> list[int]:
            n = max(0, (i + 1 - first - s) // g)  # groups older than the window
            return [*range(min(i + 1, first)), *kept[:n], *range(first + g * n, i + 1)]

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: C kept tokens, then all raw ones, with CCA-Attention's intervals."""
        length, first = q.shape[2], self.sinks
        count = core_count(behind_sinks(length, first), self.group, self.window)
        kept = [first + token for token in kept_tokens(count, self.group, self.seed)]
        keys, values = (behind(x[:, :, kept], x) for x in (k, v))

        def pooling() -> Tensor:
            tokens = torch.eye(length, dtype=q.dtype, device=q.device)[None, None]
            return torch.cat([tokens[:, :, kept], tokens], dim=2)

        visible = intervals(length, self.group, self.window, q.device, first)
        return [Columns(q, keys, values, visible, pooling)]


def kept_tokens(count: int, group: int, seed: int) -> list[int]:
    """Return the kept token of each of the first `count` groups; a larger count appends more."""
    draw = Random(int(seed))
    return [p * group + draw.randrange(group) for p in range(count)]
