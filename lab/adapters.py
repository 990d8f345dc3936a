"""Your answers, if you prefer an editor: `pytest lab -m a5_2` checks one of them.

`pytest lab -m a5` checks all of a5, `pytest lab` all there are. Call your own code from here, or
write it here. What each function gets and returns stands in the notebook of the assignment, in
lab/release/. A test of a function that is not written yet is skipped. Made by
`cca-lab course release --adapters`; yours from then on.
"""

import json
import math

import torch

# a1: Attention from loops to tiles, with a slope and a sink

def broken(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tile: int) -> torch.Tensor:
    """Attention of the last rows in tiles of keys, with two bugs."""
    length = len(k)
    row = torch.arange(length - len(q), length)[:, None]
    top = torch.full((len(q), 1), float("-inf"), dtype=q.dtype)
    total = torch.zeros_like(top)
    out = torch.zeros(len(q), v.shape[1], dtype=q.dtype)
    for start in range(0, length, tile):
        keys, values = k[start : start + tile], v[start : start + tile]
        scores = q @ keys.T / q.shape[1] ** 0.5
        scores = scores.masked_fill(start > row, float("-inf"))
        new = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        weights = (scores - new).exp()
        total = total * (top - new).exp() + weights.sum(dim=-1, keepdim=True)
        out = out + weights @ values
        top = new
    return out / total


def a1_1() -> dict:
    """by_hand: Return the numbers of row 3, as plain Python numbers such as 1 / 8."""
    raise NotImplementedError


def a1_2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor,
         sinks: torch.Tensor, scale: float) -> torch.Tensor:
    """loops: Return the outputs (B, H, L, E), float64."""
    raise NotImplementedError


def a1_3(one: tuple, two: tuple) -> tuple:
    """merge: Return the part of all keys of two parts: (maximum (R,), sum (R,), accumulator (R,
    E)), float64."""
    raise NotImplementedError


def a1_4(q: torch.Tensor, load, row_tile: int, key_tile: int, scale: float, slope: float,
         sink: float) -> torch.Tensor:
    """tiled: Return the outputs (L, E), float64, by the rule above."""
    raise NotImplementedError


def a1_5(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tile: int) -> torch.Tensor:
    """repaired: Return the outputs (N, E) of the last N of L tokens."""
    raise NotImplementedError


def a1_6(length: int, dim: int, tile: int) -> dict:
    """costs: Return the integers "flops", "bytes" and "scores"."""
    raise NotImplementedError


def a1_7(weights: torch.Tensor, upstream: torch.Tensor) -> tuple:
    """backward: Return the gradients of the scores (R, N) and of the sinks (R,), float64."""
    raise NotImplementedError

# a2: Sparsity, measured without fooling yourself


def a2_1() -> dict:
    """by_hand: Return four numbers for the row above."""
    raise NotImplementedError


def a2_2(maps: torch.Tensor, mass: float, sinks: int) -> torch.Tensor:
    """keys_for_share: Return int64 (..., L): the fewest keys after the sinks that hold the share
    `mass` of what these hold."""
    raise NotImplementedError


def a2_3(maps: torch.Tensor, windows: list[int]) -> torch.Tensor:
    """lost_beyond: Return (..., n): for each of n windows the mean loss over the rows that have a
    token beyond it."""
    raise NotImplementedError


def a2_4(maps: torch.Tensor, first: int, split: int, top: int) -> torch.Tensor:
    """lift: Return (...): the lift of each map."""
    raise NotImplementedError


def a2_5(tokens: int, top: int) -> float:
    """noise_lift: Return the mean lift of the `top` heaviest of `tokens` exponential weights, 1 <=
    top <= tokens <= 10 000."""
    raise NotImplementedError


def a2_6(logits: torch.Tensor, rho: float, level: float) -> tuple[float, float, float]:
    """estimate: Return the share of sparse rows, and the low and the high end of an interval for
    P_sparse."""
    raise NotImplementedError


def a2_7() -> dict:
    """too_much: Return "values" and "chances" (lists of numbers), "length" (an integer), "rho" and
    "x" (numbers)."""
    raise NotImplementedError


