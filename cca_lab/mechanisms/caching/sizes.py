"""What determines the size of a cache besides the mechanism: the model's shape, the batch, the dtype."""

from dataclasses import dataclass, field
from typing import Self

from transformers import PreTrainedConfig

from cca_lab.settings import check_integers


@dataclass(frozen=True, kw_only=True)
class CacheSizes:
    """The numbers from which the bytes of a cache are computed.

    Attributes:
        layers: of the model.
        heads: H, query heads; Hk by default.
        kv_heads: Hk.
        head_dim: D.
        rotary: whether the model rotates its queries and keys (RoPE).
        batch: rows, B.
        itemsize: bytes of an element of keys and values.
    """

    layers: int
    kv_heads: int
    head_dim: int
    heads: int = field(default=0)
    rotary: bool = False
    batch: int = 1
    itemsize: int = 4

    def __post_init__(self) -> None:
        if not self.heads:
            object.__setattr__(self, "heads", self.kv_heads)
        check_integers(1, layers=self.layers, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim,
                       batch=self.batch, itemsize=self.itemsize)

    @classmethod
    def of(cls, config: PreTrainedConfig, *, batch: int = 1, itemsize: int = 4) -> Self:
        """Return the sizes of a model's config."""
        heads = config.num_attention_heads
        return cls(layers=config.num_hidden_layers, heads=heads,
                   kv_heads=getattr(config, "num_key_value_heads", None) or heads,
                   head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
                   rotary=has_rotary(config), batch=batch, itemsize=itemsize)

    def entries(self, count: int | None) -> int:
        """Return the bytes of `count` keys and as many values per KV head of a layer: 2 B Hk D numbers each."""
        if count is None:
            raise ValueError("cache_entries: got None, wanted a number of entries; where it depends on more than the "
                             "length, measure the bytes with nbytes()")
        return 2 * self.batch * self.kv_heads * self.head_dim * count * self.itemsize

    def tables(self, positions: int) -> int:
        """Return the bytes of the rotary tables of `positions` positions, 2 D numbers each; 0 without RoPE."""
        return 2 * self.head_dim * positions * self.itemsize if self.rotary else 0


def has_rotary(config: PreTrainedConfig) -> bool:
    """Return whether the model rotates its queries and keys (RoPE)."""
    return hasattr(config, "rope_parameters")
