"""Printed beside measured, quality against memory, perplexity by length, heads of models.

Drawn is what was given.
"""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from cca_lab.views.figures import sparsity, training


def lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in axes.get_lines()}


def test_beside():
    figure = training.printed_and_ours({"a": 2.0, "b": 3.0}, "perplexity",
                                       {"x": [1.0, 3.0], "y": [4.0]}, "ratio", "Table 0")
    left, right = figure.axes
    assert list(left.get_lines()[0].get_ydata()) == [2.0, 3.0]
    dots, mean = right.get_lines()[:-1], right.get_lines()[-1]
    assert [list(line.get_ydata()) for line in dots] == [[1.0, 3.0], [4.0]]
    assert list(mean.get_ydata()) == [2.0, 4.0]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["x", "y"]
    assert not plt.get_fignums()


def test_frontier():
    points = {"CCA": [{"kib": 192, "answers": 0.5, "ratio": 1.2,
                       "swapped": {"answers": 0.2, "ratio": 1.5}},
                      {"kib": 384, "answers": 0.9, "ratio": 1.1, "swapped": None}],
              "H2O": [{"kib": 384, "swapped": {"answers": 0.3, "ratio": 1.3}}]}
    figure = training.frontier(points, {"kib": 2048, "answers": 1.0, "ratio": 1.0}, "KiB")
    answers, ratio = figure.axes
    assert lines(answers)["CCA"] == ([192, 384], [50.0, 90.0])
    assert lines(ratio)["CCA"] == ([192, 384], [1.2, 1.1])
    assert lines(answers)["full attention"] == ([2048], [100.0])
    hollow = [line for line in answers.get_lines() if line.get_markerfacecolor() == "white"]
    assert [list(line.get_ydata()) for line in hollow] == [[20.0], [30.0]]


def test_perplexity_by_length_names_what_it_leaves_out():
    def row(values, attention="cca", swapped=True):
        return {"attention": attention, "swapped": swapped,
                "perplexity": [{"value": value} for value in values]}

    rows = {"full": row([9, 8], "full"), "lococo": row([900, 800], "lococo"),
            "tuned": row([9, 9], "cca", False)}
    result = {"model": "m", "windows": 2, "entries": 96, "buckets": [0, 256, 512], "rows": rows}
    (axes,) = training.perplexity(result).axes
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [[9, 8], [9, 9]]
    assert list(axes.get_lines()[0].get_xdata()) == [256, 512]
    assert "above 40: lococo" in axes.get_xlabel()


def test_heads_of_models():
    results = [{"model": "a", "k90": [[1.0, 2.0], [3.0, 9.0]]}, {"model": "b", "k90": [[5.0]]}]
    (axes,) = sparsity.models(results, {"k90": "k90"}).axes
    drawn = [list(line.get_xdata()) for line in axes.get_lines()]
    assert drawn == [[1.0, 2.0, 3.0, 9.0], [2.5], [5.0], [5.0]]
    heights = np.concatenate([line.get_ydata() for line in axes.get_lines()[:1]])
    assert np.abs(heights).max() < 0.25
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]


def test_one_dot_for_each_statistic_needs_statistics():
    with pytest.raises(KeyError):
        sparsity.models([{"model": "a", "k90": [[1.0]]}], {"k90": "k90", "sink": "sink"})
