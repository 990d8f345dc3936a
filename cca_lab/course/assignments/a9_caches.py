"""a9: right implementations and mutants of a step of a cache with sinks and a window."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a9_judge import Entry, Implementation, need_floats, need_integer
from cca_lab.course.compare import describe
from cca_lab.course.tasks import Draw, Mistake


@dataclass
class Text:
    """All tokens of a text so far, and the lengths of its chunks."""

    keys: Tensor
    values: Tensor
    sinks: int
    window: int
    chunks: list[int] = field(default_factory=list)

    def more(self, keys: Tensor, values: Tensor) -> "Text":
        """Return the text with a chunk more."""
        return Text(torch.cat([self.keys, keys]), torch.cat([self.values, values]), self.sinks, self.window,
                    [*self.chunks, len(keys)])

    def kept(self, *, sinks: int | None = None, window: int | None = None) -> list[int]:
        """Return the positions of the first and of the latest tokens."""
        sinks, window = self.sinks if sinks is None else sinks, self.window if window is None else window
        return [at for at in range(len(self.keys)) if at < sinks or at >= len(self.keys) - window]


@dataclass
class Cache:
    """A step of the cache. A state stands for the whole text, so that each part can be replaced by a wrong one.

    Attributes:
        kept: positions that stay.
        shown: positions that are said, from those that stay.
        values_of: positions whose values are kept.
        shared: "" for states of their own; "branch" if all states of a text are one; "text" if all texts are one.
    """

    kept: Callable[[Text], list[int]] = Text.kept
    shown: Callable[[Text, list[int]], list[int]] = lambda text, kept: kept
    values_of: Callable[[Text, list[int]], list[int]] = lambda text, kept: kept
    shared: str = ""
    texts: list[Text] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def __call__(self, state: Any, keys: Any, values: Any, sinks: Any, window: Any) -> dict[str, Any]:
        """Return the next state."""
        keys = need_floats(keys, "keys", None, None)
        values = need_floats(values, "values", len(keys), None)
        sinks, window = need_integer(sinks, "sinks", 0, 100), need_integer(window, "window", 1, 100)
        number = self._number(state)
        text = Text(keys[:0], values[:0], sinks, window) if number is None else self.texts[number]
        if (text.sinks, text.window, text.keys.shape[1], text.values.shape[1]) != (sinks, window, keys.shape[1],
                                                                                 values.shape[1]):
            raise Mistake("the test called step with other sinks, another window or other numbers of features than the "
                          "state's")
        if number is not None and self.shared:
            roots = [at for at, root in enumerate(self.roots) if self.shared == "text" or root == self.roots[number]]
            latest = self.texts[roots[-1]]
            if latest.keys.shape[1:] == keys.shape[1:] and latest.values.shape[1:] == values.shape[1:]:
                text = Text(latest.keys, latest.values, sinks, window, latest.chunks)
        text = text.more(keys, values)
        self.roots.append(len(self.texts) if number is None else self.roots[number])
        self.texts.append(text)
        kept = self.kept(text)
        return {"keys": text.keys[kept], "values": text.values[self.values_of(text, kept)],
                "positions": torch.tensor(self.shown(text, kept), dtype=torch.int64), "id": len(self.texts) - 1}

    def _number(self, state: Any) -> int | None:
        if state is None:
            return None
        number = state.get("id") if isinstance(state, dict) else None
        if not isinstance(number, int) or not 0 <= number < len(self.texts):
            raise Mistake(f"the test called step with the state {describe(state)}, wanted None or a state that this "
                          "implementation returned, unchanged")
        return number


def cache(draw_kept: Callable[[Draw], Callable[[Text], list[int]]] | None = None, **parts: Any
          ) -> Callable[[Draw], Implementation]:
    """Return a maker of a cache with some parts replaced; `draw_kept` makes `kept` from a draw."""
    return lambda draw: Cache(**parts, **({"kept": draw_kept(draw)} if draw_kept else {}))


def ring(text: Text) -> list[int]:
    """Return the kept positions in the order of a ring: the window's slots are position modulo window."""
    kept = text.kept()
    near = sorted((at for at in kept if at >= text.sinks), key=lambda at: (at - text.sinks) % text.window)
    return near + [at for at in kept if at < text.sinks]


def sinks_too(text: Text) -> list[int]:
    """Return the positions with those that are sinks and in the window twice."""
    length = len(text.keys)
    return list(range(min(length, text.sinks))) + list(range(max(0, length - text.window), length))


def shrinking(draw: Draw) -> Callable[[Text], list[int]]:
    """Return a window that loses a token in long texts."""
    start = draw.randint(20, 30)
    return lambda text: text.kept(window=text.window - (len(text.keys) > start))


def turned(text: Text, kept: list[int]) -> list[int]:
    """Return positions of values that are one token off in the window, after it has turned over twice."""
    near = [at for at in kept if at >= text.sinks]
    if len(text.keys) <= text.sinks + 2 * text.window:
        return kept
    moved = dict(zip(near, near[1:] + near[:1], strict=True))
    return [moved.get(at, at) for at in kept]


CACHE_RIGHT = [Entry("keeps tokens in order", cache()), Entry("keeps tokens in the order of a ring", cache(kept=ring)),
               Entry("keeps the latest token first", cache(kept=lambda text: text.kept()[::-1]))]
CACHE_SHOWN = [
    Entry("in the size of the window, after something was forgotten", cache(
        kept=lambda text: text.kept(window=text.window - 1) or [len(text.keys) - 1])),
    Entry("in the first tokens, after something was forgotten", cache(kept=lambda text: text.kept(sinks=0))),
    Entry("when exactly one token should be forgotten", cache(kept=lambda text: text.kept(window=text.window + 1))),
    Entry("in the positions, after something was forgotten", cache(shown=lambda text, kept: list(range(len(kept))))),
]
CACHE_HIDDEN = [
    Entry("while the sinks are still in the window", cache(kept=sinks_too)),
    Entry("if the first chunk is longer than the window", cache(
        kept=lambda text: [at for at in text.kept() if text.chunks[0] <= text.window or at >= text.sinks
                           or at >= text.chunks[0] - text.window])),
    Entry("with chunks of more than one token", cache(
        kept=lambda text: text.kept(window=text.window + text.chunks[-1] - 1))),
    Entry("without sinks", cache(kept=lambda text: text.kept(sinks=max(1, text.sinks)))),
    Entry("in the values, after the window has turned over twice", cache(values_of=turned)),
    Entry("in long texts", cache(shrinking)),
    Entry("if two texts take turns", cache(shared="text")),
    Entry("if a state is continued twice", cache(shared="branch")),
    Entry("if the first chunk is shorter than the sinks", cache(
        kept=lambda text: text.kept(sinks=min(text.sinks, text.chunks[0])))),
]
