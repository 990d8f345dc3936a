"""One function in two families: the weights of an OPT in the layout of a GPT-2."""

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, OPTForCausalLM

OPT_POSITION_OFFSET = 2  # OPT's table begins with two rows that no position uses


def gpt2_from_opt(opt: OPTForCausalLM) -> GPT2LMHeadModel:
    """Return a GPT-2 that computes what a pre-norm OPT computes, logit for logit.

    The families differ in layout only: GPT-2 keeps W^Q, W^K, W^V side by side and
    every matrix transposed, and its position table begins at position 0. The
    activation stays OPT's ReLU.

    Raises:
        ValueError: for an OPT with post-norm or an embedding of another width.
    """
    config = opt.config
    if not config.do_layer_norm_before or config.word_embed_proj_dim != config.hidden_size:
        raise ValueError("opt: got post-norm or a projected embedding, which GPT-2 lacks; wanted "
                         "do_layer_norm_before=True and word_embed_proj_dim equal to hidden_size")
    gpt2 = GPT2LMHeadModel(GPT2Config(
        vocab_size=config.vocab_size, n_positions=config.max_position_embeddings, n_embd=config.hidden_size,
        n_layer=config.num_hidden_layers, n_head=config.num_attention_heads, n_inner=config.ffn_dim,
        activation_function=config.activation_function, resid_pdrop=config.dropout, embd_pdrop=config.dropout,
        attn_pdrop=config.attention_dropout, bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id)).to(opt.dtype)
    gpt2.load_state_dict(_renamed(opt), strict=False)  # the tied lm_head.weight is not repeated
    gpt2.config.loss_type = "ForCausalLM"
    return gpt2.eval()


def _renamed(opt: OPTForCausalLM) -> dict[str, Tensor]:
    decoder = opt.model.decoder
    state = {"wte.weight": decoder.embed_tokens.weight,
             "wpe.weight": decoder.embed_positions.weight[OPT_POSITION_OFFSET:]}
    state |= _norm("ln_f", decoder.final_layer_norm)
    for index, layer in enumerate(decoder.layers):
        attention, place = layer.self_attn, f"h.{index}"
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        state |= _norm(f"{place}.ln_1", layer.self_attn_layer_norm)
        state |= _norm(f"{place}.ln_2", layer.final_layer_norm)
        state |= {f"{place}.attn.c_attn.weight": torch.cat([p.weight.T for p in projections], dim=1),
                  f"{place}.attn.c_attn.bias": torch.cat([p.bias for p in projections])}
        for name, linear in (("attn.c_proj", attention.out_proj), ("mlp.c_fc", layer.fc1), ("mlp.c_proj", layer.fc2)):
            state |= {f"{place}.{name}.weight": linear.weight.T, f"{place}.{name}.bias": linear.bias}
    return {f"transformer.{name}": value.detach() for name, value in state.items()}


def _norm(place: str, norm: torch.nn.LayerNorm) -> dict[str, Tensor]:
    return {f"{place}.weight": norm.weight, f"{place}.bias": norm.bias}
