"""Whether sequence modelling and DGA's supervised form of it have the same best model (DGA, Section 3, Appendix B).

A corpus is a list of pairs (context, next token). Maximising the likelihood of sequences, Eq. 1 and 51, is
maximising the product over all pairs; the best model without further constraints gives each next token its share
among the pairs with the same context. Eq. 2 is a product over y and C(y): over which pairs is not printed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight

Pair = tuple[str, str]  # (context, next token)
PAIRS: list[Pair] = [("c", "a"), ("c", "b"), ("d", "a")]
LONGEST = 5


def of_the_corpus(corpus: Sequence[Pair]) -> list[Pair]:
    """Return the factors of Eq. 2 as a product over the n pairs of the training corpus."""
    return list(corpus)


def distinct(corpus: Sequence[Pair]) -> list[Pair]:
    """Return the factors of Eq. 2 as a product over y in the vocabulary and its contexts, each pair once."""
    return sorted(set(corpus))


def best_model(factors: Sequence[Pair]) -> dict[Pair, Fraction]:
    """Return P(y | C) that maximises the product of P over the factors: the share of y among those with context C."""
    contexts = Counter(context for context, _ in factors)
    return {pair: Fraction(count, contexts[pair[0]]) for pair, count in Counter(factors).items()}


def check_best_model(factors: Callable[[Sequence[Pair]], list[Pair]]) -> Finding:
    """Judge whether the product has the best model of the sequences: every corpus of up to 5 of 3 pairs, exact."""
    corpora = [corpus for count in range(1, LONGEST + 1) for corpus in product(PAIRS, repeat=count)]
    for corpus in corpora:
        got, wanted = best_model(factors(corpus)), best_model(corpus)
        if got != wanted:
            context, token = pair = next(pair for pair in wanted if got.get(pair) != wanted[pair])
            shown = ", ".join(context + token for context, token in corpus)
            return Finding(False, f"corpus of pairs {shown}: the best P({token}|{context}) is "
                                  f"{wanted[pair]} for the sequences, {got.get(pair, 0)} for the product")
    return Finding(True, f"the same best model for {len(corpora)} corpora", {"corpora": len(corpora)})


CLAIMS = (
    Claim(
        id="D1.likelihood", paper="DGA", place="Section 3.2; Appendix B", check=check_best_model,
        quote=("although they are theoretically equivalent",
               "traditional pre-training paradigm for LLMs is essentially equivalent to supervised learning"),
        reading="Eq. 2, the product of P(y | C(y)) over y and C(y), has the same best model as the likelihood of the "
                "sequences, Eq. 1 [with a pair (C, y) that occurs n times in the corpus as n factors].",
        printed=of_the_corpus, corrected=of_the_corpus, verdict=Verdict.DEPENDS,
        models={"a product over the pairs of the training corpus": (of_the_corpus, True),
                "a product over y in V and its contexts, each pair once": (distinct, False)},
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SLIP,
        repair="equivalent with the product over i = 1..n, the pairs of the corpus",
        proof="By the chain rule the likelihood of the sequences is the product over all their pairs, so the corpus's "
              "product is the same function. Over distinct pairs each continuation of a context counts once: of the "
              "pairs ca, ca, cb the sequences want P(a|c) = 2/3, the product 1/2.",
        example="""
corpus = ["a", "a", "b"]                           # what follows the same context
grid = [n / 600 for n in range(1, 600)]            # P(a), and P(b) = 1 - P(a)
sequences = max(grid, key=lambda p: p * p * (1 - p))
distinct = max(grid, key=lambda p: p * (1 - p))    # y ranges over the vocabulary
print(sequences, distinct)
assert (sequences, distinct) == (400 / 600, 300 / 600)
"""),
)
