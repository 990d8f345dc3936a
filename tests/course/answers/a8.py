"""a8: other right answers, and two wrong ones whose states cross to another process."""

from tests.course import matrix

RIGHT = {
    "tensors and tuples for lists; k itself is stored; int32": {
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
'''},
    "one mask for a chunk, sinks and window in one tensor": {
        "a8.3": '''
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
        "a8.4": '''
def cores_bytes(length, sinks, group, window, entry):
    def entries(t):
        if t <= sinks:
            return t
        visible = max(0, (t + 1 - sinks - window) // group)
        return t - group * visible + (t - sinks) // group
    best = entries(length)
    for back in range(2 * group + 3):
        best = max(best, entries(max(0, length - back)))
    return torch.tensor([entries(length) * entry, best * entry])
''',},
}

# What tensors keep alive is said by `wire`; all others stand in the tables of the exercises.
WRONG = {
    "a view of something larger": {"a8.2": '''
def full_step(state, q, k, v, scale):
    if state:
        k, v = torch.cat([state["k"], k], dim=2), torch.cat([state["v"], v], dim=2)
    k, v = torch.stack([k, v])
    rows = torch.arange(k.shape[2])
    return attend(q, k, v, rows <= rows[-q.shape[2]:, None], scale), {"k": k, "v": v}
'''},
    "a view?": {"a8.3": matrix.solved("a8")["a8-3-answer"].replace(
        "k[:, :, :0].clone()", "k[:, :, :0]")},
}
