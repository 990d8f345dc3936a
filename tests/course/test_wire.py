"""What crosses between the processes: values, by value, and nothing that runs."""

import pickle
from fractions import Fraction

import numpy
import pytest
import torch
from safetensors.torch import save

from cca_lab.course import wire

VALUES = [None, True, 3, 10**40, 1.5, "words", [1, [2.0, "x"]], (1, (2, 3)),
          {"a": [None, {"b": 1}]}, []]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_stay_what_they_are(value):
    assert wire.by_value(value) == value and type(wire.by_value(value)) is type(value)


@pytest.mark.parametrize("dtype",
                         [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_tensors_cross_by_value(dtype, shape):
    tensor = torch.arange(6)[:torch.Size(shape).numel()].reshape(shape).to(dtype)
    got = wire.by_value({"x": [tensor]})["x"][0]
    assert torch.equal(got, tensor) and got.dtype == dtype and got.shape == tensor.shape
    if got.numel():
        got.zero_()
        assert torch.equal(tensor, torch.arange(6)[:tensor.numel()].reshape(shape).to(dtype))


def test_a_view_says_what_memory_it_keeps():
    base = torch.zeros(100)
    assert wire.by_value(base[:2]).kept_bytes == 400
    assert wire.by_value(base[:2].clone()).kept_bytes == 8


def test_functions_are_called_on_the_other_side_with_copies():
    seen = []

    def function(x):
        seen.append(x)
        x += 1
        return x

    tensor = torch.zeros(2)
    got = wire.by_value([function])[0](tensor)
    assert got.tolist() == [1, 1] and tensor.tolist() == [0, 0] and seen[0] is not tensor


def test_numbers_of_other_libraries_become_plain_ones():
    assert wire.by_value([Fraction(1, 4), numpy.float64(0.5), numpy.int64(3)]) == [0.25, 0.5, 3]
    got = wire.by_value(numpy.arange(6.0).reshape(2, 3).T)
    assert torch.equal(got, torch.arange(6.0, dtype=torch.float64).reshape(2, 3).T)


@pytest.mark.parametrize("value", [object(), {1: 2}, {"x": {3, 4}}, print,
                                   torch.zeros(2, dtype=torch.complex64)],
                         ids=lambda value: type(value).__name__)
def test_everything_else_is_refused(value):
    with pytest.raises(TypeError):
        wire.pack(value)


def test_a_tensor_of_another_class_becomes_a_plain_one():
    class Yes(torch.Tensor):
        def __eq__(self, other):
            return True

    assert type(wire.by_value(torch.zeros(2).as_subclass(Yes))) is torch.Tensor


def of_text(text: str) -> bytes:
    return len(text).to_bytes(8, "big") + text.encode()


@pytest.mark.parametrize("data", [
    of_text('{"tensor": 0, "kept": 0}') + save({"0": torch.zeros(2**20, dtype=torch.float16)}),
    of_text(f'{{"list": [{"1," * (2**20 - 2)}1]}}'), of_text(2**21 * " " + "1")],
    ids=["tensor", "numbers", "text"])
def test_a_bomb_is_refused_before_anything_widens_it(data):
    """The mutant that counts bytes, not numbers, lets half-precision grow to 64 bits each."""
    with pytest.raises(ValueError, match="no message"):
        wire.unpack(data)


@pytest.mark.parametrize("data", [
    b"", b"\0" * 8, pickle.dumps(print), b"\xff" * 64, wire.pack([1])[:-1],
    wire.pack(torch.zeros(3))[:-4], (9 * 10**5).to_bytes(8, "big") + b'{"list":[' * 10**5,
    *(len(text).to_bytes(8, "big") + text for text in (b'{"tensor": 7}', b"[1]",
                                                       b'{"function": 0}'))])
def test_other_bytes_are_no_message(data):
    with pytest.raises(ValueError, match="no message"):
        wire.unpack(data)
