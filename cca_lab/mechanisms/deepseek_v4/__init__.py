"""DeepSeek-V4's attention: CCA's idea in production, a sliding window beside pooled entries and a sink in one softmax.

It is not in `MECHANISMS`: its pooling and its choice of entries are learnt from the layer's hidden states, which q, k
and v do not tell, so it cannot be swapped into another model. `layer_output` computes transformers' own module.
DeepSeek-AI, "DeepSeek-V4", 2026; read from transformers 5.23, `models/deepseek_v4`.
"""

from cca_lab.mechanisms.deepseek_v4.attention import attend, attend_by_loops
from cca_lab.mechanisms.deepseek_v4.layer import State, layer_output
from cca_lab.mechanisms.deepseek_v4.pooling import pool, pool_by_loops
from cca_lab.mechanisms.deepseek_v4.reading import intervals, read_twice, times_read, unread

__all__ = ["State", "attend", "attend_by_loops", "intervals", "layer_output", "pool", "pool_by_loops", "read_twice",
           "times_read", "unread"]
