"""The lab's bench for one mechanism, yours or the package's: what each test found, in a line."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cca_lab.attention.fused import interpreted
from cca_lab.mechanisms.base import EVERY_ROW, Mechanism
from cca_lab.mechanisms.full import Full

LENGTHS = (1, 2, 3, 8, 21, 34)
NEAR = 1e-12  # of float64, where numbers are of the order of 1


def examine(mechanism: Mechanism) -> dict[str, bool]:
    """Test a mechanism, print a line for each test, and return which passed.

    The lengths are small and ragged, so choose small sizes: groups of 3 and a window of 5 show more
    than groups of 16. Inputs are float64, two query heads on one key and value head. Of the lab's
    mechanisms LoCoCo alone fails a test, the third: a token has a part in several slots.

    Raises:
        AssertionError: naming the tests that failed, after all have run.
    """
    passed = {}
    for name, test in TESTS.items():
        finding = test(mechanism)
        passed[name] = not finding
        print(f"  {'no ' if finding else 'ok '} {name}{': ' if finding else ''}{finding}")
    failed = [name for name, right in passed.items() if not right]
    assert not failed, f"{mechanism}: {'; '.join(failed)}"
    return passed


def heads(length: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return random q (1, 2, L, 16), k and v (1, 1, L, 16) in float64."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, count, length, 16, generator=generator, dtype=torch.float64)
               for count in (2, 1, 1))
    return q, k, v


def _every_length(test: Callable[[Mechanism, int], str]) -> Callable[[Mechanism], str]:
    """Return a test of all lengths, which stops at the first finding."""
    def run(mechanism: Mechanism) -> str:
        findings = ((length, test(mechanism, length)) for length in LENGTHS)
        return next((f"{length} tokens, {finding}" for length, finding in findings if finding), "")

    return run


def _rungs_agree(mechanism: Mechanism, length: int) -> str:
    inputs = heads(length)
    wanted = mechanism.loops(*inputs)
    for backend in mechanism.backends:
        kernel = backend in ("kernel", "triton")
        if kernel and not (interpreted() or torch.cuda.is_available()):
            continue  # this process can run no kernel
        given = [x.float() for x in inputs] if kernel else inputs
        error = (replace(mechanism, backend=backend).attention(*given) - wanted).abs().max().item()
        if not error <= (1e-5 if kernel else NEAR):
            return f"{backend} differs from the loops by {error:.1e}"
    return ""


def _unity(mechanism: Mechanism, length: int) -> str:
    weights = mechanism.effective(*heads(length))
    error = (weights.sum(dim=-1) - 1).abs().max().item()
    return "" if error <= NEAR else f"the weights of a row sum to 1 up to {error:.1e}"


def _once(mechanism: Mechanism, length: int) -> str:
    q, k, v = heads(length)
    made = mechanism.columns(q, k, v, mechanism.call(q, k, v))
    reads = torch.zeros(1, 2, length, length, dtype=torch.float64)
    for columns in made:
        seen = columns.mask().expand(1, 2, -1, -1).double()
        reads += columns.on_tokens(seen, length) if columns.pooling is None else \
            seen @ (columns.pooling() > 0).double()
    for row, token in _places(reads > 1):
        return f"row {row} reads token {token} twice"
    return ""


def _past_only(mechanism: Mechanism, length: int) -> str:
    if mechanism.causal_scope != EVERY_ROW:
        return ""
    before = mechanism.attention(*heads(length))
    for token in range(length):
        edited = [x.clone() for x in heads(length)]
        for x, other in zip(edited, heads(length, seed=1), strict=True):
            x[:, :, token] = other[:, :, token]
        moved = mechanism.attention(*edited)[:, :, :token] != before[:, :, :token]
        for row, _ in _places(moved):
            return f"row {row} changes with token {token}, which comes later"
    return ""


def _limit(mechanism: Mechanism, length: int) -> str:
    if not mechanism.exact_when(length):
        return ""
    error = (mechanism.attention(*heads(length)) - Full().loops(*heads(length))).abs().max().item()
    return "" if error <= NEAR else f"differs from full attention by {error:.1e}"


def _gradients(mechanism: Mechanism) -> str:
    inputs = tuple(x[..., :2].clone().requires_grad_() for x in heads(8))
    try:
        torch.autograd.gradcheck(mechanism.attention, inputs)
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""


def _places(where: Tensor) -> Iterator[tuple[int, int]]:
    """Yield (row, last index) of every True in (B, H, rows, n)."""
    for place in where.nonzero().tolist():
        yield place[2], place[3]


TESTS: dict[str, Callable[[Mechanism], str]] = {
    "all rungs equal the loops": _every_length(_rungs_agree),
    "the weights of a row sum to 1": _every_length(_unity),
    "no token is read twice": _every_length(_once),
    "a later token changes no row": _every_length(_past_only),
    "where it says so, it is full attention": _every_length(_limit),
    "gradients are those of finite differences": _gradients,
}
