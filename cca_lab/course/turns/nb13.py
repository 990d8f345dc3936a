"""What the reader writes in notebook 13: an attention for a model, groups beside padding."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_same, need_tensor
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

NAME = "turn 13.3"  # of the answer in transformers' table


# 13.3: an attention that a model can call
def attend(query: Tensor, key: Tensor, value: Tensor, scaling: float, *, seen: int = 0,
           axis: int = -1) -> Tensor:
    """Return causal attention (B, H, L, D); row i sees tokens to i + seen, softmax over `axis`."""
    scores = scaling * query @ key.transpose(-1, -2)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + seen)
    return scores.masked_fill(hidden, float("-inf")).softmax(axis).nan_to_num() @ value


def alone(answer: Answer, draw: Draw) -> None:
    """On random tensors, with scalings as GPT-2's and OPT's."""
    for batch, heads, length, width, scaling in [(2, 3, 5, 4, 0.5), (1, 2, 7, 16, 1.0),
                                                 (2, 2, 6, 9, 0.2)]:
        q, k, v = (draw.normal(batch, heads, length, width) for _ in "qkv")
        usual, wanted = width**-0.5, attend(q, k, v, scaling).transpose(1, 2)
        causes = {what: out.transpose(1, 2) for what, out in {
            "the scores are multiplied by 1/sqrt(d), whatever arrives as `scaling`":
                attend(q, k, v, usual),
            "the scores are scaled twice: by `scaling`, and by 1/sqrt(d) once more":
                attend(q, k, v, scaling * usual),
            "the scores are not scaled at all": attend(q, k, v, 1.0),
            "rows read later tokens too": attend(q, k, v, scaling, seen=length),
            "a row reads the next token as well": attend(q, k, v, scaling, seen=1),
            "a row does not read its own token": attend(q, k, v, scaling, seen=-1),
            "softmax is over the queries; it belongs over the keys":
                attend(q, k, v, scaling, axis=-2),
            "the future is cut off after softmax, so the rows do not sum to 1":
                (scaling * q @ k.mT).softmax(-1).tril() @ v,
            "heads and tokens are exchanged by a new shape; transpose moves the numbers along":
                wanted.transpose(1, 2).reshape(wanted.shape).transpose(1, 2),
        }.items()}
        with case(f"{batch} texts, {heads} heads, {length} tokens, d = {width}, scaling {scaling}"):
            got = answer(q, k, v, scaling)
            if isinstance(got, Tensor) and got.shape == q.shape:
                raise Mistake(f"the result has shape {tuple(got.shape)}: (batch, heads, tokens, "
                              "d), as the queries came. It goes back with heads and tokens "
                              "exchanged")
            need_close(got, wanted, "the output", causes=causes)


def in_models(answer: Answer, draw: Draw) -> None:
    """In a GPT-2 and an OPT of random weights the logits are those of their own attention."""
    from transformers import AttentionInterface

    def called(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
               scaling: float = 1.0, **others: Any) -> tuple[Tensor, None]:
        wanted = query.transpose(1, 2).shape
        return need_tensor(answer(query, key, value, scaling), wanted, "the output"), None

    AttentionInterface.register(NAME, called)
    for name, model in _models().items():
        ids = draw.integers(0, 20, 2, 9)
        with case(name), torch.no_grad():
            wanted = model(input_ids=ids, use_cache=False).logits
            model.set_attn_implementation(NAME)
            need_close(model(input_ids=ids, use_cache=False).logits, wanted, "the logits")


def _models() -> dict[str, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        gpt2 = GPT2LMHeadModel(GPT2Config(
            vocab_size=20, n_positions=16, n_embd=12, n_layer=2, n_head=3, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0))
        opt = OPTForCausalLM(OPTConfig(
            vocab_size=20, max_position_embeddings=16, hidden_size=12, word_embed_proj_dim=12,
            ffn_dim=24, num_hidden_layers=2, num_attention_heads=3, init_std=0.6, pad_token_id=1))
    return {"GPT-2": gpt2.eval(), "OPT": opt.eval()}


# 13.6: groups beside padding
def grouped(answer: Answer, draw: Draw) -> None:
    """Texts of different lengths with padding in front."""
    batches = [([3, 5], 2, 5), ([7, 1, 4], 3, 7), ([6, 6], 4, 6), ([2], 3, 9)]
    batches += [([draw.randint(1, 20) for _ in range(3)], draw.randint(2, 6), 20) for _ in range(4)]
    for lengths, group, columns in batches:
        length, column = torch.tensor(lengths)[:, None], torch.arange(columns)
        position = column - (columns - length)  # of each token in its own text
        padded, left = position < 0, length % group
        wanted = (position // group).masked_fill(padded, -1)
        causes = {what: out.masked_fill(padded, -1) for what, out in {
            "groups begin at the first column; they begin at each text's own first token":
                column.expand(len(lengths), -1) // group,
            "the first token of a text counts as 1, so its first group is one token short":
                (position + 1) // group,
            "groups are counted from the end of the text": (position - left) // group + (left > 0),
            "groups are numbered from 1; the first is 0": position // group + 1,
        }.items()} | {
            "padding is put into groups too; it has none, which is -1":
                column.expand(len(lengths), -1) // group,
            "padding is put into group 0, beside the text's first tokens": wanted.clamp(min=0),
            "padding has negative groups of its own; it has none, which is -1": position // group,
        }
        with case(f"texts of {lengths} tokens in {columns} columns, group {group}"):
            need_same(answer((~padded).long(), group), wanted, "the groups", causes=causes)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("13.3", "own_attention", "An attention for GPT-2 and OPT", 12, 3, 5, (
        Property("equal to full causal attention", 1, alone),
        Property("the models have the logits they had", 1, in_models))),
    CourseTask("13.6", "groups_of", "Groups beside padding", 6, 2, 4, (
        Property("each text is grouped from its own first token", 1, grouped),)),
)
