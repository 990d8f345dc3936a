"""Mechanisms whose columns are not what their loops read."""

from torch import Tensor

from cca_lab.mechanisms import CCA, H2O, StreamingLLM
from cca_lab.mechanisms.base import Call
from cca_lab.mechanisms.columns import Columns


class WindowOneShort(StreamingLLM):
    """Intervals that begin one token late."""

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        return StreamingLLM(sinks=self.sinks, recent=self.recent - 1).columns(q, k, v, call)


class SinksForgotten(StreamingLLM):
    """Of the two parts under a rotation the near one alone."""

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        return super().columns(q, k, v, call)[:1]


class CoreWithoutItsFirstToken(CCA):
    """A P in which cores are made of g - 1 tokens; keys and values are pooled from all g."""

    def pooling_weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        pooling = super().pooling_weights(q, k, scale)
        pooling[:, :, : pooling.shape[2] - q.shape[2], :: self.group] = 0
        return pooling


class KeptByTheFirstHead(H2O):
    """What the first KV head keeps, for all heads."""

    def kept(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        kept = super().kept(q, k, scale)
        return kept[:, :1].expand_as(kept)


MUTANTS = {
    WindowOneShort: {"sinks": 1, "recent": 3},
    SinksForgotten: {"sinks": 2, "recent": 3, "positions": "cache"},
    CoreWithoutItsFirstToken: {"group": 3, "window": 2},
    KeptByTheFirstHead: {"heavy": 2, "recent": 2},
}
