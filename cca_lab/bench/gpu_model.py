"""How long does a whole model take? A stack of LLaMA2-7B's layers, of random weights, with full attention and CCA.

As many layers as fit beside the full cache of the longest prompt: every layer costs the same, so ratios are those
of the whole model, but for the embedding and the head.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.utils import logging

from cca_lab.bench.gpu_section import Section
from cca_lab.bench.gpu_sizes import Sizes
from cca_lab.bench.model import TOKENS, measure_writing
from cca_lab.bench.report import device

DTYPE = torch.bfloat16
USED = 0.9  # of the free memory
NAMES = ("full", "cca")


def run(sizes: Sizes, section: Section) -> None:
    """Measure first token and next tokens at every length."""
    logging.set_verbosity_error()
    group, window = sizes.settings[0]
    layers = layers_that_fit(sizes, free_bytes())
    model = new_llama(sizes, layers)
    section.note(layers=layers, of_layers=sizes.model[4], parameters=sum(p.numel() for p in model.parameters()),
                 dtype=str(DTYPE).removeprefix("torch."), options={"group": group, "window": window}, tokens=TOKENS)

    def measure(length: int) -> None:
        # Prompt and next tokens fill `length` together: transformers' cache grows by copies, and these then fit where
        # the one before was. One token beyond a power of two, each layer's first copy would wait for the allocator.
        for row in measure_writing(model, NAMES, length - TOKENS, max(1, sizes.rounds - 1),
                                   {"cca": {"group": group, "window": window}}):
            section.add(**row)

    for length in sizes.lengths:
        section.attempt(f"prompt of {length}", lambda n=length: measure(n))


def free_bytes() -> int | None:
    """Free memory of the GPU; None without one."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None


def layers_that_fit(sizes: Sizes, free: int | None) -> int:
    """Layers whose weights and full cache fit into `free` bytes, with the activations of one layer; at least 1.

    Activations: six tensors of the inner width and twelve of the hidden one, for every token.
    """
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
                         num_attention_heads=heads, num_key_value_heads=heads, vocab_size=vocabulary, bos_token_id=1,
                         eos_token_id=2, max_position_embeddings=max(sizes.lengths) + TOKENS,
                         attn_implementation="sdpa")
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device(device()):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
