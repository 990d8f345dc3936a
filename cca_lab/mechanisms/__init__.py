"""Attention mechanisms, one file each; `MECHANISMS` is the table of them."""

from cca_lab.mechanisms.table import MECHANISMS, Mechanism

__all__ = ["MECHANISMS", "Mechanism"]
