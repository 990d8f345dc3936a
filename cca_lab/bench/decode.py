"""One decoded token with each cache against a full cache: `cca-lab bench decode`.

The attention of one layer is timed from the new token's q, k, v to its output, including the update of the cache
(appending, pooling, dropping). The full cache is a buffer of the right size that is written in place and read by
SDPA, the fastest form found here; "full, copied" appends by making a longer tensor, as transformers' DynamicCache
and the lab's caches do. A round is 18 tokens: CCA closes one or two groups in it, and DGA makes one group. LoCoCo's
compression, once per segment of 512, is not included: its cache is as after one, at its smallest. Caches are filled
with random content (see `bench.fill`). A length that would exceed the command's time is left out and reported.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.bench.fill import filled_state
from cca_lab.bench.timing import interleave, median_and_range, ratios
from cca_lab.caches.budget import with_sized
from cca_lab.caches.state import State
from cca_lab.mechanisms import mechanism_of
from cca_lab.ranges import check_sizes
from cca_lab.reporting.report import machine, print_table, write_json

LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
LONGEST, MOST_ROUNDS = 2**20, 1000
SHAPES = ({"heads": 8, "kv_heads": 8, "head_dim": 64}, {"heads": 32, "kv_heads": 8, "head_dim": 128})
# The papers' settings, or about 2048 entries if a paper names several or none.
OPTIONS: dict[str, dict[str, Any]] = with_sized({
    "cca": {"group": 16, "window": 1024}, "mean_pooling": {"group": 16, "window": 1024},
    "random_tokens": {"group": 16, "window": 1024}, "dga": {"group": 16, "gamma": 0.1, "floor": 1024},
    "lococo": {"slots": 512, "segment": 512}, "h2o": {"heavy": 1024, "recent": 1024},
    "streaming_llm": {"sinks": 4, "recent": 2044}, "lm_infinite": {"local": 2045, "global_tokens": 4},
}, entries=2048, length=LENGTHS[-1])
FULL, COPIED = "full", "full, copied"
TOKENS = 18  # per round: DGA with groups of 16 makes one group in 18 tokens
LIMIT = 170.0  # seconds; approximate time limit of the command
GROWTH = 2.5  # lengths double, so each takes at most this many times as long as the one before


def run(lengths: Sequence[int] = LENGTHS, caches: Sequence[str] | None = None, rounds: int = 3,
        out: str | Path | None = None, shapes: Sequence[dict[str, int]] = SHAPES) -> dict[str, Any]:
    """Measure, print a table per shape, and write it as JSON.

    Args:
        lengths: tokens read before the ones that are timed.
        caches: keys of `CACHES`; all by default.
        rounds: interleaved rounds of 18 tokens; each time is the median over them.
        out: JSON file to write, or None.
        shapes: heads, KV heads and head dimension of each layer.

    Returns:
        What is written: machine, options, and one row per shape, length and cache. Seconds are per token,
        medians with [lowest, highest]; ratios are full over cache.

    Raises:
        ValueError: for an unknown cache, or a number out of range.
    """
    check_sizes(lengths=(lengths, 1, LONGEST), rounds=(rounds, 1, MOST_ROUNDS))
    caches = list(caches or OPTIONS)
    for name in caches:
        if name not in OPTIONS:
            raise ValueError(f"cache: got {name!r}, wanted one of {', '.join(OPTIONS)}")
    rows, left_out = measure_all(caches, lengths, shapes, rounds)
    result = {"bench": "decode", "machine": machine(), "rounds": rounds, "tokens": TOKENS, "dtype": "float32",
              "content": "random, of the sizes after so many tokens",
              "options": {name: OPTIONS[name] for name in caches}, "left_out": left_out, "rows": rows}
    if out is not None:
        write_json(out, result)
    show(result)
    return result


def measure_all(caches: Sequence[str], lengths: Sequence[int], shapes: Sequence[dict[str, int]],
                rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of all lengths and shapes that fit into the time limit, and a list of those left out."""
    rows, left_out, start, last = [], [], perf_counter(), dict.fromkeys(range(len(shapes)), 0.0)
    for length in sorted(lengths):
        for number, shape in enumerate(shapes):
            begin = perf_counter()
            if begin - start + GROWTH * last[number] > LIMIT:
                left_out.append(f"{length} tokens, {shape['heads']} heads of {shape['head_dim']}: no time left")
                continue
            rows += measure(caches, length, shape, rounds)
            last[number] = perf_counter() - begin
    return rows, left_out


