"""Which KV heads fetch what stands far back: four scores of the heads of any model.

* by attention: how much of its weight a head gives to the needle in the rows that predict the
  answer, under full attention (Wu et al., "Retrieval Head Mechanistically Explains Long-Context
  Factuality", 2024, count how often the largest weight is there);
* by loss: how much the loss of the answer grows when this head alone attends with the mechanism,
  all others in full;
* by gates: with g_h of head h trained on the answers,

      out_h = g_h full_h + (1 - g_h) other_h,   loss = error of the last hidden states + penalty

  a head that needs its past keeps its gate open (Xiao et al., "DuoAttention", 2024, Section 2.2);
* by gain: how much of the answer's loss each head takes off while all gates open together,

      gain_h = - integral from g = 0 to 1 of d loss / d g_h, all gates at g

  so that the gains of all heads add up to the difference between the mechanism alone and full
  attention (the integrated gradients of Sundararajan et al., "Axiomatic Attribution for Deep
  Networks", 2017).

Differs from the papers: the weight on the whole needle is counted, not the largest one; gates are
those of KV heads, the error is divided by the size of the hidden states, and the other heads attend
with any mechanism.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cca_lab.mechanisms import Full, Mechanism
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.mechanisms.kept_heads.mechanism import KeptHeads
from cca_lab.models.interface import ROTATION, attention_hook, padding_mask
from cca_lab.models.plugin import (
    attention_maps,
    attention_modules,
    attention_of,
    modules_of,
    restore_attention,
    swap_attention,
)
from cca_lab.tasks.examples import Example, answer_ids, prompt_ids

GATED, GATES = "cca_lab_gates", "_cca_lab_gates"  # name of the attention; where a layer has gates
NODES = 3  # of the Gauss-Legendre rule
PENALTY = 0.3  # of open gates, as a mean, beside an error of about 1 with all of them closed
RATE = 0.05  # of Adam, for the gates
Report = Callable[[float, str], None]


class Prompt(NamedTuple):
    """A prompt with its answer as tokens.

    Attributes:
        ids: (1, L), the answer last.
        answer: number of its tokens.
        needle: where the same tokens stand in the prompt, as far as they do.
    """

    ids: Tensor
    answer: int
    needle: list[int]


def prompt_of(tokenizer: PreTrainedTokenizerBase, example: Example) -> Prompt:
    """Return an example as tokens; the needle is where the answer's longest end stands before."""
    prompt = prompt_ids(tokenizer, example.prompt)
    answer = answer_ids(tokenizer, example.prompt, example.continuation)
    needle: list[int] = []
    for skipped in range(len(answer)):  # a first token may differ, by the space before it
        end = answer[skipped:]
        places = [start for start in range(len(prompt) - len(end) + 1)
                  if prompt[start:start + len(end)] == end]
        if places:
            needle = list(range(places[-1], places[-1] + len(end)))
            break
    return Prompt(torch.tensor([prompt + answer]), len(answer), needle)


def answer_loss(model: PreTrainedModel, prompt: Prompt) -> Tensor:
    """Return the mean loss of a prompt's answer, in nats."""
    ids = prompt.ids.to(model.device)
    logits = model(ids, use_cache=False, logits_to_keep=prompt.answer + 1).logits[0, :-1]
    return F.cross_entropy(logits.float(), ids[0, -prompt.answer:])


def by_attention(model: PreTrainedModel, prompts: Sequence[Prompt], report: Report) -> Tensor:
    """Return the weight of the needle in the rows that predict the answer, (layers, Hk).

    The mean over prompts, rows and the query heads of a KV head; full attention.
    """
    kv_heads, total = CacheSizes.of(model.config).kv_heads, torch.zeros(())
    with _in_full(model):
        for done, prompt in enumerate(prompts):
            report(done / len(prompts), "by attention")
            maps = attention_maps(model, prompt.ids.to(model.device))  # (layers, H, L, L)
            rows = maps[:, :, -prompt.answer - 1:-1, prompt.needle].sum(-1).mean(-1).cpu()
            total = total + rows.unflatten(1, (kv_heads, -1)).mean(-1)
    return total / len(prompts)


@torch.no_grad()
def by_loss(model: PreTrainedModel, mechanism: Mechanism, prompts: Sequence[Prompt],
            report: Report) -> Tensor:
    """Return by how many nats the answers' loss grows if one KV head attends otherwise, as above.

    Args:
        model: it attends in full here, but for that head.
        mechanism: how that head attends.
        prompts: the same for all heads.
        report: is told the share that is done.
    """
    sizes = CacheSizes.of(model.config)
    everyone = [list(range(sizes.kv_heads)) for _ in range(sizes.layers)]

    def loss() -> float:
        return sum(float(answer_loss(model, prompt)) for prompt in prompts) / len(prompts)

    scores = torch.zeros(sizes.layers, sizes.kv_heads)
    with _in_full(model):
        base = loss()
        for layer in range(sizes.layers):
            for head in range(sizes.kv_heads):
                report((layer * sizes.kv_heads + head) / scores.numel(), "by loss")
                kept = [list(heads) for heads in everyone]
                kept[layer].remove(head)
                swap_attention(model, KeptHeads.around(mechanism, kept))
                scores[layer, head] = loss() - base
    return scores


