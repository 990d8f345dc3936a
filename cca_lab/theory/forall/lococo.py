"""LoCoCo: where segments and compressions lie, from the functions in `cca_lab.mechanisms.lococo.segments`.

M slots, segments of B tokens, a buffer of b columns. The loops are proved by induction: one pass of the lab's own
loop, from any state that the passes before it can leave.
"""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from cca_lab.mechanisms.lococo import segments as module
from cca_lab.theory.forall.core import Obligation, Symbol, Truth, demand, every, integers, least, number, sizes, where
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.loops import Loop
from cca_lab.theory.forall.paths import assume, fresh, unknown
from cca_lab.theory.forall.tables import accepted
from cca_lab.theory.forall.theorem import Theorem, row_of, shadowed, symbolic_len, within


class _Cuts:
    """Stands in for a list of symbolic length, to which a pass of a loop appends."""

    def __init__(self, length: Any) -> None:
        self.shape, self.new = (length,), []  # type: ignore[var-annotated]

    def append(self, entry: Any) -> None:
        """Remember a new entry."""
        self.new.append(entry)


def cut() -> Iterable[Obligation]:
    """Segment n holds the tokens nB .. min(L, (n + 1) B) - 1, and the loop goes on exactly while some are left."""
    length, block, n = integers("L B n")
    known = [*sizes(L=length, B=block), 0 <= n]

    def statement() -> Mapping[str, Truth]:
        with shadowed(module, len=symbolic_len):
            loop = Loop(module.segments)
            begin = loop.before(length, block)
            start = least(length, n * block)
            state = begin | {"cuts": _Cuts(n), "start": start}
            goes_on = loop.goes_on(**state)
            if not goes_on:
                return {"all tokens are cut": n * block >= length}
            state = loop.once(**state)
        ((first, stop),) = state["cuts"].new
        return {"begins empty": every(begin["start"] == 0, begin["cuts"] == []),
                "segment": (first == n * block) & (stop == least(length, (n + 1) * block)),
                "goes on there": (state["start"] == stop) & (first < stop)}

    return demand("LoCoCo's segments", known, statement)


def held(count: Any, block: Any, slots: Any, buffer: Any) -> Any:
    """Return the lab's closed form of the columns after `count` segments."""
    return module.held_columns(count, block, slots, buffer)


def compressed() -> Iterable[Obligation]:
    """The closed form of the columns is what the loop over the segments makes, and says when it compresses."""
    length, block, slots, buffer, n = integers("L B M buffer n")
    known = [*_text(length, block, slots, buffer), 0 <= n, n * block < length]
    period, first = buffer // block + 1, (slots + buffer) // block + 1

    def statement() -> Mapping[str, Truth]:
        settings = module.Settings(slots=slots, segment=block, buffer=buffer)
        loop = Loop(module.compressions)
        begin = loop.before(length, settings)
        columns = held(n - 1, block, slots, buffer) + block if n >= 1 else begin["columns"]
        done, since = _Cuts(0), fresh("since")
        start, stop = n * block, least(length, (n + 1) * block)
        state = loop.once(**begin | {"columns": columns, "done": done, "first": since, "start": start, "stop": stop})
        count = len(done.new)
        due = (n >= first) & ((n - first) % period == 0)
        return {"columns": state["columns"] == held(n, block, slots, buffer) + stop - start,
                "when": due if count else ~due,
                "what": every(*((step.border == start) & (step.first == since) for step in done.new),
                              state["first"] == (start if count else since)),
                "begins": every(begin["columns"] == 0, begin["first"] == 0)}

    return demand("LoCoCo's compressions", known, statement)


def table(length: Any, slots: Any) -> tuple[Any, Grid]:
    """Return the lab's intervals and the borders with which they were made: any that follow each other in the text."""
    count = fresh("compressions")
    at = Grid((count,), lambda k: unknown("border", k))
    assume(0 <= count, unknown("border", 0) >= 1, (count >= 1).implies(unknown("border", count - 1) < length))
    settings = module.Settings(slots=slots)
    with shadowed(module, len=symbolic_len, compressions=lambda *_: [SimpleNamespace(border=at)]):
        return module.intervals(length, settings), at


