"""What DGA and LoCoCo read, for all integers: as in `rows`, of `mechanisms.indices`."""

from cca_lab.mechanisms import indices
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.rows import names, positive, read_once, within
from cca_lab.theory.forall.terms import assume, divided_by, function, number, rising


@theorem("DGA's cover", *names("prompt_columns", "divided_tokens"))
def dga_cover(L, m, i, t):
    """for any choice of focal tokens that leaves whole groups, each row reads each token of its
    past once and no later one, and at most one group is open.
    """
    positive(L, m)
    assume(0 <= i, i < L, 0 <= t, t < L)
    before = function("focal")  # how many focal tokens come before a token
    assume(before(0) == 0, rising(before, [0, L, i, i + 1, t, t + 1], 1), (L - before(L)) % m == 0)
    marked, others = before(t + 1) - before(t) == 1, t - before(t)
    kept, closed, raw = indices.prompt_columns(i, before(i + 1), before(i + 1) - before(i), L,
                                               before(L), m)
    first_raw = indices.divided_tokens(L, before(L), m)
    ways = [marked & within(before(t), kept), ~marked & within(before(L) + others // m, closed),
            ~marked & within(first_raw + others, raw)]
    divided_by(raw[0] - first_raw, m, closed[1] - before(L), 0)
    return {"times": read_once(t <= i, ways), "one open group": raw[1] - raw[0] <= m,
            "it begins with a group": (raw[0] - first_raw) % m == 0}


@theorem("LoCoCo's compressions",
         *names("segment_step", "compresses", "first_compression", "held_columns"))
def lococo_compressions(B, M, n, size):
    """the closed form of the columns, at most M, is what the loop over segments makes; it
    compresses before every segment from floor(M/B) + 1 on.
    """
    positive(B, M, size)
    assume(n >= 0)
    columns = indices.held_columns(n - 1, B, M) + B if n >= 1 else 0
    full, after = indices.segment_step(columns, size, M)
    first = number(indices.first_compression(M, B))
    held = number(indices.held_columns(n, B, M))
    return {"columns": number(after) == held + size, "at most M": held <= M,
            "when": (n * B >= first).iff(bool(full))}
