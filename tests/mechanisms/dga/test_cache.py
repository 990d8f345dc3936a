"""DGACache: "blocks" is the forward over the whole text; "prompt" is Section 5.1, by hand."""

import math

import pytest
import torch

from cca_lab.mechanisms import DGA
from cca_lab.mechanisms.caches import CacheSizes, DGACache
from cca_lab.mechanisms.dga import cache as cache_module
from cca_lab.mechanisms.dga.cache import DGAState
from cca_lab.models import restore_attention, swap_attention
from tests.mechanisms.bench import rope_tables, rotate
from tests.mechanisms.caching import checks as cache_checks
from tests.mechanisms.caching.checks import FAMILIES, assert_equal, generate
from tests.models.tiny import left_padded, logits, text, tiny
from tests.mutants import dga as mutants

# 2 focal tokens and 2 groups a block
BLOCKS = {"group": 3, "gamma": 0.2, "choose": "blocks", "block": 8}
PROMPT = {"group": 4, "gamma": 0.25}


def in_chunks(model, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return cache_checks.in_chunks(model, DGACache(model), ids, sizes)


# ---- "blocks": one forward over the whole text


@pytest.mark.parametrize("sizes", cache_checks.CHUNKS, ids=str)
def test_blocks_in_chunks_equal_one_forward(sizes):
    cache_checks.check_chunks("gpt2", "dga", sizes, **BLOCKS)


@pytest.mark.parametrize("options", [dict(recent=1, random=2, seed=3),
                                     dict(floor=5),
                                     dict(group=1), dict(gamma=1.0), dict(block=1)], ids=str)
def test_blocks_with_every_option(options):
    cache_checks.check_chunks("llama", "dga", [11, 1, 1, 9], **{**BLOCKS, **options})


def test_blocks_kill_raw_tokens_that_stay(monkeypatch):
    monkeypatch.setattr(DGAState, "_forget_raw", mutants.raw_tokens_stay)
    with pytest.raises(AssertionError, match="chunks against one forward"):
        cache_checks.check_chunks("gpt2", "dga", [13, 1, 1, 12], **BLOCKS)


@pytest.mark.parametrize("options", [BLOCKS, {**BLOCKS, "group": 2, "block": 5}, {**BLOCKS,
                                                                                  "block": 40},
                                     {**BLOCKS, "gamma": 0.6}], ids=str)
def test_state_with_blocks_equals_the_mechanism(options):
    for seed, sizes in enumerate([[1] * 20, [23], [3, 8, 1, 9], [16, 8, 1]]):
        cache_checks.check_state("dga", options, sizes, rotated=seed != 1, seed=seed)


@pytest.mark.parametrize("family", ("gpt2", "llama"))
def test_blocks_generation_equals_recomputation(family):
    cache_checks.check_generation(family, "dga", **BLOCKS)


@pytest.mark.parametrize("options", [BLOCKS, PROMPT], ids=["blocks", "prompt"])
def test_left_padded_generation_equals_each_prompt_alone(options):
    model = swap_attention(tiny("llama"), "dga", **options)
    cache_checks.check_left_padding(model, DGACache, (3, 10, 17))


@pytest.mark.parametrize("options", [BLOCKS, PROMPT], ids=["blocks", "prompt"])
def test_padded_forward_equals_each_row_alone(options):
    """Padding is no token: it takes no part in the choice."""
    model = swap_attention(tiny("llama"), "dga", **options)
    prompts = [text(n, seed=n)[0] for n in (9, 21)]
    ids, mask, positions = left_padded(prompts)
    got = logits(model, ids, attention_mask=mask, position_ids=positions, use_cache=False)
    for row, prompt in enumerate(prompts):
        assert_equal(got[row, -len(prompt):], logits(model, prompt[None], use_cache=False)[0])


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


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_is_one_forward_and_decoding_is_not(family):
    """Prefill equals the forward over the prompt; after it a forward would choose anew."""
    model, ids = swap_attention(tiny(family), "dga", **PROMPT), text(30, rows=2)
    got = in_chunks(model, ids, [20] + [1] * 10)
    assert_equal(got[:, :20], logits(model, ids[:, :20]))
    assert (got[:, 20:] - logits(model, ids)[:, 20:]).abs().max() > 1e-3
    assert_equal(got, in_chunks(model, ids, [20, 3, 7]))


def test_short_texts_are_full_attention():
    """With the paper's floor the prompt is all focal, and the first m' tokens are read raw."""
    model, ids = tiny("llama"), text(30)
    wanted = logits(model, ids)
    swap_attention(model, "dga", group=16, gamma=0.1, floor=1024)
    assert_equal(in_chunks(model, ids, [12] + [1] * 18), wanted)
    restore_attention(model)


def test_beam_search_with_a_prompt_keeps_the_beams_apart():
    model, ids = swap_attention(tiny("gpt2"), "dga", **PROMPT), text(13, rows=2)
    tokens, _ = generate(model, ids, past_key_values=DGACache(model), num_beams=3,
                         output_logits=False)
    again, _ = generate(model, ids[:1], past_key_values=DGACache(model), num_beams=3,
                        output_logits=False)
    assert torch.equal(tokens[:1], again)


# ---- size


def check_prompt_bytes(family: str, options: dict) -> None:
    """As `cache_checks.check_bytes`, for a size that depends on where the prompt ends."""
    model = swap_attention(tiny(family), "dga", **options)
    cache_checks.check_sizes(model, DGACache, (21, 1, 1, 1, 1, 1, 1, 20, 1, 3), prompt=21)


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_equal_the_closed_form(family):
    cache_checks.check_bytes(family, "dga", **BLOCKS)
    for options in (BLOCKS, PROMPT, {**PROMPT, "floor": 30}):
        check_prompt_bytes(family, options)


@pytest.mark.parametrize("options", [BLOCKS, PROMPT], ids=["blocks", "prompt"])
def test_bytes_kill_views_and_raw_tokens_that_stay(options, monkeypatch):
    for name, mutant in (("_keep", mutants.keep_a_view), ("_forget_raw", mutants.raw_tokens_stay)):
        with monkeypatch.context() as patch, pytest.raises(AssertionError,
                                                           match="closed form|bytes are kept"):
            patch.setattr(DGAState, name, mutant)
            check_prompt_bytes("gpt2", options)


def test_bytes_of_the_paper_s_setting():
    """LLaMA2-7B, fp16, a prompt of 16K: 1638 + 2 focal tokens and 921 groups, 512 KiB each."""
    llama = CacheSizes(layers=32, kv_heads=32, head_dim=128, itemsize=2)
    paper = DGA(**DGA.paper_presets["paper"])
    focal = paper.focal_count(16384)
    assert focal == 1638 + (16384 - 1638) % 16
    assert DGACache.bytes_of(paper, 16384, llama) == (focal + (16384 - focal) // 16) * 512 * 1024
