"""A mechanism's rungs side by side, each checked against the loops."""

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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = {length: _inputs(length, device) for length in lengths}
    expected = mechanism.loops(*(x.double() for x in made[lengths[0]]))
    rungs = []
    for name in ("loops", *filter(_is_there, mechanism.backends)):
        form = mechanism.loops if name == "loops" else replace(mechanism, backend=name).attention
        interpreted = name == "triton" and device == "cpu"
        got = form(*made[lengths[0]])
        error = None if name == "loops" else float((got.double() - expected).abs().max())
        times: dict[int, float | None] = dict.fromkeys(lengths)
        least, before = 0.0, lengths[0]  # work grows at most with the square of the length
        for length in lengths[:1] if interpreted else lengths:
            if least * (length / before) ** 2 > PATIENCE:
                break
            least, before = min(seconds(partial(form, *made[length]))
                                for _ in range(1 if name == "loops" else 3)), length
            times[length] = least
        rungs.append(Rung(name, WHAT[name], error, times, "interpreted" if interpreted else ""))
    return rungs


def _inputs(length: int, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(1, HEADS, length, HEAD_DIM, generator=generator).to(device) for _ in "qkv"]


def _is_there(backend: str) -> bool:
    if backend == "native":
        return native.available()
    if backend == "triton":
        return fused.interpreted() or fused.installed() and torch.cuda.is_available()
    return True
