"""Speed of a stack of LLaMA2-7B's layers with random weights, full attention and CCA.

As many layers as fit beside the full cache of the longest prompt. Every layer costs the same, so
the ratios are those of the whole model, but for the embedding and the output layer.
"""

from functools import partial

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from cca_lab.models.checkpoints import quiet
from cca_lab.reporting import device
from cca_lab.studies.benchmarks.gpu.section import Section, Sizes
from cca_lab.studies.benchmarks.model import TOKENS, measure_writing

DTYPE = torch.bfloat16
USED = 0.9  # share of the free memory to use
NAMES = ("full", "cca")


def run(sizes: Sizes, section: Section) -> None:
    """Measure first token and next tokens at every length."""
    quiet()
    group, window = sizes.settings[0]
    layers = layers_that_fit(sizes, free_bytes())
    model = new_llama(sizes, layers)
    section.note(layers=layers, of_layers=sizes.model[4],
                 parameters=sum(p.numel() for p in model.parameters()),
                 dtype=str(DTYPE).removeprefix("torch."),
                 options={"group": group, "window": window}, tokens=TOKENS)

    def measure(length: int) -> None:
        # Prompt and next tokens together have `length` tokens: transformers' cache grows by copies,
        # which then fit into freed blocks. One token beyond a power of two, each layer's first copy
        # would wait for the allocator.
        for row in measure_writing(model, NAMES, length - TOKENS, max(1, sizes.rounds - 1),
                                   {"cca": {"group": group, "window": window}}):
            section.add(**row)

    for length in sizes.lengths:
        section.attempt(f"prompt of {length}", partial(measure, length))


def free_bytes() -> int | None:
    """Return the free memory of the GPU in bytes; None without one."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None


def layers_that_fit(sizes: Sizes, free: int | None) -> int:
    """Return how many layers fit into `free` bytes; at least 1."""
    hidden, inner, _, vocabulary, most = sizes.model
    if free is None:
        return most
    length, itemsize = max(sizes.lengths) + TOKENS, DTYPE.itemsize
    activations = itemsize * length * (6 * inner + 12 * hidden)
    a_layer = itemsize * (4 * hidden**2 + 3 * hidden * inner + 2 * length * hidden)
    left = USED * free - activations - 2 * itemsize * vocabulary * hidden
    return max(1, min(most, int(left // a_layer)))


def new_llama(sizes: Sizes, layers: int) -> PreTrainedModel:
    """Return a LLaMA of random weights in bfloat16, made on the GPU."""
    hidden, inner, heads, vocabulary, _ = sizes.model
    config = LlamaConfig(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=heads,
                         vocab_size=vocabulary, bos_token_id=1, eos_token_id=2,
                         max_position_embeddings=max(sizes.lengths) + TOKENS)
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device(device()):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
