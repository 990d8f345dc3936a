"""Wrong answers to the turns of notebook 07_what_it_costs."""


def _pairs(row_pairs):
    return lambda length, group, window: sum(row_pairs(row, group, window)
                                             for row in range(1, length + 1))


def _older(row, window):
    return max(0, row - window)


def _visible(tokens, group, window):
    return max(0, tokens + 1 - window) // group


WRONG = {
    "07.2": {
        "forgets the remainder":
            (_pairs(lambda i, g, s: _older(i, s) // g + min(i, s)), "fill no group"),
        "whole windows from the start":
            (_pairs(lambda i, g, s: sum(divmod(_older(i, s), g)) + s), "the text has only begun"),
        "no cut at zero":
            (_pairs(lambda i, g, s: sum(divmod(i - s, g)) + min(i, s)),
             "negative number of cores"),
        "the printed window":
            (_pairs(lambda i, g, s: sum(divmod(_older(i, s), g)) + min(i, s) + (i - s >= g)),
             "read raw as well"),
        "full attention": (_pairs(lambda i, g, s: i), "as all the tokens"),
        "range without the last row":
            (lambda length, g, s: sum(sum(divmod(_older(i, s), g)) + min(i, s)
                                      for i in range(1, length)), "the last row is left out"),
    },
    "07.6": {
        "the window and no more":
            (lambda n, g, s: (n // g, min(n, s)), "only the window is kept"),
        "the last row decides":
            (lambda n, g, s: (n // g, n - g * (max(0, n - s) // g)), "the last row decides"),
        "visible cores only":
            (lambda n, g, s: (_visible(n, g, s), n - g * _visible(n, g, s)),
             "that the next row reads"),
        "rounds up": (lambda n, g, s: (-(-n // g), n - g * _visible(n, g, s)), "not complete"),
        "drops at the close": (lambda n, g, s: (n // g, n % g), "still in the window"),
        "one number": (lambda n, g, s: n // g, "wanted two numbers"),
    },
    "07.8": {
        "the full square": (lambda d, h: -(-(4 * d + 3 * h) // 2), "every row reads every token"),
        "half a square": (lambda d, h: 4 * d + 3 * h, "one token too late"),
        "two operations a pair": (lambda d, h: 2 * (4 * d + 3 * h) - 1, "they take four"),
        "one operation a weight":
            (lambda d, h: -(-(4 * d + 3 * h) // 2) - 1, "each takes two operations"),
    },
}
