"""LoCoCo: its weights, eviction, the reach of gradients, mutants, refusals."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from cca_lab.mechanisms import lococo
from cca_lab.mechanisms.lococo import Compressor, LoCoCo, Settings, memories
from cca_lab.mechanisms.lococo.memory import compression_matrix, normalise, pooling
from cca_lab.mechanisms.lococo.segments import segments
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import lococo as wrong

LOOPS, DENSE = form(LoCoCo, "loops"), form(LoCoCo, "attention", backend="dense")
M3B2 = {"slots": 3, "segment": 2}


def compressor(slots: int, head_dim: int = 4, *, kernel: int = 3, size: float = 4.0) -> Compressor:
    """A compressor with outputs large enough to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Compressor(head_dim, slots, kernel=kernel).double()
    with torch.no_grad():
        made.conv.weight.mul_(size)
        made.conv.bias.copy_(torch.linspace(-0.3, 0.5, slots))
    return made


class Fixed(nn.Module):
    """A compressor whose output is given: (M, N)."""

    def __init__(self, output: list[list[float]]) -> None:
        super().__init__()
        self.output = torch.tensor(output, dtype=torch.float64)

    def forward(self, pairs: Tensor) -> Tensor:
        return self.output[:, : pairs.shape[2]].expand(*pairs.shape[:2], -1, -1)


# ---------------------------------------------------------------- which columns a row reads


def test_the_cache_of_a_mechanism():
    """A budget goes to slots and a segment."""
    for entries in (2, 9, 64):
        sized = LoCoCo.sized(entries, 500)
        assert sized.slots + sized.segment == sized.peak_entries(500) == entries
        assert max(map(sized.cache_entries, range(500))) == entries - 1


# ---------------------------------------------------------------- weights

