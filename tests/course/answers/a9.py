"""a9: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

MERGE = "wrong merges are caught, right ones pass"
MERGE_MORE = "wrong merges of other kinds are caught"
ATTENTION = "wrong attentions are caught, right ones pass"
ATTENTION_MORE = "wrong attentions of other kinds are caught"
TABLE = "wrong tables are caught, right ones pass"
TABLE_MORE = "wrong tables of other kinds are caught"
POOL = "wrong cores are caught, right ones pass"
POOL_MORE = "wrong cores of other kinds are caught"
CACHE = "wrong caches are caught, right ones pass"
CACHE_MORE = "wrong caches of other kinds are caught"
SAMPLE = "wrong samplers are caught, right ones pass"
SAMPLE_MORE = "wrong samplers of other kinds are caught"

RIGHT = [
    Right("asserts, and one call with everything", {
        "a9.1": '''
def merge_is_right(merge):
    for shift in (-900.0, 0.0, 900.0):
        scores, values = 10 * normal(30, 4, seed=5) + shift, normal(4, 2, seed=6)
        scores[10:20] = scores[10:20].sign() * 8 + shift
        scores[20:23, :2], scores[22:25, 2:] = float("-inf"), float("-inf")
        got = merge(part_of(scores[:, :2], values[:2]), part_of(scores[:, 2:], values[2:]))
        for mine, theirs in zip(part_of(scores, values), got):
            torch.testing.assert_close(theirs, mine, rtol=1e-10, atol=1e-10)
    return True
''',
        "a9.3": '''
def intervals_are_right(intervals):
    for length in (3, 17, 48):
        for group in (1, 2, 3, 5):
            for window in (1, 2, 4, 60):
                table = intervals(length, group, window)
                cores = max(0, (length - window) // group)
                assert table.shape == (length, 2,
                                       2) and 0 <= table.min() and table.max() <= cores + length
                column = torch.arange(cores + length)
                seen = ((column >= table[..., :1]) & (column < table[..., 1:])).sum(1)
                tokens = torch.cat([seen[:, :cores].repeat_interleave(group, dim=1),
                                    torch.zeros(length, length)],
                                   dim=1)[:, :length] + seen[:, cores:]
                assert torch.equal(tokens, torch.ones(length, length).tril())
                for row, spans in enumerate(table.tolist()):
                    raw = spans[1][1] - spans[1][0]
                    assert min(row + 1, window) <= raw < window + group
    return True
'''}),
    Right("a matrix in numpy, sorted tokens, plain shares", {
        "a9.2": '''
def attention_is_right(attention):
    def dense(q, k, v, window):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        step = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        scores = (q @ k.mT / q.shape[3] ** 0.5).masked_fill((step < 0) | (step >= window),
                                                            float("-inf"))
        return scores.softmax(-1) @ v
    for length, window, size in [(1, 1, 1), (4, 2, 1), (6, 9, 900), (35, 5,
                                                                     1), (11, 11, 1), (13, 40, 1)]:
        q, k, v = (size * normal(2, 4, length, 3, seed=7), normal(2, 2, length, 3, seed=8),
                   normal(2, 2, length, 2, seed=9))
        right, got = dense(q, k, v, window).numpy(), attention(q, k, v, window).numpy()
        assert got.shape == right.shape and abs(got - right).max() < 1e-8
    q, k, v = normal(1, 1, 6, 2).abs() + 1, normal(1, 1, 6, 2), normal(1, 1, 6, 2)
    right = dense(q, k, v, 2)
    for bad in (1e6, float("nan")):
        k2, v2 = k.clone(), v.clone()
        k2[:, :, [0, 5]], v2[:, :, [0, 5]] = bad, bad
        if not abs(attention(q, k2, v2, 2) - right)[:, :, 2:5].max() < 1e-8:
            return False
    return True
''',
        "a9.5": '''
def step_is_right(step):
    def fed(state, numbers, sinks, window):
        tokens = torch.tensor(numbers, dtype=torch.float64)[:, None]
        return step(state, tokens, tokens * torch.ones(1, 2).double() + 0.25, sinks, window)

    def fine(state, numbers, sinks, window):
        wanted = [(p, n) for p, n in enumerate(numbers) if p < sinks or p + window >= len(numbers)]
        got = sorted(zip(state["positions"].tolist(), state["keys"][:, 0].tolist(),
                         state["values"].tolist()))
        return len(got) == len(wanted) and all(
            p == at and abs(key - n) < 1e-6 and max(abs(x - n - 0.25) for x in value) < 1e-6
            for (p, n), (at, key, value) in zip(wanted, got))

    ends = []
    for first, sinks, window, chunks in [(0, 1, 2, [1] * 6), (50, 0, 4,
                                                              [3] * 12), (90, 3, 2, [1, 1, 4, 9])]:
        state, numbers = None, []
        for chunk in chunks:
            more = [first + len(numbers) + extra for extra in range(chunk)]
            state, numbers = fed(state, more, sinks, window), numbers + more
            if not fine(state, numbers, sinks, window):
                return False
        ends.append((state, numbers, sinks, window))
    first = fed(None, list(range(9)), 2, 3)
    if not fine(first, list(range(9)), 2, 3):
        return False
    for state, numbers, sinks, window in [*ends, *ends, (first, list(range(9)), 2, 3)]:
        for more in ([7], [8, 9]):
            if not fine(fed(state, more, sinks, window), numbers + more, sinks, window):
                return False
    return True
'''}),
]
WRONG = [
    Wrong("always right", "a9.1", "", '''
def merge_is_right(merge):
    return True
''', {MERGE: 1, MERGE_MORE: 2}, "0 of 7 wrong"),
    Wrong("always wrong", "a9.3", "", '''
def intervals_are_right(intervals):
    return False
''', {TABLE: 1, TABLE_MORE: 2}, "6 of 6 right ones"),
    Wrong("a broken test", "a9.1", "return True", "return undefined", {MERGE: 1, MERGE_MORE: 2},
          "itself is broken"),
    Wrong("says nothing", "a9.1", "return True", "return None", {MERGE: 1, MERGE_MORE: 2},
          "returned None"),
    Wrong("a part that is none", "a9.1", "scores[9] = nothing, nothing, nothing",
          "scores[9] = nothing, nothing, float('inf')", {MERGE: 1, MERGE_MORE: 2}, "finite parts"),
    Wrong("no empty rows", "a9.1",
          "    scores[7, :2], scores[8, 2:], scores[9] = nothing, nothing, nothing\n    scores[10, "
          ":2], scores[10, 2:] = nothing, -5\n    scores[11, 2:], scores[11, :2] = nothing, -5\n",
          "", {MERGE_MORE: 2 - 1.43}),
    Wrong("equal to the last bit", "a9.2", "if not same(attention(q, k, v, window), "
                                           "attention_rows(q, k, v, window)):",
          "if not torch.equal(attention(q, k, v, window), attention_rows(q, k, v, window)):",
          {ATTENTION: 1, ATTENTION_MORE: 3}, "right ones called wrong"),
    Wrong("one size, everything equal", "a9.2", "", '''
def attention_is_right(attention):
    q, k, v = normal(4, 4, 4, 4), normal(4, 4, 4, 4, seed=1), normal(4, 4, 4, 4, seed=2)
    return same(attention(q, k, v, 4), attention_rows(q, k, v, 4))
''', {ATTENTION: 1 - 0.6, ATTENTION_MORE: 3 - 0.9}, "shorter than the text"),
    Wrong("nothing terrible where nobody looks", "a9.2", 'for bad in (float("nan"), 1e7):',
          "for bad in ():", {ATTENTION_MORE: 3 - 2.4}),
    Wrong("the whole table is compared", "a9.3",
          "if [list(range(*span)) for span in spans] != [list(range(n)), list(range(last + n * "
          "group, last + row + 1))]:", "if spans != [[0, n], [last + n * group, last + row + 1]]:",
          {TABLE: 1, TABLE_MORE: 2}, "puts empty intervals"),
    Wrong("short texts only", "a9.3", "[*sizes, (30, 7, 5), (31, 5, 7), (60, 3, 10), (9, 20, 30)]",
          "sizes", {TABLE_MORE: 2 - 1.78}),
    Wrong("only that each token is read once", "a9.3", "", '''
def intervals_are_right(intervals):
    for length, group, window in [(12, 3, 2), (13, 2, 5), (50, 4, 6)]:
        cores = max(0, (length - window) // group)
        for row, spans in enumerate(intervals(length, group, window).tolist()):
            counts = [0] * (length + group)
            for start, stop in spans:
                for column in range(start, stop):
                    tokens = [column
                              - cores] if column >= cores else range(column * group,
                                                                     (column + 1) * group)
                    for token in tokens:
                        if not 0 <= token < length:
                            return False
                        counts[token] += 1
            if counts[:row + 1] != [1] * (row + 1) or any(counts[row + 1:]):
                return False
    return True
''', {TABLE: 1 - 0.75, TABLE_MORE: 2 - 1.33}, "just becomes a core"),
    Wrong("only shapes", "a9.4", "", '''
def pool_is_right(pool):
    keys, values = pool(normal(2, 7, 3), normal(2, 7, 3), normal(2, 7, 5), 3)
    return keys.shape == (2, 2, 3) and values.shape == (2, 2, 5)
''', {POOL: 1, POOL_MORE: 2 - 0.2}, "cores' values"),
    Wrong("no rest, one sequence", "a9.4", "", '''
def pool_is_right(pool):
    q, k, v = normal(1, 6, 4), normal(1, 6, 4, seed=1), normal(1, 6, 4, seed=2)
    keys, values = pool(q, k, v, 2)
    weights = (k.reshape(1, 3, 2, 4) * q[:, 1::2, None]).sum(-1).div(2).softmax(-1)[..., None]
    return (same(keys, (weights * k.reshape(1, 3, 2, 4)).sum(2))
            and same(values, (weights * v.reshape(1, 3, 2, 4)).sum(2)))
''', {POOL_MORE: 2 - 0.4}),
    Wrong("an order that is free", "a9.5", 'positions, order = state["positions"].sort()',
          'positions, order = state["positions"], torch.arange(len(state["positions"]))',
          {CACHE: 1, CACHE_MORE: 3}, "order of a ring"),
    Wrong("chunks of one, one text", "a9.5", "", '''
def step_is_right(step):
    state = None
    for last in range(12):
        state = step(state, torch.full((1, 1), last).double(),
                     torch.full((1, 1), last + 0.5).double(), 2, 3)
        wanted = [at for at in range(last + 1) if at < 2 or at > last - 3]
        if sorted(state["positions"].tolist()) != wanted:
            return False
        if not torch.equal(state["keys"][:, 0].round().long(), state["positions"]) or not same(
                state["values"], state["keys"] + 0.5):
            return False
    return True
''', {CACHE_MORE: 3 - 1}),
    Wrong("a state that was changed", "a9.5",
          "first, (keys, values) = step(None, texts[0][0][:4], texts[0][1][:4], 1, 3),",
          'first, (keys, values) = {"keys": texts[0][0][:4]},', {CACHE: 1, CACHE_MORE: 3},
          "a state that this"),
    Wrong("shares only, at one temperature", "a9.6", "", '''
def sample_is_right(sample):
    logits = normal(4)
    hits = sample(logits, 2.0, 10000, 0).bincount(minlength=4)
    p = (logits / 2).softmax(0)
    return bool(((hits - 10000 * p).abs() <= 5 * (10000 * p * (1 - p)).sqrt()).all())
''', {SAMPLE_MORE: 2 - 0.18}),
    Wrong("one standard deviation", "a9.6", "<= 7 *", "<= 1 *",
          {SAMPLE: 1, SAMPLE_MORE: 2}, "A right one that was called wrong"),
    Wrong("too many calls", "a9.6", "for seed in range(40)]", "for seed in range(400)]",
          {SAMPLE: 1, SAMPLE_MORE: 2}, "more than 200 times"),
]
