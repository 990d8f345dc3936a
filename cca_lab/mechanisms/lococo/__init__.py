"""LoCoCo: segment-level attention with a memory of M slots, filled by a convolution.

Start with `mechanism`.
"""

from cca_lab.mechanisms.indices import lococo_entries as cache_tokens
from cca_lab.mechanisms.indices import lococo_peak as peak_tokens
from cca_lab.mechanisms.lococo.mechanism import LoCoCo
from cca_lab.mechanisms.lococo.memory import Compressor, memories
from cca_lab.mechanisms.lococo.segments import Settings, compressions, intervals

__all__ = ["Compressor", "LoCoCo", "Settings", "cache_tokens", "compressions", "intervals",
           "memories", "peak_tokens"]
