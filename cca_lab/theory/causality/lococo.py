"""LoCoCo's equations: Eq. 1 leaks, its mask is transposed, Eq. 5, Eq. 6, Eq. 7 and Algorithm 1 have slips.

Cai et al., ICML 2024, Sections 3.1-3.2. The functions and checks are those of `segments`.
"""

from functools import partial

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality.masks import check_masking, mask_before, mask_times
from cca_lab.theory.causality.segments import (
    all_slots,
    cached_slots,
    check_columns,
    check_normaliser,
    check_orientation,
    check_segment_attention,
    check_segments,
    check_update,
    columns_seen,
    exact_segment,
    printed_orientation,
    printed_segment,
    printed_update,
    ratio,
    segment_attention,
    upper_triangular,
    value_update,
)
from cca_lab.theory.claim import Claim, Hypothesis, Strength, Verdict, Weight
from cca_lab.theory.forall import papers

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="LC.eq1", paper="LoCoCo", place="Section 3.1, Eq. 1", check=check_masking, printed=mask_times,
        quote=(r"\text{softmax}\left(\frac{\mathbf{K}^\top \mathbf{Q} \odot \mathbf{M}}{\sqrt{d}}\right)",
               "is a lower-triangular causal mask. Intuitively, causal attention only allows tokens to aggregate "
               "information from past tokens"), formula=True,
        reading="Scores are multiplied by a triangular M, which is 0 where a query may not read [and 1 elsewhere: the "
                "paper does not say so], before the softmax; then a token reads past tokens only.",
        verdict=Verdict.FALSE, corrected=mask_before, strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF,
        weight=Weight.SLIP, repair="add -inf to a hidden score; 0 times a score leaves e^0 = 1",
        proof="A hidden score becomes 0 and weighs e^0 = 1, so h hidden tokens take h / (h + sum of e^s over "
              "the visible). With zero scores the first of 4 queries gives 3/4 of its weight to the future. No other "
              "value of M helps: a product cannot hide a score of 0.",
        example="""
import numpy as np

scores, mask = np.zeros(4), np.array([1, 0, 0, 0])  # the first of four queries
weights = np.exp(scores * mask) / np.exp(scores * mask).sum()
print(weights)
assert weights[1:].sum() == 0.75                   # on tokens after it
"""),
    Claim(
        id="LC.eq1.mask", paper="LoCoCo", place="Section 3.1, Eq. 1", check=check_orientation,
        quote=(r"\mathbf{V} \text{softmax}\left(\frac{\mathbf{K}^\top \mathbf{Q} \odot \mathbf{M}}{\sqrt{d}}\right)",
               "is a lower-triangular causal mask"), formula=True,
        reading="A lower-triangular M on K^T Q, which has a row for each key and a column for each query, keeps each "
                "query's past.",
        printed=printed_orientation, verdict=Verdict.FALSE, corrected=upper_triangular, weight=Weight.SLIP,
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF,
        repair="upper triangular: K^T Q has keys as rows and queries as columns",
        proof="(K^T Q)_{tj} is key t against query j, since V (d x L) stands to its left. Lower triangular keeps "
              "t >= j: the future of the query, not its past.",
        example="""
L = 3
lower = [[key >= query for query in range(L)] for key in range(L)]     # rows are keys, as in K^T Q
kept = [[key + 1 for key in range(L) if lower[key][query]] for query in range(L)]
print("queries 1 to 3 keep the keys", kept)
assert kept == [[1, 2, 3], [2, 3], [3]]
"""),
    Claim(
        id="LC.eq5", paper="LoCoCo", place="Section 3.2.1, Eq. 5", check=check_update, printed=printed_update,
        quote=(r"\tilde{\mathbf{q}}_i \leftarrow \sum_{j=1}^B w_{i,j} \mathbf{q}_j + \sum_{j=1}^M \tilde{w}_{i,j} "
               r"\tilde{\mathbf{q}}_j",
               "Here weights for keys and queries are shared to preserve token correspondence"), formula=True,
        reading="The cache, of keys and values, is updated by mixing its keys and its queries with the same weights "
                "(so also in Algorithm 2, step 5).",
        verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.SLIP, repaired=Strength.PROOF,
        corrected=value_update, repair="v for q: the values are updated with the weights of the keys",
        proof="No query is cached. As printed the M + B values are never compressed, so M keys face M + B "
              "values. With v for q slot i holds sum_t w_it k_t and sum_t w_it v_t: one mix of tokens.",
        example="""
keys, values, weights = [1.0, 2.0], [10.0, 20.0], [0.5, 0.5]          # M = B = 1
new_keys = [sum(w * k for w, k in zip(weights, keys))]                # Eq. 4; Eq. 5 mixes queries
print(len(new_keys), "key,", len(values), "values")
assert len(new_keys) != len(values)
"""),
    Claim(
        id="LC.eq7", paper="LoCoCo", place="Section 3.2.1, Eq. 7", check=check_normaliser, printed=ratio,
        quote=(r"w_{i,j} \leftarrow \frac{\mathbf{W}_{i,j}}{\sum_{k=1}^{M+B} \mathbf{W}_{i,k}}",
               "Here we normalize the prediction from the CNN kernel"), formula=True,
        reading="The blending weights of a row are defined and sum to 1 [they may be negative].",
        verdict=Verdict.HOLDS_IF, strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SLIP,
        hypothesis=Hypothesis("no row of W has the sum 0", lambda row: sum(row) != 0),
        corrected=softmax, repair="if no row of W has the sum 0; a softmax over k is defined for every W",
        proof="A row divided by its sum has the sum 1, and 0/0 is no weight. A row without a positive entry is 0 after "
              "the ReLU of Section 3.2.1: for signs that are fair coins that has probability 2^-(M+B) a row, and for a "
              "channel that is dead it is certain.",
        example="""
import numpy as np

W = np.maximum(0.0, np.array([[1.0, 3.0], [-1.0, -3.0]]))  # two slots, after a ReLU
with np.errstate(invalid="ignore"):
    weights = W / W.sum(axis=1, keepdims=True)
print(weights)
assert weights[0].sum() == 1 and np.isnan(weights[1]).all()
"""),
    Claim(
        id="LC.segments", paper="LoCoCo", place="Section 3.1", check=check_segment_attention, printed=segment_attention,
        quote=("Algorithm 1 presents the detailed procedure for the training-time attention computation",
               "auto-regressive generation is a special case of segment-level attention"),
        reading="Attention by segments over the cached keys of all earlier ones is full causal attention, for every B "
                "[each query reads its own block up to and with itself].",
        verdict=Verdict.HOLDS, strength=Strength.SMT, machine=partial(papers.past_of_a_row, columns_seen),
        proof="The cache of block n holds the (n-1) B tokens before it, so query b of the block reads (n-1) B + b "
              "tokens: its past and itself. With B = 1 that is generation with a cache. Block n has B n B scores, "
              "at most B L."),
    Claim(
        id="LC.alg1", paper="LoCoCo", place="Algorithm 1", check=check_segments, printed=printed_segment,
        quote=(r"$n = 1, \dots, N$",
               r"[\mathbf{x}_{nB} \cdots \mathbf{x}_{(n+1)B-1}]", "collect a sequence of the $n$ -th segment"),
        formula=True,
        reading="The segments n = 1..N, x_nB to x_(n+1)B-1, cut x_1..x_L into N blocks of B tokens (so also in "
                "Algorithm 2).",
        verdict=Verdict.FALSE, corrected=exact_segment, strength=Strength.COUNTEREXAMPLE, weight=Weight.SLIP,
        repair="x_(n-1)B+1 to x_nB (as printed it is right for B = 1 only)", repaired=Strength.SMT,
        machine=partial(papers.segments_cut, exact_segment),
        proof="n = 1 begins at x_B, so x_1..x_(B-1) are in no segment, and n = N ends at x_(L+B-1), after the last "
              "token.",
        example="""
B, N = 2, 2
segments = [list(range(n * B, (n + 1) * B)) for n in range(1, N + 1)]
print("of the tokens 1 to 4:", segments)
assert segments == [[2, 3], [4, 5]]                # 1 is lost, and there is no 5
"""),
    Claim(
        id="LC.first", paper="LoCoCo", place="Section 3.2.1, Eq. 6; Section 4.1", check=check_columns,
        printed=all_slots,
        quote=(r"\in \mathbb{R}^{M \times (M+B)}", "to fit in the memory size of 128, 256, 512",
               "chunk size of 512"), formula=True,
        reading="Whenever Algorithm 2 compresses, Eq. 6 has M + B columns: B new entries and M cached ones.",
        verdict=Verdict.HOLDS_IF, strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SLIP,
        hypothesis=Hypothesis("B divides M", lambda size: size[0] % size[1] == 0),
        corrected=cached_slots, repair="exactly if B divides M; the sums of Eq. 4 to 7 run over the B new entries and "
                                       "those that are cached, M from the second compression on",
        proof="The cache is filled in steps of B while it has room. If B does not divide M, the first compression "
              "finds B floor(M/B) < M entries: with M = 128 and B = 512 none, so Eq. 6 has 512 columns, not 640.",
        example="""
M, B, cached = 128, 512, 0                         # Section 4.1
assert cached + B > M                              # Algorithm 2 compresses the first block
print("columns:", cached + B, "claimed:", M + B)
assert cached + B == 512 != M + B
"""),
)
