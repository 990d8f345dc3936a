"""The blocked backend: its plan by brute force, and its results against the dense backend."""

from contextlib import contextmanager
from functools import partial
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.attention import blocked, causal_intervals, plan, tiles, visible_mask
from cca_lab.attention.blocked import blocked_attention
from tests import strategies
from tests.attention import bench
from tests.mutants import attention as wrong
from tests.mutants.slips import planted

blocks = st.sampled_from([None, 1, 2, 3, 5, 8, 64])


@contextmanager
def cheap_merges():
    """Make merging free, so that cores and edges are split even in tiny blocks."""
    with mock.patch.multiple(plan, _MERGE=0.0, _CALL=0.0):
        plan._cached_plan.cache_clear()
        yield
    plan._cached_plan.cache_clear()


@contextmanager
def plain_tiles(at_once: int = 64):
    """Attend with matrix products in small chunks, as on devices without the flash operator."""
    with mock.patch.object(blocked, "tile_for", lambda *_: tiles.MatmulTile()), \
         mock.patch.object(tiles, "_SCORES_AT_ONCE", at_once):
        yield


# ---------------------------------------------------------------- the plan

def check_plan(table: torch.Tensor, columns: int, block: int | None) -> None:
    """The parts hold each visible (row, column) exactly once, and no other."""
    held = torch.zeros(len(table), columns, dtype=torch.int64)
    for part in plan.plan_of(table, block):
        mask = part.mask(torch.float64, torch.device("cpu"))
        seen = torch.ones(part.rows, part.columns,
                          dtype=torch.int64) if mask is None else (mask == 0).long()
        seen = seen.tril() if part.causal else seen
        blind = part.blind_rows(torch.device("cpu"))
        blind = torch.zeros(part.rows, dtype=torch.bool) if blind is None else blind
        assert torch.equal(seen.sum(1) == 0, blind)
        for u in range(part.count):
            row, column = part.row + u * part.rows, part.column + u * part.step
            held[row : row + part.rows, column : column + part.columns] += seen
    wanted = visible_mask(table[None, None], columns)[0, 0].long()
    assert torch.equal(held,
                       wanted), f"held unlike visible at {(held != wanted).nonzero()[:3].tolist()}"


@given(table=strategies.tables(), block=blocks, split=st.booleans())
def test_parts_cover_the_visible_pairs_of_any_table_once(table, block, split):
    with cheap_merges() if split else mock.MagicMock():
        check_plan(*table, block)


