"""a4: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

HAND = "the numbers of the group"
WHOLE = "whole groups are pooled right by every judge"
RAGGED = "a ragged last group is pooled over the tokens that it has"
GROUPED = "query heads are averaged before they judge"
LEARNED = "each head has its vector and its temperature"
LIMITS = "temperatures 0 and infinity are limits"
UNIT = "one projected row for each core is enough"
ANY = "the bias is right when weights do not sum to 1"
JUDGE, KEYS = "the gradient of the judge's query", "the gradient of the keys, along both paths"
VALUES = "the gradient of the values"
QUERIES = "edits of queries move the predicted rows"
REST = "edits of keys and values move the predicted rows"
EQUAL = "groups of equal keys count as all their tokens"
OWN = "a row that judged the groups gets full attention"
LOST = "full attention finds the token, CCA-Attention loses it"
INSIDE = "it is lost inside a core that is read"
SHARES = "rows with a positive score are shares of the columns that exist"
DEAD = "rows without one are means over the columns that exist"

RIGHT = [
    Right("loops instead of tensors", {
        "a4.2": '''
def judged_cores(q, k, v, group, judge, scale):
    heads, length, each = k.shape[0], k.shape[1], q.shape[0] // k.shape[0]
    core_k, core_v, phi = [], [], []
    for head in range(heads):
        rows = [], [], []
        for start in range(0, length, group):
            tokens = list(range(start, min(start + group, length)))
            mean = {t: sum(q[head * each + i, t] for i in range(each)) / each for t in tokens}
            if judge == "last":
                judges = [mean[tokens[-1]]]
            elif judge == "mean":
                judges = [sum(mean.values()) / len(tokens)]
            else:
                judges = list(mean.values())
            weights = [0.0] * group
            for one in judges:
                powers = [math.exp(scale * float(one @ k[head, t])) for t in tokens]
                for place, power in enumerate(powers):
                    weights[place] += power / sum(powers) / len(judges)
            rows[0].append(sum(w * k[head, t] for w, t in zip(weights, tokens)))
            rows[1].append(sum(w * v[head, t] for w, t in zip(weights, tokens)))
            rows[2].append(torch.tensor(weights))
        for all_rows, row in zip((core_k, core_v, phi), rows):
            all_rows.append(torch.stack(row))
    return [torch.stack(x) for x in (core_k, core_v, phi)]
''',
        "a4.3": '''
def learned_cores(k, v, judge, temperature, group):
    core_k, core_v = [], []
    for keys, values, vector, tau in zip(k, v, judge, temperature.tolist()):
        for start in range(0, len(keys), group):
            scores = keys[start:start + group] @ vector
            if tau == 0:
                weights = (scores == scores.max()).double()
            elif tau == math.inf:
                weights = torch.ones(group).double()
            else:
                weights = ((scores - scores.max()) / tau).exp()
            weights = weights / weights.sum()
            core_k.append(weights @ keys[start:start + group])
            core_v.append(weights @ values[start:start + group])
    return [torch.stack(x).unflatten(0, (len(k), -1)) for x in (core_k, core_v)]
''',
        "a4.6": '''
def moved(length, group, window, judge, part):
    table = [[False] * length for _ in range(length)]
    for row in range(length):
        cores = max(0, (row + 1 - window) // group)
        for t in range(row + 1):
            inside = t < cores * group
            if part == "value":
                table[row][t] = True
            elif row == 0:
                continue
            elif part == "key":
                table[row][t] = True
            elif t == row:
                table[row][t] = True
            elif inside and group > 1 and judge != "learned":
                table[row][t] = judge != "last" or (t + 1) % group == 0
    return torch.tensor(table)
'''}),
    Right("in single precision", {
        "a4.5": '''
def core_gradients(judge, keys, values, d_key, d_value, scale):
    judge, keys, values, d_key, d_value = (x.float() for x in (judge, keys, values, d_key, d_value))
    phi = torch.softmax(keys @ judge * scale, 0)
    both, d_both = torch.cat([keys, values], 1), torch.cat([d_key, d_value])
    jacobian = torch.diag(phi) - torch.outer(phi, phi)
    d_score = scale * jacobian @ (both @ d_both)
    return keys.T @ d_score, phi[:, None] * d_key + d_score[:, None] * judge, phi[:, None] * d_value
''',
        "a4.8": '''
def lost_needle(length, group, window, token):
    keys = torch.zeros(length, 3)
    keys[token // group * group:(token // group + 1) * group] = torch.tensor([3.0, 0.0, 0.0])
    keys[token] = torch.tensor([3.0, 3.0, 0.0])
    queries = torch.zeros(length, 3)
    queries[:, 1] = -30
    queries[-1] = torch.tensor([10.0, 10.0, 0.0])
    return queries, keys
''',
        "a4.9": '''
def normalised(scores, valid):
    rows = []
    for row in scores.float().tolist():
        positive = [max(x, 0.0) if there else 0.0 for x, there in zip(row, valid.tolist())]
        if not any(positive):
            positive = [float(there) for there in valid.tolist()]
        rows.append([x / sum(positive) for x in positive])
    return torch.tensor(rows)
'''}),
    Right("partly in single precision", {
        "a4.9": '''
def normalised(scores, valid):
    positive = torch.where(valid, scores, 0.0).relu()
    total = positive.sum(-1, keepdim=True)
    equal = valid.float() / valid.sum()
    return torch.where(total > 0, positive / total, equal)
'''}),
    Right("by other formulas, and noise within the tolerance", {
        "a4.4": '''
def projected_cores(x, phi, project):
    sums = phi.sum(1, keepdim=True)
    groups = x.unflatten(0, (len(phi), -1))
    rows = project(torch.cat([torch.einsum("mg,mgc->mc", phi, groups), 0 * x[:1]]))
    return (rows[:-1] - rows[-1] + sums * rows[-1]) * (1 + 1e-11)
''',
        "a4.7": '''
def sized_attention(q, phi, core_k, core_v, raw_k, raw_v, scale):
    size = torch.where(phi > 0, phi, torch.ones_like(phi)).pow(-phi).prod(-1)
    cores = scale * q @ core_k.mT
    raw = scale * q @ raw_k.mT
    top = torch.cat([cores, raw], 1).amax(1, keepdim=True)
    weights = torch.cat([size * (cores - top).exp(), (raw - top).exp()], 1)
    return weights @ torch.cat([core_v, raw_v]) / weights.sum(1, keepdim=True) + 1e-12
''',
        "a4.1": '''
def by_hand():
    phi = (GROUP_K @ GROUP_Q[-1] * math.log(2)).softmax(0)
    mean = (GROUP_K @ GROUP_Q.mean(0) * math.log(2)).softmax(0)
    return {"phi": phi, "core key": phi @ GROUP_K, "core value": phi @ GROUP_V,
            "phi of the mean query": mean}
'''}),
]

WRONG = [
    Wrong("the first token judges, by hand", "a4.1", "[1 / 8, 1 / 4, 1 / 8, 1 / 2]",
          "[1 / 10, 2 / 10, 4 / 10, 3 / 10]", {HAND: 0.5}, "phi"),
    Wrong("the first query judges", "a4.2", "judges = judges[:, -1:]", "judges = judges[:, :1]",
          {WHOLE: 2, RAGGED: 1, GROUPED: 1}, "the first token of the group judges"),
    Wrong("phi without the scale", "a4.2", "(scale * judges @", "(judges @",
          {WHOLE: 2}, "not multiplied by the scale"),
    Wrong("the scale is shared by the KV heads", "a4.2", "(scale * judges @",
          "(scale / heads * judges @", {WHOLE: 2}, "divided by the number of KV heads"),
    Wrong("query heads are added", "a4.2", "q.unflatten(0, (heads, -1)).mean(dim=1)",
          "q.unflatten(0, (heads, -1)).sum(dim=1)", {GROUPED: 1}, "are added, not averaged"),
    Wrong("no scale in the ragged group", "a4.2", "(scale * judges @ k[:, members].mT)",
          "(scale ** (start + group <= length) * judges @ k[:, members].mT)", {RAGGED: 1},
          "of a ragged group are not multiplied"),
    Wrong("phi is not normalised", "a4.2", ".softmax(dim=-1).mean(dim=1)     #",
          ".exp().mean(dim=1)     #", {WHOLE: 2, RAGGED: 1, GROUPED: 1}),
    Wrong("softmax over the judges", "a4.2", ".softmax(dim=-1).mean(dim=1)     #",
          ".softmax(dim=1).mean(dim=1)     #", {WHOLE: 2, RAGGED: 1, GROUPED: 1}),
    Wrong("a vote is taken for the mean query", "a4.2", 'elif judge == "mean":',
          'elif judge == "mode":',
          {WHOLE: 2}, 'weights are averaged for "mean"'),
    Wrong("scores are averaged for all", "a4.2", ".softmax(dim=-1).mean(dim=1)     #",
          ".mean(dim=1).softmax(dim=-1)     #", {WHOLE: 2},
          'queries or scores are averaged for "all"'),
    Wrong("queries and keys filled up with zeros", "a4.2", "", '''
def judged_cores(q, k, v, group, judge, scale):
    heads, length = k.shape[:2]
    q, k, v = (torch.cat([x, x.new_zeros(len(x), -length % group, x.shape[2])], 1)
               for x in (q, k, v))
    x, y, z = (x.unflatten(1, (-1, group)) for x in (q.unflatten(0, (heads, -1)).mean(1), k, v))
    judges = {"last": x[:, :, -1:], "mean": x.mean(2, keepdim=True), "all": x}[judge]
    phi = (scale * judges @ y.mT).softmax(-1).mean(2)
    return (phi[..., None] * y).sum(2), (phi[..., None] * z).sum(2), phi
''', {RAGGED: 1}, "as queries and keys of zeros"),
    Wrong("the ragged sum divided by the group", "a4.2",
          "judges = judges.mean(dim=1, keepdim=True)",
          "judges = judges.sum(dim=1, keepdim=True) / group", {RAGGED: 1},
          "divided by the group size"),
    Wrong("missing tokens as keys of zeros", "a4.2",
          "    queries = q.unflatten(0, (heads, -1)).mean(dim=1)",
          "    more = -length % group\n"
          "    k, v = (torch.cat([x, x.new_zeros(heads, more, x.shape[2])], 1) for x in (k, v))\n"
          "    queries = q.unflatten(0, (heads, -1)).mean(dim=1)", {RAGGED: 1}, "keys of zeros"),
    Wrong("the ragged group is left out", "a4.2", "", '''
def judged_cores(q, k, v, group, judge, scale):
    heads, length = k.shape[0], k.shape[1] // group * group
    x, y, z = (x[:, :length].unflatten(1, (-1, group)) for x in (q, k, v))
    x = x.unflatten(0, (heads, -1)).mean(1)
    judges = {"last": x[:, :, -1:], "mean": x.mean(2, keepdim=True), "all": x}[judge]
    phi = (scale * judges @ y.mT).softmax(-1).mean(2)
    return (phi[..., None] * y).sum(2), (phi[..., None] * z).sum(2), phi
''', {RAGGED: 1}, "has shape"),
    Wrong("heads averaged after the softmax", "a4.2", "", '''
def judged_cores(q, k, v, group, judge, scale):
    heads, length = k.shape[:2]
    queries = q.unflatten(0, (heads, -1))
    phi = k.new_zeros(heads, -(-length // group), group)
    core_k, core_v = [], []
    for core, start in enumerate(range(0, length, group)):
        members = slice(start, start + group)
        judges = queries[:, :, members]
        if judge == "last":
            judges = judges[:, :, -1:]
        elif judge == "mean":
            judges = judges.mean(dim=2, keepdim=True)
        weights = (scale * judges @ k[:, None, members].mT).softmax(dim=-1).mean(dim=(1, 2))
        phi[:, core, : weights.shape[1]] = weights
        core_k.append((weights[..., None] * k[:, members]).sum(dim=1))
        core_v.append((weights[..., None] * v[:, members]).sum(dim=1))
    return torch.stack(core_k, dim=1), torch.stack(core_v, dim=1), phi
''', {GROUPED: 1}, "each query head makes its own weights"),
    Wrong("query heads are interleaved", "a4.2", "q.unflatten(0, (heads, -1)).mean(dim=1)",
          "q.unflatten(0, (-1, heads)).mean(dim=0)", {GROUPED: 1}, "h % Hk"),
    Wrong("one temperature for all heads", "a4.3", "tau = temperature[:, None, None]",
          "tau = temperature[:1, None, None]",
          {LEARNED: 1}, "the temperature of the first"),
    Wrong("temperature 0 divides", "a4.3", "phi = torch.where(tau == 0, hard, soft)",
          "phi = (scores / tau).softmax(dim=-1)", {LIMITS: 1},
          "is nan: does a temperature of 0 divide"),
    Wrong("the first of equal scores has all", "a4.3",
          "hard = best / best.sum(dim=-1, keepdim=True)",
          "hard = torch.nn.functional.one_hot(scores.argmax(-1), "
          "group).to(k.dtype)", {LIMITS: 1}, "only one of equal"),
    Wrong("nearly equal scores share", "a4.3", "best = (scores == 0)", "best = (scores > -1e-9)",
          {LIMITS: 1}),
    Wrong("a tiny temperature for 0", "a4.3", "phi = torch.where(tau == 0, hard, soft)",
          "phi = (scores / tau.clamp(min=1e-9)).softmax(dim=-1)", {LIMITS: 1}),
    Wrong("temperature 0 is nearly 0", "a4.3", "phi = torch.where(tau == 0, hard, soft)",
          "phi = (scores / tau.clamp(min=0.1)).softmax(dim=-1)", {LIMITS: 1}),
    Wrong("pool, then project, whatever the sum", "a4.4",
          "project(cores) + (phi.sum(dim=-1, keepdim=True) - 1) * bias", "project(cores)", {ANY: 1},
          "added once, whatever"),
    Wrong("the bias g times", "a4.4", "(phi.sum(dim=-1, keepdim=True) - 1)", "(phi.shape[1] - 1)",
          {UNIT: 1, ANY: 1}, "once for each token"),
    Wrong("the weights are normalised", "a4.4", "cores = (phi[",
          "phi = phi / phi.sum(-1, keepdim=True)\n    cores = (phi[",
          {ANY: 1}, "divided by their sum"),
    Wrong("divided by the sum, multiplied after", "a4.4",
          "return project(cores) + (phi.sum(dim=-1, keepdim=True) - 1) * bias",
          "sums = phi.sum(dim=-1, keepdim=True)\n    return project(cores / sums) * "
          "sums", {ANY: 1}, "It can be 0"),
    Wrong("every token is projected", "a4.4", "", '''
def projected_cores(x, phi, project):
    return (phi[..., None] * project(x).unflatten(0, phi.shape)).sum(1)
''', {UNIT: 1, ANY: 1}, "pool before you project"),
    Wrong("phi is detached", "a4.5", "d_score = phi * (d_phi - phi @ d_phi)", "d_score = 0 * phi",
          {JUDGE: 1, KEYS: 1}, "phi is taken as constant"),
    Wrong("the mean is not subtracted", "a4.5", "(d_phi - phi @ d_phi)", "d_phi",
          {JUDGE: 1, KEYS: 1}, "the mean of d_phi is not subtracted"),
    Wrong("the scale is lost", "a4.5", "return scale * d_score @ keys", "return d_score @ keys",
          {JUDGE: 1}, "the scale is forgotten"),
    Wrong("keys through the scores only", "a4.5", "torch.outer(phi, d_key) + ", "", {KEYS: 1},
          "through the scores only"),
    Wrong("keys through the core only", "a4.5", " + scale * torch.outer(d_score, judge)", "",
          {KEYS: 1}, "phi is taken as constant"),
    Wrong("the core key's gradient does not reach phi", "a4.5",
          "d_phi = keys @ d_key + values @ d_value",
          "d_phi = values @ d_value", {JUDGE: 1, KEYS: 1}, "only the core value"),
    Wrong("values get the gradient unweighted", "a4.5", "torch.outer(phi, d_value)\n",
          "torch.outer(torch.ones_like(phi), d_value)\n", {VALUES: 1}),
    Wrong("every query of a core counts", "a4.6", "token % group == group - 1", "token >= 0",
          {QUERIES: 1}, "and you say that it does"),
    Wrong("the first query judges, predicted", "a4.6", "token % group == group - 1",
          "token % group == 0", {QUERIES: 1}),
    Wrong("row 0 and its query", "a4.6", "own = (token == row) & (row > 0)", "own = token == row",
          {QUERIES: 1}, "more than one column"),
    Wrong("a group of one has a judge", "a4.6", " & (group > 1)", "", {QUERIES: 1},
          "a group of one"),
    Wrong("only the row's own query", "a4.6",
          "return own | (judges & (token < covered) & (group > 1))", "return own",
          {QUERIES: 1}, "through which core"),
    Wrong("row 0 and its key", "a4.6", "return (token <= row) & (row > 0)", "return token <= row",
          {REST: 1}),
    Wrong("keys move raw tokens' rows only", "a4.6", "return (token <= row) & (row > 0)",
          "return (token <= row) & (row > 0) & (token >= group * ((row + 1 - window) // group))",
          {REST: 1}, "through which core"),
    Wrong("no bonus", "a4.7", "core_k.T + bonus", "core_k.T", {EQUAL: 1, OWN: 1},
          "there is no bonus"),
    Wrong("the bonus has the wrong sign", "a4.7", "core_k.T + bonus", "core_k.T - bonus",
          {EQUAL: 1, OWN: 1}, "wrong sign"),
    Wrong("the bonus counts tokens", "a4.7", "-torch.xlogy(phi, phi).sum(dim=-1)",
          "(phi > 0).sum(dim=-1).log()", {OWN: 1}, "counts tokens, whatever"),
    Wrong("exp of large scores", "a4.7", "return scores.softmax(dim=-1) @",
          "weights = scores.exp()\n    return weights / weights.sum(dim=-1, keepdim=True) @",
          {OWN: 1}, "largest score subtracted"),
    Wrong("the bonus is the log of g", "a4.7", "-torch.xlogy(phi, phi).sum(dim=-1)",
          "torch.full_like(phi[:, 0], math.log(phi.shape[1]))", {EQUAL: 1, OWN: 1}, "a full group"),
    Wrong("0 ln 0", "a4.7", "-torch.xlogy(phi, phi).sum(dim=-1)", "-(phi * phi.log()).sum(dim=-1)",
          {EQUAL: 1, OWN: 1}, "the logarithm of 0"),
    Wrong("the judge looks away from nothing", "a4.8", "[[0.0, -20.0]]", "[[0.0, 0.0]]",
          {LOST: 1, INSIDE: 1}, "still gives the token"),
    Wrong("the whole core is lost", "a4.8", "keys[first : first + group, 0] = 1.0",
          "keys[first : first + group, 0] = -1.0", {LOST: 1, INSIDE: 1}),
    Wrong("only the token stands out", "a4.8", "keys[first : first + group, 0] = 1.0",
          "keys[first : first + group, 0] = 0.0", {INSIDE: 1}, "the other tokens of the group"),
    Wrong("as printed", "a4.9", "    return numerator / numerator.sum(dim=-1, keepdim=True)",
          "    return printed_ratio(scores.masked_fill(~valid, 0.0))", {DEAD: 1},
          "is nan: is it 0 / 0?"),
    Wrong("the printed formula, copied", "a4.9",
          "    return numerator / numerator.sum(dim=-1, keepdim=True)",
          "    return printed_ratio(scores)", {SHARES: 1, DEAD: 1}),
    Wrong("a small number in the sum", "a4.9",
          "return numerator / numerator.sum(dim=-1, keepdim=True)",
          "return numerator / (numerator.sum(dim=-1, keepdim=True) + "
          "1e-9)", {SHARES: 1}, "do not sum to 1"),
    Wrong("a small sum counts as none", "a4.9", "dim=-1, keepdim=True) == 0",
          "dim=-1, keepdim=True) < 1e-12", {SHARES: 1}, "as a row without positive ones"),
    Wrong("the mean over missing columns too", "a4.9", "valid.to(scores.dtype)",
          "torch.ones_like(scores)", {DEAD: 1}, "missing columns too"),
    Wrong("NaN times 0", "a4.9", "scores.masked_fill(~valid, 0.0).relu()", "scores.relu() * valid",
          {DEAD: 1}, "multiplied by 0"),
    Wrong("the softmax of the public code", "a4.9",
          "return numerator / numerator.sum(dim=-1, keepdim=True)",
          "return positive.masked_fill(~valid, -math.inf).softmax(-1)", {SHARES: 1, DEAD: 1},
          "softmax"),
]
