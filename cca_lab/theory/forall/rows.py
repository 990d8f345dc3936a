"""What each row reads, for all integers: statements on the functions of `mechanisms.indices`.

A statement is a function of symbolic integers; it assumes hypotheses and returns what follows.
"""

from typing import Any

from cca_lab.mechanisms import indices
from cca_lab.theory import cores
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.terms import Truth, assume, divided_by, every, number, some

INDICES = "cca_lab.mechanisms.indices."


def names(*short: str) -> tuple[str, ...]:
    """Return the dotted names of functions of `mechanisms.indices`."""
    return tuple(INDICES + name for name in short)


def positive(*sizes: Any) -> None:
    """Assume that sizes are 1 or more."""
    assume(*(size >= 1 for size in sizes))


def within(column, interval: tuple[Any, Any]) -> Truth:
    """Return whether a column is in a half-open interval."""
    return every(number(interval[0]) <= column, column < interval[1])


def read_once(past, readings) -> Truth:
    """Return that a token is read once if it is of the past, and not at all if it is not."""
    return sum(map(number, readings), number(0)) == number(past)


# ------------------------------------------------------------------------------ CCA-Attention

ROW = names("cca_columns", "raw_column", "core_count", "first_raw")


def cca_row(row, length, g, s, start=0) -> tuple[Any, Any]:
    """Return the intervals of a row of tokens [start, length)."""
    return indices.cca_columns(row, indices.raw_column(start, length, g, s), g, s)


