"""The controls of a mechanism's options, with the ranges that the mechanism's own checks allow."""

import json
from collections.abc import Callable
from types import NoneType
from typing import Any, get_args, get_type_hints

from cca_lab.mechanisms import MECHANISMS, Mechanism, class_of
from cca_lab.mechanisms.cca.mechanism import POOLINGS
from cca_lab.mechanisms.dga.selection import CHOICES as DGA_CHOICES
from cca_lab.mechanisms.kept_heads.mechanism import OTHERS
from cca_lab.mechanisms.lococo.segments import CHOICES as LOCOCO_CHOICES
from cca_lab.mechanisms.minference import CANDIDATES
from cca_lab.mechanisms.streaming.streaming_llm import POSITIONS

# a maximum is no weighted mean: it has no E
MEANS = tuple(pooling for pooling in POOLINGS if pooling != "max")
CHOICES: dict[str, tuple[str, ...]] = {"pooling": MEANS, "choose": DGA_CHOICES,
                                       "positions": POSITIONS, **LOCOCO_CHOICES}
OF_KEPT_HEADS: dict[str, list[Any]] = {
    "kept": [[[]], [[0]]],
    "others": [{"name": name, **MECHANISMS[name]().options()} for name in OTHERS]}
# No effect on what a row reads of a whole text: how it is computed, gradients, caches, a module
# that is there already.
WITHOUT_EFFECT = {"backend", "borders", "kernel"}
MOST_SEED = 20
SUITED = 512  # tokens of a text that the defaults suit
STEP = 0.01  # of a share


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


def controls(mechanism: Mechanism, length: int) -> list[dict[str, Any]]:
    """Return, as JSON values, a control for each option that changes what is read.

    "name", "value", "main" (one of the sizes) and "kind": "range" with "least", "most" and "step",
    within which all values are valid beside the other options; "choice" with "choices", a "label"
    and a "value" each; "flag". The text's length is the largest number of a slider.
    """
    hints = get_type_hints(type(mechanism))
    shown = []
    for name in mechanism.option_names():
        value = getattr(mechanism, name)
        control = None if name in WITHOUT_EFFECT else _control(mechanism, name, value, hints[name],
                                                           length)
        if control is not None:
            shown.append({"name": name, "value": value, "main": name in mechanism.sizes, **control})
    return shown


def _control(mechanism: Mechanism, name: str, value: Any, hint: Any,
             length: int) -> dict[str, Any] | None:
    """Return kind and range of one control; None without, as for a list of segments."""
    if name == "patterns":
        listed = [[pattern] for pattern in CANDIDATES]
        offered = listed if value in listed else [value, *listed]
        return {"kind": "choice", "choices": [{"label": _label(patterns), "value": patterns}
                                              for patterns in offered]}
    if name in OF_KEPT_HEADS:
        known = OF_KEPT_HEADS[name]
        return {"kind": "choice", "choices": [
            {"label": _of_heads(each), "value": each}
            for each in (known if value in known else [value, *known])]}
    if name in CHOICES:
        return {"kind": "choice", "choices": [{"label": choice, "value": choice}
                                              for choice in CHOICES[name]]}
    if isinstance(value, bool):
        return {"kind": "flag"}
    if NoneType in get_args(hint) or not isinstance(value, int | float):
        return None
    valid = _validity(mechanism, name)
    if isinstance(value, float) or hint is float:
        shares = 1 / STEP
        least, most = (_last(lambda n: valid(n * STEP), round(value * shares), end)
                       for end in (0, round(shares)))
        return {"kind": "range", "least": least * STEP, "most": most * STEP, "step": STEP}
    largest = max(value, MOST_SEED if name == "seed" else length)
    least, most = (_last(valid, value, end) for end in (0, largest))
    return {"kind": "range", "least": least, "most": most, "step": 1}


def _validity(mechanism: Mechanism, name: str) -> Callable[[Any], bool]:
    """Return whether an option may have a value beside the mechanism's other options."""
    others = {option: getattr(mechanism, option) for option in mechanism.option_names()}

    def valid(value: Any) -> bool:
        try:
            type(mechanism)(**{**others, name: value})
        except ValueError:
            return False
        return True

    return valid


def _last(valid: Callable[[int], bool], start: int, end: int) -> int:
    """Return the last valid number from a valid one to `end`, by bisection: they are neighbours."""
    if valid(end):
        return end
    inside, outside = start, end
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if valid(middle) else (inside, middle)
    return inside


def _of_heads(value: Any) -> str:
    """Return which heads are kept, or the mechanism of the others, as a short text."""
    if isinstance(value, dict):
        return ", ".join([value["name"], *(f"{name} {option}" for name, option in value.items()
                                           if name != "name")])
    count = sum(map(len, value))
    if len(value) > 1:
        return f"{count} heads in {len(value)} layers"
    return ", ".join(map(str, value[0])) or "none"


def _label(patterns: list[dict[str, Any]]) -> str:
    """Return a list of patterns as a short text."""
    if len(patterns) > 1:
        return f"{len(patterns)} patterns, one for each head"
    pattern = dict(patterns[0])
    return ", ".join([pattern.pop("pattern"),
                      *(f"{name} {value}" for name, value in pattern.items())])


def settings_of(mechanism: Mechanism) -> str:
    """Return the options of a mechanism as a short text: "group 8, window 16"."""
    return ", ".join(_label(value) if name == "patterns" else f"{name} {_of_heads(value)}"
                     if name in OF_KEPT_HEADS else f"{name} {value}"
                     if isinstance(value, str | int | float) else f"{name} {json.dumps(value)}"
                     for name, value in mechanism.options().items())


def titles() -> list[dict[str, str]]:
    """Return name and title of every mechanism, in the order of the registry."""
    return [{"name": name, "title": cls.title} for name, cls in MECHANISMS.items()]
