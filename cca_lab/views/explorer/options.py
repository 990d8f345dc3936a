"""The sliders of a mechanism's sizes; every other option is an argument of `explore`."""

import json
import re
from typing import Any

from cca_lab.mechanisms import MECHANISMS, Mechanism, class_of

MOST_SEED = 20
SUITED = 512  # tokens of a text that the defaults suit
STEP = 0.01  # of a share
NESTED = re.compile(r"[{}\"]")  # of JSON, which a short text does without


def starting_options(name: str, length: int) -> dict[str, Any]:
    """Return the options with which a mechanism is shown first: defaults, scaled to the text."""
    cls = class_of(name, "attention")
    plain, factor = cls(), min(1.0, length / SUITED)
    sizes = {size: getattr(plain, size) for size in cls.sizes if size != "seed"}
    if name == "minference":
        return {"patterns": [_smaller(pattern, factor) for pattern in sizes["patterns"]]}
    return _smaller(sizes, factor)


def _smaller(sizes: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return sizes times a factor, in nested options too; numbers of at most 2 and others stay."""
    def scaled(size: Any) -> Any:
        if isinstance(size, dict):
            return _smaller(size, factor)
        return max(2, round(factor * size)) if type(size) is int and size > 2 else size

    return {name: scaled(size) for name, size in sizes.items()}


def sliders(mechanism: Mechanism, length: int) -> list[dict[str, Any]]:
    """Return, as JSON values, a slider for each size: "name", "value", "least", "most", "step".

    The text's length is the largest number. The mechanism refuses what does not go together.
    """
    shown = []
    for name in mechanism.sizes:
        value = getattr(mechanism, name)
        if isinstance(value, float):
            shown.append({"name": name, "value": value, "least": 0, "most": 1, "step": STEP})
        elif isinstance(value, int):
            most = max(value, MOST_SEED if name == "seed" else length)
            shown.append({"name": name, "value": value, "least": 0, "most": most, "step": 1})
    return shown


def settings_of(mechanism: Mechanism) -> str:
    """Return the options of a mechanism as a short text: "group 8, window 16"."""
    return ", ".join(f"{name} {re.sub(NESTED, '', json.dumps(value))}"
                     for name, value in mechanism.options().items())


def titles() -> list[dict[str, str]]:
    """Return name and title of every mechanism, in the order of the registry."""
    return [{"name": name, "title": cls.title} for name, cls in MECHANISMS.items()]
