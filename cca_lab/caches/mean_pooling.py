"""The decode-time cache of mean pooling: CCA's, with the mean for its weights. Prefill equals decode."""

from typing import Any

from cca_lab.caches.cca import CCACache, CCAState


class MeanPoolingState(CCAState):
    """Pooled groups and raw tokens of one layer; see `CCAState`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(pooling="mean", **options)


class MeanPoolingCache(CCACache):
    """The cache for generating with mean pooling; sizes and use are those of `CCACache`."""

    mechanism = "mean_pooling"
    state = MeanPoolingState
