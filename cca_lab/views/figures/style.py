"""The style of every figure of the lab, in colours that colour-blind readers can tell apart."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.typing import ColorType

# The colours of Okabe and Ito (2008), by their meaning in the figures.
RAW = "#0072B2"      # blue: raw tokens
CORE = "#E69F00"     # orange: core tokens
GOOD = "#009E73"     # green
WRONG = "#D55E00"    # vermilion: what should not be there
MISSING = "#CC79A7"  # purple: what should be there and is not
SKY = "#56B4E9"
SERIES = (RAW, CORE, GOOD, MISSING, SKY, WRONG)

INK, FAINT, EMPTY = "#222222", "#8A8A8A", "#EFEFEF"
DASHED = (0, (5, 3))

# One colour for each mechanism, in every figure.
OF_MECHANISM = {"full": INK, "cca": CORE, "dga": GOOD, "lococo": MISSING, "streaming_llm": RAW,
                "lm_infinite": SKY, "h2o": "#8C510A", "mean_pooling": "#B79F00",
                "random_tokens": FAINT, "minference": "#5E3C99", "a_shape": "#9E7BC4",
                "vertical_slash": "#7A4EB0", "longlora": "#01665E"}

WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#FFFFFF", "#D6E8F4", "#6DB0DA", RAW,
                                                        "#00324F"])

MOST_LABELS = 32  # more tick labels than this cannot be read

_RC: dict[str, Any] = {
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 9.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}

P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw a figure in the lab's style, described for a notebook, and take it off pyplot's list.

    A notebook shows a figure that is off the list only once, where it is the value of a cell.
    """
    what = (draw.__doc__ or "").strip().partition("\n")[0].partition(".")[0].removeprefix("Draw ")
    @wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        before = set(plt.get_fignums())
        try:
            with matplotlib.rc_context(seaborn.axes_style("white") | _RC):
                return described(draw(*args, **kwargs), what)
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)

    return draw_in_style


def described(figure: Figure, what: str) -> Figure:
    """Let a notebook store, beside the picture, a text for readers who do not see it."""
    texts = [what]
    for axes in figure.axes:
        across, up, legend = axes.get_xlabel(), axes.get_ylabel(), axes.get_legend()
        names = [text.get_text() for text in legend.get_texts()] if legend else []
        said = (axes.get_title(loc="left") or axes.get_title(), across and f"across: {across}",
                up and f"up: {up}", names and f"with {', '.join(names)}")
        texts.append(", ".join(text for text in said if text))
    words = "; ".join(" ".join(text.split()) for text in texts if text)

    def bundle(include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"image/png": {"alt": words}}

    figure._repr_mimebundle_ = bundle  # type: ignore[attr-defined]  # IPython adds the picture
    return figure


def as_array(data: Any) -> np.ndarray:
    """Return data (a tensor, an array, nested lists) as a NumPy array."""
    return np.asarray(data.detach().cpu() if hasattr(data, "detach") else data)


def tick_labels(labels: Sequence[Any] | None, count: int) -> list[str]:
    """Return one label for each tick: those given, or 0, 1, 2 ...; none if too many to read."""
    if labels is not None and len(labels) != count:
        raise ValueError(
            f"labels: got {len(labels)} for {count} rows or columns, wanted one for each; "
            "pass as many words as tokens")
    if count > MOST_LABELS:
        return []
    return [str(label) for label in (range(count) if labels is None else labels)]


def coloured(things: Iterable[T]) -> list[tuple[T, str]]:
    """Pair each item with a colour of its own: a mechanism's name has the mechanism's, in order.

    A name is a mechanism's if it begins with the mechanism's and no other item begins with it.
    """
    things = list(things)
    if len(things) > len(SERIES):
        raise ValueError(
            f"series: got {len(things)}, wanted at most {len(SERIES)}, one for each colour; "
            "draw some of them")
    named = [mechanism_in(thing) for thing in things]
    own = [OF_MECHANISM[name] if name and named.count(name) == 1 else "" for name in named]
    left = iter([colour for colour in SERIES if colour not in own])
    return [(thing, colour or next(left)) for thing, colour in zip(things, own, strict=True)]


def mechanism_in(thing: Any) -> str:
    """Return the mechanism, by its key above, that a text begins with; "" for none."""
    words = re.findall("[a-z0-9]+", thing.lower()) if isinstance(thing, str) else []
    starts = ["".join(words[:count]) for count in (3, 2, 1)]
    return next((key for start in starts for key in OF_MECHANISM
                 if start and start == key.replace("_", "")), "")


def heading(figure: Figure, title: str) -> None:
    """Write a title above all panels, at the left."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")


def grid(*panels: Axes, axis: Literal["both", "x", "y"] = "both", below: bool = True) -> None:
    """Draw pale grid lines, below what is drawn unless `below` is False."""
    for axes in panels:
        axes.grid(axis=axis, color=EMPTY, linewidth=0.8)
        if below:
            axes.set_axisbelow(True)


def legend_beside(axes: Axes, *entries: Any, at: float = 1.01) -> None:
    """Draw the legend to the right of the axes, of all that has a label or of (handles, names)."""
    axes.legend(*entries, loc="center left", bbox_to_anchor=(at, 0.5))


def legend_below(axes: Axes, entries: Mapping[str, ColorType], columns: int = 3) -> None:
    """Draw a legend of coloured patches below the figure, a colour for each meaning."""
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=FAINT, linewidth=0.5)
               for colour in entries.values()]
    axes.figure.legend(handles, list(entries), loc="outside lower center", ncols=columns,
                       handlelength=1.1, handleheight=1.1, columnspacing=1.6)
