"""The page's logits are those of PyTorch, for every mechanism; wrong programs are found."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cca_lab import load_pretrained, swap_attention
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from cca_lab.views.page.mechanisms import CONTROLS, kept
from tests.views.page.conftest import SHIPPED
from tests.views.page.node import needs_node, run

pytestmark = needs_node
CLOSE = 1e-3
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 39, 40, 41, 64, 65, 100, 143, 200, 512)
# Small groups and windows, so that even short prompts have cores; the second model as it was
# trained, and in full.
CASES: list[tuple[int, str, dict[str, Any]]] = [(0, "full", {}),
                                                (0, "cca", {"group": 8, "window": 32,
                                                            "pooling": "softmax"}),
                                                (0, "cca", {"group": 5, "window": 3,
                                                            "pooling": "mean"}),
                                                (0, "mean_pooling", {"group": 3, "window": 10}),
                                                (0, "random_tokens", {"group": 4, "window": 7}),
                                                (0, "streaming_llm", {"sinks": 4, "recent": 20}),
                                                (0, "lm_infinite", {"local": 21,
                                                                    "global_tokens": 3}),
                                                (0, "a_shape", {"sinks": 0, "window": 30}),
                                                (0, "longlora", {"group": 15}),
                                                (0, "dga", {"group": 4, "gamma": 0.2,
                                                            "choose": "prompt", "block": 71}),
                                                (0, "dga", {"group": 4, "gamma": 0.29,
                                                            "choose": "blocks", "block": 20}),
                                                (1, "full", {}), (1, "cca",
                                                                  {"group": 8, "window": 64,
                                                                   "pooling": "softmax"}),]
# A wrong program: the file, what stands there, and what stands there instead.
MUTANTS = {"window off by one": ("mechanisms.js", "n = (i) => coreCount(i + 1, group, window)",
                                 "n = (i) => coreCount(i, group, window)"),
           "a token counted twice": ("mechanisms.js", "[C + group * n(i), C + i + 1]",
                                     "[C + Math.max(0, group * n(i) - 1), C + i + 1]"),
           "pooling unscaled": ("mechanisms.js", "members.map((t) => scale * dot(q,",
                                "members.map((t) => dot(q,"),
           "pooled by the first query": ("mechanisms.js", "last = members[members.length - 1];",
                                         "last = members[0];"),
           "positions from 1": ("model.js", "places[i * width + d]", "places[(i + 1) * width + d]"),
           "attention unscaled": ("model.js", "to: length, dim, scale: dim ** -0.5",
                                  "to: length, dim, scale: 1"),
           "no last norm": ("model.js", "    this.normalise(norm, 1);\n",
                            "    this.normed.set(this.x.subarray(0, width));\n"),
           "heads crossed": ("model.js", "(i - from) * width + index * dim);",
                             "(i - from) * width + (index ^ 1) * dim);"),
           "an odd last row left out": ("model.js", "i < rows; i += 2", "i + 1 < rows; i += 2"),
           "a row sees the next token": ("mechanisms.js", "[C + group * n(i), C + i + 1]",
                                         "[C + group * n(i), Math.min(C + length, C + i + 2)]"),}
# Wrong programs that use what was read before where a later token has changed it.
STALE = {"old choices": ("model.js", "end > from && known.delete(end)",
                         "end > 512 && known.delete(end)"),
         "old rows below new choices": ("model.js", "while (this.causal && from", "while (from"),
         "one token too many": ("model.js", "this.ids = [...ids];",
                                "from = Math.min(from + 1, ids.length - 1); this.ids = [...ids];"),}


@pytest.fixture(scope="module")
def prompts(data) -> list[list[int]]:
    """Twenty prompts, documents and a question, of 1 to 512 tokens.

    The last tokens of each text.
    """
    task = MultiDocumentQA(load_pretrained(SHIPPED[0])[1])
    texts = task.batch(len(LENGTHS), 507, torch.Generator().manual_seed(0)).input_ids.tolist()
    before = data["questions"]["before"]
    return [[*before, *text][-length:] if length <= len(text) else [*(before * 2), *text][-length:]
            for text, length in zip(texts, LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def wanted(prompts) -> list[list[torch.Tensor]]:
    """PyTorch's logits after each prompt, for each case."""
    models = [load_pretrained(source, "full")[0] for source in SHIPPED]
    found = []
    for number, name, options in CASES:
        swap_attention(models[number], name, **options)
        with torch.no_grad():
            found.append([models[number](torch.tensor([ids])).logits[0, -1] for ids in prompts])
    return found


