"""The caches of a decoder: what they store after a chunk, and what the chunk's rows see in it.

The theorems go by induction over the chunks: if a cache holds what it should after `seen` tokens,
it does after the next chunk, whose rows then see the columns of the mechanism. So a text may be cut
into chunks in any way: prefill equals decode. What a cache does with a chunk is computed by
functions of `mechanisms.indices` that it calls; that its tensors follow them is tested
(tests/models).
"""

from cca_lab.attention import intervals
from cca_lab.mechanisms import indices
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.rows import cca_row, names, positive, read_once, within
from cca_lab.theory.forall.terms import assume, divided_by, every, lemma, number, some, where

CAUSAL = "cca_lab.attention.intervals.causal_end"


@theorem("CCA's cache", *names("cca_step", "cca_columns", "raw_column", "first_raw", "core_count"))
def cca_cache(seen, chunk, g, s, row, t, p):
    """after any chunks the cache holds the cores of all closed groups and the raw tokens that
    the next row reads, and each row of a chunk sees what it sees in a forward over the whole
    text.
    """
    positive(chunk, g, s)
    assume(seen >= 0, 0 <= row, row < chunk, 0 <= t)
    stop, i = seen + chunk, seen + row
    # the cache holds cores [0, seen // g), raw tokens [first, seen)
    first = indices.first_raw(seen, g, s)
    step = indices.cca_step(seen, stop, g, s)
    begin, end, closed_from, closed_to = map(number, (*step.members, *step.groups))
    (core_from, core_to), raw = cca_row(i, stop, g, s, seen)
    n = number(indices.core_count(i + 1, g, s))
    return {
        "groups are pooled whole": every(begin + first == g * closed_from,
                                         end + first == g * closed_to),
        "their members are stored": (begin < end).implies(every(0 <= begin, end <= stop - first)),
        "their last queries are in the chunk": every(closed_from <= p, p < closed_to).implies(
            every(seen <= p * g + g - 1, p * g + g - 1 < stop)),
        "earlier members": every(step.earlier == seen - g * closed_from, step.earlier < g,
                                 0 <= step.earlier),
        "cores kept": every(closed_from == seen // g, closed_to == stop // g),
        "cores seen": every(core_from == 0, number(core_to) == n, n <= step.cores,
                            step.cores <= closed_to),
        "raw tokens seen": within(step.cores + t - first, raw).iff(every(g * n <= t, t <= i)),
        "they are stored": g * n >= first,
        "a single row sees all": (chunk == 1).implies(
            every(n == step.cores, raw[0] == step.cores, raw[1] == step.cores + stop - first)),
        "raw tokens kept": every(step.dropped >= 0,
                                 first + step.dropped == indices.first_raw(stop, g, s),
                                 first + step.dropped <= stop),
        "the open group's tables": stop - g * closed_to == stop % g}


@theorem("DGA's cache",
         *names("fill", "divided_tokens", "decode_span", "decode_focal", "dga_entries"), CAUSAL)
def dga_cache(times, open, left, row, m, size, focal, groups, divided):
    """after any chunks within a block, or a stretch of m' generated tokens, the cache holds the
    entries of the divided text, then the raw tokens; each row sees the former and its own past
    of the latter; a full stretch is divided as a whole.
    """
    positive(m)
    assume(focal >= 0, groups >= 0, size == focal + m * groups)
    lemma((size - focal) // m == groups)
    assume(divided == indices.divided_tokens(size, focal, m))
    return {"a group for each m tokens": divided == focal + groups,
            **dga_stretch(times, open, left, row, size, divided)}


@dga_cache.also
def dga_generated(times, open, left, row, m, size, divided):
    positive(m)
    focal = indices.decode_focal(m)
    assume(size == indices.decode_span(m), divided == indices.divided_tokens(size, focal, m))
    return {"a tenth more, rounded up": every(10 * size >= 11 * m, 10 * size < 11 * m + 10),
            "one group": divided == focal + 1,
            **dga_stretch(times, open, left, row, size, divided)}


def dga_stretch(times, open, left, row, size, divided):
    """Return what holds after a piece of a chunk, in the stretch after `times` full ones."""
    positive(left)
    assume(times >= 0, 0 <= open, open < size)
    taken, full = indices.fill(open, left, size)
    full = bool(full)
    assume(0 <= row, row < taken)
    columns = divided * times + open + taken  # [divided entries ; raw tokens], when the rows attend
    end = intervals.causal_end(row, taken, columns)
    after_times, after_open = (times + 1, 0) if full else (times, open + taken)
    divided_by(size * times + open, size, times, open)
    divided_by(size * after_times + after_open, size, after_times, after_open)
    before, after = (indices.dga_entries(size * n + k, size, divided)
                     for n, k in ((times, open), (after_times, after_open)))
    return {"the chunk goes on": every(1 <= number(taken), taken <= left,
                                       (taken < left).implies(full)),
            "divided as a whole": (open + taken == size).iff(full),
            "never more than a stretch": open + taken <= size,
            "columns seen": every(end == divided * times + open + row + 1, end <= columns),
            "a single row sees all": (number(taken) == 1).implies(end == columns),
            "entries before": every(before[0] == divided * times, before[1] == open),
            "entries after": every(after[0] == divided * after_times, after[1] == after_open)}


@theorem("LoCoCo's cache",
         *names("fill", "compresses", "lococo_entries", "lococo_peak", "held_columns"), CAUSAL)
def lococo_cache(n, open, left, M, B, row):
    """after any chunks within a segment the cache holds the slots and the raw tokens since the
    last compression, as many as the closed form says, at most M + B; each row sees all
    slots and its own past of them.
    """
    positive(left, M, B)
    assume(n >= 0, 0 <= open, open < B)
    divided_by(n * B + open, B, n, open)
    stored = number(indices.lococo_entries(n * B + open, slots=M, segment=B))
    taken, full = indices.fill(open, left, B)
    full = bool(full)
    assume(0 <= row, row < taken)
    columns = stored + taken
    end = intervals.causal_end(row, taken, columns)
    after = M if full and indices.compresses(columns, M) else columns
    divided_by(n * B + open + taken, B, *((n + 1, 0) if full else (n, open + taken)))
    wanted = indices.lococo_entries(n * B + open + taken, slots=M, segment=B)
    return {"slots and tokens since then": stored == indices.held_columns(n, B, M) + open,
            "at most the peak": columns <= indices.lococo_peak(slots=M, segment=B),
            "columns seen": every(end == stored + row + 1, end <= columns),
            "a single row sees all": (number(taken) == 1).implies(end == columns),
            "the chunk goes on": every(1 <= number(taken), taken <= left, open + taken <= B),
            "kept": number(after) == wanted}


@theorem("StreamingLLM's cache",
         *names("sink_columns", "sink_dropped", "sink_entries", "sink_eviction"))
def streaming_cache(seen, chunk, sinks, recent, row, t):
    """after any chunks the cache holds the sinks and the recent tokens, and each row of a chunk
    sees the tokens of the mechanism, each once.
    """
    positive(chunk, recent)
    assume(seen >= 0, sinks >= 0, 0 <= row, row < chunk, 0 <= t, t < seen + chunk)
    i, stop = seen + row, seen + chunk
    dropped = number(indices.sink_dropped(seen, sinks, recent))
    columns = number(indices.sink_entries(seen, sinks, recent)) + chunk
    column, held = where(t < sinks, t, t - dropped), some(t < sinks, t >= sinks + dropped)
    ways = [within(column, interval)
            for interval in indices.sink_columns(i, sinks, recent + 1, dropped)]
    wanted = every(t <= i, some(t < sinks, i - t < recent + 1))
    begin, end = map(number, indices.sink_eviction(columns, sinks, recent))
    kept = indices.sink_entries(stop, sinks, recent)
    gone = indices.sink_dropped(stop, sinks, recent)
    return {"columns": every(dropped >= 0, columns == stop - dropped,
                             held.implies(column < columns)),
            "no wanted token is dropped": wanted.implies(held),
            "times": held.implies(read_once(wanted, ways)),
            "a single row sees all": every(chunk == 1, held).implies(wanted),
            "as many are kept": columns - (end - begin) == kept,
            "the recent ones are": (begin < end).implies(
                every(number(begin) == sinks, end + dropped == sinks + gone))}
