"""Each mutant dies by the check named beside it; the right forms pass that check."""

from functools import partial

import pytest

from cca_lab.mechanisms import CCA, Full, full
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import cca as wrong_cca
from tests.mutants import full as wrong_full
from tests.mutants.attention import POOLING
from tests.mutants.slips import planted

G3S4, G4S2 = ({"group": g, "window": s} for g, s in ((3, 4), (4, 2)))
SINKS = {**G3S4, "sinks": 2}
ROPE = {**G3S4, "rotation": bench.rope_tables(11, 4)}
HELD, SUMS, LEAK = "times a token is held", "row sums", "edits after token"
cca_loops, cca_effective = form(CCA, "loops"), form(CCA, "effective")

CCA_MUTANTS = [  # (mutant, the check that kills it, options, what the check says)
    (wrong_cca.printed_window, bench.check_partition_of_unity, G3S4, HELD),
    (wrong_cca.window_mod_row, bench.check_partition_of_unity, G3S4,
     "a past token has no weight|" + HELD),
    (wrong_cca.c_rounding, bench.check_partition_of_unity, G3S4, HELD),  # s >= g: counted twice
    (wrong_cca.c_rounding, bench.check_causality, G4S2, LEAK),  # s < g: a leak
    (wrong_cca.window_one_short, bench.check_window, G3S4, "row 5 has .* wanted 4 to 6"),
    (wrong_cca.future_group_pooled, bench.check_causality, G4S2, LEAK),
    (wrong_cca.padded_on_the_left, bench.check_right_padding, G3S4, "padded on the right"),
    (wrong_cca.groups_from_token_zero, bench.check_partition_of_unity, SINKS, HELD),
    (wrong_cca.sinks_dropped, bench.check_partition_of_unity, SINKS, "a past token has no weight"),
    (wrong_cca.sinks_counted_in_the_row, bench.check_window, SINKS, "row 6 has .* wanted 4 to 7"),
    (wrong_cca.first_query_judges, bench.check_judge, G3S4, "the query of token 0 moves rows"),
    (wrong_cca.unnormalised_phi, bench.check_partition_of_unity, G3S4, SUMS),
    (wrong_cca.unscaled_phi, bench.check_scale, G3S4, "scale against scaled queries"),
    (wrong_cca.first_head_judges, bench.check_heads_interchangeable, G3S4, "permuted query heads"),
    (wrong_cca.mean_of_softmaxes, bench.check_pooling_weights, G3S4, "phi of group 0"),
    (wrong_cca.detached_phi, partial(bench.check_same_gradients, reference=cca_loops), G3S4,
     "gradient of q"),
    (wrong_cca.rotated_keys_pooled, bench.check_rope_middle, G3S4, "logit of core 0"),
    (wrong_cca.core_at_position_zero, bench.check_rope_translation, G3S4, "positions moved by 7"),
    (wrong_cca.mask_multiplied, bench.check_causality, G3S4, LEAK),
    (wrong_cca.finite_mask, bench.check_large_logits, G3S4, "logits shifted by -1e"),
    (wrong_cca.scale_outside, bench.check_partition_of_unity, G3S4, SUMS),
]
FULL_MUTANTS = [
    (wrong_full.sees_one_ahead, bench.check_causality, LEAK),
    (wrong_full.diagonal_tile_unmasked, bench.check_causality, LEAK),
    (wrong_full.blind_to_itself, bench.check_partition_of_unity, "a past token has no weight"),
    (wrong_full.softmax_after_mask_product, bench.check_partition_of_unity, SUMS),
    (wrong_full.accumulator_not_corrected, bench.check_partition_of_unity, SUMS),
    (wrong_full.no_running_max, bench.check_large_logits, "not finite"),
    (wrong_full.one_kv_head_for_all, bench.check_heads_interchangeable, "permuted query heads"),
    (wrong_full.first_sequence_for_all, bench.check_batch, "batch against single"),
    (wrong_full.values_read_with_strides_of_keys, bench.check_layouts, "stride 0"),
]
cca_dense = form(CCA, "attention", backend="dense")
FULL_FORMS = [full.loops, full.dense, full.tiled, form(Full, "attention")]


def label(value) -> str | None:
    if isinstance(value, dict):
        return "-".join(f"{key[0]}{option}" for key, option in value.items())
    function = value.func if isinstance(value, partial) else value
    return getattr(function, "__name__", "").removeprefix("check_") or None


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), CCA_MUTANTS, ids=label)
def test_cca_mutant_is_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    check(cca_dense, options)


@pytest.mark.parametrize("mutant", POOLING)
def test_pooling_mutant_is_killed(mutant):
    with planted(*POOLING[mutant]), pytest.raises(AssertionError, match="max error"):
        bench.check_same(cca_dense, G3S4, cca_loops, heads=4, kv_heads=2)
        bench.check_rope_tables(cca_dense, G3S4, cca_loops)


@pytest.mark.parametrize(("mutant", "check", "reason"), FULL_MUTANTS, ids=label)
def test_full_mutant_is_killed(mutant, check, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, {})
    for right in FULL_FORMS:
        check(right, {})


def test_effective_matrix_without_rotation_is_killed():
    with pytest.raises(AssertionError, match="effective against V = identity"):
        bench.check_effective(cca_loops, ROPE, wrong_cca.effective_unrotated)
    bench.check_effective(cca_loops, ROPE, cca_effective)
