"""CCA attention: indices by brute force, pooling, rotation, and a row worked by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import CCA, full
from cca_lab.mechanisms.cca import groups
from tests.mechanisms import bench
from tests.mechanisms.forms import form

RUNGS = {"loops": form(CCA, "loops"), "dense": form(CCA, "attention", backend="dense"),
         "blocked": form(CCA, "attention", backend="blocked")}
every_rung = pytest.mark.parametrize("rung", RUNGS.values(), ids=RUNGS)
small, few = st.integers(1, 12), st.integers(0, 9)


# ---------------------------------------------------------------- which columns a row reads

@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 40), group=small, window=small, sinks=few)
def test_intervals_read_each_past_token_once(length, group, window, sinks):
    """Any g, s, S, L: raw or in one core, never twice, never the future; the s nearest are raw."""
    first = min(sinks, length)
    count = groups.core_count(length - first, group, window)
    token = torch.arange(length)
    held_by_core = ((token >= first) & ((token - first) // group == torch.arange(count)[:, None]))
    raw = torch.eye(length, dtype=torch.long)
    held = torch.cat([held_by_core.long(), raw])                                    # (C + L, L)
    column = torch.arange(count + length)
    table = groups.intervals(length, group, window, sinks=sinks)
    starts, ends = table[0, 0].unbind(-1)                                  # (L, 2 or 3) each
    assert table.shape == (1, 1, length, 3 if sinks else 2, 2)
    visible = ((column >= starts[..., None]) & (column < ends[..., None])).sum(1)  # (L, C + L)
    past = (token <= token[:, None]).long()
    assert torch.equal(visible @ held, past)
    singly = visible[:, count:]                                                     # (L, L)
    assert torch.equal((singly * past).sum(1), singly.sum(1))
    kept = (token > token[:, None] - window) | (token < first)
    assert singly[kept & past.bool()].all()
    behind = groups.pairs(length - first, group, window) if first < length else 0
    assert int(visible.sum()) == behind + first * (length - first) + first * (first + 1) // 2


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 40), group=small, window=small)
def test_visible_cores_are_the_complete_groups_older_than_the_window(length, group, window):
    """n(i) without a floor: the groups that end within the i + 1 - s tokens before the window."""
    wanted = [sum((p + 1) * group <= i + 1 - window for p in range(length)) for i in range(length)]
    assert groups.visible_cores(length, group, window).tolist() == wanted
    assert groups.core_count(length, group, window) == wanted[-1] <= length // group


@settings(max_examples=60, deadline=None)
@given(length=st.integers(0, 60), group=small, window=small)
def test_cache_tokens_by_decoding_one_token_after_the_other(length, group, window):
    """Append, pool each group as it closes, drop a raw token once no later row reads it."""
    cores, raw = 0, []
    for seen in range(1, length + 1):
        raw.append(seen - 1)
        cores += seen % group == 0
        next_row = groups.visible_cores(seen + 1, group, window)[-1].item()
        raw = [token for token in raw if token >= group * next_row]
    assert groups.cache_tokens(length, group, window) == cores + len(raw)
    assert len(raw) <= window + group - 2 + (length < window)


def test_the_published_sizes():
    """Table 9's setting at 128K: the paper's 4.5 GB of LLaMA2-7B's 64 GB (0.5 MiB a token)."""
    kept = groups.cache_tokens(131072, 16, 1024)
    assert 0.5 * kept / 1024 == pytest.approx(4.5, abs=0.05)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 40), group=small, window=small, sinks=st.integers(1, 9))
def test_behind_sinks_is_a_text_of_its_own(length, group, window, sinks):
    """Rows i >= S see of the columns behind the sinks what plain CCA's row i - S sees."""
    table = groups.intervals(length, group, window, sinks=sinks)[0, 0]
    count = groups.core_count(max(0, length - sinks), group, window)
    assert table[:, 1].tolist() == [[count, count + min(i + 1, sinks)] for i in range(length)]
    if length > sinks:
        plain = groups.intervals(length - sinks, group, window)[0, 0]
        assert torch.equal(table[sinks:, 0], plain[:, 0])
        assert torch.equal(table[sinks:, 2] - sinks, plain[:, 1])
    mechanism = CCA(group=group, window=window, sinks=sinks)
    behind = max(0, length - sinks)
    assert mechanism.cache_entries(length) == min(sinks, length) + groups.cache_tokens(
        behind, group, window)
    assert mechanism.exact_when(length) == (behind == 0 or CCA(group=group,
                                                               window=window).exact_when(behind))


