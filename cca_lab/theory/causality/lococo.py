"""LoCoCo's equations, read literally: Eq. 1 leaks, its mask is transposed, Eq. 5, Eq. 7 and Algorithm 1 have slips.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024, Sections 3.1-3.2.
Tokens, segments and slots count from 1, as in the paper.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality import check_masking, mask_before, mask_times
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

Rows = Sequence[Sequence[Fraction]]
Cache = tuple[list[Fraction], list[Fraction]]


def leaked_share(scores: Sequence[int], hidden: int) -> Fraction:
    """Return the weight of hidden tokens in Eq. 1 as printed, with base 2 for e: h / (h + sum of 2^s over visible s).

    Args:
        scores: of the visible tokens.
        hidden: h, the number of hidden tokens.
    """
    return Fraction(hidden) / (hidden + sum(Fraction(2) ** score for score in scores))


def printed_orientation(key: int, query: int) -> bool:
    """Eq. 1 with a lower-triangular M: K^T Q has a row for each key and a column for each query."""
    return key >= query


def upper_triangular(key: int, query: int) -> bool:
    """The mask that K^T Q needs: keep a key that is not after the query."""
    return key <= query


def check_orientation(kept: Callable[[int, int], bool]) -> Finding:
    """Judge whether each of L <= 8 queries keeps its past and itself, and nothing else."""
    for length in range(1, 9):
        for query in range(1, length + 1):
            keys = [key for key in range(1, length + 1) if kept(key, query)]
            if keys != list(range(1, query + 1)):
                wanted = list(range(1, query + 1))
                return Finding(False, f"L={length}: query {query} keeps keys {keys}, wanted {wanted}")
    return Finding(True, "every query of L <= 8 keeps its past and itself")


def printed_update(weights: Rows, keys: Sequence[Fraction], queries: Sequence[Fraction],
                   values: Sequence[Fraction]) -> Cache:
    """Eq. 4 and 5 as printed: new keys from keys, new *queries* from queries; the values stay as they are."""
    _mix(weights, queries)  # Eq. 5 computes them; nothing reads them
    return _mix(weights, keys), list(values)


def value_update(weights: Rows, keys: Sequence[Fraction], queries: Sequence[Fraction],
                 values: Sequence[Fraction]) -> Cache:
    """Eq. 5 with v for q: keys and values are mixed with the same weights."""
    return _mix(weights, keys), _mix(weights, values)


def _mix(weights: Rows, entries: Sequence[Fraction]) -> list[Fraction]:
    return [sum((w * x for w, x in zip(row, entries, strict=True)), Fraction(0)) for row in weights]


def check_update(update: Callable[..., Cache]) -> Finding:
    """Judge whether slot i holds the key and the value of the same mixture: M, B <= 3, exact."""
    for slots, block in product(range(1, 4), repeat=2):
        count = slots + block
        keys, values = [Fraction(t + 1) for t in range(count)], [Fraction(10 * (t + 1)) for t in range(count)]
        queries = [Fraction(-3 * t) for t in range(count)]
        rows = [softmax([(i * t) % 3 for t in range(count)]) for i in range(slots)]
        new_keys, new_values = update(rows, keys, queries, values)
        if len(new_keys) != slots or new_values != [10 * key for key in new_keys]:
            shown = [", ".join(map(str, side)) for side in (new_keys, new_values)]
            return Finding(False, f"M={slots}, B={block}, values 10 times the keys: {len(new_keys)} keys ({shown[0]}) "
                                  f"but {len(new_values)} values ({shown[1]})")
    return Finding(True, "M slots hold key and value of the same mix for M, B <= 3")


def ratio(row: Sequence[int]) -> list[Fraction]:
    """Eq. 7 as printed: W_ij / sum_k W_ik. Raises ZeroDivisionError where the sum is 0."""
    return [Fraction(w, sum(row)) for w in row]


def relu_ratio(row: Sequence[int]) -> list[Fraction]:
    """Eq. 7 after a ReLU ("we prepend a ReLU as the activation function", Section 3.2.1)."""
    return ratio([max(0, w) for w in row])


def check_normaliser(normalise: Callable[[Sequence[int]], Sequence[Fraction]]) -> Finding:
    """Judge whether any row of integers becomes a convex combination: M + B <= 4 entries in -2 .. 2, exact."""
    undefined, outside, cases = [], [], 0
    for length in range(1, 5):
        for row in product((0, 1, -1, 2, -2), repeat=length):
            cases += 1
            try:
                weights = normalise(row)
            except ZeroDivisionError:
                undefined.append(row)
                continue
            if sum(weights) != 1 or min(weights) < 0:
                outside.append((row, weights))
    numbers = {"cases": cases, "undefined": len(undefined), "outside": len(outside)}
    if not undefined and not outside:
        return Finding(True, f"weights are at least 0 and sum to 1 in {cases} of {cases} rows", numbers)
    parts = [f"row {list(undefined[0])} is 0/0 ({len(undefined)} of {cases} rows)"] if undefined else []
    if outside:
        row, weights = outside[0]
        parts.append(f"row {list(row)} gives weights {', '.join(map(str, weights))} ({len(outside)} rows)")
    return Finding(False, "; ".join(parts), numbers)


def printed_segment(n: int, block: int) -> range:
    """Algorithms 1 and 2, step 1, as printed: tokens nB .. (n+1)B - 1 of segment n = 1 .. N."""
    return range(n * block, (n + 1) * block)


def exact_segment(n: int, block: int) -> range:
    """The segments that do cut x_1 .. x_L, L = N B: tokens (n-1)B + 1 .. nB."""
    return range((n - 1) * block + 1, n * block + 1)


def check_segments(segment: Callable[[int, int], range]) -> Finding:
    """Judge whether the N segments of B tokens are x_1 .. x_NB, each token once: B, N <= 6."""
    for block, count in product(range(1, 7), repeat=2):
        tokens = [t for n in range(1, count + 1) for t in segment(n, block)]
        if tokens != list(range(1, block * count + 1)):
            return Finding(False, f"B={block}, N={count}, L={block * count}: the segments are "
                                  f"{[list(segment(n, block)) for n in range(1, count + 1)]}")
    return Finding(True, "a partition of x_1 .. x_NB for B, N <= 6")


CLAIMS = (
    Claim(
        id="LC.eq1", paper="LoCoCo", place="Eq. 1", check=check_masking, printed=mask_times, corrected=mask_before,
        statement="softmax((K^T Q * M) / sqrt(d)) with a 0-1 mask M is causal", verdict=Verdict.FALSE,
        repair="add -inf to a hidden score; 0 times a score leaves e^0 = 1", strength=Strength.EXACT,
        proof="A hidden score becomes 0 and weighs e^0 = 1, so h hidden tokens take h / (h + sum of e^s over "
              "the visible). With zero scores the first of 4 queries gives 3/4 of its weight to the future."),
    Claim(
        id="LC.eq1.mask", paper="LoCoCo", place="Eq. 1", check=check_orientation, printed=printed_orientation,
        statement="M is a lower-triangular causal mask on K^T Q", verdict=Verdict.FALSE, corrected=upper_triangular,
        repair="upper triangular: K^T Q has keys as rows and queries as columns", strength=Strength.EXACT,
        proof="(K^T Q)_{tj} is key t against query j. Lower triangular keeps t >= j: the future of the "
              "query, not its past."),
    Claim(
        id="LC.eq5", paper="LoCoCo", place="Eq. 5; Algorithm 2, step 5", check=check_update, printed=printed_update,
        statement="the cache's queries are updated with the weights of the keys", verdict=Verdict.FALSE,
        corrected=value_update, repair="v for q: the values are updated with the weights of the keys",
        strength=Strength.EXACT,
        proof="No query is cached. As printed the M + B values are never compressed, so M keys face M + B "
              "values. With v for q slot i holds sum_t w_it k_t and sum_t w_it v_t: one mix of tokens."),
    Claim(
        id="LC.eq7", paper="LoCoCo", place="Eq. 7", check=check_normaliser, printed=ratio,
        statement="W_ij / sum_k W_ik are blending weights", verdict=Verdict.FALSE,
        corrected=softmax, repair="softmax over k: defined and convex for every W", strength=Strength.EXACT,
        proof="The sum may be 0, and without a ReLU weights may be negative and large: (2, -1) gives 2 and "
              "-1. After a ReLU they are convex, but a row without a positive entry is 0/0; for signs that "
              "are fair coins that has probability 2^-(M+B) a row, and for a channel that is dead it is "
              "certain."),
    Claim(
        id="LC.alg1", paper="LoCoCo", place="Algorithms 1 and 2, step 1", check=check_segments, printed=printed_segment,
        statement="segment n = 1..N is x_nB .. x_(n+1)B-1", verdict=Verdict.FALSE, corrected=exact_segment,
        repair="x_(n-1)B+1 .. x_nB (as printed it is right for B = 1 only)", strength=Strength.EXACT,
        proof="n = 1 begins at x_B, so x_1..x_(B-1) are in no segment, and n = N ends at x_(L+B-1), after "
              "the last token."),
)
