"""The tracer says what a kernel reads and writes, and which program and line is wrong."""

import pytest
import torch

from cca_lab.attention.kernels.language import tl, triton
from cca_lab.attention.kernels.tracing import traced
from cca_lab.views.tracing import trace

pytestmark = pytest.mark.skipif(torch.cuda.is_available(),
                                reason="accesses are watched in the interpreter only")


@triton.jit
def copied(X, OUT, L, BLOCK: tl.constexpr, TWICE: tl.constexpr, MASKED: tl.constexpr,
           LAST: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        x = tl.load(X + place, mask=place < L, other=0.0)
    else:
        x = tl.load(X + place)
    if TWICE:
        x += tl.load(X + tl.minimum(place, L - 1))
    tl.store(OUT + place, x, mask=place < LAST)


def run(length=10, twice=False, masked=True, last=10):
    copied[(3,)](torch.arange(length).float(), torch.zeros(length), length, BLOCK=4, TWICE=twice,
                 MASKED=masked, LAST=last)


def test_a_right_kernel_has_no_flaw():
    with traced() as seen:
        run()
    assert seen.flaws() == [] and seen.programs == 3 and seen.stored() == ["OUT"]
    loads = seen.counts("X", "load")
    assert loads.shape == (3, 10) and loads.sum() == 10
    assert loads[2].tolist() == [0] * 8 + [1, 1]


@pytest.mark.parametrize("wrong, words", [
    ({"masked": False}, "program 2 loads 2 elements outside of X: x = tl.load(X + "),
    ({"twice": True}, "program 0 loads 4 elements of X more than once: x += tl.load("),
    ({"last": 9}, "OUT: 1 of 10 elements are never written, first element 9"),
])
def test_a_flaw_is_named_with_its_program_and_line(wrong, words):
    with traced() as seen:
        run(**wrong)
    assert any(flaw.startswith(words) for flaw in seen.flaws()), seen.flaws()


def test_nothing_is_traced_afterwards():
    with traced() as seen:
        run()
    before = len(seen.accesses)
    run()
    assert len(seen.accesses) == before


def test_the_picture_has_a_panel_for_each_tensor(capsys):
    figure = trace(lambda: run(), show=("X", "OUT"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["X", "OUT"]
    assert "nothing outside" in capsys.readouterr().out


def test_what_is_not_written_is_not_drawn(capsys):
    def stub():
        raise NotImplementedError

    assert trace(stub) is None and "no body yet" in capsys.readouterr().out
