"""a8: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

HAND = "the numbers of the example"
F_SINGLE, F_CHUNKS, F_BYTES = ("full cache: single tokens equal one forward",
                               "full cache: chunks equal one forward",
                               "full cache: bytes are exact at right outputs")
S_SINGLE, S_CHUNKS, S_EDGES, S_BYTES = (
    "StreamingLLM: single tokens equal one forward", "StreamingLLM: chunks equal one forward",
    "StreamingLLM: no sinks, or no recent tokens", "StreamingLLM: bytes are exact at right outputs")
C_SINGLE, C_CHUNKS, C_BYTES = ("cores: single tokens equal one forward",
                               "cores: chunks equal one forward",
                               "cores: bytes are exact at right outputs")
END, PEAK, TRILLION = ("the bytes at the end equal counting", "the peak equals counting",
                       "exact for a trillion tokens")
BEAM = "every survivor continues its own text"
CALLS = "one call for each token, of the survivors only"
CODES, BOUND = "codes are the nearest ones", "the bound holds and is reached"
FULL = {F_SINGLE: 1, F_CHUNKS: 1, F_BYTES: 1}
STREAMING = {S_SINGLE: 1, S_CHUNKS: 1, S_EDGES: 1, S_BYTES: 1}
CORES = {C_SINGLE: 2, C_CHUNKS: 1, C_BYTES: 2}

# A StreamingLLM step that is right but for what stays.
KEEPS = '''
def streaming_step(state, q, k, v, scale, sinks, recent):
    seen = state.get("seen", 0)
    total = seen + k.shape[2]
    rows = torch.arange(seen, total)
    new = torch.stack([rotate(k, rows), v])
    entries = torch.cat([state["first"], state["last"], new], dim=3) if state else new
    old = min(total, sinks)
    tokens = torch.cat([torch.arange(old), torch.arange(total - (entries.shape[3] - old), total)])
    away = rows[:, None] - tokens
    out = attend(rotate(q, rows), *entries, (away >= 0) & ((away <= recent) | (tokens < sinks)),
                 scale)
    start = max(old, entries.shape[3] - recent)
    first, last = entries[:, :, :, :old].clone(), entries[:, :, :, start:].clone()
    KEEP
    return out, {"first": first, "last": last, "seen": total}
'''

RIGHT = [
    Right("tensors and tuples for lists; sinks and recent tokens apart; k itself is stored; "
          "int32", {
        "a8.1": '''
def by_hand():
    return {"held": torch.tensor([0, 5, 6]), "row 6": (0, 4, 5, 6), "row 6 evicting first":
                [0, 5, 6],
            "row 5 in the chunk": torch.tensor([0, 3, 4, 5], dtype=torch.int32),
            "first row with a loss":
            torch.tensor(4), "bytes": 192}
''',
        "a8.2": '''
def full_step(state, q, k, v, scale):
    if state:
        k, v = torch.cat([state["k"], k], dim=2), torch.cat([state["v"], v], dim=2)
    rows = torch.arange(k.shape[2])
    return attend(q, k, v, rows <= rows[-q.shape[2]:, None], scale), {"k": k, "v": v}
''',
        "a8.3": KEEPS.replace("    KEEP\n", ""),
        "a8.6": '''
def beam(step, state, start, width, length):
    scores, state = step(state, torch.tensor([start]))
    totals, words = scores[0].sort(descending=True)
    totals, texts = totals[:width], [[word] for word in words[:width].tolist()]
    rows = [0] * width
    for _ in range(length - 1):
        state = {n: x.index_select(0, torch.tensor(rows)) if torch.is_tensor(x) else x
                 for n, x in state.items()}
        scores, state = step(state, torch.tensor([text[-1] for text in texts], dtype=torch.int32))
        sums = totals[:, None] + scores
        places = sums.flatten().argsort(descending=True)[:width].tolist()
        totals, rows = sums.flatten()[places], [place // scores.shape[1] for place in places]
        texts = [texts[place // scores.shape[1]] + [place % scores.shape[1]] for place in places]
    return torch.tensor(texts, dtype=torch.int32)
'''}),
    Right("one mask for a chunk, sinks and window in one tensor", {
        "a8.4": '''
def cores_step(state, q, k, v, scale, sinks, group, window):
    def n(row):
        return max(0, (row + 1 - sinks - window) // group)

    start, kv = state.get("seen", 0), torch.stack([k, v])
    stop = start + k.shape[2]
    tokens = torch.tensor([t for t in range(stop) if t >= start or t < sinks or t >= sinks + group
                           * n(start)])
    raw = torch.cat([state["raw"], kv], dim=3) if state else kv
    made = [state["cores"]] if state else [kv[:, :, :, :0].clone()]
    for last in range(start, stop):
        if last >= sinks and (last + 1 - sinks) % group == 0:
            judge = q[:, :, last - start].unflatten(1, (k.shape[1], -1)).mean(2)
            members = raw[:, :, :, (tokens > last - group) & (tokens <= last)]
            weights = (scale * members[0] @ judge[..., None]).softmax(2)
            made.append((weights * members).sum(3, keepdim=True))
    cores = torch.cat(made, dim=3)
    rows = torch.arange(start, stop)[:, None]
    visible = torch.tensor([n(row) for row in range(start, stop)])[:, None]
    reads_core = torch.arange(cores.shape[3]) < visible
    reads_raw = (tokens <= rows) & ((tokens < sinks) | (tokens >= sinks + group * visible))
    key, value = torch.cat([cores, raw], dim=3)
    out = attend(q, key, value, torch.cat([reads_core, reads_raw], dim=1), scale)
    stay = (tokens < sinks) | (tokens >= sinks + group * n(stop))
    return out, {"raw": raw[:, :, :, stay], "cores": cores, "seen": stop}
''',
        "a8.5": '''
def cores_bytes(length, sinks, group, window, entry):
    def entries(t):
        if t <= sinks:
            return t
        visible = max(0, (t + 1 - sinks - window) // group)
        return t - group * visible + (t - sinks) // group
    best = entries(length)
    for back in range(2 * group + 3):
        best = max(best, entries(max(0, length - back)))
    return [entries(length) * entry, best * entry]
''',
        "a8.6": '''
def beam(step, state, start, width, length):
    beams, tokens = [(0.0, [])], [start]
    for _ in range(length):
        scores, state = step(state, torch.tensor(tokens))
        longer = [(total + score, row, text + [word]) for row, (total, text) in enumerate(beams)
                  for word, score in enumerate(scores[row].tolist())]
        longer = sorted(longer, key=lambda x: -x[0])[:width]
        beams, tokens = [(total, text)
                         for total, _, text in longer], [text[-1] for _, _, text in longer]
        for name in state:
            if hasattr(state[name], "shape"):
                state[name] = torch.stack([state[name][row] for _, row, _ in longer])
    return torch.tensor([text for _, text in beams])
'''}),
]

WRONG = [
    Wrong("a typing error in one key", "a8.1", '"row 5 in the chunk": [0, 3',
          '"row 5 in chunk": [0, 3', {HAND: 2 - 1.67}, "Nobody asks for 'row 5 in chunk'"),
    Wrong("a set for a list", "a8.1", "[0, 5, 6], \"row 6\"", "{0, 5, 6}, \"row 6\"", {HAND: 2},
          "a set, wanted"),
    Wrong("evicted before the row attends", "a8.1", "[0, 4, 5, 6]", "[0, 5, 6]", {HAND: 2 - 1.67},
          "'row 6'"),
    Wrong("the scale is forgotten", "a8.2", "scores = scale * q", "scores = q", FULL,
          "not multiplied by scale"),
    Wrong("two halves of one tensor", "a8.2", "", '''
def full_step(state, q, k, v, scale):
    if state:
        k, v = torch.cat([state["k"], k], dim=2), torch.cat([state["v"], v], dim=2)
    k, v = torch.stack([k, v])
    rows = torch.arange(k.shape[2])
    return attend(q, k, v, rows <= rows[-q.shape[2]:, None], scale), {"k": k, "v": v}
''', {F_BYTES: 1}, "is a view"),
    Wrong("a list in the state", "a8.2", '"value": value}',
          '"value": value, "shape": list(key.shape)}', FULL,
          "wanted only tensors and Python integers"),
    Wrong("the chunk's mask is aligned top left", "a8.2", ".tril(columns - chunk)", ".tril()",
          FULL,
          "aligned top left"),
    Wrong("no mask in a chunk", "a8.2", ".tril(columns - chunk)", "", {F_CHUNKS: 1},
          "later tokens too"),
    Wrong("KV heads are tiled", "a8.2", "", '''
def full_step(state, q, k, v, scale):
    key, value = ((torch.cat([state[n], x], 2) if state else x) for n, x in (("k", k), ("v", v)))
    rows, times = torch.arange(key.shape[2]), q.shape[1] // k.shape[1]
    scores = scale * q @ key.repeat(1, times, 1, 1).transpose(-1, -2)
    scores = scores.masked_fill(rows > rows[-q.shape[2]:, None], float("-inf"))
    return scores.softmax(-1) @ value.repeat(1, times, 1, 1), {"k": key, "v": value}
''', FULL, "mod Hk"),
    Wrong("keys are stored for every query head", "a8.2", "", '''
def full_step(state, q, k, v, scale):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    key, value = ((torch.cat([state[n], x], 2) if state else x) for n, x in (("k", k), ("v", v)))
    rows = torch.arange(key.shape[2])
    scores = (scale * q @ key.transpose(-1, -2)).masked_fill(rows > rows[-q.shape[2]:, None],
                                                             float("-inf"))
    return scores.softmax(-1) @ value, {"k": key, "v": value}
''', {F_BYTES: 1}, "wanted 1 entry of"),
    Wrong("a global variable instead of the state", "a8.2", "", '''
PAST = []

def full_step(state, q, k, v, scale):
    if not state:
        PAST.clear()
    PAST.append((k, v))
    key, value = (torch.cat(parts, dim=2) for parts in zip(*PAST))
    rows = torch.arange(key.shape[2])
    return attend(q, key, value, rows <= rows[-q.shape[2]:, None], scale), {"seen": key.shape[2]}
''', {F_CHUNKS: 1, F_BYTES: 1}),
    Wrong("positions count from the cache", "a8.3", "    key, value = rotate(k, rows), v\n",
          "    q, k = (rotate(x, rows.clamp(max=sinks + recent) - rows) for x in (q, k))\n"
          "    key, value = rotate(k, rows), v\n", STREAMING, "length of the cache"),
    Wrong("a row evicts before it attends", "a8.3", "(distance <= recent))",
          "(distance < max(recent, 1)))",
          STREAMING, "before the new one has attended"),
    Wrong("sinks twice while they are recent", "a8.3",
          "    out = attend(rotate(q, rows), key, value, mask, scale)",
          "    near = mask & (tokens < sinks) & (distance <= recent)\n    out = attend(rotate(q, "
          "rows), torch.cat([key, key], 2), torch.cat([value, value], 2),\n                 "
          "torch.cat([mask, near], 1), scale)", STREAMING, "is read twice"),
    Wrong("no window inside a chunk", "a8.3", "    mask = (distance >= 0) & ((tokens < sinks) | "
                                              "(distance <= recent))",
          "    mask = distance >= 0", {S_CHUNKS: 1}, "gone if the chunk"),
    Wrong("recent tokens are kept as a view", "a8.3", "", KEEPS.replace(
        "KEEP", "last = entries[:, :, :, start:]"), {S_BYTES: 1}, "is a view"),
    Wrong("-0 for no recent tokens", "a8.3", "tokens >= total - recent)",
          "tokens >= total - recent) | (recent == 0)", {S_EDGES: 1, S_BYTES: 1}),
    Wrong("-0 for no recent tokens, with a right mask", "a8.3", "", KEEPS.replace(
        "KEEP", "last = entries[:, :, :, old:][:, :, :, "
                "-recent:].clone()"), {S_BYTES: 1}, "recent 0: after"),
    Wrong("without sinks nothing is dropped", "a8.3", "", KEEPS.replace(
        "KEEP", "last = last if sinks else entries.clone()"), {S_BYTES: 1}, "sinks 0, recent"),
    Wrong("an empty slice is not copied", "a8.3", "", KEEPS.replace(
        "KEEP", "first = first if old else entries[:, :, :, :0]"), {S_BYTES: 1},
          "it has 0 bytes, and keeps"),
    Wrong("a whole chunk stays until the next step", "a8.3", "", KEEPS.replace(
        "KEEP", "last = last if k.shape[2] == 1 else entries[:, :, :, "
                "old:].clone()"), {S_BYTES: 1}, "in chunks"),
    Wrong("only chunks are forgotten", "a8.3", "", KEEPS.replace(
        "KEEP", "first, last = first * (k.shape[2] == 1), last * (k.shape[2] == "
                "1)"), {S_CHUNKS: 1, S_BYTES: 1}),
    Wrong("positions are stored as int64", "a8.3", '"seen": total}',
          '"seen": total, "tokens": tokens[stay]}', {S_BYTES: 1}, "int64"),
    Wrong("a core one row early", "a8.4", "max(0, (row + 1 - sinks", "max(0, (row + 2 - sinks",
          CORES, "one row early"),
    Wrong("a core one row late", "a8.4", "max(0, (row + 1 - sinks", "max(0, (row - sinks",
          CORES,
          "one row late"),
    Wrong("judged by one query head", "a8.4", ".mean(dim=2)[:, :, None]", "[:, :, 0][:, :, None]",
          CORES, "the first head only"),
    Wrong("raw tokens are never dropped", "a8.4",
          "        drop = group * (cores(row + 1) - cores(row))\n",
          "        drop = 0\n", CORES, "still read raw"),
    Wrong("an empty slice is not copied", "a8.4", "k[:, :, :0].clone()", "k[:, :, :0]",
          {C_BYTES: 2}, "is a view"),
    Wrong("groups begin at token 0", "a8.4", "", '''
def cores_step(state, q, k, v, scale, sinks, group, window):
    seen = state.get("seen", 0)
    parts = [torch.cat([state[n], x], dim=2) if state else x
             for n, x in (("q", q), ("k", k), ("v", v))]
    outputs = []
    for row in range(seen, seen + k.shape[2]):
        n, keys, values = max(0, (row + 1 - window) // group), [], []
        for p in range(n):
            at = slice(p * group, p * group + group)
            judge = parts[0][:, :, at.stop - 1].unflatten(1, (k.shape[1], -1)).mean(2)[:, :, None]
            weights = (scale * judge @ parts[1][:, :, at].transpose(-1, -2)).softmax(-1)
            keys.append(weights @ parts[1][:, :, at])
            values.append(weights @ parts[2][:, :, at])
        raw = sorted(set(range(min(sinks, row + 1))) | set(range(group * n, row + 1)))
        key, value = torch.cat([*keys, parts[1][:, :, raw]],
                               2), torch.cat([*values, parts[2][:, :, raw]], 2)
        mask = torch.ones(1, key.shape[2], dtype=torch.bool)
        outputs.append(attend(q[:, :, row - seen : row - seen + 1], key, value, mask, scale))
    return torch.cat(outputs, 2), dict(zip("qkv", parts)) | {"seen": seen + k.shape[2]}
''', CORES, "and not behind the sinks"),
    Wrong("the judge without scale", "a8.4", "weights = (scale * judge", "weights = (judge",
          CORES,
          "the judge's scores are not multiplied by scale"),
    Wrong("the judge's queries are added", "a8.4", ".mean(dim=2)[:, :, None]",
          ".sum(dim=2)[:, :, None]", CORES, "are added, not averaged"),
    Wrong("the row judges", "a8.4", "", '''
def cores_step(state, q, k, v, scale, sinks, group, window):
    seen, share, outs = state.get("seen", 0), q.shape[1] // k.shape[1], []
    k, v = (torch.cat([state[n], x], dim=2) if state else x for n, x in (("k", k), ("v", v)))
    for row in range(seen, k.shape[2]):
        query = q[:, :, row - seen, None]
        judge = query.unflatten(1, (-1, share)).mean(dim=2)
        n = max(0, (row + 1 - sinks - window) // group)
        keys, values = [k[:, :, : min(sinks, row + 1)]], [v[:, :, : min(sinks, row + 1)]]
        for at in range(sinks, sinks + n * group, group):
            phi = (scale * judge @ k[:, :, at : at + group].mT).softmax(-1)
            keys.append(phi @ k[:, :, at : at + group])
            values.append(phi @ v[:, :, at : at + group])
        keys, values = (torch.cat([*x, y[:, :, sinks + n * group : row + 1]], dim=2)
                        for x, y in ((keys, k), (values, v)))
        outs.append(attend(query, keys, values, torch.ones(1, keys.shape[2]) > 0, scale))
    return torch.cat(outs, dim=2), {"k": k, "v": v, "seen": k.shape[2]}
''', CORES, "each row judges the groups with its own query"),
    Wrong("softmaxes are averaged", "a8.4",
          "            weights = (scale * judge @ members.transpose(-1, -2)).softmax(-1)",
          "            judge = q[:, :, t].unflatten(1, (k.shape[1], -1))\n            weights = "
          "(scale * judge @ members.transpose(-1, -2)).softmax(-1).mean(2, keepdim=True)",
          CORES,
          "average the queries"),
    Wrong("groups are pooled with equal weights", "a8.4", "weights = (scale * judge",
          "weights = (0 * judge", CORES, "plain mean"),
    Wrong("the peak is the end", "a8.5", "entry * max(entries(t) for t in last)",
          "entry * entries(length)", {PEAK: 1, TRILLION: 1}, "the peak"),
    Wrong("counted in a loop", "a8.5", "    last = range(max(0, length - group + 1), length + 1)",
          "    if length > 10**6:\n        raise TimeoutError\n    last = range(length + "
          "1)", {TRILLION: 1}),
    Wrong("floating division", "a8.5", "(t + 1 - sinks - window) // group)",
          "int((t + 1 - sinks - window) / group))\n    entry = float(entry)",
          {END: 1, PEAK: 1, TRILLION: 1}, "divide with //"),
    Wrong("the state is not reordered", "a8.6", "x[rows] if",
          "x[rows.clamp(max=0) + torch.arange(width).clamp(max=len(x) - 1)] if",
          {BEAM: 2, CALLS: 1}, "the rows of the cache, or"),
    Wrong("only the keys are reordered", "a8.6", "x[rows] if isinstance(x, torch.Tensor)",
          "x[rows if name == 'key' or len(x) < width else slice(None)] if isinstance(x, "
          "torch.Tensor)", {BEAM: 2, CALLS: 1}, "or of some of its tensors"),
    Wrong("the likeliest next word, not the largest sum", "a8.6", "(totals[:, None] + scores)",
          "(0 * totals[:, None] + scores)", {BEAM: 2, CALLS: 1}, "the sums are forgotten"),
    Wrong("the texts stay where they are", "a8.6", "torch.cat([texts[rows], ",
          "torch.cat([texts[rows] if len(texts) < width else texts, ", {BEAM: 2, CALLS: 1},
          "the texts so far stay"),
    Wrong("two calls for each token", "a8.6", "        scores, state = step(state, tokens)\n",
          "        step(state, tokens)\n        scores, state = step(state, tokens)\n", {CALLS: 1},
          "6 times, wanted 3"),
    Wrong("width rows from the start", "a8.6", "    for _ in range(length):\n", '''
    tokens, texts = tokens.expand(width), texts.expand(width, 0)
    totals = torch.full((width,), float("-inf"), dtype=torch.float64)
    totals[0] = 0
    state = {n: x.expand(width, *x.shape[1:]) if isinstance(x, torch.Tensor) else x
             for n, x in state.items()}
    for _ in range(length):
''', {CALLS: 1}, "first the one row"),
    Wrong("one call more", "a8.6", "    return texts", "    step(state, tokens)\n    return texts",
          {CALLS: 1}, "step was called 4 times, wanted 3"),
    Wrong("codes are cut off, not rounded", "a8.7", ".round()", ".trunc()",
          {CODES: 1}, "nearest integer"),
    Wrong("128 steps", "a8.7", "/ 127", "/ 128", {CODES: 1, BOUND: 1}, "its code is 127"),
    Wrong("codes that are not rounded", "a8.7", ".round()", "", {CODES: 1}, "whole numbers"),
    Wrong("0/0 for a key of zeros", "a8.7", "torch.where(size > 0, size, 1.0)", "size", {CODES: 1},
          "is nan: is it 0/0"),
    Wrong("0/0, which a cast hides", "a8.7", "safe[..., None]).round()",
          "size[..., None]).round().to(torch.int8)", {CODES: 1}, "wanted floats"),
    Wrong("codes of a key of zeros", "a8.7", "    return codes, size",
          "    codes[size == 0] = 1\n    return codes, size", {CODES: 1}, "the key is 0"),
    Wrong("the bound has a whole size", "a8.7", "scale * 0.5 * size", "scale * size", {BOUND: 1},
          "no key within half"),
    Wrong("the length of the query instead of its absolute sum", "a8.7",
          "q.abs().sum(dim=-1)[..., None]",
          "q.norm(dim=-1)[..., None]", {BOUND: 1}, "can have a score"),
]
