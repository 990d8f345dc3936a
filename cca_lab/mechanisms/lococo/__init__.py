"""LoCoCo: attention by segments with M slots that a convolution fills; see `mechanism` first."""

from cca_lab.mechanisms.indices import lococo_entries as cache_tokens
from cca_lab.mechanisms.indices import lococo_peak as peak_tokens
from cca_lab.mechanisms.lococo.mechanism import LoCoCo
from cca_lab.mechanisms.lococo.memory import Compressor, memories
from cca_lab.mechanisms.lococo.segments import Settings, compressions, intervals

__all__ = ["Compressor", "LoCoCo", "Settings", "cache_tokens", "compressions", "intervals",
           "memories", "peak_tokens"]
