"""DGACache: "prompt" is Section 5.1, by hand; test_every_cache.py has "blocks"."""

import math

import pytest
import torch

from cca_lab.mechanisms import DGA
from cca_lab.mechanisms.caches import CacheSizes, DGACache
from cca_lab.mechanisms.dga import cache as cache_module
from cca_lab.mechanisms.dga.cache import DGAState
from cca_lab.models import swap_attention
from tests.mechanisms.bench import rope_tables, rotate
from tests.mechanisms.caching import checks as cache_checks
from tests.mechanisms.caching.checks import assert_equal, generate
from tests.models.tiny import logits, text, tiny
from tests.mutants import dga as mutants

PROMPT = {"group": 4, "gamma": 0.25}


def in_chunks(model, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return cache_checks.in_chunks(model, DGACache(model), ids, sizes)


def test_left_padded_generation_equals_each_prompt_alone():
    model = swap_attention(tiny("llama"), "dga", **PROMPT)
    cache_checks.check_left_padding(model, DGACache, (3, 10, 17))


# ---- "prompt": Section 5.1


def decoded_by_hand(q, k0, v, prompt: int, tables, *, group: int, gamma: float,
                    scale: float) -> torch.Tensor:
    """Section 5.1 for one sequence and KV head, entry by entry; q, k0 are not rotated."""
    def turned(x, position):
        return x if tables is None else rotate(x, tables[0][position], tables[1][position])

    length, position = k0.shape[0], list(range(k0.shape[0]))
    q, k = turned(q, position), turned(k0, position)

    def pooled(members, judge):
        phi = (scale * q[:, judge] @ k[members].T).mean(0).softmax(0)
        return turned(phi @ k0[members], members[group // 2]), phi @ v[members]

    focal = DGA(group=group, gamma=gamma).select(q[None, :, :prompt], k[None, None, :prompt],
                                                 scale=scale)[0, 0]
    others = [t for t in range(prompt) if not focal[t]]
    groups = [others[z : z + group] for z in range(0, len(others), group)]
    kept = [(k[t], v[t]) for t in range(prompt) if focal[t]] + [pooled(g, g[-1]) for g in groups]
    raw, rows = [], []
    for i in range(prompt, length):
        raw.append(i)
        keys, values = (torch.stack(x) for x in zip(*kept, *((k[t], v[t]) for t in raw),
                                                    strict=True))
        rows.append((scale * q[:, i] @ keys.T).softmax(-1) @ values)
        if len(raw) == math.ceil(round(1.1 * group, 6)):
            received = (scale * q[:, i] @ k[raw].T).softmax(-1).mean(0)
            best = sorted(raw, key=lambda t: -received[t - raw[0]])[: len(raw) - group]
            kept += [(k[t], v[t])
                     for t in raw if t in best] + [pooled([t for t in raw if t not in best], i)]
            raw = []
    return torch.stack(rows, dim=1)  # (H, L - prompt, D)


def check_prompt_decode(prompt: int = 9, length: int = 30, rotary: bool = True,
                        sizes: tuple[int, ...] = (1,), group: int = 4) -> None:
    torch.manual_seed(prompt)
    q = torch.randn(2, 4, length, 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, length, 4, dtype=torch.float64)
    tables = rope_tables(length, 4) if rotary else None
    turned = [rotate(x, *tables) if rotary else x for x in (q, k)]
    mechanism = DGA(group=group, gamma=0.25)
    state, outputs, start = DGAState(mechanism), [], 0
    for size in (prompt, *(sizes * length)):
        now = slice(start, min(start + size, length))
        rotation = tables and tuple(table[None, now] for table in tables)
        if now.start < length:
            outputs.append(state.step(*(x[:, :, now] for x in (*turned, v)), scale=0.5,
                                      rotation=rotation))
        start = now.stop
    got = torch.cat(outputs, dim=2)
    rotation = tables and tuple(table[:prompt] for table in tables)
    read_at_once = mechanism.loops(*(x[:, :, :prompt] for x in (*turned, v)), scale=0.5,
                                   rotation=rotation)
    assert_equal(got[:, :, :prompt], read_at_once, 1e-12)
    for b in range(2):
        for kv in range(2):
            heads = slice(2 * kv, 2 * kv + 2)
            wanted = decoded_by_hand(q[b, heads], k[b, kv], v[b, kv], prompt, tables, group=group,
                                     gamma=0.25, scale=0.5)
            assert_equal(got[b, heads, prompt:], wanted, 1e-12)


@pytest.mark.parametrize("sizes", [(1,), (3,), (2, 7), (40,)], ids=str)
def test_prompt_then_decode_is_section_5_1(sizes):
    check_prompt_decode(sizes=sizes, rotary=sizes != (3,))


@pytest.mark.parametrize(("prompt", "group"), [(1, 4), (12, 2), (9, 1), (4, 9)])
def test_other_prompts_and_groups(prompt, group):
    check_prompt_decode(prompt=prompt, group=group)


def test_prompt_kills_raw_tokens_that_stay(monkeypatch):
    monkeypatch.setattr(DGAState, "_forget_raw", mutants.raw_tokens_stay)
    with pytest.raises(AssertionError, match="max error"):
        check_prompt_decode()


def test_prompt_kills_a_group_that_closes_early(monkeypatch):
    monkeypatch.setattr(cache_module, "decode_span", mutants.span_rounded_down)
    with pytest.raises(AssertionError, match="max error"):
        check_prompt_decode()


def test_prompt_is_one_forward_and_decoding_is_not():
    """Prefill equals the forward over the prompt; after it a forward would choose anew."""
    model, ids = swap_attention(tiny("gpt2"), "dga", **PROMPT), text(30, rows=2)
    got = in_chunks(model, ids, [20] + [1] * 10)
    assert_equal(got[:, :20], logits(model, ids[:, :20]))
    assert (got[:, 20:] - logits(model, ids)[:, 20:]).abs().max() > 1e-3
    assert_equal(got, in_chunks(model, ids, [20, 3, 7]))


def test_beam_search_with_a_prompt_keeps_the_beams_apart():
    model, ids = swap_attention(tiny("gpt2"), "dga", **PROMPT), text(13, rows=2)
    tokens, _ = generate(model, ids, past_key_values=DGACache(model), num_beams=3,
                         output_logits=False)
    again, _ = generate(model, ids[:1], past_key_values=DGACache(model), num_beams=3,
                        output_logits=False)
    assert torch.equal(tokens[:1], again)


# ---- size


def check_prompt_bytes(**options) -> None:
    """As `cache_checks.check_bytes`, for a size that depends on where the prompt ends."""
    model = swap_attention(tiny("gpt2"), "dga", **options)
    cache_checks.check_sizes(model, DGACache, (21, 1, 1, 1, 1, 1, 1, 20, 1, 3), prompt=21)


def test_bytes_equal_the_closed_form():
    check_prompt_bytes(**PROMPT)
    check_prompt_bytes(**PROMPT, floor=30)


@pytest.mark.parametrize(("name", "mutant"), [("_keep", mutants.keep_a_view),
                                              ("_forget_raw", mutants.raw_tokens_stay)])
def test_bytes_kill_views_and_raw_tokens_that_stay(name, mutant, monkeypatch):
    monkeypatch.setattr(DGAState, name, mutant)
    with pytest.raises(AssertionError, match="closed form|bytes are kept"):
        check_prompt_bytes(**PROMPT)


def test_bytes_of_the_paper_s_setting():
    """LLaMA2-7B, fp16, a prompt of 16K: 1638 + 2 focal tokens and 921 groups, 512 KiB each."""
    llama = CacheSizes(layers=32, kv_heads=32, head_dim=128, itemsize=2)
    paper = DGA(**DGA.paper_presets["paper"])
    focal = paper.focal_count(16384)
    assert focal == 1638 + (16384 - 1638) % 16
    assert DGACache.bytes_of(paper, 16384, llama) == (focal + (16384 - focal) // 16) * 512 * 1024
