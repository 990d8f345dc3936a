"""Slips: functions of the package with pieces of their source replaced, so that they cannot age."""

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any
from unittest.mock import patch

from torch import Tensor

from cca_lab.course.exercise import changed

Piece = tuple[str, str, str]  # dotted function, a piece of its source, what stands there instead


def owner_of(function: str) -> tuple[Any, str]:
    """Return the module or class that has a function, and the function's name there."""
    path, _, name = function.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        return getattr(importlib.import_module(module), owner), name


@cache
def _replaced(place: str, pairs: tuple[tuple[str, str], ...]) -> tuple[Any, str, Any]:
    owner, name = owner_of(place)
    return owner, name, changed(getattr(owner, name), *pairs)


def slip(says: str, call: Callable[..., Tensor], *pieces: Piece) -> Callable[..., Tensor]:
    """Return `call` as it computes with pieces of source replaced; its name is what `says`."""
    def wrong(*tensors: Tensor, **options: Any) -> Tensor:
        with ExitStack() as patches:
            for place in dict.fromkeys(place for place, *_ in pieces):
                pairs = tuple((right, other) for at, right, other in pieces if at == place)
                patches.enter_context(patch.object(*_replaced(place, pairs)))
            return call(*tensors, **options)

    wrong.__name__ = says
    return wrong
