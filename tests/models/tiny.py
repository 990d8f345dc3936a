"""Tiny random models of the four families: 2 layers, width 32, double precision."""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

FAMILIES = ("gpt2", "opt", "llama", "qwen2")
TWO = ("gpt2", "llama")  # learned and rotary positions, for what asks no more of a family
VOCABULARY = 61
PAD = 0


def tiny(family: str, *, dropout: float = 0.0, **changes) -> PreTrainedModel:
    """Build a random model; in Llama and Qwen2 two query heads share a key-value head."""
    torch.manual_seed(FAMILIES.index(family))
    ids = dict(vocab_size=VOCABULARY, pad_token_id=PAD, bos_token_id=1, eos_token_id=None)
    grouped = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                   num_key_value_heads=2, max_position_embeddings=128, attention_dropout=dropout,
                   **ids)
    if family == "gpt2":
        config = GPT2Config(**dict(n_positions=128, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
                                   embd_pdrop=0.0, attn_pdrop=dropout, **ids) | changes)
        model = GPT2LMHeadModel(config)
    elif family == "opt":
        config = OPTConfig(**dict(max_position_embeddings=128, hidden_size=32,
                                  word_embed_proj_dim=32, ffn_dim=48, num_hidden_layers=2,
                                  num_attention_heads=4, dropout=0.0, attention_dropout=dropout,
                                  **ids) | changes)
        model = OPTForCausalLM(config)
    elif family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**grouped | changes))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**grouped | changes))
    with torch.no_grad():
        for parameter in model.parameters():
            # the usual 0.02 makes attention nearly uniform, which hides mistakes
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    model.config.loss_type = "ForCausalLM"
    return model.double().eval()


def text(length: int, rows: int = 1, seed: int = 0) -> torch.Tensor:
    """Draw token ids, (rows, length), none of them the padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (rows, length), generator=generator)


def left_padded(rows: list[torch.Tensor],
                holes: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad rows (L_b,) on the left; return ids, mask and real tokens' positions, (B, L) each."""
    length = max(len(row) for row in rows) + holes
    ids = torch.stack([torch.cat([row.new_full((length - len(row),), PAD), row]) for row in rows])
    mask = torch.stack([torch.arange(length) >= length - len(row) for row in rows]).long()
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    return ids, mask, positions


def logits(model: PreTrainedModel, ids: torch.Tensor, **kwargs) -> torch.Tensor:
    """Return the logits of one forward without gradient, (B, L, V)."""
    with torch.no_grad():
        return model(ids, **kwargs).logits
