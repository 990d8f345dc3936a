"""MInference: attention with one pattern per head, the three patterns, and the search that chooses among them."""

from cca_lab.mechanisms.minference.a_shape import AShape
from cca_lab.mechanisms.minference.block_sparse import BlockSparse
from cca_lab.mechanisms.minference.mechanism import MInference
from cca_lab.mechanisms.minference.patterns import CANDIDATES, choose_patterns, recalls
from cca_lab.mechanisms.minference.vertical_slash import VerticalSlash

__all__ = ["CANDIDATES", "AShape", "BlockSparse", "MInference", "VerticalSlash", "choose_patterns", "recalls"]
