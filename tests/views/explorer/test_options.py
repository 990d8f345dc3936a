"""The sliders, the options that a mechanism begins with, and how they are told."""

import pytest

from cca_lab.mechanisms import MECHANISMS, MInference, mechanism_of
from cca_lab.views.explorer.options import settings_of, sliders, starting_options


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_size_that_is_a_number_has_a_slider_around_its_value(name):
    mechanism = MECHANISMS[name]()
    shown = {slider["name"]: slider for slider in sliders(mechanism, 40)}
    assert set(shown) == {size for size in mechanism.sizes
                          if isinstance(getattr(mechanism, size), int | float)}
    assert all(slider["least"] <= slider["value"] <= slider["most"] for slider in shown.values())
    assert all(slider["most"] >= 1 for slider in shown.values())


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("length", [8, 512])
def test_starting_options_are_valid_and_suit_the_text(name, length):
    options = starting_options(name, length)
    mechanism = mechanism_of(name, options)
    if length >= 512:
        assert mechanism == MECHANISMS[name]()


def test_settings_are_short():
    assert settings_of(mechanism_of("cca", {"group": 8, "window": 16})) == "group 8, window 16"
    one = MInference(patterns=[{"pattern": "a_shape", "sinks": 1, "window": 4}])
    assert settings_of(one) == "patterns [pattern: a_shape, sinks: 1, window: 4]"
    assert settings_of(mechanism_of("full", {})) == ""
