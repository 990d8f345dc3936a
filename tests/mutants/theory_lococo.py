"""Wrong subjects for the claims on LoCoCo, and wrong formulas of its article: each is refuted."""

from cca_lab.theory.base_two import softmax


def finite_stand_in(scores, visible):
    """A hidden score becomes -30 instead of -inf: it keeps a weight."""
    return softmax([score if seen else -30 for score, seen in zip(scores, visible, strict=True)])


BROKEN = {"LC.eq1": finite_stand_in}
FORMULAS = [  # label, a piece of it, and what is wrong in its place
    ("lococo-leak", "{h +", "{"), ("lococo-first", "+ B", "+ M"), ("lococo-taps", "- 1", "- 3"),
    ("lococo-peak", r"\max", r"\min"),
    ("lococo-ratio", "w M", "M"), ("lococo-mean", r"\frac{1}{T}", r"\frac{1}{M}"),
]
