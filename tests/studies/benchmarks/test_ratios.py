"""What CCA saves: counted operations, so that no machine has to be quiet."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cca_lab.mechanisms import mechanism_of
from cca_lab.studies.benchmarks import attention, decode

LENGTH, WINDOW = 4096, 256
CONTEXT, SHAPE = 32768, {"heads": 8, "kv_heads": 8, "head_dim": 64}


def sdpa_flops(q, k, v, dropout=0.0, causal=False, *args, out_shape=None, **kwargs):
    """Operations of PyTorch's attention on a CPU: two products of every query with every key.

    Causal, half of them.
    """
    return 4 * q[0] * q[1] * q[2] * k[2] * q[3] // (2 if causal else 1)


def work(call):
    """The floating-point operations of a call's products."""
    counted = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flops}
    with FlopCounterMode(display=False, custom_mapping=counted) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch's attention is another operator on "
                                                      "a GPU")
@pytest.mark.parametrize("implementation, saves", [("blocked", True), ("dense", False)])
def test_cca_turns_pairs_into_fewer_operations(implementation, saves):
    """More than a half of the saving in pairs, which is 5.6.

    The dense matrix is the mutant that saves nothing.
    """
    full, cca = (work(attention.prepare(LENGTH, name, "forward"))
                 for name in (attention.FULL, (implementation, WINDOW)))
    assert full == pytest.approx(4 * 64 * 8 * attention.pairs_of(LENGTH, attention.FULL), rel=1e-3)
    assert (full / cca > attention.pair_ratio(LENGTH, WINDOW) / 2) is saves


@torch.no_grad()
@pytest.mark.parametrize("name", ["cca", "streaming_llm"])
def test_a_decoded_token_gains_from_fewer_entries(name):
    """At 32K tokens CCA keeps 10.7 times fewer entries."""
    states = {decode.FULL: decode.FullBuffers(CONTEXT, SHAPE),
              name: decode.filled_state(mechanism_of(name, decode.OPTIONS[name]), CONTEXT, **SHAPE)}
    held = {key: decode.held_bytes(state) for key, state in states.items()}
    token = [decode.new_token(SHAPE, 0)]
    full, cache = (work(lambda state=state: decode.read([state], token))
                   for state in states.values())
    assert full / cache > 0.9 * held[decode.FULL] / held[name] > 9
