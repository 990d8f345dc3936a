"""a6: other right answers; wrong ones stand in the tables of the exercises."""

RIGHT = {
    "tensors instead of loops, and loops instead of tensors": {
        "a6.2": '''
def choose_focal(scores, every):
    count = (len(scores) + every - 1) // every
    last_first = scores.flip(0).clone()
    last_first[-1] = float("inf")
    order = last_first.argsort(descending=True, stable=True)[:count]
    return (len(scores) - 1 - order).sort().values
''',
        "a6.3": '''
def cut_groups(focal, length, group, span):
    others = [token for token in range(length) if token not in set(focal)]
    groups = []
    while others:
        near = [token for token in others[:group] if token < others[0] + span]
        groups.append(tuple(near))
        others = others[len(near):]
    return tuple(groups)
''',
        "a6.4": '''
def reads(length, groups, window):
    table = torch.zeros(length, len(groups) + length, dtype=torch.bool)
    home = {token: number for number, members in enumerate(groups) for token in members}
    for row in range(length):
        for token in range(row + 1):
            number = home.get(token)
            if number is not None and all(member + window <= row for member in groups[number]):
                table[row, number] = True
            else:
                table[row, len(groups) + token] = True
    return table
''',
        "a6.5": '''
def first_leak(implementation, length):
    draw = torch.Generator().manual_seed(5)
    text = torch.randn(length, 6, generator=draw, dtype=torch.float64)
    before = implementation(text)
    reads = torch.zeros(length, length, dtype=torch.bool)
    for token in range(1, length):
        for trial in range(36):
            other = text.clone()
            noise = torch.randn(6, generator=draw, dtype=torch.float64).clamp(-3, 3)
            other[token] = (0.0, 1.0, 60.0, 300.0)[trial % 4] * noise
            after = implementation(other)
            reads[:, token] |= ~((after == before) | (after.isnan() & before.isnan())).all(1)
    places = reads.triu(1).nonzero()
    return places[0] if len(places) else None
'''},
}
