"""What each row reads, row after row: a view with a slider, and a strip of pictures without one."""

import base64
import hashlib
import html
import io
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cca_lab.mechanisms import Mechanism
from cca_lab.settings import check_integers
from cca_lab.views.explorer.figure import COLOURS, NAMES, POOLED
from cca_lab.views.explorer.options import settings_of
from cca_lab.views.explorer.reading import Reading, Tensors
from cca_lab.views.explorer.state import Column
from cca_lab.views.figures.style import EMPTY, FAINT, INK, heading, legend_below, styled
from cca_lab.views.scripts import VIEW, inline_json, joined

PICTURES = 6  # of the strip
_MOST = 128   # tokens


class Moving:
    """What each row of a mechanism reads; the last value of a cell shows it.

    Attributes:
        data: what `js/moving.js` draws, as JSON values.
    """

    def __init__(self, mechanism: Mechanism, words: Sequence[str], reading: Reading) -> None:
        columns, length = reading.columns(0), len(words)
        seen = [reading.seen[0, row].nonzero().flatten().tolist() for row in range(length)]
        pooled = {n for n, column in enumerate(columns) if column.kind in POOLED}
        lanes = _lanes(columns, pooled, seen)
        rows: list[dict[str, Any]] = []
        before = _Row([], [])
        for row, numbers in enumerate(seen):
            kinds = ["unread"] * (row + 1) + [""] * (length - row - 1)
            now = _Row([], [n for n in numbers if n in pooled])
            for column in (columns[n] for n in now.pooled):
                for token in column.tokens.tolist():
                    kinds[token] = "pooled"
            for n in (n for n in numbers if n not in pooled):
                token = int(columns[n].tokens[0])
                kinds[token] = columns[n].kind
                now.raw.append(token)
            rows.append({"tokens": kinds, "columns": now.pooled,
                         "text": _sentence(row, now, before, columns, kinds)})
            before = now
        used = dict.fromkeys(columns[n].kind for numbers in seen for n in numbers)
        self.data: dict[str, Any] = {
            "title": f"{mechanism.title}: {settings_of(mechanism) or 'no options'}",
            "words": list(words), "rows": rows, "lanes": 1 + max(lanes.values(), default=-1),
            "columns": {n: {"kind": columns[n].kind, "tokens": columns[n].tokens.tolist(),
                            "lane": lane} for n, lane in lanes.items()},
            "colours": {kind: COLOURS[kind] for kind in used},
            "names": {kind: NAMES[kind] for kind in used}}

    def figure(self) -> Figure:
        """Return a strip of up to six pictures, from the first row to the last."""
        return _strip(self.data)

    def html(self, picture: str) -> str:
        """Return the view as HTML: a script puts it in the place of a picture (PNG in base64)."""
        script, data = joined([VIEW / "moving.js"]), inline_json(self.data)
        name = hashlib.sha256(data.encode()).hexdigest()[:12]  # the same each time a cell is run
        said = html.escape(f"{self.data['title']}; " + self.data["rows"][-1]["text"])
        return (f'<div data-moving="{name}"><img alt="{said}" '
                f'src="data:image/png;base64,{picture}"></div>\n'
                f"<script>(() => {{\n{script}\nconst data = {data};\n"
                f"for (const place of document.querySelectorAll('[data-moving=\"{name}\"]'))"
                " showMoving(place, data);\n})();</script>")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the view, the strip and a text."""
        buffer = io.BytesIO()
        self.figure().savefig(buffer, format="png", dpi=100)
        picture = base64.b64encode(buffer.getvalue()).decode("ascii")
        return {"text/html": self.html(picture), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Moving({self.data['title']}; {len(self.data['words'])} rows)"


def moving(mechanism: Mechanism, length: int = 16, *, words: Sequence[str] = (),
           seed: int = 0) -> Moving:
    """Show, row after row, which tokens a mechanism reads raw, pooled and not at all.

    Args:
        mechanism: such as CCA(group=2, window=2).
        length: of a text of random queries and keys, by `seed`; at most 128.
        words: (length,) texts of the tokens; their numbers by default.

    Raises:
        ValueError: for a length that is not there or as many words as do not fit.
    """
    length = len(words) or length
    check_integers(1, length=length)
    if length > _MOST:
        raise ValueError(f"length: got {length}, wanted at most {_MOST}; show fewer tokens")
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 1, length, 8, dtype=torch.float64, generator=generator)
    source = Tensors(q, k, words=tuple(words))
    return Moving(mechanism, source.words,
                  Reading(mechanism, source.inputs(0, mechanism, False)))


class _Row:
    """What one row reads: raw tokens, and columns that pool."""

    def __init__(self, raw: list[int], pooled: list[int]) -> None:
        self.raw, self.pooled = raw, pooled


def _lanes(columns: Sequence[Column], pooled: set[int], seen: list[list[int]]) -> dict[int, int]:
    """Return a lane for each pooled column: columns of one row in one lane do not overlap."""
    lanes: dict[int, int] = {}
    together: dict[int, set[int]] = {n: set() for n in pooled}
    for numbers in seen:
        held = pooled.intersection(numbers)
        for n in held:
            together[n] |= held
    for n in sorted(pooled):
        first, last = columns[n].tokens[0], columns[n].tokens[-1]
        taken = {lanes[m] for m in together[n] & lanes.keys()
                 if columns[m].tokens[0] <= last and columns[m].tokens[-1] >= first}
        lanes[n] = next(lane for lane in range(len(pooled)) if lane not in taken)
    return lanes


def _sentence(row: int, now: _Row, before: _Row, columns: Sequence[Column],
              kinds: list[str]) -> str:
    """Return what a row reads, and what is new in it."""
    pooled = next((NAMES[column.kind] for column in columns if column.kind in POOLED), "")
    counts = [_counted(len(now.raw), "single tokens"),
              *([_counted(len(now.pooled), pooled)] if pooled else [])]
    texts = [f"Row {row} reads {' and '.join(counts)}"]
    for n in now.pooled:
        if n not in before.pooled:
            texts.append(f"new: that of tokens {_named(columns[n].tokens.tolist())}")
    gone = [token for token in before.raw if token not in now.raw]
    if gone:
        texts.append(f"no longer read as single tokens: {_named(gone)}")
    unread = [token for token, kind in enumerate(kinds) if kind == "unread"]
    if unread:
        texts.append(f"unread: {_named(unread)}")
    return "; ".join(texts) + "."


def _named(tokens: list[int]) -> str:
    """Return tokens as a short text, a run as "2 to 5"."""
    runs: list[list[int]] = []
    for token in sorted(tokens):
        if runs and runs[-1][-1] == token - 1:
            runs[-1].append(token)
        else:
            runs.append([token])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
                     for run in runs)


def _counted(count: int, plural: str) -> str:
    """Return a number of things, such as "1 core"."""
    return f"{count} {plural.removesuffix('s') if count == 1 else plural}"


@styled
def _strip(data: dict[str, Any]) -> Figure:
    """Draw what some rows read: single tokens below, columns that pool above them."""
    length = len(data["words"])
    count = min(PICTURES, length)
    rows = [(length - 1) * (n + 1) // count for n in range(count)]
    tall = 0.16 * data["lanes"] + 0.36
    figure, panels = plt.subplots(count, 1, squeeze=False, sharex=True,
                                  figsize=(min(9.0, 1.6 + 0.5 * length), count * tall + 1.1))
    for axes, row in zip(panels[:, 0], rows, strict=True):
        _picture(axes, data, row)
    panels[-1, 0].set_xlabel("token", color=FAINT)
    legend_below(panels[-1, 0], {**{data["names"][kind]: colour for kind, colour
                                    in data["colours"].items()},
                                 "not read as a single token": EMPTY}, columns=4)
    heading(figure, data["title"])
    return figure


def _picture(axes: Axes, data: dict[str, Any], row: int) -> None:
    """Draw one row."""
    length, shown = len(data["words"]), data["rows"][row]
    axes.set(xlim=(-0.5, length - 0.5), ylim=(-1, max(data["lanes"], 0.1)), yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_ylabel(f"row {row}", rotation=0, ha="right", va="center", color=INK)
    for number in shown["columns"]:
        column = data["columns"][number]
        colour, lane = data["colours"][column["kind"]], column["lane"]
        first, last = column["tokens"][0], column["tokens"][-1]
        axes.add_patch(Rectangle((first, lane + 0.42), last - first, 0.16, facecolor=colour))
        for token in column["tokens"]:
            axes.add_patch(Rectangle((token - 0.5, lane + 0.15), 0.96, 0.7, facecolor=colour))
    for token in range(row + 1):
        axes.add_patch(Rectangle((token - 0.48, -0.9), 0.92, 0.8, linewidth=1.4,
                                 facecolor=data["colours"].get(shown["tokens"][token], EMPTY),
                                 edgecolor=INK if token == row else "none"))