def rows() -> Iterable[Obligation]:
    """A row reads the slots of the last compression before it, and the raw tokens from its border on, each once."""
    length, slots, i, n, t = integers("L M i n t")
    known = [*sizes(L=length, M=slots), 0 <= i, i < length, 0 <= n, 0 <= t, t < length]

    def statement() -> Mapping[str, Truth]:
        found, at = table(length, slots)
        (first, end), raw = row_of(found, i)
        count, column = at.shape[0], at.shape[0] * slots + t
        last = (n <= count) & ((n == 0) | (at.at(n - 1) <= i)) & ((n == count) | (at.at(n) > i))
        begin = where(n == 0, 0, at.at(n - 1))
        return {"slots": last.implies(every(end == n * slots, first == where(n == 0, 0, (n - 1) * slots))),
                "raw": last.implies(within(column, raw).iff((begin <= t) & (t <= i))),
                "slots come first": end <= count * slots}

    return demand("LoCoCo's rows", known, statement)


def check() -> Iterable[Obligation]:
    """The lab's check accepts LoCoCo's intervals."""
    length, slots = integers("L M")

    def build() -> tuple[Any, Any]:
        found, at = table(length, slots)
        return found, at.shape[0] * slots + length

    return accepted("LoCoCo's intervals", sizes(L=length, M=slots), build)


def sizes_kept() -> Iterable[Obligation]:
    """The closed forms of a decoder's entries: at most the peak, which is at most M + b + B."""
    length, block, slots, buffer = integers("L B M buffer")

    def statement() -> Mapping[str, Truth]:
        options = {"slots": slots, "segment": block, "buffer": buffer}
        eager, lazy = (module.cache_tokens(length, when=when, **options) for when in ("eager", "lazy"))
        peak = number(module.peak_tokens(**options))
        return {"lazy keeps as much or more": eager <= lazy, "peak": lazy <= peak,
                "bound": peak <= slots + buffer + block, "eager is M + b between segments":
                (length % block == 0).implies(eager <= slots + buffer)}

    return demand("LoCoCo's entries", _text(length, block, slots, buffer), statement)


def _text(length: Symbol, block: Symbol, slots: Symbol, buffer: Symbol) -> list[Truth]:
    return [*sizes(L=length, B=block, M=slots), *sizes(0, buffer=buffer)]


_MODULE = "cca_lab.mechanisms.lococo.segments."
_PASSES = "the induction over the passes of the loop is in words"
THEOREMS = (
    Theorem("LoCoCo's segments", "segment n holds the tokens nB to min(L, (n + 1) B) - 1, until all are cut",
            (f"{_MODULE}segments", f"{_MODULE}sizes_of"), cut, _PASSES + "; one size of segments, not a list"),
    Theorem("LoCoCo's compressions", "the closed form of the columns is what the loop over segments makes; it "
            "compresses first at segment floor((M + b)/B) + 1, then every floor(b/B) + 1",
            (f"{_MODULE}compressions", f"{_MODULE}held_columns"), compressed, _PASSES),
    Theorem("LoCoCo's rows", "a row reads the M slots of the last compression before it, and each raw token from "
            "its border to itself", (f"{_MODULE}intervals",), rows,
            "the borders are any that follow each other in the text; columns are [slots of each compression ; raw]"),
    Theorem("LoCoCo's intervals are accepted", "the lab's check never refuses them",
            ("cca_lab.attention.intervals._check_rows", f"{_MODULE}intervals"), check, "borders as above"),
    Theorem("LoCoCo's entries", "at most M + b between segments if eager; a lazy cache keeps as much or more, and "
            "never more than the peak, which is at most M + b + B",
            (f"{_MODULE}cache_tokens", f"{_MODULE}peak_tokens", f"{_MODULE}held_columns"), sizes_kept),
)
