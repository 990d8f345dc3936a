"""The controls: every value that they allow is one that the mechanism allows."""

import json

import pytest

from cca_lab.mechanisms import MECHANISMS, MInference, mechanism_of
from cca_lab.views.explorer.options import (
    WITHOUT_EFFECT,
    controls,
    settings_of,
    starting_options,
)
from tests.mechanisms.options import OPTIONS

LENGTH = 40
CASES = [(name, listed[0]) for name, listed in OPTIONS.items()]


def with_option(mechanism, name, value):
    options = {option: getattr(mechanism, option) for option in mechanism.option_names()}
    return mechanism_of(mechanism.name, {**options, name: value})


@pytest.mark.parametrize(("name", "options"), [*CASES, *((name, {}) for name in MECHANISMS)])
def test_all_values_of_a_control_are_valid_and_no_more(name, options):
    mechanism = mechanism_of(name, options)
    for control in json.loads(json.dumps(controls(mechanism, LENGTH))):
        if control["kind"] == "choice":
            values = [choice["value"] for choice in control["choices"]]
            assert getattr(mechanism, control["name"]) in values
        elif control["kind"] == "flag":
            values = [False, True]
        else:
            least, most, step = control["least"], control["most"], control["step"]
            values = [least + n * step for n in range(round((most - least) / step) + 1)]
            assert least <= control["value"] <= most
            if step == 1 and least > 0:  # the slider ends where the mechanism's own check ends
                with pytest.raises(ValueError):
                    with_option(mechanism, control["name"], least - 1)
            if step == 1 and most < LENGTH and control["name"] != "seed":
                with pytest.raises(ValueError):
                    with_option(mechanism, control["name"], most + 1)
        for value in values:
            with_option(mechanism, control["name"], value)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_option_has_a_control_or_a_reason(name):
    shown = {control["name"] for control in controls(MECHANISMS[name](), LENGTH)}
    left = set(MECHANISMS[name].option_names()) - shown
    # None by default: LM-Infinite's distance is its window
    assert left <= WITHOUT_EFFECT | {"limit"}


def test_sliders_depend_on_each_other():
    listed = controls(mechanism_of("lococo", {"slots": 9, "sinks": 4}), LENGTH)
    by_name = {control["name"]: control for control in listed}
    assert by_name["sinks"]["most"] == 9 and by_name["slots"]["least"] == 4
    assert by_name["heavy"]["most"] == 5


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
    assert settings_of(one) == "a_shape, sinks 1, window 4"
    assert settings_of(mechanism_of("full", {})) == ""
