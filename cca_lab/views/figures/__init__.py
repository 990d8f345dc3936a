"""Data in, Figure out."""

from cca_lab.extras import need

need("matplotlib", "seaborn")