def test_no_sinks_are_no_option():
    """The paper's mechanism has none, and what was recorded before they existed stays the same."""
    assert CCA(sinks=0).options() == {"group": 16, "window": 64}
    assert CCA(sinks=4).options() == {"group": 16, "window": 64, "sinks": 4}
    assert CCA(group=3, window=2) == CCA(group=3, window=2, sinks=0)


# ---------------------------------------------------------------- a row worked by hand

@every_rung
def test_a_row_worked_by_hand(rung):
    """g = 2, s = 1: row 2 sees one core, of tokens 0 and 1 judged by 1, and its own token."""
    q = torch.tensor([[0.0], [2.0], [3.0]], dtype=torch.float64)[None, None]
    k = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[1.0], [0.0], [5.0]], dtype=torch.float64)[None, None]
    # token 0 in the core: logits 2 * 1 and 2 * 0, so key = value = phi
    phi = 1 / (1 + math.exp(-2))
    own = 1 / (1 + math.exp(3 * phi - 3))  # token 2 in the row: logits 3 * 1 and 3 * phi
    got = rung(q, k, v, group=2, window=1)[0, 0, 2, 0].item()
    assert got == pytest.approx((1 - own) * phi + own * 5, abs=1e-12)


@every_rung
def test_a_row_behind_a_sink_worked_by_hand(rung):
    """g = 2, s = 1, S = 1: row 3 sees token 0, the core of tokens 1 and 2, and its own token."""
    q = torch.tensor([[0.0], [9.0], [2.0], [3.0]], dtype=torch.float64)[None, None]
    k = torch.tensor([[0.5], [1.0], [0.0], [1.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[7.0], [1.0], [0.0], [5.0]], dtype=torch.float64)[None, None]
    # token 1 in the core, judged by token 2: logits 2 * 1 and 2 * 0, so key = value = phi
    phi = 1 / (1 + math.exp(-2))
    sink, core, own = math.exp(3 * 0.5), math.exp(3 * phi), math.exp(3 * 1)
    got = rung(q, k, v, group=2, window=1, sinks=1)[0, 0, 3, 0].item()
    assert got == pytest.approx((7 * sink + phi * core + 5 * own) / (sink + core + own), abs=1e-12)


# ---------------------------------------------------------------- the bench's checks of pooling
# mechanisms

@pytest.mark.parametrize("check", [bench.check_window, bench.check_pooling_weights,
                                   bench.check_judge,
                                   bench.check_rope_middle, bench.check_rope_translation],
                         ids=lambda check: check.__name__.removeprefix("check_"))
def test_pooling_checks(check):
    for group, window, sinks in ((2, 4, 0), (3, 4, 2), (4, 2, 0), (3, 1, 2)):
        check(RUNGS["dense"], {"group": group, "window": window, "sinks": sinks})
    if check is not bench.check_window:
        check(RUNGS["dense"], {"group": 3, "window": 2, "per_query_head": True, "sinks": 1})


@pytest.mark.parametrize("option", [{}, {"pooling": "mean"}, {"pooling": "max"},
                                    {"per_query_head": True}, {"sinks": 3},
                                    {"sinks": 30}],
                         ids=lambda option: "-".join(map(str, option.values())) or "softmax")
def test_rungs_agree_under_rotation(option):
    """Tables (L, D), (1, L, D) and (B, L, D), those of each row of the batch elsewhere."""
    q, k, v = bench.inputs(10, batch=2, heads=4, kv_heads=2)
    here, there = bench.rope_tables(10, 4), bench.rope_tables(10, 4, offset=3)
    each = [torch.stack(pair) for pair in zip(here, there, strict=True)]  # cos and sin, (B, L, D)
    for tables in (here, [t[:1] for t in each], each):
        turned = [bench.rotate(x, *(t.unsqueeze(1) if t.dim() == 3 else t for t in tables))
                  for x in (q, k)]
        options = {"group": 3, "window": 2, "rotation": tuple(tables), **option}
        bench.assert_close(RUNGS["dense"](*turned, v, **options),
                           RUNGS["loops"](*turned, v, **options), "dense under rotation")


def test_tables_that_carry_a_scale_are_inverted_exactly():
    """Some RoPE extensions multiply cos and sin by a factor; a core key has it once."""
    q, k, v = bench.inputs(10)
    cos, sin = bench.rope_tables(10, 4)
    scaled = [1.3 * bench.rotate(x, cos, sin) for x in (q, k)]
    wanted = CCA(group=3, window=2).attention(*scaled, v, rotation=(cos, sin))
    for rung in RUNGS.values():
        got = rung(bench.rotate(q, 1.3 * cos, 1.3 * sin), bench.rotate(k, 1.3 * cos, 1.3 * sin), v,
                   group=3, window=2, rotation=(1.3 * cos, 1.3 * sin))
        bench.assert_close(got, wanted, "scaled tables")


def test_effective_and_gradients_under_rotation():
    cos, sin = bench.rope_tables(6, 2)
    options = {"group": 2, "window": 1, "rotation": (cos, sin)}
    bench.check_effective(RUNGS["loops"], options, form(CCA, "effective"), length=6, head_dim=2,
                          heads=4, kv_heads=2)
    bench.check_gradients(form(CCA, "attention"), options, length=6, head_dim=2)


def test_pooling_keys_and_values_is_pooling_tokens():
    """Algorithm 1 line 7 with biases: (phi X) W + b = phi (X W + b), because phi sums to 1."""
    generator = torch.Generator().manual_seed(0)
    x, w_q, w_k, w_v, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64)
                              for shape in ((9, 4), (4, 4), (4, 4), (4, 4), (3, 4)))
    q, k, v = x @ w_q + bias[0], x @ w_k + bias[1], x @ w_v + bias[2]
    g, s, i = 3, 2, 8
    core_x = torch.stack([torch.softmax(k[t : t + g] @ q[t + g - 1] / 2,
                                        0) @ x[t : t + g] for t in (0, g)])
    seen = torch.cat([core_x, x[2 * g :]])  # the paper's C above the raw tokens that row 8 sees
    wanted = torch.softmax((seen @ w_k + bias[1]) @ q[i] / 2, 0) @ (seen @ w_v + bias[2])
    got = CCA(group=g, window=s).loops(q[None, None], k[None, None], v[None, None])[0, 0, i]
    bench.assert_close(got, wanted, "pooled tokens, then projected")


