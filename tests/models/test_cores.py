"""What cores keep.

The reading from effective attention against phi and a core's weight worked out by hand.
"""


import numpy as np
import pytest
import torch

from cca_lab.mechanisms import CCA
from cca_lab.models import swap_attention
from cca_lab.models.cores import CoreReading, core_reading
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from tests.studies import small

LENGTH, OFFSETS, CONTEXTS, GROUP, WINDOW = 64, 3, 2, 4, 8
HALF_ULP = 2.0 ** -24  # what one rounding to float32 may change, relatively


def task():
    return MultiDocumentQA(small.tokenizer())


def sharp(**options):
    """A model whose queries and keys are 8 times as long, so that its phi is far from 1 / g."""
    model = small.model()
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight.mul_(8.0)
    return swap_attention(model, "cca", **{"group": GROUP, "window": WINDOW} | options)


def text():
    return tokenize(small.corpus().validation, small.tokenizer())


def read(model, reading=core_reading, **changes):
    settings = dict(length=LENGTH, text=text(), offsets=OFFSETS, contexts=CONTEXTS)
    return reading(model, task(), **settings | changes)


def seen_by(model, monkeypatch, reading):
    """The reading, each context's tokens, and each layer's queries, keys and scale."""
    contexts, heads = [], []

    def watch(module, args, kwargs):
        contexts.append(kwargs["input_ids"][0])
        heads.append([])

    own = CCA.effective

    def effective(mechanism, q, k, v, *, scale, **call):
        heads[-1].append((q[0].double(), k[0].double(), scale))
        return own(mechanism, q, k, v, scale=scale, **call)

    handle = model.transformer.register_forward_pre_hook(watch, with_kwargs=True)
    with monkeypatch.context() as patched:
        patched.setattr(CCA, "effective", effective)
        found = read(model, reading)
    handle.remove()
    return found, contexts, heads


def by_hand(q, k, scale):
    """phi (H, groups, g) and weight on the cores (H, groups) of the last row, an error bound.

    The bound is relative, for either. A logit is a dot product of D terms in float32, wrong by D +
    2 half ulps of its `size`, the sum of what is added, and a softmax doubles that: phi. A core's
    logit is wrong by as much again, and by what phi made of the core; then come g + 8 single
    roundings.
    """
    heads, length, dim = q.shape
    count = (length - WINDOW) // GROUP
    groups = k[:, : count * GROUP].unflatten(1, (count, GROUP))              # (H, groups, g, D)
    judge = q[:, GROUP - 1: count * GROUP: GROUP, None]                      # (H, groups, 1, D)
    phi = (scale * (judge * groups).sum(-1)).softmax(-1)
    core = (phi[..., None] * groups).sum(2)                                  # (H, groups, D)
    columns = torch.cat([core, k[:, count * GROUP:]], dim=1)
    attention = (scale * (q[:, -1:] * columns).sum(-1)).softmax(-1)[:, :count]
    size = scale * max(float(
        (judge * groups).abs().sum(-1).max()), float((q[:, -1:] * columns).abs().sum(-1).max()))
    return phi, attention, (2 * (dim + 2) * size * (1 + 2 * size) + GROUP + 8) * HALF_ULP


def place_of_answer(ids):
    """Where the surname stands that follows the first name of the question."""
    return (ids[:-1] == ids[-1]).nonzero().flatten()[0].item() + 1


def matches_the_definition(monkeypatch, reading):
    """Whether the report of two contexts at each of three offsets is what comes out by hand."""
    model = sharp()
    found, contexts, heads = seen_by(model, monkeypatch, reading)
    assert len(contexts) == OFFSETS * CONTEXTS and found.phi.shape == found.attention.shape == (
        OFFSETS, 2, 2)
    size, bound = task().document_length, 0.0
    wanted = {"phi": np.zeros((OFFSETS, 2, 2)), "attention": np.zeros((OFFSETS, 2, 2)),
              "kept": np.zeros((OFFSETS, 2, 2, size))}
    for index, (ids, layers) in enumerate(zip(contexts, heads, strict=True)):
        offset, answer = index // CONTEXTS, place_of_answer(ids)
        for layer, seen in enumerate(layers):
            phi, attention, error = by_hand(*seen)
            bound = max(bound, error)
            flat = phi.flatten(1)                                            # (H, closed tokens)
            wanted["phi"][offset, layer] += flat[:, answer].numpy() / CONTEXTS
            wanted["attention"][offset, layer] += attention[:, answer // GROUP].numpy() / CONTEXTS
            for token in range(size):
                mean = flat[:, offset + token::size].mean(1).numpy()
                wanted["kept"][offset, layer, :, token] += mean / CONTEXTS
    assert bound < 1e-3  # no bound at all would let everything pass
    assert np.ptp(wanted["kept"]) > 0.1 and np.ptp(
        wanted["attention"]) > 0.02  # nor would equal weights tell much
    return all(np.allclose(getattr(found, name), value, rtol=bound, atol=0)
               for name, value in wanted.items())


def test_phi_and_the_core_s_weight_are_those_of_the_queries_and_keys(monkeypatch):
    assert matches_the_definition(monkeypatch, core_reading)


@pytest.mark.parametrize("group, window", [(4, 5), (8, 5), (1, 5)])
def test_phi_sums_to_one_over_a_group(group, window):
    """Seven whole documents of 8 tokens are closed.

    8 / g groups a document, with a sum of 1 each.
    """
    found = read(sharp(group=group, window=window), offsets=1, length=61, position=0.5)
    assert np.allclose(found.kept.sum(-1), task().document_length / group, rtol=1e-5)
    assert (found.phi > 0).all() and (found.phi <= 1 + 1e-6).all()
    assert (found.attention > 0).all() and (found.attention < 1).all()
    if group == 1:  # a core is its token
        assert np.allclose(found.phi, 1.0, rtol=1e-6) and np.allclose(found.kept, 1.0, rtol=1e-6)


def test_the_best_head_reads_the_answer_itself():
    """Head (0, 1) keeps it at one offset and is looked for at the other; (1, 0) does both.

    The mutant that multiplies the means takes the first.
    """
    phi, attention = np.full((2, 2, 2), 0.1), np.full((2, 2, 2), 0.1)
    phi[:, 0, 1], attention[:, 0, 1] = (1.0, 0.0), (0.0, 1.0)
    phi[:, 1, 0] = attention[:, 1, 0] = 0.45
    found = CoreReading(phi, attention, np.zeros((2, 2, 2, 8)))
    assert found.best_head() == (1, 0)
    assert (phi.mean(0) * attention.mean(0)).argmax() == 1
