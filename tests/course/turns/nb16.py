"""Wrong answers to the tasks of notebook 16."""

from cca_lab.mechanisms.indices import read_twice, unread


def swapped(row, window, group):
    return unread(row, window, group), read_twice(row, window, group)


def own_token_forgotten(row, window, group):
    return max(0, row // group * group - max(0, row + 1 - window)), unread(row, window, group)


def negative(row, window, group):
    rest = (row + 1) % group
    return window - rest, max(0, rest - window)


def full_window_always(row, window, group):
    rest = (row + 1) % group
    return max(0, window - rest), max(0, rest - window)


def over_features(values, gates, bias):
    return ((gates + bias).softmax(dim=1) * values).sum(dim=0)


def without_bias(values, gates, bias):
    return (gates.softmax(dim=0) * values).sum(dim=0)


def one_weight(values, gates, bias):
    return ((gates + bias).mean(dim=1).softmax(dim=0)[:, None] * values).sum(dim=0)


WRONG = {
    "16.2": {
        "in the other order": (swapped, "in the other order"),
        "row instead of row + 1": (own_token_forgotten, "its own included"),
        "negative counts": (negative, "cannot be negative"),
        "the window is always full": (full_window_always, "not full yet"),
    },
    "16.4": {
        "softmax over features": (over_features, "each feature has weights of its own"),
        "no bias": (without_bias, "add the position bias"),
        "one weight a token": (one_weight, "CCA's way"),
    },
}
