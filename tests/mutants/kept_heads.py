"""Wrong versions of kept heads; the tests in tests/mechanisms/kept_heads catch them."""

import torch
from torch import Tensor

from cca_lab.mechanisms import KeptHeads


class KeepsQueryHeads(KeptHeads):
    """Takes the numbers in `kept` for query heads: with grouped queries, others are kept."""

    def parts(self, heads, kv_heads):
        """Divide the query heads by their own numbers; of each, its KV head."""
        each = heads // kv_heads
        return [part._replace(heads=chosen, kv_heads=[head // each for head in chosen])
                for part, chosen in zip(super().parts(heads, kv_heads), (
                    self.kept[0], [h for h in range(heads) if h not in self.kept[0]]), strict=True)]


class OutOfOrder(KeptHeads):
    """Returns the kept heads first, wherever they belong."""

    def by_parts(self, q, k, v, attend) -> Tensor:
        """Join the outputs as they come."""
        return torch.cat([attend(part, q[:, part.heads], k[:, part.kv_heads], v[:, part.kv_heads])
                          for part in self.parts(q.shape[1], k.shape[1])], dim=1)


class OfTheFirstLayer(KeptHeads):
    """Keeps in every layer the heads of the first."""

    def at_layer(self, index):
        """Return the first layer's mechanism."""
        return super().at_layer(0)


def share_of_all_heads(bytes_of):
    """Return a closed form that counts the other mechanism for all heads, kept ones too."""
    def wrong(cls, mechanism, length, sizes):
        from cca_lab.mechanisms.kept_heads.cache import OTHER_CACHES

        full = sum(len(mechanism.at_layer(layer).kept[0]) for layer in range(sizes.layers))
        other = OTHER_CACHES[mechanism.other.name].bytes_of(mechanism.other, length, sizes)
        return full * sizes.entries(length) // sizes.kv_heads + other

    return classmethod(wrong)
