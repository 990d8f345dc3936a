"""The decode-time cache of mean pooling: that of CCA-Attention with plain means. Prefill equals decode."""

from cca_lab.mechanisms.cca.cache import CCACache
from cca_lab.mechanisms.cca.mean_pooling import MeanPooling


class MeanPoolingCache(CCACache):
    """The cache for generating with mean pooling; sizes and use are those of `CCACache`."""

    mechanism = MeanPooling
