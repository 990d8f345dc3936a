"""One slip is paid once: a later property is judged by the slip that an earlier one has named."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from cca_lab.course import compare
from cca_lab.course.tasks import Answer, Check, Draw, Mistake, Share

NAMED = ". This is what comes out when "  # what `compare` puts before a cause
# Such a cause says that the mechanism is missing, which is no slip.
MISSING = ("nothing ", "no row ", "no column ", "the cache is not read",
           "the pooled columns are not read", "all tokens get the same weight")
PAID: ContextVar[str] = ContextVar("PAID", default="")


def after(first: Check, then: Check) -> Check:
    """Return the check `then`, which takes a slip that `first` names for the rule.

    An answer that forgets the scale has lost `first`. If all that `then` sees is what comes out
    when the scale is forgotten, nothing else is wrong with the answer.
    """
    def check(answer: Answer, draw: Draw) -> Share | None:
        state = draw.getstate()
        try:
            return then(answer, draw)
        except Mistake as mistake:
            slip = slip_of(first, answer, draw)
            draw.setstate(state)
            token = PAID.set(slip)
            try:
                if slip:
                    return then(answer, draw)
            except Mistake:
                pass  # something else is wrong too, and the message compares with what is right
            finally:
                PAID.reset(token)
            raise mistake from None

    return check


def slip_of(check: Check, answer: Answer, draw: Draw) -> str:
    """Return the slip that the message of a check ends with, or ""."""
    try:
        check(answer, draw)
    except Mistake as mistake:
        cause = str(mistake).partition(NAMED)[2]
        return "" if cause.startswith(MISSING) else cause
    return ""


def need_close(got: Any, wanted: Tensor, what: str = "the result", *,
               causes: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
               **more: Any) -> Tensor:
    """Compare as `compare.need_close`, with what the paid slip gives if there is one."""
    slip = PAID.get()
    if slip and causes is not None:
        wanted = (causes() if callable(causes) else causes).get(slip, wanted)
    return compare.need_close(got, wanted, what, causes=causes, **more)


def need_equal(got: Any, wanted: float, what: str, *, causes: Mapping[str, float] | None,
               tolerance: float = 0.0) -> None:
    """Compare as `compare.need_equal`, with what the paid slip gives if there is one."""
    compare.need_equal(got, (causes or {}).get(PAID.get(), wanted), what, causes=causes,
                       tolerance=tolerance)
