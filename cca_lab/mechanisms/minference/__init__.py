"""MInference: a pattern for each head, the three patterns, and the search among them."""

from cca_lab.mechanisms.minference.mechanism import CANDIDATES, MInference, choose_patterns, recalls
from cca_lab.mechanisms.minference.patterns import AShape, BlockSparse, VerticalSlash

__all__ = ["CANDIDATES", "AShape", "BlockSparse", "MInference", "VerticalSlash", "choose_patterns",
           "recalls"]