def test_half_precision_stays_close_to_the_reference():
    """bfloat16 keeps 8 bits: 2**-8 a rounding, a handful of roundings."""
    q, k, v = (x.bfloat16() for x in bench.inputs(16, heads=4, kv_heads=2))
    wanted = CCA(group=3, window=4).loops(q.double(), k.double(), v.double())
    for backend in ("dense", "blocked"):
        got = CCA(group=3, window=4, backend=backend).attention(q, k, v)
        assert got.dtype == torch.bfloat16
        bench.assert_close(got.double(), wanted, backend, tolerance=8 * 2**-8)


# ---------------------------------------------------------------- refusals


def test_a_maximum_has_no_effective_matrix():
    q, k, _ = bench.inputs()
    with pytest.raises(ValueError, match="'max'"):
        CCA(group=3, window=2, pooling="max").effective(q, k)


def test_a_window_of_everything_needs_no_core():
    assert groups.intervals(5, 2, 5).tolist() == [[[[[0, 0], [0, i + 1]] for i in range(5)]]]
    assert groups.pairs(5, 2, 5) == full.pairs(5)


@pytest.mark.parametrize("sinks", [0, 2])
def test_where_all_scores_are_equal_proportional_cores_are_full_attention(sinks):
    q, k, v = bench.inputs(17)
    for proportional in (False, True):
        cca = CCA(group=3, window=4, sinks=sinks, proportional=proportional)
        same = torch.allclose(cca.attention(0 * q, k, v), full.loops(0 * q, k, v), atol=1e-12)
        assert same == proportional