def cases(*, fresh: bool = False) -> list[dict[str, Any]]:
    """Return the cases as run.mjs takes them."""
    return [{"model": model, "name": name, "fresh": fresh,
             "options": options | ({"kept": kept(512)} if name == "random_tokens" else {})}
            for model, name, options in CASES]


def errors(got: list[list[list[float]]], wanted: list[list[torch.Tensor]]) -> list[float]:
    """Return the largest error of each case."""
    return [max(float((torch.tensor(one) - other).abs().max())
                for one, other in zip(ours, theirs, strict=True))
            for ours, theirs in zip(got, wanted, strict=True)]


def test_logits_are_those_of_pytorch(data, prompts, wanted):
    assert {name for _, name, _ in CASES} == set(CONTROLS)
    assert [len(ids) for ids in prompts] == list(LENGTHS)
    found = run("logits", {"packed": data["packed"], "cases": cases(fresh=True),
                           "prompts": prompts})
    for (model, name, options), error in zip(CASES, errors(found, wanted), strict=True):
        print(f"{error:.1e} {Path(SHIPPED[model]).name} {name} {options}")
        assert error < CLOSE, (name, options)


def again_and_fresh(data, prompts, some: list[int], change=None) -> list[float]:
    """Return how far logits are apart in some cases if what was read is used again, and if not."""
    text = prompts[-2]
    texts = [text[:70], [*text[:70], 5, 6, 7], [*text[:69], 9], text[:40], text[:41],
             [*text[:41], *text[:20]]]
    job = {"packed": data["packed"], "prompts": texts}
    jobs = [job | {"cases": [cases(fresh=fresh)[n] for n in some]} for fresh in (False, True)]
    again, fresh = (torch.tensor(run("logits", one, change)) for one in jobs)
    return (again - fresh).abs().flatten(1).amax(1).tolist()


def test_a_text_that_goes_on_is_read_from_where_it_differs(data, prompts):
    """What was read is used again.

    Texts that share a beginning, some shorter than the one before.
    """
    assert max(again_and_fresh(data, prompts, [*range(len(CASES))])) < 1e-4


@pytest.mark.parametrize("name, change", STALE.items())
def test_what_may_not_be_used_again_is_found(data, prompts, name, change):
    some = [n for n, (_, mechanism, _) in enumerate(CASES) if mechanism in ("cca", "dga")][:-1]
    errors = again_and_fresh(data, prompts, some, change)
    found = {CASES[n][1] for n, error in zip(some, errors, strict=True) if error > CLOSE}
    assert found == ({"cca", "dga"} if name == "one token too many" else {"dga"})


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_wrong_programs_are_found(data, prompts, wanted, change):
    job = {"packed": data["packed"] | {"models": data["packed"]["models"][:1],
                                       "parts": data["packed"]["parts"][:1]},
           "cases": cases(fresh=True)[1:2], "prompts": prompts[15:18]}
    error = errors(run("logits", job, change), [wanted[1][15:18]])[0]
    assert not error < 10 * CLOSE, "the comparison above cannot see this mistake"


def test_the_time_of_512_tokens_is_said(data, prompts):
    some = [case for case in cases() if case["name"] in ("full", "cca", "dga") and case["model"]
            == 0]
    found = run("seconds", {"packed": data["packed"], "cases": some, "prompts": prompts[-1:],
                            "times": 2})
    for case, seconds in zip(some, found, strict=True):
        print(f"{seconds:.2f} s {case['name']} {case['options']}")
    assert max(found) < 20, "far too slow for anybody who drags a slider"
