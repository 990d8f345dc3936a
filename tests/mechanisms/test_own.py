"""Mechanisms of the reader's own functions, and the bench that finds what is wrong with them."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from cca_lab import CCA, MECHANISMS, StreamingLLM
from cca_lab.mechanisms.examine import TESTS, examine, heads
from cca_lab.mechanisms.own import OwnAttention


def by_mask(q, keys, values, table, scale):
    """Attend to the columns in a table."""
    column = torch.arange(len(keys))
    seen = ((column >= table[..., :1]) & (column < table[..., 1:])).any(dim=1)
    return (scale * (q @ keys.T)).masked_fill(~seen, -torch.inf).softmax(dim=1) @ values


@dataclass(frozen=True, kw_only=True)
class Window(OwnAttention):
    """The nearest tokens; the class attributes are mistakes."""

    window: int = 5
    name: ClassVar = "own_window"
    rungs: ClassVar = {"mask": by_mask}
    late: ClassVar = 0  # tokens of the future that are read

    def one_head(self, q, k, v, scale):
        row = torch.arange(len(q))
        first, last = (row + 1 - self.window).clamp(min=0), (row + 1 + self.late).clamp(max=len(q))
        return k, v, torch.stack([first, last], dim=1)[:, None]

    def exact_when(self, length):
        return length <= self.window


class Late(Window):
    late = 1


class Twice(Window):
    def one_head(self, q, k, v, scale):
        keys, values, table = super().one_head(q, k, v, scale)
        again = table + len(k)
        return torch.cat([keys, keys]), torch.cat([values, values]), torch.cat([table, again], 1)


class Unequal(Window):
    rungs: ClassVar = {"mask": by_mask, "other": lambda *columns: 1.01 * by_mask(*columns)}


class Boasting(Window):
    def exact_when(self, length):
        return True


class Detached(Window):
    rungs: ClassVar = {"mask": lambda q, *columns: by_mask(q.detach(), *columns)}


class Heavy(Window):
    def one_head(self, q, k, v, scale):
        keys, values, table = super().one_head(q, k, v, scale)
        return keys, 2 * values, table


WRONG = {"all rungs equal the loops": Unequal, "the weights of a row sum to 1": Heavy,
         "no token is read twice": Twice, "a later token changes no row": Late,
         "where it says so, it is full attention": Boasting,
         "gradients are those of finite differences": Detached}


@pytest.mark.parametrize("mechanism", [CCA(group=3, window=5), StreamingLLM(sinks=2, recent=5),
                                       Window()], ids=lambda mechanism: mechanism.name)
def test_right_mechanisms_pass(mechanism):
    assert all(examine(mechanism).values())


def test_of_the_package_only_slots_that_share_tokens_fail_a_test():
    failed = {(name, test) for name, mechanism in MECHANISMS.items() for test in TESTS
              if TESTS[test](mechanism())}
    assert failed <= {("lococo", "no token is read twice")}
    assert TESTS["no token is read twice"](MECHANISMS["lococo"](slots=4, segment=4))


@pytest.mark.parametrize("test", TESTS)
def test_each_test_finds_its_mistake(test):
    assert TESTS[test](WRONG[test]())


def test_the_bench_names_what_failed(capsys):
    with pytest.raises(AssertionError, match="a later token changes no row"):
        examine(Late())
    assert "row 0 changes with token 1" in capsys.readouterr().out


def test_own_functions_are_the_package_s_streaming_llm():
    inputs = heads(21)
    theirs = StreamingLLM(sinks=0, recent=4)
    assert torch.allclose(Window().attention(*inputs), theirs.loops(*inputs), rtol=0, atol=1e-12)
    assert torch.equal(Window().represented(*inputs), theirs.represented(*inputs))
