"""a2: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

FEWEST, EQUAL, ENDS = ("the fewest keys are counted", "a sum that equals the mass has reached it",
                       "mass 0, mass 1 and rows of sinks only")
LOSS, WINDOWS = "the loss is the mean over rows that can lose", "windows of 0, 1 and the whole text"
LIFT, NOISE, GONE, SINK = ("the lift of random maps", "noise shows nothing, heavy tokens a lot",
                           "what was heavy and is no more counts "
                           "nothing", "the share of token 0 does not matter")
ONE, SEVERAL = "one token is chosen", "several tokens are chosen"
SHARE, COVERS, RARE = ("the share of sparse rows", "the interval covers as often as it says",
                       "the interval covers near 0 and 1 too")
REFUTED = "the printed bound promises too much in the middle"
SPARSE, BOUND, LONG = ("the chance of a sparse row", "the repaired bound at one x",
                       "both for thousands of tokens")

WILSON = ('''    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * (share * (1 - share) / rows + z * z / (4 * rows * rows)) ** 0.5
''')


def interval(lines: str) -> str:
    """Return an answer to a2.6 with another interval.

    `hits`, `rows`, `share`, `level` are known, also z.
    """
    return f'''
def estimate(logits, rho, level):
    import math
    from scipy.stats import beta, norm
    rows, length = logits.shape
    hits = int((logits.double().softmax(-1).max(-1).values > 1 / (length * rho)).sum())
    share, z = hits / rows, float(norm.ppf((1 + level) / 2))
{lines}
    return [share, max(0.0, low), min(1.0, high)]
'''


RIGHT = [
    Right("loops instead of tensors", {
        "a2.2": '''
def keys_for_share(maps, mass, sinks):
    flat = maps.reshape(-1, maps.shape[-1]).tolist()
    counts = []
    for row in flat:
        row = sorted(row[sinks:])
        rest, held, keys = sum(row), 0.0, 0
        while row and rest > 0 and held < mass * rest - 1e-6:
            held, keys = held + row.pop(), keys + 1
        counts.append(keys)
    return torch.tensor(counts, dtype=torch.int32).reshape(maps.shape[:-1])
''',
        "a2.3": '''
def lost_beyond(maps, windows):
    length = maps.shape[-1]
    result = torch.zeros(*maps.shape[:-2], len(windows), dtype=torch.float32)
    for place, window in enumerate(windows):
        for row in range(window, length):
            result[..., place] += maps[..., row, : row - window
                                       + 1].sum(-1).float() / (length - window)
    return result
''',
        "a2.4": '''
def lift(maps, first, split, top):
    if maps.ndim > 2:
        return torch.stack([lift(each, first, split, top) for each in maps])
    heavy = maps[first:split].mean(0)
    chosen = sorted(range(1, first), key=lambda token: heavy[token].item(), reverse=True)[:top]
    shares = [sum(row[token] for token in chosen) / row[1:first].sum() for row in maps[split:]]
    return sum(shares) / len(shares) / (top / (first - 1))
''',
        "a2.8": '''
def two_values(large, chance, length, rho, x):
    import math
    sparse = repaired = 0.0
    for count in range(length + 1):
        seen = math.exp(math.lgamma(length + 1) - math.lgamma(count
                                                              + 1) - math.lgamma(length - count + 1)
                        + count * math.log(chance) + (length - count) * math.log1p(-chance))
        top, total = (large if count else 1), (length - count) + large * count
        sparse += seen * (top / total > 1 / (length * rho))
        repaired += seen * ((top > x) - (total > length * rho * x))
    return {"sparse": sparse, "repaired": repaired}
'''}),
    Right("numpy, Clopper-Pearson, and an example with other values", {
        "a2.2": '''
import numpy

def keys_for_share(maps, mass, sinks):
    rest = -numpy.sort(-maps.numpy()[..., sinks:], axis=-1)
    if rest.shape[-1] == 0:
        return torch.zeros(maps.shape[:-1], dtype=torch.long)
    total = rest.sum(-1)
    held = numpy.cumsum(rest, -1) / numpy.where(total > 0, total, 1)[..., None]
    counts = (held < mass - 1e-6).sum(-1) + 1
    return torch.tensor(numpy.where((total == 0) | (mass == 0), 0, counts))
''',
        "a2.5": '''
import numpy

def noise_lift(tokens, top):
    return numpy.float64(1 + (1 / numpy.arange(top + 1, tokens + 1)).sum())
''',
        "a2.6": interval('''
    low = 0.0 if hits == 0 else float(beta.ppf((1 - level) / 2, hits, rows - hits + 1))
    high = 1.0 if hits == rows else float(beta.ppf((1 + level) / 2, hits + 1, rows - hits))
'''),
        "a2.7": '''
def too_much():
    return {"values": torch.tensor([1.0, 1.1, 1.2]), "chances": torch.tensor([1, 1, 1]) / 3.0,
            "length": 3,
            "rho": 0.8, "x": 1.1}
'''}),
]

WRONG = [
    Wrong("the window ends one token late", "a2.1", '"beyond": 0.5', '"beyond": 0.45',
          {"the numbers of the row": 0.5}),
    Wrong("count without + 1", "a2.2", "held = torch.cat([torch.zeros_like(needed), held], "
                                       "dim=-1)\n    ", "",
          {FEWEST: 1, EQUAL: 1, ENDS: 1}, "one key is missing"),
    Wrong("always + 1", "a2.2", "return (held < needed).sum(dim=-1)",
          "return (held < needed).sum(dim=-1) + 1",
          {FEWEST: 1, EQUAL: 1, ENDS: 1}, "one key is too many"),
    Wrong("rounding at the mass", "a2.2", " - 1e-6", "", {EQUAL: 1}, "a sum equals the mass"),
    Wrong("a tolerance of 1e-4", "a2.2", " - 1e-6", " - 1e-4", {EQUAL: 1}, "too generous"),
    Wrong("mass 0 needs a key", "a2.2", "return (held < needed).sum(dim=-1)",
          "return (held < needed).sum(dim=-1).clamp(min=1)", {ENDS: 1}, "where none is needed"),
    Wrong("a sum that equals the mass has not reached it", "a2.2", " - 1e-6", " + 1e-6",
          {EQUAL: 1, ENDS: 1}),
    Wrong("the smallest first", "a2.2", "descending=True", "descending=False",
          {FEWEST: 1, EQUAL: 1, ENDS: 1}, "sorted from the smallest"),
    Wrong("sinks are counted", "a2.2", "maps.double()[..., sinks:]", "maps.double()",
          {FEWEST: 1, EQUAL: 1, ENDS: 1}, "the sinks are counted"),
    Wrong("the window keeps one token more", "a2.3", "tril(-window)", "tril(-window - 1)",
          {LOSS: 1, WINDOWS: 1}, "one token too long"),
    Wrong("the mean over all rows", "a2.3", "max(1, length - window)", "length",
          {LOSS: 1, WINDOWS: 1}, "rows that have no token beyond"),
    Wrong("the mean over rows that lose something", "a2.3", "max(1, length - window)",
          "(maps.tril(-window).sum(dim=-1) > "
          "0).sum(dim=-1).clamp(min=1)", {LOSS: 1}, "give them no weight"),
    Wrong("a window as long as the text divides by 0", "a2.3", "max(1, length - window)",
          "(length - window)", {WINDOWS: 1}, "a mean over no rows"),
    Wrong("chosen on the rows that test", "a2.4", "candidates[..., first:split, :]",
          "candidates[..., split:, :]",
          {LIFT: 1, NOISE: 1, GONE: 1}, "chosen on the rows that test them"),
    Wrong("chosen on all rows", "a2.4", "candidates[..., first:split, :]",
          "candidates[..., first:, :]", {LIFT: 1, NOISE: 1, GONE: 1}, "that test them"),
    Wrong("token 0 is a candidate", "a2.4", "", '''
def lift(maps, first, split, top):
    candidates = maps[..., :first]
    places = candidates[..., first:split, :].sum(dim=-2).topk(top, dim=-1).indices
    chosen = torch.zeros_like(candidates[..., 0, :]).scatter(-1, places, 1.0)
    tests = candidates[..., split:, :]
    share = (tests * chosen[..., None, :]).sum(dim=-1) / tests.sum(dim=-1)
    return share.mean(dim=-1) * first / top
''', {LIFT: 1, SINK: 1}, "token 0 can be chosen"),
    Wrong("token 0 is a candidate, but not counted", "a2.4", "", '''
def lift(maps, first, split, top):
    candidates = maps[..., :first]
    places = candidates[..., first:split, :].sum(dim=-2).topk(top, dim=-1).indices
    chosen = torch.zeros_like(candidates[..., 0, :]).scatter(-1, places, 1.0)
    tests = candidates[..., split:, :]
    share = (tests * chosen[..., None, :]).sum(dim=-1) / tests.sum(dim=-1)
    return share.mean(dim=-1) * (first - 1) / top
''', {LIFT: 1, SINK: 1}, "not counted as a candidate"),
    Wrong("one candidate too many is counted", "a2.4", "(first - 1) / top", "first / top",
          {LIFT: 1}, "one fewer"),
    Wrong("the first testing row is left out", "a2.4", "candidates[..., split:, :]",
          "candidates[..., split + 1:, :]", {LIFT: 1}, "over no rows"),
    Wrong("a share of the whole row", "a2.4", "/ tests.sum(dim=-1)",
          "/ maps[..., split:, :].sum(dim=-1)",
          {LIFT: 1, NOISE: 1, GONE: 1, SINK: 1}, "divided by that of the whole row"),
    Wrong("the share is not put in units", "a2.4", " * (first - 1) / top", "",
          {LIFT: 1, NOISE: 1, GONE: 1, SINK: 1}, "times the number of candidates, divided by top"),
    Wrong("the ratio of the means", "a2.4", "share = (tests * chosen[..., None, :]).sum(dim=-1) / "
                                            "tests.sum(dim=-1)",
          "share = ((tests * chosen[..., None, :]).sum(dim=(-2, -1)) / tests.sum(dim=(-2, "
          "-1)))[..., None]", {LIFT: 1}, "summed before the division"),
    Wrong("all chosen as heavy as the heaviest", "a2.5", "heaviest(place) for", "heaviest(1) for",
          {SEVERAL: 1}, "as heavy as the heaviest"),
    Wrong("the logarithm for the harmonic sum", "a2.5", "", '''
import math

def noise_lift(tokens, top):
    return 1 + math.log(tokens / top)
''', {ONE: 1, SEVERAL: 1}, "logarithm"),
    Wrong("the share without its units", "a2.5", "range(1, top + 1)) / top",
          "range(1, top + 1)) / tokens", {ONE: 1, SEVERAL: 1}, "units of an even share"),
    Wrong("the bar is 1 / L", "a2.6", "1 / (length * rho)", "1 / length",
          {SHARE: 1, COVERS: 1, RARE: 1}, "the share itself is wrong"),
    Wrong("the bar is rho / L", "a2.6", "1 / (length * rho)", "rho / length",
          {SHARE: 1, COVERS: 1, RARE: 1}, "such as 1 / L or rho / L"),
    Wrong("a weight at the bar counts as over it", "a2.6", "amax(dim=-1) > 1", "amax(dim=-1) >= 1",
          {SHARE: 1}, "equals the bar"),
    Wrong("a textbook interval, empty at 0", "a2.6", WILSON,
          "    middle, half = share, z * (share * (1 - share) / rows) ** "
          "0.5\n", {RARE: 1}, "no row or every row"),
    Wrong("one-sided quantile", "a2.6", "norm.ppf((1 + level) / 2)", "norm.ppf(level)",
          {COVERS: 1, RARE: 1}, "holds the true chance in"),
    Wrong("always 1.96", "a2.6", "float(norm.ppf((1 + level) / 2))", "1.96", {COVERS: 1, RARE: 1},
          "at this level"),
    Wrong("from 0 to 1", "a2.6", "max(0.0, middle - half), min(1.0, middle + half)", "0.0, 1.0",
          {COVERS: 1, RARE: 1}, "wide on average"),
    Wrong("the example of the walkthrough", "a2.7",
          '[1, 2, 4], "chances": [0.25, 0.5, 0.25], "length": 4, "rho": 0.5',
          '[1, 3], "chances": [0.2, 0.8], "length": 3, "rho": 1', {REFUTED: 2},
          "3 to 6 different values"),
    Wrong("chances that do not sum to 1", "a2.7", "[0.25, 0.5, 0.25]", "[0.25, 0.5, 0.3]",
          {REFUTED: 2}, "sum to 1.05"),
    Wrong("a chance that is too small", "a2.7", "[0.25, 0.5, 0.25]", "[0.48, 0.5, 0.02]",
          {REFUTED: 2}, "the smallest chance is 0.02"),
    Wrong("a value of 0", "a2.7", "[1, 2, 4]", "[0, 2, 4]", {REFUTED: 2},
          "the smallest value is 0"),
    Wrong("x below all values", "a2.7", '"x": 2', '"x": 0.5', {REFUTED: 2}, "x lies in the middle"),
    Wrong("a bound that holds", "a2.7", '"rho": 0.5', '"rho": 1', {REFUTED: 2}, "or more"),
    Wrong("rho outside its range", "a2.7", '"rho": 0.5', '"rho": 0.25', {REFUTED: 2},
          "1 / length < rho"),
    Wrong("binomial numbers as floats", "a2.8",
          "seen = torch.tensor(binom.pmf(count.numpy(), length, chance))",
          "import math\n    seen = torch.tensor([float(math.comb(length, k)) * chance**k * (1 - "
          "chance)**(length - k) for k in range(length + 1)], dtype=torch.float64)", {LONG: 1}),
    Wrong("rows without a large value are sparse", "a2.8", "torch.where(count > 0, large, 1.0)",
          "torch.full_like(count, large)", {SPARSE: 1, BOUND: 1, LONG: 1}),
    Wrong("a tie counts as over", "a2.8", "length * rho * top > total",
          "length * rho * top >= total", {SPARSE: 1}),
    Wrong("the sum's event is not strict", "a2.8", "total > length * rho * x",
          "total >= length * rho * x", {BOUND: 1}),
]
