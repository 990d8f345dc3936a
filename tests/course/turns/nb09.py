"""Wrong answers to the turns of notebook 09_speed."""

from cca_lab.theory.cost.prefill import amdahl


def _intensity(pairs, numbers, each=4):
    return lambda rows, length, d, size: each * pairs(rows, length) / size / numbers(rows, length)


def _pairs(rows, length):
    return sum(range(length - rows + 1, length + 1))


def _numbers(rows, length):
    return 2 * (rows + length)


def _blocks(first_column, whole=False):
    def answer(length, window, block):
        total = 0
        for top in range(0, length, block):
            bottom = top + block if whole else min(top + block, length)
            total += (bottom - top) * (bottom - first_column(top, bottom, window, block))
        return total
    return answer


def _right(top, bottom, window, block):
    return max(0, top - window + 1) // block * block


WRONG = {
    "09.3": {
        "one product": (_intensity(_pairs, _numbers, each=2), "counts 2 D operations"),
        "no causal mask": (_intensity(lambda rows, length: rows * length, _numbers),
                           "row i of a causal text"),
        "the first rows": (_intensity(lambda rows, length: rows * (rows + 1) / 2, _numbers),
                           "they are its last"),
        "range without the last row":
            (_intensity(lambda r, n: _pairs(r, n) - r, _numbers), "its own token"),
        "keys without values":
            (_intensity(_pairs, lambda rows, length: 2 * rows + length), "values are not read"),
        "nothing is written":
            (_intensity(_pairs, lambda rows, length: rows + 2 * length), "output is not written"),
        "numbers for bytes":
            (lambda r, n, d, size: 4 * _pairs(r, n) / _numbers(r, n),
             "a number has `itemsize` bytes"),
        "upside down":
            (lambda r, n, d, size: size * _numbers(r, n) / (4 * _pairs(r, n)), "upside down"),
    },
    "09.4": {
        "visible pairs":
            (lambda length, w, b: sum(min(i + 1, w) for i in range(length)),
             "a tile is computed whole"),
        "no window": (_blocks(lambda top, bottom, w, b: 0), "the window is forgotten"),
        "everything": (lambda length, w, b: length**2, "those of the future too"),
        "the last tile whole": (_blocks(_right, whole=True), "the text ends inside them"),
        "the last row decides":
            (_blocks(lambda top, bottom, w, b: max(0, bottom - w) // b * b),
             "its first row reaches further back"),
        "one token early":
            (_blocks(lambda top, bottom, w, b: max(0, top - w) // b * b),
             "holds the row's own token"),
        "cut at the first column":
            (_blocks(lambda top, bottom, w, b: max(0, top - w + 1)),
             "begin at multiples of the block"),
    },
    "09.9": {
        "one speed-up over the other":
            (lambda whole, part: whole / part, "only time can be divided"),
        "the part is free": (lambda whole, part: 1 - 1 / whole, "still takes 1/part"),
        "linear in the speed-ups":
            (lambda whole, part: (whole - 1) / (part - 1), "the speed-ups minus one"),
        "the other share":
            (lambda whole, part: (1 / whole - 1 / part) / (1 - 1 / part), "stays as it was"),
        "forwards": (lambda whole, part: amdahl(1 / whole, part), "wanted"),
    },
}
