"""H2O's kernel: each row reads what the rows of the dense rung read, in float64."""

import pytest
import torch

from cca_lab.attention.kernels.eviction import triton_evicting_rows
from cca_lab.mechanisms import H2O
from cca_lab.mechanisms.h2o import mechanism
from cca_lab.mechanisms.h2o.mechanism import evicting_rows
from tests.attention.kernels import bench, sanitizer
from tests.mechanisms.bench import inputs
from tests.mutants.theory_forall import Slip

KERNEL = "cca_lab.attention.kernels.eviction.h2o_rows"


def drawn(entries: int, rows: int, recent: int, share: int, kv_heads: int = 2):
    """Logits of rows behind `entries` + 5 tokens, the kept tokens and their scores, in float64."""
    generator = torch.Generator().manual_seed(entries + rows)
    first = entries + 5
    logits = 3 * torch.randn(2, kv_heads, share, rows, first + rows, generator=generator,
                                 dtype=torch.float64)
    heavy = torch.stack([
        torch.randperm(first - recent, generator=generator)[: entries - recent].sort().values
        for _ in range(2 * kv_heads)]).view(2, kv_heads, -1)
    last = torch.arange(first - recent, first).expand(2, kv_heads, -1)
    kept = torch.cat([heavy, last], dim=2)
    return logits, kept, torch.rand(kept.shape, generator=generator, dtype=torch.float64), first


def same(logits, kept, scores, first: int, recent: int) -> None:
    """The tokens of each row and of the cache after them, and the scores."""
    wanted = evicting_rows(logits, kept, scores, first, recent)
    with bench.guarded_outputs():
        got = triton_evicting_rows(bench.guarded(logits.float()), kept.to(bench.DEVICE),
                                   scores.float().to(bench.DEVICE), first, recent)
    read, tokens, kept_scores = (x.cpu() for x in got)
    assert torch.equal(read.sort(-1).values, wanted[0]), "tokens that rows read"
    order = tokens.sort(-1)  # slots are in no order
    assert torch.equal(order.values, wanted[1]), "tokens after the last row"
    bench.assert_close(kept_scores.gather(-1, order.indices), wanted[2], "scores", torch.float32)


def check_rows() -> None:
    """Caches that fill a tile, leave lanes, and have room for one."""
    for entries, rows, recent, share in ((5, 9, 2, 2), (7, 9, 0, 1), (8, 1, 8, 3), (1, 6, 0, 2),
                                         (1, 6, 1, 1), (31, 40, 11, 2)):
        same(*drawn(entries, rows, recent, share), recent)


def check_large() -> None:
    """Logits of hundreds, whose exponentials overflow unless their maximum is subtracted."""
    logits, *rest = drawn(7, 9, 2, 2)
    same(logits + 200, *rest, 2)


def check_equals() -> None:
    """Scores that are equal bit for bit: the oldest leaves first."""
    tokens = torch.arange(6).expand(1, 1, -1)
    same(torch.zeros(1, 1, 1, 4, 10, dtype=torch.float64), tokens,
         torch.zeros(1, 1, 6, dtype=torch.float64), 6, 2)


@pytest.mark.parametrize("check", [check_rows, check_large, check_equals],
                         ids=lambda check: check.__name__)
def test_rows_read_what_the_dense_rung_reads(check):
    check()


@pytest.mark.parametrize("options", [{"heavy": 3, "recent": 2}, {"heavy": 0, "recent": 3},
                                     {"heavy": 2, "recent": 1, "prompt": 19}], ids=str)
def test_the_mechanism_chooses_the_same(options, monkeypatch):
    """Through several launches, behind a prompt, in a text that ends before the first eviction."""
    monkeypatch.setattr(mechanism, "ROWS_AT_ONCE", 8)
    for length in (1, 4, 30):
        q, k, _ = inputs(length, batch=2, heads=4, kv_heads=2, head_dim=8)
        wanted = H2O(backend="dense", **options).kept(q, k, 3.0)
        with monkeypatch.context() as patch:
            patch.delattr(mechanism, "evicting_rows")  # the kernel has to do without
            got = H2O(backend="triton", **options).kept(
                *(x.float().to(bench.DEVICE) for x in (q, k)), 3.0)
        assert torch.equal(got.cpu(), wanted)


def test_without_a_number_the_oldest_leaves_and_the_last_stay():
    logits, kept, scores, first = drawn(5, 9, 2, 2)
    logits[:, :, :, 3] = float("nan")
    read, *_ = triton_evicting_rows(logits.float().to(bench.DEVICE), kept.to(bench.DEVICE),
                                    scores.float().to(bench.DEVICE), first, 2)
    for row in range(9):
        for token in range(first + row - 2, first + row + 1):
            assert (read[:, :, row] == token).any(-1).all()


def test_double_precision_is_refused():
    q, k, _ = inputs(9, head_dim=8)
    with pytest.raises(ValueError, match="q: got torch.float64, wanted float16, bfloat16 or"):
        H2O(heavy=2, recent=1, backend="triton").kept(q, k, 1.0)


SLIPS = {
    "a new token with the score of the one that left": (
        check_rows, "score = tl.where(slot == free, 0.0, score)", "score = score"),
    "sums, not means, over query heads": (check_rows, "received / QUERIES_PER_KEY", "received"),
    "recent tokens leave too": (check_rows, "used & (token <= first + row - recent)", "used"),
    "of equal scores the youngest leaves": (
        check_equals, "tl.min(tl.where(older & ~(score > lightest), token, first + rows), 0)",
        "tl.max(tl.where(older & ~(score > lightest), token, 0), 0)"),
    "weights without the maximum": (check_large, "tl.exp(logits - tl.max(logits, 0))",
                                    "tl.exp(logits)"),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="slips are planted in the interpreter only")
@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_caught(monkeypatch, slip):
    check, right, wrong = SLIPS[slip]
    made = Slip("", KERNEL, right, wrong)
    monkeypatch.setattr(getattr(*made.place), "fn", made.made().fn)
    with sanitizer.watched(), pytest.raises((AssertionError, IndexError)):
        check()