@torch.no_grad()
def measure(caches: Sequence[str], length: int, shape: dict[str, int], rounds: int) -> list[dict[str, Any]]:
    """Return the rows of one length and shape, all from the same rounds."""
    states = {name: filled_state(mechanism_of(name, OPTIONS[name]), length, **shape) for name in caches}
    tokens = [new_token(shape, number) for number in range(TOKENS)]
    full, full_bytes = full_cache(length, shape, tokens)
    copied, _ = full_cache(length, shape, tokens, copies=True)
    calls = {FULL: full, COPIED: copied, **{name: partial(read, state, tokens) for name, state in states.items()}}
    found = interleave(calls, rounds)
    found = {name: [time / TOKENS for time in times] for name, times in found.items()}
    entry = 2 * shape["kv_heads"] * shape["head_dim"] * 4
    rows = [_row(name, found, full_bytes, length, length, shape) for name in (FULL, COPIED)]
    return rows + [_row(name, found, held_bytes(state), held_bytes(state) / entry, length, shape)
                   for name, state in states.items()]


def _row(name: str, found: dict[str, list[float]], nbytes: int, entries: float, length: int,
         shape: dict[str, int]) -> dict[str, Any]:
    time, time_range = median_and_range(found[name])
    ratio, ratio_range = median_and_range(ratios(found[FULL], found[name]))
    return {"cache": name, "length": length, **shape, "seconds": time, "range": time_range, "bytes": nbytes,
            "entries": entries, "ratio": ratio, "ratio_range": ratio_range, "entry_ratio": length / entries,
            "share": ratio / (length / entries)}


def new_token(shape: dict[str, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw q (1, H, 1, D) and k, v (1, Hk, 1, D) of a token."""
    generator = torch.Generator().manual_seed(seed)
    heads = shape["heads"], shape["kv_heads"], shape["kv_heads"]
    q, k, v = (torch.randn(1, of, 1, shape["head_dim"], generator=generator) for of in heads)
    return q, k, v


def read(state: State, tokens: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Feed the tokens one by one to a copy of a state; return the last output (1, H, 1, D)."""
    state = copy(state)  # a shallow copy is enough: states replace their tensors and never modify them
    for q, k, v in tokens:
        output = state.step(q, k, v, scale=q.shape[-1] ** -0.5, rotation=None)
    return output


def full_cache(length: int, shape: dict[str, int], tokens: Sequence[tuple[Tensor, Tensor, Tensor]], *,
               copies: bool = False) -> tuple[Callable[[], Tensor], int]:
    """Return a call that reads the tokens with a full cache of `length` tokens, and the bytes of those tokens.

    The query heads of a KV head are rows of one call, which is faster than repeating the keys.

    Args:
        length: tokens in the cache before.
        shape: H, Hk and D.
        tokens: q, k, v of each token.
        copies: append by copying everything into a longer tensor, instead of writing in place.
    """
    generator = torch.Generator().manual_seed(0)
    size = (1, shape["kv_heads"], length + len(tokens), shape["head_dim"])
    all_keys, all_values = (torch.randn(size, generator=generator) for _ in range(2))

    def appended(past: Tensor, new: Tensor, buffer: Tensor) -> Tensor:
        if copies:
            return torch.cat([past, new], dim=2)
        end = past.shape[2] + 1
        buffer[:, :, end - 1 : end] = new
        return buffer[:, :, :end]

    def call() -> Tensor:
        keys, values = all_keys[:, :, :length], all_values[:, :, :length]
        for q, k, v in tokens:
            keys, values = appended(keys, k, all_keys), appended(values, v, all_values)
            rows = q.view(1, shape["kv_heads"], -1, shape["head_dim"])  # (1, Hk, H / Hk, D)
            output = F.scaled_dot_product_attention(rows, keys, values)
        return output.view_as(q)

    return call, 2 * all_keys[:, :, :length].nbytes


def held_bytes(state: State) -> int:
    """Return the bytes that a state stores."""
    return sum(tensor.nbytes for tensor in state.tensors())


def show(result: dict[str, Any]) -> None:
    """Print the rows of `run`, one table per shape."""
    where, rows = result["machine"], result["rows"]
    columns = ("cache", "L", "us a token", "range", "full / cache", "range", "entries", "full / cache entries", "share",
               "MiB")
    for shape in dict.fromkeys((row["heads"], row["kv_heads"], row["head_dim"]) for row in rows):
        cells = [(row["cache"], row["length"], f"{row['seconds'] * 1e6:.0f}",
                  "{:.0f}-{:.0f}".format(*(1e6 * end for end in row["range"])), f"{row['ratio']:.1f}",
                  "{:.1f}-{:.1f}".format(*row["ratio_range"]), f"{row['entries']:.0f}", f"{row['entry_ratio']:.1f}",
                  f"{row['share']:.0%}", f"{row['bytes'] / 2**20:.1f}")
                 for row in rows if (row["heads"], row["kv_heads"], row["head_dim"]) == shape]
        print_table("one token, {} heads, {} KV heads, head_dim {}, {}: ".format(*shape, result["dtype"])
                    + f"{where['cpu']}, {where['threads']} threads; content {result['content']}", columns, cells)
    for text in result["left_out"]:
        print(f"left out: {text}")