LONG = {
    "causal": causal_intervals(700)[0, 0],
    "chunk after a cache": causal_intervals(300, 900)[0, 0],
    "CCA": bench.window_table(900, 100, 16, cores=True),
    "CCA, groups that do not divide": bench.window_table(900, 70, 12, cores=True),
    "sliding window": bench.window_table(900, 40, 1, cores=False),
    "window that moves in leaps": bench.window_table(900, 300, 250, cores=False),
    "blocks": torch.stack([torch.arange(800) // 200 * 200, torch.arange(1, 801)], dim=-1)[:, None],
    "short blocks": torch.stack([torch.arange(800) // 50 * 50, torch.arange(1, 801)], dim=-1)[:,
                                                                                              None],
    "sinks and window": torch.cat([torch.tensor([0, 4]).expand(900, 1, 2),
                                   bench.window_table(900, 40, 1, cores=False).clamp(min=4)],
                                   dim=1)[4:],
    "late start": torch.stack([torch.zeros(900, dtype=torch.int64),
                               (torch.arange(900) - 500).clamp(min=0)], dim=-1)[:, None],
}


@pytest.mark.parametrize("table", LONG.values(), ids=LONG)
@pytest.mark.parametrize("split", [False, True])
def test_parts_cover_the_visible_pairs_of_long_tables_once(table, split):
    with cheap_merges() if split else mock.MagicMock():
        check_plan(table, int(table.max()) + 1, None)


def test_sliding_windows_become_few_parts():
    """What makes them fast: blocks of one pattern are one call over overlapping views."""
    parts = plan.plan_of(bench.window_table(8192, 256, 16, cores=False))
    assert len(parts) < 10 and max(part.count for part in parts) > 5
    assert all(part.rows * part.count <= 2048 or part.causal for part in parts)


def test_causal_attention_becomes_one_part():
    (part,) = plan.plan_of(causal_intervals(5000)[0, 0])
    assert part.causal and (part.rows, part.columns) == (5000, 5000)


# ---------------------------------------------------------------- against the dense rung

@given(case=strategies.cases(), block=blocks, split=st.booleans(), plain=st.booleans(),
       through_lse=st.booleans())
def test_blocked_equals_dense_on_any_case(case, block, split, plain, through_lse):
    attend = partial(blocked_attention, block=block)
    with (cheap_merges() if split else mock.MagicMock(),
          plain_tiles() if plain else mock.MagicMock()):
        bench.check_same(attend, case)
        bench.check_gradients(attend, case, through_lse)


@pytest.mark.parametrize("name", LONG)
def test_blocked_equals_dense_on_long_tables(name):
    """Long enough for the planner's own choices: causal tiles, cores, gathered windows."""
    table = LONG[name][100 if name != "late start" else 501:][:420]
    case = bench.case_of(table[None, None], int(table.max()), heads=2, head_dim=3)
    with cheap_merges():
        bench.check_same(blocked_attention, case)
        bench.check_gradients(blocked_attention, case, through_lse=True)


def test_blocked_saves_nothing_that_grows_with_the_square_of_the_length():
    """Only q, k, v, out and lse stay until the backward."""
    saved = []
    case = bench.window_case(600, 64, 16)
    leaves = [x.requires_grad_() for x in case.tensors]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x,
                                                  lambda x: x):
        blocked_attention(*leaves, case.intervals, case.scale)
    assert sum(saved) == sum(x.numel() for x in leaves) + case.q.numel() + case.q[..., 0].numel()


def test_a_second_derivative_is_refused():
    case = bench.window_case(12, 5, 3)
    q = case.q.requires_grad_()
    out, _ = blocked_attention(q, case.k, case.v, case.intervals, case.scale)
    with pytest.raises(RuntimeError, match="no second derivative.*dense"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_nan_is_not_hidden_by_the_merge():
    case = bench.window_case(24, 5, 3)
    case.q[:, :, 20, 0] = float("nan")
    out, lse = blocked_attention(*case.tensors, case.intervals, case.scale)
    assert out[:, :, 20].isnan().all() and out[:, :, :20].isfinite().all() and lse[:, :,
                                                                                   20].isnan().all()


# ---------------------------------------------------------------- mutants

WINDOW = bench.window_case(60, 8, 4, heads=4, key_heads=2)
RAGGED = bench.ragged_case(batch=2)
GROUPED = bench.case_of(causal_intervals(4, 9), 9, heads=4, key_heads=2)
in_blocks = partial(blocked_attention, block=8)
through_lse = partial(bench.check_gradients, through_lse=True)


def plan_of_ragged_steps(attend, case) -> None:
    """Equal blocks whose columns move on by 8, then by 16: not one part."""
    start = torch.tensor([0, 8, 24]).repeat_interleave(8)
    check_plan(torch.stack([start, start + 4], dim=-1)[:, None], 40, 8)


def plan_of_changing_edges(attend, case) -> None:
    """Blocks of equal height and width, the second with its rows' ends elsewhere."""
    ends = torch.tensor([1, 1, 1, 4, 5, 8, 8, 8])
    check_plan(torch.stack([torch.arange(8) // 4 * 4, ends], dim=-1)[:, None], 8, 4)


MUTANTS = [  # (mutant, the check that kills it, the case, what the check says)
    ("finite_mask", bench.check_large_logits, WINDOW, "output: max error"),
    ("one_column_more", bench.check_matrix, WINDOW, "declared support"),
    ("one_column_more", bench.check_hidden_columns, WINDOW, "edits of column"),
    ("starts_ignored", bench.check_hidden_columns, WINDOW, "edits of column"),
    ("outputs_added", bench.check_matrix, WINDOW, "row sums"),
    ("later_part_not_rescaled", bench.check_matrix, WINDOW, "row sums"),
    ("lse_not_updated", bench.check_same, WINDOW, "max error"),
    ("blind_rows_kept", bench.check_matrix, WINDOW, "row sums"),
    ("local_statistics", bench.check_gradients, WINDOW, "gradient of q"),
    ("local_output", bench.check_gradients, WINDOW, "gradient of q"),
    ("one_query_head_counts", bench.check_gradients, GROUPED, "gradient of k"),
    ("overlaps_overwritten", bench.check_gradients, WINDOW, "gradient of k"),
    ("lse_gradient_dropped", through_lse, WINDOW, "gradient of q"),
    ("heads_interleaved", bench.check_same, RAGGED, "output: max error"),
    ("joined_at_any_step", plan_of_ragged_steps, None, "held unlike visible"),
    ("joined_whatever_the_edges", plan_of_changing_edges, None, "held unlike visible"),
]


@pytest.mark.parametrize(("mutant", "check", "case", "message"), MUTANTS,
                         ids=[f"{row[0]}-{n}" for n, row in enumerate(MUTANTS)])
def test_mutants_die_and_the_real_code_lives(mutant, check, case, message):
    with cheap_merges():
        check(in_blocks, case)
    with cheap_merges(), planted(*wrong.BLOCKED[mutant]), \
         pytest.raises(AssertionError, match=message):
        check(in_blocks, case)


def test_the_dense_mask_has_a_mutant_too():
    with planted(wrong.CLOSED_INTERVALS), pytest.raises(AssertionError,
                                                        match="row sums|declared support"):
        bench.check_matrix(bench.dense_attention, RAGGED)
