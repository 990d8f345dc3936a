"""H2O's rows one after the other in one launch: attend, score, evict, and the next row.

One program computes one KV head. It holds the cache in registers, one entry a slot:

    token, score    of each slot; the new token takes the slot of the one that left
    score += mean over the query heads of softmax(logits of the slots' tokens)
    leaves: of the tokens that are not recent, the lowest score; of equal ones the oldest

Only this recurrence is a kernel. The logits are a matrix product before it, and what each row read
is a mask for the attention after it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def h2o_rows(
    LOGITS, TOKENS, SCORES, READ,  # (P, G, R, N), (P, S) x 2, (P, R, S); P programs, S slots
    first, rows, columns, entries, recent,
    QUERIES_PER_KEY: tl.constexpr, SLOTS: tl.constexpr,
):
    """Tokens that R rows read from a cache with one free slot, the last, for the row's own."""
    pair = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    used = slot <= entries
    stored_at = pair * (entries + 1) + slot
    token = tl.load(TOKENS + stored_at, mask=used, other=0)
    score = tl.load(SCORES + stored_at, mask=used, other=0.0)
    free = tl.max(tl.where(used, slot, 0), 0)
    for row in range(rows):
        token = tl.where(slot == free, first + row, token)
        score = tl.where(slot == free, 0.0, score)
        received = tl.zeros([SLOTS], dtype=tl.float32)
        for query in tl.static_range(QUERIES_PER_KEY):
            row_of_logits = ((pair * QUERIES_PER_KEY + query) * rows + row) * columns
            logits = tl.load(LOGITS + row_of_logits + token, mask=used, other=float("-inf"))
            weights = tl.exp(logits - tl.max(logits, 0))
            received += weights / tl.sum(weights, 0)
        score += received / QUERIES_PER_KEY
        tl.store(READ + (pair * rows + row) * (entries + 1) + slot, token, mask=used)
        older = used & (token <= first + row - recent)
        lightest = tl.min(tl.where(older, score, float("inf")), 0)
        # not "equal": where scores are NaN, a token has to leave too
        leaves = tl.min(tl.where(older & ~(score > lightest), token, first + rows), 0)
        free = tl.max(tl.where(used & (token == leaves), slot, 0), 0)
    # the free slot comes last again
    kept = used & (slot != free)
    moved = pair * (entries + 1) + slot - (slot > free).to(tl.int32)
    tl.store(TOKENS + moved, token, mask=kept)
    tl.store(SCORES + moved, score, mask=kept)


def triton_evicting_rows(logits: Tensor, tokens: Tensor, scores: Tensor, first: int,
                         recent: int) -> tuple[Tensor, Tensor, Tensor]:
    """Let rows attend and evict one after the other, see `h2o.mechanism.evicting_rows`."""
    batch, kv_heads, queries_per_key, rows, columns = logits.shape
    entries = tokens.shape[2]
    tokens, scores = F.pad(tokens.int(), (0, 1)), F.pad(scores.float(), (0, 1))  # (B, Hk, n + 1)
    read = launch.new_output(torch.Size((batch, kv_heads, rows, entries + 1)), tokens)
    slots = triton.next_power_of_2(entries + 1)
    h2o_rows[(batch * kv_heads,)](
        logits.float().contiguous(), tokens, scores, read, first, rows, columns, entries, recent,
        QUERIES_PER_KEY=queries_per_key, SLOTS=slots, num_warps=min(8, max(1, slots // 128)))
    return read.long(), tokens[..., :entries].long(), scores[..., :entries]
