"""a2: other right answers; wrong ones stand in the tables of the exercises."""

RIGHT = {
    "loops instead of tensors, numpy, Clopper-Pearson's interval in a list": {
        "a2.2": '''
def lift(maps, first, split, top):
    if maps.ndim > 2:
        return torch.stack([lift(each, first, split, top) for each in maps])
    heavy = maps[first:split].mean(0)
    chosen = sorted(range(1, first), key=lambda token: heavy[token].item(), reverse=True)[:top]
    shares = [sum(row[token] for token in chosen) / row[1:first].sum() for row in maps[split:]]
    return sum(shares) / len(shares) / (top / (first - 1))
''',
        "a2.3": '''
import numpy

def noise_lift(tokens, top):
    return numpy.float64(1 + (1 / numpy.arange(top + 1, tokens + 1)).sum())
''',
        "a2.4": '''
def estimate(logits, rho, level):
    from scipy.stats import beta
    rows, length = logits.shape
    hits = int((logits.double().softmax(-1).max(-1).values > 1 / (length * rho)).sum())
    low = 0.0 if hits == 0 else float(beta.ppf((1 - level) / 2, hits, rows - hits + 1))
    high = 1.0 if hits == rows else float(beta.ppf((1 + level) / 2, hits + 1, rows - hits))
    return [hits / rows, max(0.0, low), min(1.0, high)]
'''},
}
