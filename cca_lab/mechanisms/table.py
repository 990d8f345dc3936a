"""The table of mechanisms, read by the tests, the plug-in, the command line, the figures and the notebooks."""

from cca_lab.mechanisms import (
    cca,
    dga,
    full,
    h2o,
    lm_infinite,
    lococo,
    longlora,
    mean_pooling,
    minference,
    minference_a_shape,
    minference_block_sparse,
    minference_vertical_slash,
    random_tokens,
    streaming_llm,
)
from cca_lab.mechanisms.mechanism import Mechanism

MECHANISMS: dict[str, Mechanism] = {module.MECHANISM.name: module.MECHANISM for module in (
    full,
    cca,
    dga,
    lococo,
    minference,
    minference_a_shape,
    minference_vertical_slash,
    minference_block_sparse,
    h2o,
    longlora,
    streaming_llm,
    lm_infinite,
    mean_pooling,
    random_tokens,
)}