def by_gates(model: PreTrainedModel, mechanism: Mechanism, prompts: Sequence[Prompt],
             report: Report) -> Tensor:
    """Return gates that were trained on a prompt a step, (layers, Hk): 1 is full attention.

    Args as in `by_loss`; the learning rate falls to 0 in the last third of the steps.
    """
    steps = len(prompts)
    with _gates_alone(model) as gates:
        optimizer = torch.optim.Adam([gates], lr=RATE)
        for step, prompt in enumerate(prompts):
            report(step / steps, "by gates")
            ids, rows = prompt.ids.to(model.device), slice(-prompt.answer - 1, -1)

            def hidden(ids: Tensor = ids, rows: slice = rows) -> Tensor:
                output = model.base_model(input_ids=ids, use_cache=False)
                return output.last_hidden_state[0, rows].float()

            with torch.no_grad():
                wanted = hidden()
            with _gated(model, mechanism, gates):
                error = (hidden() - wanted).square().sum() / wanted.square().sum()
            (error + PENALTY * gates.mean()).backward()
            optimizer.param_groups[0]["lr"] = RATE * min(1.0, 3 * (steps - step) / steps)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                gates.clamp_(0, 1)
    return gates.detach().cpu()


def by_gain(model: PreTrainedModel, mechanism: Mechanism, prompts: Sequence[Prompt],
            report: Report) -> Tensor:
    """Return by how many nats each head's full attention lowers the answers' loss, (layers, Hk).

    Args as in `by_loss`; the mean over the prompts.
    """
    nodes, shares = np.polynomial.legendre.leggauss(NODES)  # of -1 to 1
    with _gates_alone(model) as gates:
        gains = torch.zeros_like(gates)
        for done, prompt in enumerate(prompts):
            for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):
                report(done / len(prompts), "by gain")
                gates.data.fill_(node)
                with _gated(model, mechanism, gates):
                    (slopes,) = torch.autograd.grad(answer_loss(model, prompt), gates)
                gains -= share * slopes
    return gains.cpu() / len(prompts)


@contextmanager
def _gates_alone(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    """Yield open gates, (layers, Hk), for a model in full attention that records no gradients."""
    sizes = CacheSizes.of(model.config)
    gates = nn.Parameter(torch.ones(sizes.layers, sizes.kv_heads, device=model.device))
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        with _in_full(model):
            yield gates
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def _in_full(model: PreTrainedModel) -> Iterator[None]:
    """Attend in full within the context, and as before after it."""
    before = attention_of(model)
    if modules_of(model):
        raise ValueError(f"model: got one with trained modules of {before.name!r}, which full "
                         "attention would remove; wanted one without")
    try:
        restore_attention(model)
        yield
    finally:
        swap_attention(model, before)


@contextmanager
def _gated(model: PreTrainedModel, mechanism: Mechanism, gates: Tensor) -> Iterator[None]:
    """Mix full attention and a mechanism's, by the gates, in a model with full attention."""
    before = model.config._attn_implementation
    layers = attention_modules(model)
    hook: Any = attention_hook  # annotated for attention layers alone
    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    for layer, gate in zip(layers, gates, strict=True):
        vars(layer)[GATES] = gate, mechanism
    model.set_attn_implementation(GATED)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        for layer, handle in zip(layers, handles, strict=True):
            handle.remove()
            vars(layer).pop(GATES)


def gated_forward(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                  attention_mask: Tensor | None, dropout: float = 0.0,
                  scaling: float | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """Attend as g full + (1 - g) other, for texts without padding; transformers' signature."""
    gate, mechanism = vars(module)[GATES]
    query, key = query.to(value.dtype), key.to(value.dtype)
    full = Full().attention(query, key, value, scale=scaling)
    other = mechanism.attention(query, key, value, scale=scaling, rotation=kwargs.get(ROTATION))
    share = gate.repeat_interleave(query.shape[1] // key.shape[1])[:, None, None]  # (H, 1, 1)
    return (share * full + (1 - share) * other).to(value.dtype).transpose(1, 2), None


AttentionInterface.register(GATED, gated_forward)
AttentionMaskInterface.register(GATED, padding_mask)
