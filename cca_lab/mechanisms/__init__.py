"""Attention mechanisms, one file each; `MECHANISMS` is the table of them."""

from cca_lab.mechanisms.mechanism import Mechanism
from cca_lab.mechanisms.table import MECHANISMS

__all__ = ["MECHANISMS", "Mechanism"]
