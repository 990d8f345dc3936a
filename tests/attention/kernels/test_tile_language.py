"""Kernels whose results are known by hand run alike in the lab's tile language and in Triton's."""

from contextlib import nullcontext

import pytest
import torch

from cca_lab.attention.fused import installed
from cca_lab.attention.kernels import tile_interpreter, tile_language
from cca_lab.attention.kernels.language import tl, triton
from cca_lab.attention.kernels.tile_interpreter import instead_of_triton
from cca_lab.attention.kernels.tile_language import Tile

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled there")
INTERPRETERS = {"lab": instead_of_triton} | ({"triton": nullcontext} if installed() else {})
NAN = float("nan")


@triton.jit
def whole_numbers(X, OUT, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(X + lane)
    tl.store(OUT + lane, x // 2)
    tl.store(OUT + 4 + lane, x % 2)
    tl.store(OUT + 8 + lane, tl.where(x > 0, x, -x))
    tl.store(OUT + 12 + lane, tl.minimum(x, 1) + tl.maximum(x, 1))
    tl.store(OUT + 16 + lane, (x & 1) | (x == 7))


def whole():
    out = torch.zeros(20, dtype=torch.int32)
    whole_numbers[(1,)](torch.tensor([-7, -4, 3, 7], dtype=torch.int32), out, BLOCK=4)
    assert out.view(5, 4).tolist() == [[-3, -2, 1, 3],  # towards zero
                                       [-1, 0, 1, 1],  # the sign of the dividend
                                       [7, 4, 3, 7], [-6, -3, 4, 8], [1, 0, 1, 1]]


@triton.jit
def masked_sums(X, OUT, L, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x = tl.load(X + lane, mask=lane < L, other=2.0)
    tl.store(OUT + tl.program_id(0), tl.sum(x, 0) + tl.program_id(1))
    tl.store(OUT + 2 + lane, tl.exp2(x) / 2, mask=lane < L)


def masked():
    out = torch.full((6,), NAN)
    masked_sums[lambda arguments: (2, 3 - arguments["L"])](
        torch.tensor([1.0, 3.0, NAN, NAN])[:2], out, 2, BLOCK=4)
    assert out[:4].tolist() == [8, 8, 1, 4] and out[4:].isnan().all()


@triton.jit
def products(A, B, OUT, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a, b = tl.load(A + row * BLOCK + column), tl.load(B + row * BLOCK + column)
    product = tl.dot(a, tl.trans(b), tl.full([BLOCK, BLOCK], 1.0, tl.float32),
                     input_precision="ieee")
    tl.store(OUT + row * BLOCK + column, product.to(OUT.dtype.element_ty))


def multiplied():
    a = torch.arange(16.0).view(4, 4).half() / 7
    out = torch.zeros(4, 4)
    products[(1,)](a, a, out, BLOCK=4)
    assert out.equal(a.float() @ a.float().T + 1)


@triton.jit
def half_numbers(X, OUT, scale, BLOCK: tl.constexpr):
    x = tl.load(X + tl.arange(0, BLOCK))
    tl.store(OUT + tl.arange(0, BLOCK), (x * 3 + 0.1) * scale)


def halves():
    # a number in the source takes the tile's type; an argument is a float32 of its own
    x, out = torch.tensor([1.0, 1 / 3], dtype=torch.float16), torch.zeros(2)
    half_numbers[(1,)](x, out, 1.0, BLOCK=2)
    assert out.equal((x * 3 + torch.tensor(0.1).half()).float())


CASES = (whole, masked, multiplied, halves)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize("case", CASES)
def test_small_kernels(case, interpreter):
    with INTERPRETERS[interpreter]():
        case()


MUTANTS = {
    "division rounds down": (
        Tile, "__floordiv__", lambda a, b: Tile(a.data // tile_language.tile_of(b).data), whole),
    "the remainder has the divisor's sign": (
        Tile, "__mod__", lambda a, b: Tile(a.data % tile_language.tile_of(b).data), whole),
    "a product is added up in the tile's type": (
        tile_language, "dot", lambda a, b, acc, **_: Tile(a.data @ b.data + acc.data), multiplied),
    "numbers of the source are float32": (
        tile_language, "_holds", lambda *_: False, halves),
    "other is forgotten": (
        tile_language, "load", lambda pointer, mask=None, other=None, load=tile_language.load:
        load(pointer, mask), masked),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    *replaced, case = MUTANTS[name]
    monkeypatch.setattr(*replaced)
    with instead_of_triton(), pytest.raises(AssertionError):
        case()


@triton.jit
def wrong(X, KIND: tl.constexpr):
    lane = tl.arange(0, 4)
    if KIND == "outside":
        tl.store(X + 4 * tl.program_id(0) + lane, 1.0)
    elif KIND == "name":
        tl.cummax(lane, 0)
    elif KIND == "size":
        tl.arange(0, 3)
    elif KIND == "element":
        lane[0]
    elif KIND == "fraction":
        tl.load(X + 0.5)
    elif KIND == "number":
        tl.load(lane)
    elif KIND == "condition":
        if lane > 2:
            tl.store(X, 1.0)
    else:
        tl.dot(lane, lane)


@pytest.mark.parametrize(("kind", "error", "words"), [
    ("outside", IndexError, r"program \(1, 0, 0\) stores 2 elements outside of X: element 6 of 6"),
    ("name", AttributeError, "tl.cummax is not in the lab's tile language; it has .*arange"),
    ("size", ValueError, r"a tile's shape was \[3\], wanted powers of two"),
    ("element", TypeError, "a tile was indexed with 0; wanted None and : only"),
    ("fraction", TypeError, "X: got a pointer plus torch.float32, wanted a whole number"),
    ("number", TypeError, "tl.load: got Tile, wanted a pointer"),
    ("condition", ValueError, r"a condition is one number, got a tile of shape \(4,\)"),
    ("product", ValueError, r"tl.dot: got \(4,\) torch.int32"),
])
def test_mistakes_are_named(kind, error, words):
    with instead_of_triton(), pytest.raises(error, match=words):
        wrong[(2,)](torch.zeros(6), KIND=kind)


def test_a_kernel_is_not_called_like_a_function():
    kernel = tile_interpreter.jit(wrong.fn)
    with pytest.raises(RuntimeError, match=r"wrong was called like a function, wanted wrong\[grid"):
        kernel(torch.zeros(6), KIND="outside")