def a2_8(large: float, chance: float, length: int, rho: float, x: float) -> dict:
    """two_values: Return "sparse", the exact P_sparse, and "repaired", the right side of the
    repaired bound at x."""
    raise NotImplementedError

# a3: Group coding: the noise factors, and the right Hessian


def a3_1() -> dict:
    """by_hand: Return the numbers for the four tokens."""
    raise NotImplementedError


def a3_2(pool: torch.Tensor, covariance: torch.Tensor) -> float:
    """noise_factor: Return the pooled noise's variance, divided by the mean variance of a token;
    pool (m,), covariance (m, m)."""
    raise NotImplementedError


def a3_3(covariance: torch.Tensor) -> torch.Tensor:
    """best_pool: Return the weights (m,), sum 1, of least pooled variance; covariance (m, m), m of
    1 or more."""
    raise NotImplementedError


def a3_4(logits: torch.Tensor, noise: torch.Tensor, group: int) -> dict:
    """measure: Return "bias", "variance" and "factor", (L,) each."""
    raise NotImplementedError


def a3_5(logits: torch.Tensor, values: torch.Tensor, target: torch.Tensor) -> dict:
    """hessians: Return "weights", "gauss_newton" and "logits", (L, L) each; logits (L,), values (L,
    d), target (d,)."""
    raise NotImplementedError


def a3_6(hessian: torch.Tensor, normal: torch.Tensor) -> float:
    """condition_on: Return the condition number of the hessian (n, n) on steps orthogonal to normal
    (n,), or float("inf")."""
    raise NotImplementedError


def a3_7() -> dict:
    """counterexamples: Return "printed" (6, 2), "weights" (6,) and "values" (6, d), as tensors or
    lists."""
    raise NotImplementedError


def a3_8(pool: torch.Tensor, low: float, high: float) -> dict:
    """bounds: Return the numbers "lowest", "highest" and "kappa"; pool (k, L), the eigenvalues of H
    lie in [low, high]."""
    raise NotImplementedError


def a3_9(low: float, high: float, step: float, tolerance: float) -> int | None:
    """descent_steps: Return the steps from the worst start, or None if they do not end; eigenvalues
    from low to high."""
    raise NotImplementedError

# a4: Core tokens: pooling, and who judges

GROUP_Q = torch.tensor([[1, 2], [-2, 1], [0, 1], [1, 0]], dtype=torch.float64)
GROUP_K = torch.tensor([[0, 0], [1, 0], [0, 1], [2, 0]], dtype=torch.float64)
GROUP_V = torch.tensor([[8], [16], [0], [4]], dtype=torch.float64)
def printed_ratio(scores: torch.Tensor) -> torch.Tensor:
    """Return the weights (M, N) as printed: rows of NaN where no score is positive."""
    positive = scores.relu()
    return positive / positive.sum(dim=-1, keepdim=True)


def a4_1() -> dict:
    """by_hand: Return the numbers of the group."""
    raise NotImplementedError


def a4_2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: int, judge: str,
         scale: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """judged_cores: Pool all groups, the ragged last one too."""
    raise NotImplementedError