def test_a_row_worked_by_hand():
    """Three tokens into two slots: the mean of the first two, and the third."""
    k = torch.tensor([[1.0], [3.0], [0.0], [1.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[2.0], [4.0], [7.0], [1.0]], dtype=torch.float64)[None, None]
    q = torch.tensor([[0.0], [0.0], [0.0], [1.0]], dtype=torch.float64)[None, None]
    module = Fixed([[5.0, 5.0, -1.0], [0.0, -2.0, 0.5]])   # ReLU, then each row by its sum: Eq. 7
    got = LOOPS(q, k, v, slots=2, segment=3, weights="relu", module=module)[0, 0, 3, 0].item()
    powers = [math.exp(2), math.exp(0), math.exp(1)]       # keys (1 + 3) / 2, 0 and its own
    assert got == pytest.approx((3 * powers[0] + 7 * powers[1] + 1 * powers[2]) / sum(powers),
                                abs=1e-12)


def test_the_convolution_by_hand():
    """Eq. 6: output i at column j is a sum over 2D features of columns j - 2 ... j + 2."""
    module, pairs = compressor(3, kernel=5), torch.randn(2, 2, 7, 8, dtype=torch.float64)
    got = module(pairs)
    weight, bias = module.conv.weight, module.conv.bias  # (M, 2D, kernel), (M,)
    for i in range(3):
        for j in range(7):
            wanted = bias[i] + sum(pairs[:, :, j + t - 2] @ weight[i, :, t]
                                   for t in range(5) if 0 <= j + t - 2 < 7)
            bench.assert_close(got[:, :, i, j], wanted, f"slot {i}, column {j}")


def test_size_of_the_published_compressor():
    """32 layers of 256 channels to 128 slots over 21 columns: 22 million (Section 4.1)."""
    with torch.device("meta"):
        module = Compressor(128, 128)
    assert 32 * module.conv.weight.numel() == pytest.approx(22e6, rel=2e-3)
    fresh = Compressor(16, 64)(torch.randn(1, 1, 400, 32))
    assert 0.8 < fresh.std().item() < 1.2, "an output as large as its input saturates no softmax"


@pytest.mark.parametrize("weights", ["softmax", "relu"])
def test_weights_are_means(weights):
    output = torch.randn(2, 5, 9, dtype=torch.float64)
    rows = normalise(output, weights)
    bench.assert_close(rows.sum(-1), torch.ones(2, 5, dtype=torch.float64), "row sums")
    assert (rows >= 0).all()
    floor = (rows / rows.amax(-1, keepdim=True)).amin() if weights == "softmax" else rows.amin()
    assert (floor >= (1 - 1e-12) * (-output.amax()).exp()) if weights == "softmax" else (floor == 0)


def test_a_dead_row_is_the_mean_and_passes_no_gradient():
    output = torch.tensor([[-1.0, -2.0, 0.0], [1.0, -1.0, 3.0]], dtype=torch.float64,
                          requires_grad=True)
    rows = normalise(output, "relu")
    assert rows[0].tolist() == [1 / 3] * 3 and rows[1].tolist() == [0.25, 0, 0.75]
    (gradient,) = torch.autograd.grad(rows[:, 0].sum(), output)
    assert gradient[0].tolist() == [0, 0, 0] and gradient[1].abs().max() > 0


@pytest.mark.parametrize("options", [{"sinks": 1}, {"heavy": 2}, {"sinks": 1, "heavy": 1},
                                     {}], ids=str)
def test_what_is_kept_and_what_is_mixed(options):
    """Kept columns are one-hot rows, sinks first, then the most attended; the rest is mixed."""
    option = Settings(slots=4, segment=1, **options)
    received = torch.tensor([[[0.1, 3.0, 0.2, 5.0, 4.0, 1.0]]], dtype=torch.float64)
    k, v = torch.randn(2, 1, 1, 6, 4, dtype=torch.float64)
    module = compressor(option.convolved)
    rows = compression_matrix(k, v, received, option, module)[0, 0]                     # (4, 6)
    kept = {"{'sinks': 1}": [0], "{'heavy': 2}": [3, 4],
            "{'sinks': 1, 'heavy': 1}": [0, 3]}.get(str(options), [])
    assert rows[: len(kept)].tolist() == torch.eye(6, dtype=torch.float64)[kept].tolist()
    assert (rows[len(kept) :, kept] == 0).all()


# ---------------------------------------------------------------- eviction is a special case

def h2o(q: Tensor, k: Tensor, v: Tensor, budget: int, segment: int) -> Tensor:
    """Greedy eviction in plain Python: only the tokens of the largest score stay."""
    out, scores = torch.zeros_like(q), {}                     # score by token that is still there
    for start, stop in segments(len(q), segment):
        scores |= dict.fromkeys(range(start, stop), 0.0)
        for i in range(start, stop):
            tokens = [t for t in scores if t <= i]
            weights = torch.softmax(k[tokens] @ q[i] * k.shape[1] ** -0.5, dim=0)
            out[i] = weights @ v[tokens]
            for token, weight in zip(tokens, weights.tolist(), strict=True):
                scores[token] += weight
        while len(scores) > budget:
            del scores[min(scores, key=scores.get)]
    return out


@pytest.mark.parametrize("segment", [1, 3])
def test_greedy_eviction_is_one_hot_rows(segment):
    """Eq. 3-4 with one-hot rows at the largest scores is H2O without its recent window."""
    options = {"slots": 4, "segment": segment, "heavy": 4, "scores": "sum"}
    q, k, v = bench.inputs(20, heads=1)
    q = 4 * q  # decided queries; else a new token always has the smallest sum
    got = DENSE(q, k, v, **options)
    bench.assert_close(got[0, 0], h2o(q[0, 0], k[0, 0], v[0, 0], 4, segment),
                       "against plain eviction")
    made = memories(q, k, v, Settings(**options), None, None)
    for memory in made:
        assert ((memory.weights == 0) | (memory.weights == 1)).all()
        assert (memory.weights.sum(-1) == 1).all()
    assert len({tuple(memory.weights.argmax(-1).flatten().tolist())
                for memory in made}) > 1, "one choice only"
    dropped = ~LoCoCo(**options).represented(q, k)[0, 0, -1]
    assert dropped.sum() >= 20 - 4 - segment


def test_scores_of_the_last_segment_choose_others():
    q, k, v = bench.inputs(20, heads=1)
    last, total = (LoCoCo(slots=4, segment=3, heavy=4, scores=s).attention(q, k, v)
                   for s in ("last", "sum"))
    assert (last - total).abs().max() > 1e-3


def test_weight_is_shared_out_and_never_made():
    """Each slot is a mean of tokens: M slots hold the weight M in all."""
    q, k, v = bench.inputs(40)
    made = memories(q, k, v, Settings(slots=5, segment=1), None, compressor(5))
    # the last memory, (M, L)
    pools = pooling(made, Settings(slots=5, segment=1), 40, k)[0, 0, -45:-40]
    bench.assert_close(pools.sum(-1), torch.ones(5, dtype=torch.float64), "each slot")
    assert (pools >= 0).all() and pools[:, -1].sum() == 0
    assert pools.sum(0).mean().item() == pytest.approx(5 / 40)


# ---------------------------------------------------------------- gradients

def check_the_compressor_learns(implementation) -> None:
    """Gradients of the convolution equal central differences, and are not zero."""
    q, k, v = bench.inputs(7, head_dim=2)
    module = compressor(2, head_dim=2)

    def output(weight, bias):
        return implementation(
            q, k, v, slots=2, segment=2,
            module=lambda pairs: torch.func.functional_call(module, {"conv.weight": weight,
                                                                     "conv.bias": bias}, (pairs,)))

    parameters = [module.conv.weight, module.conv.bias]
    loss, gradients = output(*parameters).square().sum(), [torch.zeros(1)]
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    assert gradients[0].abs().max() > 1e-3, "no gradient reaches the convolution"
    assert torch.autograd.gradcheck(output, parameters)


def test_the_compressor_learns():
    check_the_compressor_learns(DENSE)


def test_gradients_pass_all_compressions():
    """Values of the first tokens move a row after four compressions."""
    q, k, v = bench.inputs(11, heads=1)
    v.requires_grad_()
    out = DENSE(q, k, v, slots=2, segment=2, module=compressor(2))
    (gradient,) = torch.autograd.grad(out[0, 0, 10].sum(), v)
    assert len(lococo.compressions(11, Settings(slots=2, segment=2))) == 4
    assert (gradient[0, 0].abs().amax(-1) > 0).all()


# ------------------------------------------------------------ effective attention with a compressor

@pytest.mark.parametrize("options",
                         [M3B2, {**M3B2, "weights": "relu"}, {**M3B2, "heavy": 1},
                          {"slots": 3, "segment": 4, "sinks": 1}], ids=str)
def test_effective_times_the_values_is_the_output(options):
    module = compressor(3 - options.get("heavy", 0) - options.get("sinks", 0))
    q, k, v = bench.inputs(13, batch=2, heads=4, kv_heads=2)
    mechanism = LoCoCo(**options)
    matrix = mechanism.effective(q, k, v, module=module)
    values = v.repeat_interleave(2, dim=1)
    bench.assert_close(matrix @ values, mechanism.loops(q, k, v, module=module), "E v")
    bench.assert_close(matrix.sum(-1), torch.ones(2, 4, 13, dtype=torch.float64), "row sums")
    assert matrix.triu(1).abs().max() == 0
    assert torch.equal(matrix > 0, mechanism.represented(q, k, v, module=module))
    for method in (mechanism.effective, mechanism.represented):
        with pytest.raises(ValueError, match="v: got None with a module"):
            method(q, k, module=module)


def test_what_reaches_a_row_is_no_matter_of_rounding():
    """200 compressions halve the weight of a token each: 2**-200."""
    q, k, _ = (x.float() for x in bench.inputs(402))
    assert LoCoCo(slots=2, segment=2).effective(q, k)[0, 0, -1, 0] == 0
    assert torch.equal(LoCoCo(slots=2, segment=2).represented(q, k)[0, 0],
                       torch.ones(402, 402).tril() > 0)


def test_half_precision_stays_close_to_the_reference():
    """bfloat16: 2**-8 a rounding; slots are rounded anew at each of four compressions."""
    q, k, v = (x.bfloat16() for x in bench.inputs(11, heads=4, kv_heads=2))
    module = compressor(3, size=1.0).bfloat16()
    wanted = LoCoCo(**M3B2).loops(q.double(), k.double(), v.double(),
                                  module=compressor(3, size=1.0))
    got = LoCoCo(**M3B2).attention(q, k, v, module=module)
    assert got.dtype == torch.bfloat16
    bench.assert_close(got.double(), wanted, "bfloat16", tolerance=16 * 2**-8)


# ---------------------------------------------------------------- mutants

RELU = {**M3B2, "weights": "relu"}
DEAD = {**RELU, "module": Fixed([[1.0] * 9, [-1.0] * 9, [0.0] * 9])}
HEAVY = {"slots": 3, "segment": 3, "heavy": 2}
same_as_loops = partial(bench.check_same, reference=LOOPS)


def check_finite(implementation, options: dict) -> None:
    q, k, v = bench.inputs()
    bench.assert_close(implementation(q, k, v, **options), LOOPS(q, k, v, **options),
                       "with a dead channel")


def check_means(implementation, options: dict) -> None:
    """Every output is a mean of values: where all values are equal, it is that value."""
    q, k, v = bench.inputs()
    bench.assert_close(implementation(q, k, torch.ones_like(v), **options), torch.ones_like(q),
                       "mean of ones")


MUTANTS = [  # (mutant, the check that kills it, options, what the check says)
    (wrong.segments_from_nb, bench.check_full_limit, {"slots": 20, "segment": 3},
     "against full attention"),
    (wrong.always_compressed, partial(bench.check_full_limit, length=5),
     {"slots": 3, "segment": 3}, "against full"),
    (wrong.queries_mixed, check_means, M3B2, "mean of ones"),
    (wrong.softmax_over_slots, check_means, M3B2, "mean of ones"),
    (wrong.ratio_unguarded, check_finite, DEAD, "not finite"),
    (wrong.no_relu, same_as_loops, {**RELU, "module": compressor(3)}, "output"),
    (wrong.kept_tokens_mixed_too, same_as_loops, {**HEAVY, "slots": 4}, "output"),
    (wrong.first_head_decides, partial(bench.check_heads_interchangeable, length=20), HEAVY,
     "permuted"),
    (wrong.last_query_decides, partial(same_as_loops, length=20), HEAVY, "output"),
    (wrong.compression_detached, lambda rung, options: check_the_compressor_learns(rung), {},
     "no gradient"),
]


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), MUTANTS,
                         ids=lambda value: getattr(value, "__name__", ""))
def test_mutant_is_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    check(DENSE, options)


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize(
    ("option", "named"),
    [({"segment": 0}, "segment"), ({"weights": "ratio"}, "weights"), ({"scores": "mean"}, "scores"),
     ({"sinks": 2, "heavy": 2}, "sinks and heavy"),
     ({"kernel": 4}, "kernel")])
def test_options_that_do_not_fit_are_refused(option, named):
    with pytest.raises(ValueError, match=named):
        LoCoCo(**{**M3B2, **option})


def test_a_compressor_of_another_size_is_refused():
    with pytest.raises(ValueError, match="module: got a compressor with 2 slots, wanted 3"):
        LoCoCo(**M3B2).attention(*bench.inputs(), module=compressor(2))
