"""Wrong full attentions, one trap each, on the way from the loop to the tiles."""

from torch import Tensor

from cca_lab.mechanisms import Full, full
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS = form(Full, "loops")
ROWS, MATRIX, TILES = (f"cca_lab.mechanisms.full.{name}" for name in ("loops", "effective",
                                                                      "tiled"))
SOFTMAX = 'torch.softmax(scores.masked_fill(~past, float("-inf")), dim=-1)'


def tiles(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Full attention by small tiles."""
    return full.tiled(q, k, v, query_tile=4, key_tile=4, **options)


def seen(tokens: str) -> tuple[tuple[str, str, str], ...]:
    """Return pieces with which row i sees the first `tokens`."""
    return ((ROWS, "keys[: i + 1] @", f"keys[: {tokens}] @"),
            (ROWS, "values[: i + 1] ", f"values[: {tokens}] "))


sees_one_ahead = slip("row i also sees token i + 1", LOOPS, *seen("i + 2"))
blind_to_itself = slip("a row does not see its own token", LOOPS, *seen("max(1, i)"))
softmax_after_mask_product = slip("the future is set to 0 after the softmax", full.dense,
                                  (MATRIX, SOFTMAX, "torch.softmax(scores, dim=-1) * past"))
no_running_max = slip("exp of the bare score: right until it overflows", full.dense, (
    MATRIX, SOFTMAX, "(scores.exp() * past) / (scores.exp() * past).sum(-1, keepdim=True)"))
accumulator_not_corrected = slip("the sum is rescaled, the accumulator is not", tiles, (
    TILES, "correction * accumulator +", "accumulator +"))
diagonal_tile_unmasked = slip("nothing is masked inside the last tile", tiles, (
    TILES, 'scores.masked_fill(columns > rows[:, None], float("-inf"))', "scores"))
one_kv_head_for_all = slip("head h reads KV head h mod Hk", LOOPS, (
    ROWS, "k[b, h // queries_per_key], v[b, h // queries_per_key]",
    "k[b, h % k.shape[1]], v[b, h % v.shape[1]]"))
first_sequence_for_all = slip("k[0] where k[b] is meant", LOOPS, (
    ROWS, "= k[b, h // queries_per_key],", "= k[0, h // queries_per_key],"))


def values_read_with_strides_of_keys(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """One set of strides for k and v, as in the public CCA kernel."""
    return full.dense(q, k, v.as_strided(v.shape, k.stride()), **options)