def a4_3(k: torch.Tensor, v: torch.Tensor, judge: torch.Tensor, temperature: torch.Tensor,
         group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """learned_cores: Return core keys (H, M, D) and core values (H, M, E), M = L / group."""
    raise NotImplementedError


def a4_4(x: torch.Tensor, phi: torch.Tensor, project) -> torch.Tensor:
    """projected_cores: Return sum_t phi_t (x_t W + b) for each group, (M, D)."""
    raise NotImplementedError


def a4_5(judge: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, d_key: torch.Tensor,
         d_value: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """core_gradients: Return d_judge (D,), d_keys (g, D) and d_values (g, E)."""
    raise NotImplementedError


def a4_6(length: int, group: int, window: int, judge: str, part: str) -> torch.Tensor:
    """moved: Return bool (length, length): can an edit of a part of token t (column) move the
    output of row i (row)?"""
    raise NotImplementedError


def a4_7(q: torch.Tensor, phi: torch.Tensor, core_k: torch.Tensor, core_v: torch.Tensor,
         raw_k: torch.Tensor, raw_v: torch.Tensor, scale: float) -> torch.Tensor:
    """sized_attention: Return the outputs (R, E): every row reads all cores and all raw tokens, in
    one softmax."""
    raise NotImplementedError


def a4_8(length: int, group: int, window: int, token: int) -> tuple[torch.Tensor, torch.Tensor]:
    """lost_needle: Return queries and keys, (length, D) each, floating, D from 1 to 64, with no
    entry beyond 1000 or -1000."""
    raise NotImplementedError


def a4_9(scores: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """normalised: Return the weights (M, N), float64."""
    raise NotImplementedError

# a5: CCA-Attention with a third interval


def a5_1() -> dict:
    """by_hand: Return the numbers for sinks = 1, group = 3, window = 2."""
    raise NotImplementedError


def a5_2(length: int, sinks: int, group: int, window: int) -> torch.Tensor:
    """intervals: Return int64 (length, 3, 2): for each row the intervals of cores, of sinks and of
    the window."""
    raise NotImplementedError


def a5_3(table: torch.Tensor, length: int, sinks: int, group: int, window: int) -> torch.Tensor:
    """read_counts: Return int64 (length, length): how often row i reads token t, for a table of
    intervals (length, 3, 2)."""
    raise NotImplementedError


def a5_4() -> dict:
    """printed_formula: Return the integers "group", "window", "row" (at most a million) and
    "token"; rows and tokens count from 1."""
    raise NotImplementedError


def a5_5(q: torch.Tensor, table: torch.Tensor, load, tile: int, scale: float) -> torch.Tensor:
    """blocked: Return the outputs (L, E): row i is softmax(scale * q[i] K^T) V over the columns of
    its intervals."""
    raise NotImplementedError


def a5_6(length: int, sinks: int, group: int, window: int) -> int:
    """pairs: Return the number of pairs of all rows."""
    raise NotImplementedError


def a5_7(length: int, sinks: int, window: int) -> int:
    """best_group: Return a group size, 1 or more, with the fewest pairs."""
    raise NotImplementedError

# a6: DGA without leaks, and a leak detector


def a6_1() -> dict:
    """by_hand: Return what was worked out."""
    raise NotImplementedError


def a6_2(scores: torch.Tensor, every: int) -> list[int]:
    """choose_focal: Return the focal tokens, ascending."""
    raise NotImplementedError


def a6_3(focal: list[int], length: int, group: int, span: int) -> list[list[int]]:
    """cut_groups: Return the groups in order, each a list of its tokens in order; an empty list if
    all tokens are focal."""
    raise NotImplementedError


def a6_4(length: int, groups: list[list[int]], window: int) -> torch.Tensor:
    """reads: Return bool (length, K + length): which columns each row reads; zeros and ones are
    accepted too."""
    raise NotImplementedError


def a6_5(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, groups: list[list[int]], window: int,
         scale: float) -> torch.Tensor:
    """attend: Return the outputs (L, E)."""
    raise NotImplementedError


def a6_6(implementation, length: int) -> bool:
    """leaks: Return True if an output row was seen to depend on a later token."""
    raise NotImplementedError


def a6_7(implementation, length: int) -> tuple[int, int] | None:
    """first_leak: Return (row, token), or None if nothing leaks."""
    raise NotImplementedError


def a6_8() -> dict:
    """late_vote: Return the example."""
    raise NotImplementedError

# a7: Kernels: pooling and interval attention in Triton

try:
    import os

    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported: its own functions read it too

    import triton
    import triton.language as tl



    def new(*shape: int) -> torch.Tensor:
        """Return float32 memory for a result, filled with NaN; a store that misses it by a little hits spare room."""
        room, size = 4096, int(torch.tensor(shape).prod())
        return torch.full((size + 2 * room,), float("nan"))[room : room + size].view(*shape)
    @triton.jit
    def broken_kernel(X, OUT, columns, BLOCK: tl.constexpr):
        """Logarithm of the sum of exponentials of one row; has three mistakes."""
        row = tl.program_id(0)
        top = tl.full([], 0.0, dtype=tl.float32)
        total = tl.full([], 0.0, dtype=tl.float32)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            x = tl.load(X + row * columns + column, mask=column < columns, other=0.0)
            higher = tl.maximum(top, tl.max(x, 0))
            total = total * tl.exp(higher - top) + tl.sum(tl.exp(x - higher), 0)
            top = higher
        tl.store(OUT + row, top + tl.log(total))


    def broken_lse(x: torch.Tensor, block: int) -> torch.Tensor:
        """Launch it: x (R, C), any C; returns (R,)."""
        out = new(len(x))
        broken_kernel[(len(x),)](x, out, x.shape[1], BLOCK=block)
        return out
except ImportError:
    pass  # there is no Triton for this system


def a7_1() -> dict:
    """by_hand: Return the numbers of the launch."""
    raise NotImplementedError


def a7_2(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int, factor: float, block: int,
         programs: int) -> tuple:
    """scaled_sum: Return (out, owner): out (S,) with its first n elements replaced, and owner,
    integers (S,)."""
    raise NotImplementedError


def a7_3(memory: torch.Tensor, offset: int, strides: tuple, lengths: torch.Tensor, columns: int,
         out: torch.Tensor) -> torch.Tensor:
    """softmax_rows: Return out (R, W) with its first columns replaced by the softmax of each
    row."""
    raise NotImplementedError


def a7_4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor,
         scale: float) -> tuple:
    """pool: Return (core_k, core_v), (B, Hk, M, D) each."""
    raise NotImplementedError


def a7_5(x: torch.Tensor, block: int) -> torch.Tensor:
    """lse_rows: Return the logarithm of the sum of exponentials of each row, (R,)."""
    raise NotImplementedError


def a7_6(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, out: torch.Tensor,
         scale: float, block_rows: int, block_columns: int) -> torch.Tensor:
    """one_interval: Return out (L + block_rows, D) with its first L rows replaced."""
    raise NotImplementedError


def a7_7(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, out: torch.Tensor,
         scale: float, cap: float | None, block_rows: int, block_columns: int) -> torch.Tensor:
    """attention: Return out (H, L + block_rows, D) with its first L rows replaced."""
    raise NotImplementedError


def a7_8(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """tiles_read: Return the number of tiles that all blocks of rows of one head read."""
    raise NotImplementedError

# a8: Caches: a decode step whose bytes and outputs are exact

def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return x (..., T, D) with each vector turned to its position, int64 (T,): RoPE. D is even."""
    half = x.shape[-1] // 2
    angle = positions.double()[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
def attend(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Return (B, H, T, D) for q (B, H, T, D), key and value (B, Hk, N, D), and mask, bool (T, N), True where read."""
    grouped = q.unflatten(1, (key.shape[1], -1))
    scores = scale * grouped @ key.unsqueeze(2).transpose(-1, -2)
    return (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value.unsqueeze(2)).flatten(1, 2)


def broken_step(state: dict, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, sinks: int,
                recent: int) -> tuple[torch.Tensor, dict]:
    """Read the next T tokens with StreamingLLM; shapes as in a8.2. Repair it."""
    past = state["sinks"].shape[3] + state["recent"].shape[3] if state else 0
    positions = torch.arange(past, past + k.shape[2])
    entries = torch.stack([rotate(k, positions), v])                                   # (2, B, Hk, T, D)
    if state:
        entries = torch.cat([state["sinks"], state["recent"], entries], dim=3)
    first, last = entries[:, :, :, :sinks], entries[:, :, :, sinks:][:, :, :, -recent:]
    key, value = torch.cat([first, last], dim=3)
    mask = torch.ones(k.shape[2], key.shape[2], dtype=torch.bool)
    if k.shape[2] > 1:
        mask = mask.tril()
    return attend(rotate(q, positions), key, value, mask, scale), {"sinks": first, "recent": last}


def a8_1() -> dict:
    """by_hand: Return the numbers for sinks = 1, recent = 2, after the tokens 0 to 6."""
    raise NotImplementedError


def a8_2(state: dict, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
         scale: float) -> tuple[torch.Tensor, dict]:
    """full_step: Read the next T tokens with full attention."""
    raise NotImplementedError


def a8_3(state: dict, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, sinks: int,
         recent: int) -> tuple[torch.Tensor, dict]:
    """streaming_step: Read the next T tokens with StreamingLLM."""
    raise NotImplementedError


def a8_4(state: dict, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, sinks: int,
         group: int, window: int) -> tuple[torch.Tensor, dict]:
    """cores_step: Read the next T tokens with sinks, cores and a window."""
    raise NotImplementedError


def a8_5(length: int, sinks: int, group: int, window: int, entry: int) -> tuple[int, int]:
    """cores_bytes: Return the bytes after `length` tokens (0 or more), and the peak up to there, as
    Python integers."""
    raise NotImplementedError


def a8_6(step, state: dict, start: int, width: int, length: int) -> torch.Tensor:
    """beam: Return the survivors of beam search, int64 (width, length), best first."""
    raise NotImplementedError


def a8_7(q: torch.Tensor, k: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor,
         torch.Tensor]:
    """int8_keys: Return codes, size and bound."""
    raise NotImplementedError

# a9: Kill the mutants: write the tests

def same(got, wanted) -> bool:
    """Return True if a tensor has the wanted shape and dtype, and its numbers to 1e-9; -inf equals -inf, NaN nothing."""
    if not isinstance(got, torch.Tensor) or got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    finite = wanted[wanted.isfinite()].abs()
    bound = 1e-9 * max(1.0, float(finite.max()) if len(finite) else 0.0)
    return bool(((got == wanted) | ((got - wanted).abs() <= bound)).all())


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return normal numbers, float64, always the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
def part_of(scores: torch.Tensor, values: torch.Tensor) -> tuple:
    """Return the part of rows of scores (R, N), N >= 1, and values (N, E); a row whose scores are all -inf is empty."""
    top = scores.amax(dim=1)
    weights = torch.where(scores == float("-inf"), 0.0, (scores - top[:, None]).exp())
    return top, weights.sum(dim=1), weights @ values
def attention_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    """Return attention in a window, (B, H, L, E), row by row."""
    share = q.shape[1] // k.shape[1]
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for head in range(q.shape[1]):
        for row in range(q.shape[2]):
            seen = slice(max(0, row + 1 - window), row + 1)
            scores = q[:, head, row, None] @ k[:, head // share, seen].mT / q.shape[3] ** 0.5    # (B, 1, n)
            out[:, head, row] = (scores.softmax(dim=-1) @ v[:, head // share, seen])[:, 0]
    return out


def a9_1(merge) -> bool:
    """merge_is_right: Return True if `merge` is right, False if it is wrong."""
    raise NotImplementedError


def a9_2(attention) -> bool:
    """attention_is_right: Return True if `attention` is right, False if it is wrong."""
    raise NotImplementedError


def a9_3(intervals) -> bool:
    """intervals_are_right: Return True if `intervals` is right, False if it is wrong."""
    raise NotImplementedError


def a9_4(pool) -> bool:
    """pool_is_right: Return True if `pool` is right, False if it is wrong."""
    raise NotImplementedError


def a9_5(step) -> bool:
    """step_is_right: Return True if `step` is right, False if it is wrong."""
    raise NotImplementedError


def a9_6(sample) -> bool:
    """sample_is_right: Return True if `sample` is right, False if it is wrong."""
    raise NotImplementedError

# a10: Swap, finetune and report on GPT-2 or OPT


def a10_1(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, real: torch.Tensor | None,
          scaling: float | None, attend) -> torch.Tensor:
    """adapter: Return the attention output of a batch, (B, L, H, D), zero at padding."""
    raise NotImplementedError


def a10_2(logits: torch.Tensor, input_ids: torch.Tensor, known: torch.Tensor,
          text_rows: int) -> dict[str, float]:
    """mean_losses: Return the mean losses {"text": ..., "answers": ...} in nats."""
    raise NotImplementedError


def a10_3(steps: int, last: int, warmup: int) -> list[tuple[int, float]]:
    """schedule: Return (group size, factor of the learning rate) for each step 0, ..., steps - 1;
    all arguments are 1 or more."""
    raise NotImplementedError


def a10_4():
    """Return the path of checkpoint: A model that reads through cores: groups of 12, window 48."""
    raise NotImplementedError


def a10_5():
    """Return the path of report.json: A report that can be checked."""
    raise NotImplementedError
