"""A mechanism's rungs side by side, each checked against the loops."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cca_lab.attention import fused, native
from cca_lab.mechanisms import Mechanism
from cca_lab.studies.benchmarks.timing import seconds
from cca_lab.views.figures.costs import Rung

HEADS, HEAD_DIM = 2, 32
PATIENCE = 2.0  # seconds: a rung is not run at a length where it is likely to take longer
WHAT = {"loops": "the specification", "dense": "one matrix", "blocked": "tiles",
        "native": "tiles in C++", "triton": "a kernel"}


def ladder(mechanism: Mechanism, lengths: Sequence[int] = (64, 512, 2048)) -> list[Rung]:
    """Run the loops, then every backend that this machine has, on random numbers in float32.

    The forms are compared at the first of the rising lengths; a Triton kernel without a GPU is
    interpreted, there only.
    """
    place = "cuda" if torch.cuda.is_available() else "cpu"
    made = {length: _inputs(length, place) for length in lengths}
    expected = mechanism.loops(*(x.double() for x in made[lengths[0]]))
    rungs = []
    for name in ("loops", *(one for one in mechanism.backends if _is_there(one))):
        form = mechanism.loops if name == "loops" else replace(mechanism, backend=name).attention
        interpreted = name == "triton" and place == "cpu"
        got = form(*made[lengths[0]])
        error = None if name == "loops" else float((got.double() - expected).abs().max())
        found: dict[int, float | None] = {}
        for length in lengths[:1] if interpreted else lengths:
            found[length] = None if _too_long(found, length) else min(
                seconds(partial(form, *made[length])) for _ in range(1 if name == "loops" else 3))
        note = "interpreted" if interpreted else ""
        rungs.append(Rung(name, WHAT[name], error, dict.fromkeys(lengths) | found, note))
    return rungs


def _inputs(length: int, place: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(1, HEADS, length, HEAD_DIM, generator=generator).to(place) for _ in "qkv"]


def _is_there(backend: str) -> bool:
    if backend == "native":
        return native.available()
    if backend == "triton":
        return fused.installed() and (torch.cuda.is_available()
                                      or os.environ.get("TRITON_INTERPRET") == "1")
    return True


def _too_long(found: dict[int, float | None], length: int) -> bool:
    """Return whether the next length may exceed `PATIENCE`; work grows at most with its square."""
    if not found:
        return False
    before, took = list(found.items())[-1]
    return took is None or took * (length / before) ** 2 > PATIENCE
