"""What the reader writes in notebook 13: a swap, the score of a core, groups beside padding."""

from contextlib import suppress
from itertools import product
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw


# 13.1: another attention in a model, and the old one back
def with_attention(model: Any, attention: Answer, read: Answer, *, wrong: str = "") -> Any:
    """Return what `read` returns while the model attends otherwise, with a mistake or none."""
    from transformers import AttentionInterface

    AttentionInterface.register("turn 13.1", attention)
    usual = model.config._attn_implementation
    if wrong != "early":
        model.set_attn_implementation("turn 13.1")
    try:
        found = read(model)
    except ArithmeticError:
        if wrong in ("errors", "kept"):
            raise
        model.set_attn_implementation(usual)
        raise
    if wrong != "kept":
        model.set_attn_implementation("sdpa" if wrong == "fixed" else usual)
    return found


def family(draw: Draw, family: str, attention: str) -> tuple[Any, ...]:
    """Return a small model of random weights that attends in some way, and tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = GPT2LMHeadModel(GPT2Config(
            vocab_size=20, n_positions=16, n_embd=12, n_layer=2, n_head=3, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0)) if family == "GPT-2" else OPTForCausalLM(OPTConfig(
                vocab_size=20, max_position_embeddings=16, hidden_size=12, word_embed_proj_dim=12,
                ffn_dim=24, num_hidden_layers=2, num_attention_heads=3, init_std=0.6,
                pad_token_id=1))
    model.eval().set_attn_implementation(attention)
    return model, draw.integers(0, 20, 2, 9)


def used(answer: Answer) -> Answer:
    """Return a swap as a function that returns logits, and what the model attends with later."""
    from cca_lab.mechanisms import CCA

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any,
               scaling: float = 1.0, **others: Any) -> tuple[Tensor, None]:
        out = CCA(group=2, window=3).attention(query, key, value, scale=scaling)
        return out.transpose(1, 2), None

    def attends(model: Any) -> str:
        name: str = model.config._attn_implementation
        return name if name in ("sdpa", "eager") else "the function's"  # whatever it is called

    def run(model: Any, ids: Tensor) -> tuple[Any, str, str]:
        before = model.config._attn_implementation

        def logits(model: Any) -> Tensor:
            with torch.no_grad():
                found: Tensor = model(input_ids=ids, use_cache=False).logits
            return found

        inside = answer(model, attend, logits)
        after = attends(model)
        model.set_attn_implementation(before)
        with suppress(ZeroDivisionError):
            answer(model, attend, lambda model: 1 / 0)
        after_error = attends(model)
        model.set_attn_implementation(before)
        return inside, after, after_error

    return run


# 13.7: groups beside padding
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


# 13.5: the score of a core that stands for several tokens
def core_scores(query: Tensor, keys: Tensor, members: Tensor, scale: float, *,
                wrong: str = "") -> Tensor:
    """Return the scores of a row, with the logarithm of each column's members or a mistake."""
    scores, bonus = scale * (keys @ query), members.log()
    return {"": scores + bonus, "none": scores, "inside": scores + scale * bonus,
            "count": scores + members, "times": scores * members,
            "unscaled": keys @ query + bonus}[wrong]


def columns(draw: Draw, members: list[int], features: int, scale: float) -> tuple[Any, ...]:
    """Return a query, the keys of columns, how many tokens each stands for, and a scale."""
    keys = draw.normal(len(members), features)
    return draw.normal(features), keys, torch.tensor(members, dtype=keys.dtype), scale


TURNS: tuple[CourseTask, ...] = (
    CourseTask("13.1", "with_attention", "A swap by hand", 10, 3, (
        equals("the logits of a swapped model, and the model as it was", used(with_attention),
               examples(family, *product(("GPT-2", "OPT"), ("sdpa", "eager"))),
               "the logits meanwhile", "the model's attention afterwards",
               "its attention after an error", wrong=mistakes(with_attention, {
            "the model attends as before while it reads: set the name in the model, and give the "
            "old one back after that only": {"wrong": "early"},
            "the old attention is not given back: keep its name before you set another one":
                {"wrong": "kept"},
            "one attention is set at the end, whatever the model had before: keep its old name":
                {"wrong": "fixed"},
            "`read` stopped with an error, and the old attention is not given back: use `finally`":
                {"wrong": "errors"}})),), shared=True, drive=used),
    CourseTask("13.5", "core_scores", "The score of a core", 5, 2, (
        equals("a core has the weight of its tokens", core_scores,
               examples(columns, ([3, 1], 2, 0.5), ([4, 4, 1, 1], 8, 0.25), ([16, 16, 1], 4, 2.0)),
               "the scores", wrong=mistakes(core_scores, {
            "a core counts as one token: nothing is added for its members": {"wrong": "none"},
            "the logarithm is scaled too; it is added to the scaled score": {"wrong": "inside"},
            "the scale is forgotten": {"wrong": "unscaled"},
            "the members are added themselves; the softmax takes e to a score": {"wrong": "count"},
            "the score is multiplied by the members; it is the weight that should be":
                {"wrong": "times"}})),)),
    CourseTask("13.7", "groups_of", "Groups beside padding", 6, 2, (
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
