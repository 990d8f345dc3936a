"""Timing: rounds in rotating order, warm-up that does not count, repeats of short calls.

The roof and the work.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cca_lab.freed_memory import keep_freed_memory
from cca_lab.studies.benchmarks import timing

MIB = 2**20


def test_rounds_rotate_and_the_first_is_not_counted():
    order = []
    calls = {name: partial(order.append, name) for name in "abc"}
    found = timing.interleave(calls, rounds=3)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.fixture
def take(monkeypatch):
    """Return what lets so many seconds pass on a clock that otherwise stands still."""
    passed = []
    monkeypatch.setattr(timing, "perf_counter", lambda: sum(passed))
    return passed.append


def test_seconds_are_those_of_one_call(take):
    assert timing.seconds(partial(take, 0.25), repeat=3) == 0.25


def test_short_calls_are_repeated_until_they_can_be_timed(take):
    count = []
    (times, ) = timing.interleave({"short": lambda: (count.append(1), take(2**-10))}, rounds=1,
                                  least=20 * 2**-10).values()
    assert len(count) == 2 + 20 and times == [2**-10]  # two of the calls are the warm-up


def test_a_gpu_is_waited_for(monkeypatch):
    """Before the clock starts and before it stops.

    What was launched earlier is not counted, what follows is.
    """
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: seen.append("wait"))
    timing.seconds(lambda: seen.append("call"))
    assert seen == ["wait", "call", "wait"]


def test_useful_operations_are_those_of_the_products():
    """Counted by PyTorch on a full square.

    Autograd keeps the weights, where the blocked forms compute them again.
    """
    rows, head_dim = 6, 16
    q, k, v = (torch.randn(rows, head_dim, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as forward:
        out = (q @ k.T).softmax(-1) @ v
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    again = 2 * head_dim * rows**2
    assert forward.get_total_flops() == timing.useful_flops(rows**2, 1, head_dim)
    assert backward.get_total_flops() + again == timing.useful_flops(rows**2, 1, head_dim,
                                                                     "backward")
    assert timing.PRODUCTS["forward"] + timing.PRODUCTS["backward"] == timing.PRODUCTS[
        "forward+backward"]


@pytest.mark.parametrize("make, work",
                         [(partial(timing.product_call, 32, torch.float32), 2 * 32**3),
                          (partial(timing.copy_call, 1024), 2048)])
def test_the_calls_of_the_roof_say_what_they_do(make, work):
    call, counted = make(torch.device("cpu"))
    call()
    assert counted == work


def allocate(size: int):
    """Prepare by making and dropping `size` bytes, which must not count.

    The call keeps a quarter of it.
    """
    del [b"x" * size][:]
    return lambda: b"x" * (size // 4)


def measured(size: int, *, keep: bool) -> int:
    if keep:
        keep_freed_memory()
    return timing.measure_peak(allocate, size)


@pytest.mark.skipif(not timing._CLEAR.exists(), reason="only Linux resets the peak of a process")
@pytest.mark.parametrize("keep", [False, True])
def test_peak_memory_counts_the_call_alone(keep):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(partial(measured, 256 * MIB, keep=keep)).result()
    assert 60 * MIB < peak < 80 * MIB
