"""The one attention primitive, and what goes with it: intervals, pooling, masks."""

from cca_lab.attention.dense import masked_attention
from cca_lab.attention.interval_attention import interval_attention
from cca_lab.attention.intervals import causal_intervals, check_intervals, count_pairs, visible_mask
from cca_lab.attention.pooling import pool_groups, pooling_matrix

__all__ = ["causal_intervals", "check_intervals", "count_pairs", "interval_attention",
           "masked_attention", "pool_groups", "pooling_matrix", "visible_mask"]
