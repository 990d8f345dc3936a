"""a6: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

HAND = "the numbers of the example"
HIGHEST, TIES = "the highest scores are chosen", "of equal scores the later token wins"
FULL, SPAN = "full groups, and a short one at the end", "no group is longer than the span"
BEHIND = "a group is pooled when its last member is before the window"
FUTURE = "no row reads a later token"
ONCE = "every earlier token is read exactly once"
EQUAL, LARGE = "the output equals one matrix", "large scores do no harm"
DIRECT = "direct leaks are found"
STEPS = "leaks that appear at a step are found"
OTHERS = "other leaks are found"
PLACE = "the first leaking row and its token"
VOTE, TINY = "a later token changes what a row reads", "no tiny edit shows it"

RIGHT = [
    Right("tensors instead of loops, and loops instead of tensors", {
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
'''}),
    Right("a detector with other edits, compared as bits, and one that answers with tensors", {
        "a6.6": '''
def leaks(implementation, length):
    draw = torch.Generator().manual_seed(3)
    text = torch.randn(length, 6, generator=draw, dtype=torch.float64)
    before = implementation(text).nan_to_num(nan=12345.678, posinf=1.79e308)
    changed = torch.tensor(False)
    for t in range(1, length):
        for trial in range(40):
            other = text.clone()
            size = (0.0, 1.0, 10.0, 50.0, 200.0)[trial % 5]
            stop = t + 1 if trial % 2 else length
            other[t:stop] = (size * torch.randn(stop - t, 6, generator=draw,
                                                dtype=torch.float64)).clamp(-1000, 1000)
            if trial == 5:
                other[t:] = text[t - 1]
            after = implementation(other).nan_to_num(nan=12345.678, posinf=1.79e308)
            changed |= (after[:t] != before[:t]).any()
    return changed
''',
        "a6.7": '''
def first_leak(implementation, length):
    draw = torch.Generator().manual_seed(5)
    text = torch.randn(length, 6, generator=draw, dtype=torch.float64)
    before = implementation(text)
    reads = torch.zeros(length, length, dtype=torch.bool)
    for token in range(1, length):
        for trial in range(36):
            other = text.clone()
            noise = torch.randn(6, generator=draw, dtype=torch.float64).clamp(-3, 3)
            other[token] = (1.0, 60.0, 300.0)[trial % 3] * noise
            after = implementation(other)
            reads[:, token] |= ~((after == before) | (after.isnan() & before.isnan())).all(1)
    places = reads.triu(1).nonzero()
    return places[0] if len(places) else None
'''}),
]

# The loop of the model detector, with other edits
EDITS = '''                new = [noise(stop - t), 30 * noise(stop - t), 100 * noise(stop - t), \
torch.tensor(700.0),
                       torch.tensor(-700.0), torch.tensor(0.0), text[t - 1]]
'''
SAME = "same = (after == before) | (after.isnan() & before.isnan())\n                    if"

WRONG = [
    Wrong("the group becomes too long", "a6.1", "[3], [6, 7], [8]]", "[3, 6], [7, 8]]", {HAND: 0.5},
          "groups"),
    Wrong("the window is forgotten", "a6.1", '"pooled": [0, 1], "raw": [0, 4, 5, 6, 7, 8]',
          '"pooled": [0, 1, 2], "raw": [0, 4, 5, 8]', {HAND: 1.0}, "pooled, raw"),
    Wrong("the earlier of equals wins", "a6.2", "(scores[token].item(), token)",
          "(scores[token].item(), -token)", {TIES: 1}, "the earlier token wins"),
    Wrong("token 0 on top of the number", "a6.2", "ranked[: count - 1]", "ranked[:count]",
          {HIGHEST: 1, TIES: 1}, "token 0 is not counted in the number"),
    Wrong("rounded down", "a6.2", "count = -(-len(scores) // every)",
          "count = max(1, len(scores) // every)", {HIGHEST: 1, TIES: 1}, "rounded down"),
    Wrong("token 0 is not special", "a6.2", "sorted([0, *ranked[: count - 1]])",
          "sorted(sorted(range(len(scores)), key=lambda t: (scores[t].item(), t), "
          "reverse=True)[:count])", {HIGHEST: 1, TIES: 1}, "no place of its own"),
    Wrong("the short group at the end is lost", "a6.3", "return groups",
          "return [members for members in groups if len(members) == "
          "group]", {FULL: 1, SPAN: 1}, "lost"),
    Wrong("the span is one too long", "a6.3", "+ 1 <= span", "<= span", {SPAN: 1}, "span + 1"),
    Wrong("the span is one too short", "a6.3", "+ 1 <= span", "+ 1 < span", {SPAN: 1}, "span - 1"),
    Wrong("the span counts from the last member", "a6.3", "groups[-1][0] + 1", "groups[-1][-1] + 1",
          {SPAN: 1}, "the span counts from the last member of the group; it counts from the first"),
    Wrong("groups by number only", "a6.3", " and token - groups[-1][0] + 1 <= span", "", {SPAN: 1},
          "the span closes no group"),
    Wrong("any member", "a6.4", "members[-1] <= row - window", "members[0] <= row - window",
          {BEHIND: 1, FUTURE: 1, EQUAL: 1, LARGE: 1}, "comes later"),
    Wrong("one row early", "a6.4", "members[-1] <= row - window", "members[-1] <= row - window + 1",
          {BEHIND: 1, EQUAL: 1, LARGE: 1}, "must not read group 0 pooled yet"),
    Wrong("one row late", "a6.4", "members[-1] <= row - window", "members[-1] < row - window",
          {BEHIND: 1, EQUAL: 1, LARGE: 1}, "row 5 must read group 0 pooled: its last member 4 lies "
          "before the window"),
    Wrong("the own token is missing", "a6.4", "raw = row <= row[:, None]",
          "raw = row < row[:, None]", {ONCE: 1, EQUAL: 1, LARGE: 1},
          "row 0 never reads token 0"),
    Wrong("group and members", "a6.4", "raw[:, members] &= ~old[:, None]",
          "raw[:, members] &= (members[-1] > row - window - 1)[:, "
          "None]", {ONCE: 1, EQUAL: 1, LARGE: 1}, "both pooled and raw"),
    Wrong("neither", "a6.4", "raw[:, members] &= ~old[:, None]",
          "raw[:, members] &= (row < members[-1])[:, None]", {ONCE: 1, EQUAL: 1, LARGE: 1},
          "never reads"),
    Wrong("full attention", "a6.4", "old = members[-1] <= row - window", "old = row < 0",
          {BEHIND: 1, FUTURE: 1, ONCE: 1, EQUAL: 1, LARGE: 1}, "that is full attention"),
    Wrong("the first member judges", "a6.5", "q[members[-1]]", "q[members[0]]",
          {EQUAL: 1, LARGE: 1}, "first member judges"),
    Wrong("the row judges", "a6.5", "", '''
def attend(q, k, v, groups, window, scale):
    seen, out = reads(len(q), groups, window), []
    for row in range(len(q)):
        phi = torch.zeros(len(groups), len(q), dtype=q.dtype)
        for at, members in enumerate(groups):
            phi[at, members] = (scale * k[members] @ q[row]).softmax(dim=0)
        keys, values = (torch.cat([phi @ x, x]) for x in (k, v))
        scores = (scale * keys @ q[row]).masked_fill(~seen[row], float("-inf"))
        out.append(scores.softmax(dim=0) @ values)
    return torch.stack(out)
''', {EQUAL: 1, LARGE: 1}, "with its own query"),
    Wrong("a slice from the first member to the last", "a6.5", "    for members in groups:\n",
          "    for members in groups:\n        members = list(range(members[0], members[-1] + "
          "1))\n", {EQUAL: 1, LARGE: 1}, "focal tokens between"),
    Wrong("the mean of the members", "a6.5", "(scale * k[members] @ q[members[-1]]).softmax(dim=0)",
          "torch.ones(len(members), dtype=q.dtype) / len(members)", {EQUAL: 1, LARGE: 1},
          "weigh the same"),
    Wrong("pooled columns are ignored", "a6.5", "~reads(len(q), groups, window)",
          "~(reads(len(q), groups, window) & (torch.arange(len(scores[0])) >= len(groups)))",
          {EQUAL: 1, LARGE: 1}, "the pooled columns are not read"),
    Wrong("the mean of the members' keys", "a6.5", "keys.append(weights @ k[members])",
          "keys.append(k[members].mean(dim=0))", {EQUAL: 1, LARGE: 1},
          "plain mean of its members' keys"),
    Wrong("no maximum is subtracted", "a6.5", 'scores.masked_fill(~reads(len(q), groups, window), '
                                              'float("-inf"))' ".softmax(dim=-1)",
          "scores.exp() * reads(len(q), groups, window)\n    weights = weights / "
          "weights.sum(dim=-1, keepdim=True)", {LARGE: 1}, "maximum"),
    Wrong("torch.isclose for the place", "a6.7",
          "((after == before) | (after.isnan() & before.isnan()))",
          "torch.isclose(after, before, equal_nan=True)", {PLACE: 0.5}, "the billionth of the key"),
    Wrong("rows are not scaled", "a6.5", "scores = scale * q", "scores = q", {EQUAL: 1, LARGE: 1},
          "the rows' scores are not scaled"),
    Wrong("always True", "a6.6", "", "def leaks(implementation, length):\n    return True\n",
          {DIRECT: 2, STEPS: 2, OTHERS: 1}, "accused 4 of 4"),
    Wrong("None instead of False", "a6.6", "return False", "return None",
          {DIRECT: 2, STEPS: 2, OTHERS: 1}, "None is not False"),
    Wrong("always False", "a6.6", "", "def leaks(implementation, length):\n    return False\n",
          {DIRECT: 2, STEPS: 2, OTHERS: 1}, "missed 8 of 8"),
    Wrong("tiny edits only, as gradients", "a6.6", EDITS,
          "                new = [text[t:stop] + 1e-6 * noise(stop - t)]\n",
          {DIRECT: 0.25, STEPS: 2, OTHERS: 1}, "the longest key"),
    Wrong("values only", "a6.6", "other[t:stop] = edit",
          "other[t:stop, 4:6] = (edit + 0 * other[t:stop])[:, 4:6]",
          {DIRECT: 0.75, STEPS: 1.25, OTHERS: 0.75}, "the query of the next row"),
    Wrong("a loose tolerance", "a6.6", SAME, "same = ~((after - before).abs() > 1e-6)\n            "
          "        if", {DIRECT: 0.25, STEPS: 0.25}, "a later key times 1e-12"),
    Wrong("torch.isclose with its tolerance", "a6.6", SAME, "same = torch.isclose(after, before, "
          "equal_nan=True)\n                    "
          "if", {DIRECT: 0.25}, "a later key times 1e-12"),
    Wrong("NaN is a change", "a6.6", SAME, "same = after == before\n                    if",
          {STEPS: 0.5, OTHERS: 0.25}, "always NaN"),
    Wrong("the edited row itself is looked at", "a6.6", "same[:t].all()", "same[: t + 1].all()",
          {DIRECT: 2, STEPS: 2, OTHERS: 1}, "accused"),
    Wrong("no zeros, no copies", "a6.6", ", torch.tensor(0.0), text[t - 1]]", "]", {OTHERS: 0.5},
          "zeros are padding"),
    Wrong("too many calls", "a6.6", "for _ in range(2):", "for _ in range(20):",
          {DIRECT: 2, STEPS: 2, OTHERS: 1}, "more than 300 times"),
    Wrong("the first token that does harm", "a6.7", "min(found, default=None)",
          "found[0] if found else None", {PLACE: 1.0}, "the result is (2, 3), wanted (1, 4)"),
    Wrong("all tokens from here on", "a6.7", "other[token] = edit", "other[token:] = edit",
          {PLACE: 1.25}, "the result is (1, 2), wanted (1, 4)"),
    Wrong("small edits only", "a6.7", "(1, 1, 1, 30, 30, 100, 100, 100)", "(1, 1)", {PLACE: 0.75},
          "the result is None"),
    Wrong("one false accusation", "a6.7", "min(found, default=None)", "min(found, default=(0, 1))",
          {PLACE: 2}, "One false accusation costs all points"),
    Wrong(
        "the example of the notebook", "a6.8", "", '''
def late_vote():
    q = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    k = torch.tensor([[1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    return {"q": q, "k": k, "row": 2, "token": 3, "new q": q[3], "new k": torch.tensor([4.0, 0.0])}
''', {VOTE: 1, TINY: 1}, "weighs the tokens alike"),
    Wrong("the later row itself", "a6.8", '"row": 3', '"row": 4', {VOTE: 1, TINY: 1},
          "row < token"),
    Wrong("two scores that are almost equal", "a6.8", "[6.0, 0.0]", "[4.00384, 0.0]", {TINY: 1}),
]
