"""DGA without one of its steps, for the ablations of its Tables 5 and 7, used by trials only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms import DGA, MECHANISMS
from cca_lab.mechanisms.base import EVERY_ROW, Call
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.dga.selection import highest


@dataclass(frozen=True, kw_only=True)
class RandomFocal(DGA):
    """DGA whose focal tokens are drawn, whatever the text (Table 5, "Randomly Selected")."""

    name: ClassVar[str] = "dga_random"
    title: ClassVar[str] = "DGA with random focal tokens"

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
        """Return bool (B, Hk, L): as many focal tokens as DGA chooses, drawn for each KV head."""
        batch, kv_heads, length, _ = k.shape
        generator = torch.Generator().manual_seed(self.seed)
        draws = torch.rand(1, kv_heads, length, generator=generator).to(k.device)
        return highest(draws, self.focal_count(length)).expand(batch, -1, -1)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return DGA's columns for the random choice."""
        return super().columns(q, k, v, call._replace(selection=self.select(q, k)))

    @property
    def causal_scope(self) -> str:
        """EVERY_ROW: the choice does not depend on the text."""
        return EVERY_ROW


@dataclass(frozen=True, kw_only=True)
class NoComplement(DGA):
    """DGA in which a row does not see the group it stands in (Table 7, "w/o comple. tokens").

    It still sees itself: the paper does not say what the first row would see otherwise.
    """

    name: ClassVar[str] = "dga_open"
    title: ClassVar[str] = "DGA without complementary tokens"

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return DGA's columns, with the raw interval of each row cut to the row's own token."""
        focal = self.select(q, k, scale=call.scale) if call.selection is None else call.selection
        (part,) = super().columns(q, k, v, call._replace(selection=focal))
        visible = part.visible.clone()  # (b, h, L, 3, 2): focal, pooled, raw
        itself = (~focal).long()  # 0 where a row is focal
        itself = itself.repeat_interleave(visible.shape[1] // focal.shape[1], dim=1)
        visible[..., 2, 0] = visible[..., 2, 1] - itself
        return [replace(part, visible=visible)]


VARIANTS = {cls.name: cls for cls in (RandomFocal, NoComplement)}


@contextmanager
def registered() -> Iterator[None]:
    """List the variants among the mechanisms while trials run, for a model's config."""
    MECHANISMS.update(VARIANTS)
    try:
        yield
    finally:
        for name in VARIANTS:
            MECHANISMS.pop(name, None)