@theorem("CCA's cover", *ROW)
def cca_cover(L, g, s, i, t):
    """each row reads each token of its past once, in a core or raw, and no later token."""
    positive(L, g, s)
    assume(0 <= i, i < L, 0 <= t, t < L)
    pooled, raw = cca_row(i, L, g, s)
    return read_once(t <= i, [within(t // g, pooled), within(indices.core_count(L, g, s) + t, raw)])


@theorem("CCA's window", *ROW)
def cca_window(L, g, s, i):
    """min(s, i + 1) to s + g - 1 raw tokens, and s + ((i + 1 - s) mod g) once there are s, so as
    many g rows on; no core up to row g + s - 2, and cores end s tokens before the row's end;
    from row to row one more core is seen, or none, and none sees more than the last.
    """
    positive(L, g, s)
    assume(0 <= i, i < L)
    (first, n), (start, end) = cca_row(i, L, g, s)
    raw, count = end - start, indices.core_count(L, g, s)
    after, later = (indices.core_count(i + 1 + k, g, s) for k in (1, g))
    return {"raw and pooled tokens are the past": every(first == 0, raw + g * n == i + 1),
            "bounds": every(some(s <= raw, i + 1 <= raw), raw <= cores.most_raw(g, s)),
            "formula": (i + 1 >= s).implies(raw == cores.window_size(i + 1, g, s)),
            "period": (i + 1 >= s).implies(number(later) == n + 1),
            "no core": (number(n) == 0).iff(i + 1 < g + s),
            "cores are older than the window": some(n == 0, g * n + s <= i + 1),
            "one more or none": some(number(after) == n, number(after) == n + 1),
            "cores before the last row's": every(0 <= number(n), n <= number(count)),
            "the last row sees all": (i == L - 1).implies(number(n) == count)}


@theorem("CCA is full attention", *names("cca_is_full", "core_count"))
def cca_exact(L, g, s):
    """`exact_when` is true exactly if no row reads a core of two tokens or more."""
    positive(L, g, s)
    full = bool(indices.cca_is_full(L, g, s))
    return every(number(indices.core_count(L, g, s)) >= 1, g >= 2).iff(not full)


@theorem("CCA's entries", *names("cca_entries", "first_raw", "core_count"))
def cca_entries(L, g, s):
    """a decoder keeps floor(L/g) cores and the raw tokens that row L reads, at most s + g - 2."""
    positive(L, g, s)
    raw = indices.cca_entries(L, g, s) - L // g
    return {"raw tokens of the next row": raw == L - g * indices.core_count(L + 1, g, s),
            "bound": every(0 <= raw, raw <= cores.most_kept(g, s))}


@theorem("CCA's pairs", *names("cca_pairs", "cca_columns", "core_count"))
def cca_pairs(L, g, s):
    """the closed form of the scored pairs grows by the columns that each new row sees; with
    N = L - s >= 0 older tokens it is at most (g s (s + 1) + 2 g s N + (N + 1)(N + (g - 1)^2)) / 2g,
    and less by (g - 1)(r + 1)(g - 1 - r) / 2g, r = N mod g.
    """
    positive(L, g, s)
    assume(L < s)
    return {"before the first core": grows(L, g, s)}


@cca_pairs.also
def cca_pairs_inside(g, s, a, b):
    positive(g, s)
    assume(a >= 0, 0 <= b, b + 1 < g)
    length = s + a * g + b
    divided_by(length - s, g, a, b)
    divided_by(length + 1 - s, g, a, b + 1)
    return {"inside of a group": grows(length, g, s)}


@cca_pairs.also
def cca_pairs_at_the_end(g, s, a, half):
    positive(g, s)
    assume(a >= 0, g * a * (a - 1) == 2 * half)
    length = s + a * g + g - 1
    divided_by(length - s, g, a, g - 1)
    divided_by(length + 1 - s, g, a + 1, 0)
    divided_by(g * a * (a - 1), 2, half, 0)
    divided_by(g * (a + 1) * a, 2, half + g * a, 0)
    return {"at the end of a group": grows(length, g, s)}


@cca_pairs.also
def cca_pairs_at_most(g, s, a, b, half, total):
    positive(g, s)
    length, older = s + a * g + b, a * g + b
    assume(a >= 0, 0 <= b, b < g, g * a * (a - 1) == 2 * half, length * (length + 1) == 2 * total)
    divided_by(older, g, a, b)
    divided_by(g * a * (a - 1), 2, half, 0)
    divided_by(length * (length + 1), 2, total, 0)
    pairs = indices.cca_pairs(length, g, s)
    most, spared = cores.most_pairs(length, g, s), cores.spared_pairs(length, g, s)
    return {"in closed form": 2 * g * pairs == most - spared,
            "bound": 2 * g * pairs <= most}


def grows(length, g, s) -> Truth:
    """Return that one row more adds the columns that it sees."""
    (first, n), (start, end) = indices.cca_columns(length, 0, g, s)
    before, after = (indices.cca_pairs(rows, g, s) for rows in (length, length + 1))
    return after == before + (n - first) + (end - start)


@theorem("CCA behind sinks", *names("cca_sink_columns", "behind_sinks"), *ROW)
def cca_behind_sinks(start, stop, g, s, S, i, t):
    """with S first tokens that stay raw, each row of a text, or of a chunk in a cache, reads each
    token of its past once, as a sink, in a core of tokens behind the sinks, or raw, and no later
    token.
    """
    positive(g, s)
    assume(S >= 0, 0 <= start, start <= i, i < stop, 0 <= t, t < stop)
    pooled, sinks, raw = indices.cca_sink_columns(i, start, stop, g, s, S)
    last = number(indices.behind_sinks(stop, S))
    held, first = stop - last, indices.first_raw(indices.behind_sinks(start, S), g, s)
    count = indices.core_count(last, g, s)
    behind = held + count - first  # the column of token S, dropped or not
    return {"sinks": within(count + t, sinks).iff((t < S) & (t <= i)),
            "times": read_once(t <= i, [within(count + t, sinks),
                                        (t >= S) & within((t - S) // g, pooled),
                                        (t >= S) & within(behind + t - S, raw)])}


@theorem("DeepSeek-V4's reads", *names("entry_columns", "closed_groups", "read_twice", "unread"))
def production_reads(L, w, m, i, t):
    """with every closed entry visible, row i reads the last w tokens raw and the closed groups in
    entries: max(0, w - r) tokens twice and max(0, r - w) not at all, r = (i + 1) mod m, once the
    window is full.
    """
    positive(L, w, m)
    assume(0 <= i, i < L, 0 <= t, t < L)
    visible, entries = indices.entry_columns(i, w, m, L)
    first, r = max(0, i + 1 - w), (i + 1) % m
    twice, none = (number(count(i, w, m)) for count in (indices.read_twice, indices.unread))
    return {"raw": within(t, visible).iff((first <= t) & (t <= i)),
            "in an entry": within(L + t // m, entries).iff(t < i + 1 - r),
            "how many": every(twice - none == i + 1 - r - first, some(twice == 0, none == 0)),
            "bounds": every(twice >= 0, none >= 0, twice <= w, twice <= i + 1, none < m),
            "full window": (i + 1 >= w).implies(twice - none == w - r)}
