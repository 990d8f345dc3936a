"""Functions that run eagerly inside a compiled model too."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Keep torch.compile out of a function, because its checks or its plan read values.

    `torch.compiler.disable` as a decorator would import the compiler with the package: 1.3 seconds
    for everyone who compiles nothing.
    """
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call
