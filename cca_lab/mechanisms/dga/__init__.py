"""Dynamic Group Attention (DGA): focal tokens, groups of the others; see `mechanism` first."""

from cca_lab.mechanisms.dga.mechanism import (
           DGA,
           cache_tokens,
           columns,
           divide,
           group_weights,
           intervals,
           kept_columns,
           pool,
           row_reads,
)
from cca_lab.mechanisms.dga.selection import (
           FocalRule,
           focal_loops,
           highest,
           importance,
           importance_loops,
           select,
)
from cca_lab.mechanisms.indices import decode_span

__all__ = ["DGA", "FocalRule", "cache_tokens", "columns", "decode_span", "divide", "focal_loops",
           "group_weights", "highest", "importance", "importance_loops", "intervals",
           "kept_columns", "pool", "row_reads", "select"]
