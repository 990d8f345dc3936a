"""LoCoCo: attention by segments with M slots that a convolution fills; see `mechanism` first."""

from cca_lab.mechanisms.lococo.mechanism import LoCoCo
from cca_lab.mechanisms.lococo.memory import Compressor, memories
from cca_lab.mechanisms.lococo.segments import Settings, compressions, intervals

__all__ = ["Compressor", "LoCoCo", "Settings", "compressions", "intervals", "memories"]
