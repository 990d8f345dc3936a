"""Wrong answers to the turns of notebook 02_attention_is_sparse."""

import torch


def count(*, order=lambda row: sorted(row, reverse=True), strict=False, spare=1e-6, less=0,
          always=None):
    """Count weights until their sum reaches the mass, with a mistake."""
    def count_keys(row, mass):
        total, mass = 0.0, always or mass
        for number, weight in enumerate(order(row), start=1):
            total += weight
            if total > mass if strict else total >= mass - spare:
                return number - less
        return len(row) - less

    return count_keys


def choice(*, tokens=slice(1, None), rows="early", test="late", scaled=True, count=False,
           added=True, mean=False, shift=(0, 0), end=0, by=torch.mean, plain=False, even_of=1):
    """Choose a token and test it, with a mistake."""
    def choose_then_test(weights, first, split):
        spans = {"early": slice(first + shift[0], split + shift[1]), "late": slice(split, None),
                 "both": slice(first, None)}
        even = weights * (torch.arange(len(weights)) + 1)[:, None]
        stop = first + end if tokens.stop is None else split
        chosen = (weights if plain else even)[spans[rows], tokens.start:stop]
        token = by(chosen, 0).argmax().item() + (tokens.start if added else 0)
        if mean:
            return token, weights[spans[test], token].mean()
        even = weights * (torch.arange(len(weights)) + even_of)[:, None]
        over = (even if scaled is True else weights * scaled(len(weights)))[spans[test], token] > 1
        return token, over.sum() if count else over.float().mean()

    return choose_then_test


def beyond(change=0, few=0, kept=False, subtract=False, ignore=False):
    """Return the weight beyond a window, with a mistake."""
    def weight_beyond(weights, window, sinks):
        token = torch.arange(len(weights))
        old = token <= token[:, None] - window + change
        first = 0 if ignore or subtract else max(0, sinks - few)
        lost = (weights * (old & (token >= first))).sum(1)
        return 1 - lost if kept else lost - weights[:, :sinks].sum(1) * subtract

    return weight_beyond


WRONG = {
    "02.2": {
        "without the last key": (count(less=1), "is not counted"),
        "not sorted": (count(order=list), "as they stand"),
        "smallest first": (count(order=sorted), "the smallest weights come first"),
        "0.9 for every mass": (count(always=0.9), "is written into the function"),
        "more than the mass": (count(strict=True), "compare with >="),
        "no room for rounding": (count(spare=0.0), "rounding decides"),
        "one key more": (count(less=-1), "one key more than it has to"),
        "nothing": (lambda row, mass: None, "wanted a number"),
    },
    "02.4": {
        "token 0": (choice(tokens=slice(0, None)), "token 0 is a candidate"),
        "a circle": (choice(rows="both"), "have a say in the choice"),
        "chosen where it is tested": (choice(rows="late"), "the circle that we want to leave"),
        "too late a token": (choice(tokens=slice(1, "split")), "cannot read them"),
        "counted from the candidates": (choice(added=False), "add 1"),
        "tested on all": (choice(test="both"), "the rows that chose are tested too"),
        "tested where it was chosen": (choice(test="early"), "only the rows that chose"),
        "one even share for all rows": (choice(scaled=lambda length: length), "not 1 / L"),
        "not in even shares": (choice(scaled=lambda length: 1), "multiply it by i + 1"),
        "a number of rows": (choice(count=True), "not their share"),
        "a mean": (choice(mean=True), "count the rows instead"),
        "the token alone": (lambda weights, first, split: 3, "wanted two"),
        "the most rows": (choice(by=lambda x, dim: (x > 1).double().mean(dim)),
                          "the mean of the shares does"),
        "the largest share": (choice(by=torch.amax), "a single row does not choose"),
        "from token 2": (choice(tokens=slice(2, None)), "token 1 is a candidate too"),
        "up to `first`": (choice(end=1), "only those before it"),
        "without row `first`": (choice(shift=(1, 0)), "row `first` has a say too"),
        "without the last row": (choice(shift=(0, -1)), "row `split` - 1 has a say too"),
        "with a row before": (choice(shift=(-1, 0)), "rows before `first` have no say"),
        "weights as they are": (choice(plain=True), "are compared as they are"),
        "the even share of the row before": (choice(even_of=0), "not 1 / i"),
    },
    "02.8": {
        "a short window": (beyond(change=1), "one token too short"),
        "a long window": (beyond(change=-1), "one token too long"),
        "no sinks": (beyond(ignore=True), "the sinks are not left out"),
        "one sink too few": (beyond(few=1), "one sink too few"),
        "one sink too many": (beyond(few=-1), "one sink too many"),
        "sinks twice": (beyond(subtract=True), "never beyond it"),
        "what is kept": (beyond(kept=True), "not what it loses"),
        "one number": (lambda *example: beyond()(*example).mean(), "has shape"),
    },
}
