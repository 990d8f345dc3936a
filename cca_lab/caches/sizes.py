"""What the closed-form sizes of caches read from a model's config."""

from transformers import PreTrainedConfig


def cache_sizes(config: PreTrainedConfig) -> dict[str, int]:
    """Return the numbers of layers and KV heads and the features of a head, by the names caches use."""
    heads = config.num_attention_heads
    return {"layers": config.num_hidden_layers,
            "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads}


def has_rotary(config: PreTrainedConfig) -> bool:
    """Return whether the model rotates its queries and keys (RoPE)."""
    return hasattr(config, "rope_parameters")
