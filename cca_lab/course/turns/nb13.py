"""What the reader writes in notebook 13: an attention for a model, groups beside padding."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_tensor
from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Property, case


# 13.3: an attention that a model can call
def own_attention(query: Tensor, key: Tensor, value: Tensor, scaling: float, *, seen: int = 0,
                  axis: int = -1, late: bool = False, form: str = "transposed",
                  scaled: Callable[[float, int], float] = lambda scaling, d: scaling) -> Tensor:
    """Return causal attention, (B, L, H, D); the keywords are mistakes."""
    scores = scaled(scaling, query.shape[-1]) * query @ key.mT
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(seen)
    weights = (scores.softmax(axis) * past if late
               else scores.masked_fill(~past, float("-inf")).softmax(axis).nan_to_num())
    out = weights @ value
    return {"transposed": out.transpose(1, 2), "as it came": out,
            "reshaped": out.reshape(out.transpose(1, 2).shape)}[form]


def heads(draw: Draw, texts: int, heads: int, tokens: int, d: int,
          scaling: float) -> tuple[Any, ...]:
    """Return tensors of the shape and with a scaling as those of GPT-2 and OPT."""
    return *(draw.normal(texts, heads, tokens, d) for _ in "qkv"), scaling


def in_models(answer: Answer, draw: Draw) -> None:
    """In a GPT-2 and an OPT of random weights the logits are those of their own attention."""
    from transformers import (
        AttentionInterface,
        GPT2Config,
        GPT2LMHeadModel,
        OPTConfig,
        OPTForCausalLM,
    )

    def called(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
               scaling: float = 1.0, **others: Any) -> tuple[Tensor, None]:
        wanted = query.transpose(1, 2).shape
        return need_tensor(answer(query, key, value, scaling), wanted, "the output"), None

    AttentionInterface.register("turn 13.3", called)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        models = {"GPT-2": GPT2LMHeadModel(GPT2Config(
            vocab_size=20, n_positions=16, n_embd=12, n_layer=2, n_head=3, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0)), "OPT": OPTForCausalLM(OPTConfig(
                vocab_size=20, max_position_embeddings=16, hidden_size=12, word_embed_proj_dim=12,
                ffn_dim=24, num_hidden_layers=2, num_attention_heads=3, init_std=0.6,
                pad_token_id=1))}
    for name, model in models.items():
        ids = draw.integers(0, 20, 2, 9)
        with case(name), torch.no_grad():
            wanted = model.eval()(input_ids=ids, use_cache=False).logits
            model.set_attn_implementation("turn 13.3")
            need_close(model(input_ids=ids, use_cache=False).logits, wanted, "the logits")


# 13.6: groups beside padding
def groups_of(mask: Tensor, group: int, *, first: int = 0, by_column: bool = False,
              from_end: bool = False, number: int = 0, padding: str = "none") -> Tensor:
    """Return each token's group in its own text, -1 for padding; the keywords are mistakes."""
    length = mask.sum(1, keepdim=True)
    column = torch.arange(mask.shape[1]).expand(len(mask), -1)
    place = column if by_column else column - (mask.shape[1] - length) + first
    groups = place // group + number
    if from_end:
        groups = (place - length % group) // group + (length % group > 0)
    return {"none": groups.masked_fill(mask == 0, -1), "negative": groups,
            "first": groups.masked_fill(mask == 0, 0)}[padding]


def padded(draw: Draw, lengths: list[int], columns: int, group: int) -> tuple[Any, ...]:
    """Return a mask of texts of different lengths with padding in front, and a group size."""
    place = torch.arange(columns) - columns + torch.tensor(lengths)[:, None]
    return (place >= 0).long(), group


TURNS: tuple[CourseTask, ...] = (
    CourseTask("13.3", "own_attention", "An attention for GPT-2 and OPT", 12, 3, 5, (
        equals("equal to full causal attention", own_attention,
               examples(heads, (1, 2, 7, 16, 1.0), (2, 3, 5, 4, 0.8), (2, 2, 6, 9, 0.2)),
               "the output", wrong=mistakes(own_attention, {
            "the scores are multiplied by 1/sqrt(d), whatever arrives as `scaling`; OPT scales its "
            "queries itself": {"scaled": lambda scaling, d: d**-0.5},
            "the scores are scaled twice: by `scaling`, and by 1/sqrt(d) once more":
                {"scaled": lambda scaling, d: scaling * d**-0.5},
            "the scores are not scaled at all": {"scaled": lambda scaling, d: 1.0},
            "rows read later tokens too": {"seen": 99},
            "a row reads the next token as well": {"seen": 1},
            "a row does not read its own token": {"seen": -1},
            "softmax is over the queries; it belongs over the keys": {"axis": -2},
            "the future is cut off after softmax, so the rows do not sum to 1": {"late": True},
            "heads and tokens are exchanged by a new shape; transpose moves the numbers along":
                {"form": "reshaped"},
            "heads and tokens stand as in the queries; the result goes back with both exchanged":
                {"form": "as it came"}})),
        Property("the models have the logits they had", 1, in_models))),
    CourseTask("13.6", "groups_of", "Groups beside padding", 6, 2, 4, (
        equals("each text is grouped from its own first token", groups_of,
               examples(padded, ([3, 5], 5, 2), ([7, 1, 4], 7, 3), ([6, 6], 6, 4), ([2], 9, 3),
                        ([13, 20, 8], 20, 6)), "the groups", wrong=mistakes(groups_of, {
            "groups begin at the first column; they begin at each text's own first token":
                {"by_column": True},
            "the first token of a text counts as 1, so its first group is one token short":
                {"first": 1},
            "groups are counted from the end of the text": {"from_end": True},
            "groups are numbered from 1; the first is 0": {"number": 1},
            "padding is put into groups too; it has none, which is -1":
                {"by_column": True, "padding": "negative"},
            "padding is put into group 0, beside the text's first tokens": {"padding": "first"},
            "padding has negative groups of its own; it has none, which is -1":
                {"padding": "negative"}})),)),
)
