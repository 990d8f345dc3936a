"""The mechanisms that the page can compute: those whose rows see intervals of columns.

H2O, vertical-slash, block-sparse and MInference show a row scattered tokens, under a mask. LoCoCo's
columns are made by a convolution that has to be trained, and no shipped model has one.
"""

from typing import Any

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.cca.baselines import kept_tokens

# For each option that has a control: smallest, largest and step; or the values to choose from.
LARGEST_GROUP = 64
GROUP, WINDOW, FIRST = (1, LARGEST_GROUP, 1), (1, 256, 1), (0, 64, 1)
CONTROLS: dict[str, dict[str, tuple[Any, ...]]] = {
    "full": {},
    "cca": {"group": GROUP, "window": WINDOW,
            "pooling": ("softmax", "mean")},  # a maximum is no weighted mean
    "mean_pooling": {"group": GROUP, "window": WINDOW},
    "random_tokens": {"group": GROUP, "window": WINDOW},
    "dga": {"group": GROUP, "gamma": (0, 1, 0.01), "choose": ("prompt", "blocks"),
            "block": (16, 256, 1)},
    "streaming_llm": {"recent": (0, 256, 1), "sinks": FIRST},
    "lm_infinite": {"local": (1, 256, 1), "global_tokens": FIRST},
    "a_shape": {"window": WINDOW, "sinks": FIRST},
    "longlora": {"group": (1, 512, 1)},
}


def controls(positions: int) -> list[dict[str, Any]]:
    """Return the mechanisms of the page: name, title, paper, options with values and controls.

    `positions`, the longest text, is how far the draws of "random_tokens" are written down.
    """
    listed = []
    for name, options in CONTROLS.items():
        mechanism = MECHANISMS[name]()
        listed.append({"name": name, "title": mechanism.title, "paper": mechanism.paper,
                       "fixed": {"kept": kept(positions)} if name == "random_tokens" else {},
                       "options": [{"name": option, "value": getattr(mechanism, option),
                                    "control": control} for option, control in options.items()]})
    return listed


def kept(positions: int) -> dict[int, list[int]]:
    """Return the tokens that "random_tokens" keeps by group size: the package's draws of seed 0."""
    return {group: kept_tokens(positions // group, group, 0)
            for group in range(1, LARGEST_GROUP + 1)}


def check_options(name: str, options: dict[str, Any]) -> None:
    """Raise ValueError unless the page has this mechanism, with controls for these options."""
    if name not in CONTROLS:
        raise ValueError(
            f"attention: got {name!r}, wanted one of {', '.join(CONTROLS)}; the rows of others see "
            "no intervals, or need a trained module")
    for option, value in options.items():
        control = CONTROLS[name].get(option)
        if control is None:
            raise ValueError(f"{option}: not an option of {name!r} on the page, wanted "
                             f"{', '.join(CONTROLS[name]) or 'none'}; leave it out")
        if isinstance(control[0], str):
            if value not in control:
                raise ValueError(
                    f"{option}: got {value!r}, wanted one of {', '.join(control)}; choose one")
        elif not control[0] <= value <= control[1]:
            raise ValueError(
                f"{option}: got {value}, wanted {control[0]} to {control[1]}, the ends of its "
                "slider; choose a number between them")
