"""Options that are no whole numbers are refused by name: some would wrap around in silence."""

import numpy as np
import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.settings import LARGEST
from tests.mechanisms import bench
from tests.mechanisms.forms import with_module
from tests.mechanisms.options import OPTIONS

Q, K, V = bench.inputs(6)
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def run(name: str, *tensors, **options):
    return with_module(MECHANISMS[name], "attention")(*tensors, **{"backend": "dense", **options})


def integers_of(name: str) -> list[tuple[dict, str]]:
    """Return each set of options with the name of each integer option in it."""
    return [(options, option) for options in OPTIONS[name]
            for option, value in options.items() if type(value) is int]


@every_mechanism
def test_numpy_integers_are_integers_and_others_are_not(name):
    for options, option in integers_of(name):
        value = options[option]
        got = run(name, Q, K, V, **options | {option: np.int64(value)})
        assert torch.equal(got, run(name, Q, K, V, **options)), option
        for wrong in (True, 2.5, "2", None, np.uint8(2), LARGEST + 1, 10**30, -1):
            if (option, wrong) in {("prompt", None), ("limit", None), ("group", 2.5),
                                   ("heavy", 2.5), ("recent", 2.5)}:
                continue
            with pytest.raises(ValueError, match=option):
                MECHANISMS[name](**options | {option: wrong})
