"""The ladder of a mechanism: every form is run, compared with the loops, and drawn."""

import pytest
import torch

from cca_lab.mechanisms import CCA, H2O
from cca_lab.studies.benchmarks import ladder as module
from cca_lab.studies.benchmarks.ladder import ladder
from cca_lab.views.figures.costs import Rung, duration, strip


class Late(CCA):
    """Mutant: outside the loops a window one token longer."""

    name = "late"

    def columns(self, q, k, v, call):
        """Return those of another window."""
        return CCA(group=self.group, window=self.window + 1).columns(q, k, v, call)


def test_every_form_is_there_and_equals_the_loops():
    rungs = ladder(CCA(group=4, window=8), (16, 32))
    assert [rung.name
            for rung in rungs][:3] == ["loops", "dense", "blocked"] and rungs[0].error is None
    assert all(rung.error < 64 * torch.finfo(torch.float32).eps for rung in rungs[1:])
    assert all(set(rung.seconds) == {16, 32} for rung in rungs)
    assert all(seconds > 0 for rung in rungs[:3] for seconds in rung.seconds.values())


def test_a_form_that_differs_is_seen():
    assert all(rung.error > 1e-3 for rung in ladder(Late(group=4, window=8), (32,))[1:])


def test_a_mechanism_of_one_form_has_a_ladder():
    assert [rung.name for rung in ladder(H2O(heavy=4, recent=4), (16,))] == ["loops", "dense"]


def test_no_length_is_run_that_would_take_too_long(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    assert all(rung.seconds[32] is None for rung in ladder(CCA(), (16, 32)))


def test_the_strip_has_a_box_for_each_form():
    rungs = [Rung("loops", "slow", None, {64: 0.5, 128: None}),
             Rung("triton", "fast", 1e-7, {64: 2e-6, 128: 3.5}, "interpreted")]
    axes = strip(rungs, title="T").axes[0]
    words = [text.get_text() for text in axes.texts]
    assert {"loops", "triton", "500 ms", "-", "2 µs", "3.5 s", "interpreted",
            "from the loops: 1e-07"} <= set(words)
    assert not any("you wrote it" in word for word in words)
    marked = [text.get_text() for text in strip(rungs, climbed={"triton"}).axes[0].texts]
    assert "\u2713 you wrote it, interpreted" in marked


@pytest.mark.parametrize("seconds, words",
                         [(None, "-"), (4e-7, "0.4 µs"), (0.0123, "12.3 ms"), (2.0, "2 s"),
                          (0.9997e-3, "1 ms"), (0.99994, "1 s")])
def test_durations(seconds, words):
    assert duration(seconds) == words
