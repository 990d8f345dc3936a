"""One decoded token with each cache against a full cache: `cca-lab study decode`.

A layer's attention is timed from the new token's q, k, v to its output, the update of the cache
(appending, pooling, dropping) included, over as many layers as take a quarter of a gigabyte, at
most 8: a single small cache would stay in the processor's. The full cache is written in place and
read by SDPA; "full, copied" makes a longer tensor, as transformers' DynamicCache. A round is 18
tokens, and the next goes on from there: CCA closes one or two groups in a round, DGA makes one.
LoCoCo's compression, once per segment of 512, falls into long runs only: its cache is as after one,
at its smallest. A length that would exceed the command's time is left out and reported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.mechanisms import Mechanism, mechanism_of
from cca_lab.mechanisms.caches import CACHES, with_sized
from cca_lab.mechanisms.caching.state import Copies, Draw, GrowingBuffers, State
from cca_lab.reporting import machine, print_table
from cca_lab.settings import option
from cca_lab.studies.benchmarks.timing import MOST_ROUNDS, ROUNDS, compared, interleave
from cca_lab.studies.study import Study

SHAPES = ({"heads": 8, "kv_heads": 8, "head_dim": 64},
          {"heads": 32, "kv_heads": 8, "head_dim": 128})
# The papers' settings, or about 2048 entries if a paper names several or none.
OPTIONS: dict[str, dict[str, Any]] = with_sized(
    {"cca": {"group": 16, "window": 1024}, "mean_pooling": {"group": 16, "window": 1024},
     "random_tokens": {"group": 16, "window": 1024},
     "dga": {"group": 16, "gamma": 0.1, "floor": 1024}, "lococo": {"slots": 512, "segment": 512},
     "h2o": {"heavy": 1024, "recent": 1024}, "streaming_llm": {"sinks": 4, "recent": 2044},
     "lm_infinite": {"local": 2045, "global_tokens": 4}},
    entries=2048, length=131072)
FULL, COPIED = "full", "full, copied"
TOKENS = 18  # per round: DGA with groups of 16 makes one group in 18 tokens
LAYERS, SPREAD = 8, 2**28  # layers that are read in turn: as many as take so many bytes together
LIMIT = 300.0  # seconds; approximate time limit of the command
GROWTH = 2.5  # lengths double, so each takes at most this many times as long as the one before


@dataclass(frozen=True, kw_only=True)
class Decode(Study):
    """Measure one token's attention with each cache against a full cache: time, bytes, entries.

    Seconds are per token, medians with [lowest, highest]; ratios are full over cache.
    """

    length: tuple[int, ...] = option((4096, 8192, 16384, 32768, 65536, 131072),
                                     "Tokens read before the timed ones; repeatable.", least=1,
                                     most=2**20)
    cache: tuple[str, ...] = option((), "Mechanism whose cache is measured; repeatable.",
                                    shown="all")
    rounds: int = option(3, ROUNDS, least=1, most=MOST_ROUNDS)
    shapes: Sequence[dict[str, int]] = SHAPES

    def result(self) -> dict[str, Any]:
        """Measure a row per shape, length and cache."""
        caches = list(self.cache or OPTIONS)
        for name in caches:
            if name not in OPTIONS:
                raise ValueError(f"cache: got {name!r}, wanted one of {', '.join(OPTIONS)}")
        rows, left_out = measure_all(caches, self.length, self.shapes, self.rounds)
        return {"bench": "decode", "machine": machine(), "rounds": self.rounds, "tokens": TOKENS,
                "dtype": "float32", "content": "random, of the sizes after so many tokens",
                "options": {name: OPTIONS[name] for name in caches}, "left_out": left_out,
                "rows": rows}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print a table per shape."""
        where, rows = result["machine"], result["rows"]
        columns = ("cache", "L", "us a token", "range", "full / cache", "range", "entries",
                   "full / cache entries", "share", "MiB")
        for shape in dict.fromkeys((row["heads"], row["kv_heads"], row["head_dim"])
                                   for row in rows):
            cells = [(row["cache"], row["length"], f"{row['seconds'] * 1e6:.0f}",
                      "{:.0f}-{:.0f}".format(*(1e6 * end for end in row["range"])),
                      f"{row['ratio']:.1f}", "{:.1f}-{:.1f}".format(*row["ratio_range"]),
                      f"{row['entries']:.0f}", f"{row['entry_ratio']:.1f}", f"{row['share']:.0%}",
                      f"{row['bytes'] / 2**20:.1f}")
                     for row in rows if (row["heads"], row["kv_heads"], row["head_dim"]) == shape]
            print_table(
                "one token, {} heads, {} KV heads, head_dim {}, ".format(*shape)
                + f"{result['dtype']}: {where['cpu']}, {where['threads']} threads; content "
                f"{result['content']}", columns, cells)
        for text in result["left_out"]:
            print(f"left out: {text}")


def measure_all(caches: Sequence[str], lengths: Sequence[int], shapes: Sequence[dict[str, int]],
                rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of all lengths and shapes that fit the time limit, and those left out."""
    rows, left_out, start, last = [], [], perf_counter(), dict.fromkeys(range(len(shapes)), 0.0)
    for length in sorted(lengths):
        for number, shape in enumerate(shapes):
            begin = perf_counter()
            if begin - start + GROWTH * last[number] > LIMIT:
                left_out.append(
                    f"{length} tokens, {shape['heads']} heads of {shape['head_dim']}: no time left")
                continue
            rows += measure(caches, length, shape, rounds)
            last[number] = perf_counter() - begin
    return rows, left_out


@torch.no_grad()
def measure(caches: Sequence[str], length: int, shape: dict[str, int],
            rounds: int) -> list[dict[str, Any]]:
    """Return the rows of one length and shape, all from the same rounds."""
    makers: dict[str, Callable[[], FullBuffers | State]] = {
        FULL: partial(FullBuffers, length, shape),
        COPIED: partial(FullBuffers, length, shape, copies=True),
        **{name: partial(filled_state, mechanism_of(name, OPTIONS[name]), length,
                         heads=shape["heads"], kv_heads=shape["kv_heads"],
                         head_dim=shape["head_dim"]) for name in caches}}
    states = {name: layers_of(make) for name, make in makers.items()}
    sizes = {name: held_bytes(layers[0]) for name, layers in states.items()}  # before they grow
    tokens = [new_token(shape, number) for number in range(TOKENS)]
    taken = interleave({name: partial(read, layers, tokens) for name, layers in states.items()},
                       rounds)
    times = {name: [time / TOKENS / len(states[name]) for time in taken[name]] for name in states}
    rows = []
    for name, layers in states.items():
        row = compared(times, name, FULL)
        entries = sizes[name] / (2 * shape["kv_heads"] * shape["head_dim"] * 4)
        rows.append({"cache": name, "length": length, **shape, **row,
                     "bytes": sizes[name], "entries": entries, "entry_ratio": length / entries,
                     "share": row["ratio"] / (length / entries), "layers": len(layers)})
    return rows


def layers_of(make: Callable[[], "FullBuffers | State"]) -> "list[FullBuffers | State]":
    """Return so many states that together they take `SPREAD` bytes, at most `LAYERS`."""
    first = make()
    return [first, *(make() for _ in range(min(LAYERS, -(-SPREAD // held_bytes(first))) - 1))]


def new_token(shape: dict[str, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw q (1, H, 1, D) and k, v (1, Hk, 1, D) of a token."""
    generator = torch.Generator().manual_seed(seed)
    heads = shape["heads"], shape["kv_heads"], shape["kv_heads"]
    q, k, v = (torch.randn(1, of, 1, shape["head_dim"], generator=generator) for of in heads)
    return q, k, v


def read(states: "Sequence[FullBuffers | State]",
         tokens: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Feed tokens one by one to some layers' states; return the last output (1, H, 1, D)."""
    for q, k, v in tokens:
        for state in states:
            output = state.step(q, k, v, scale=q.shape[-1] ** -0.5, rotation=None)
    return output


class FullBuffers:
    """A cache of `length` random tokens; `copies` appends by copying into a longer tensor."""

    def __init__(self, length: int, shape: dict[str, int], *, copies: bool = False) -> None:
        generator = torch.Generator().manual_seed(0)
        size = (1, shape["kv_heads"], length, shape["head_dim"])
        self.key, self.value = (torch.randn(size, generator=generator) for _ in range(2))
        self.buffers = Copies() if copies else GrowingBuffers()

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: None) -> Tensor:
        """Process one token, (1, H, 1, D); the query heads of a KV head are rows of one call."""
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        rows = query.view(1, key.shape[1], -1, key.shape[3])  # repeating the keys is slower
        output = F.scaled_dot_product_attention(rows, self.key, self.value, scale=scale)
        return output.view_as(query)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the cache stores."""
        return [self.key, self.value]


def held_bytes(state: FullBuffers | State) -> int:
    """Return the bytes that a state stores."""
    return sum(tensor.nbytes for tensor in state.tensors())


def filled_state(mechanism: Mechanism, length: int, *, heads: int, kv_heads: int, head_dim: int,
                 dtype: torch.dtype = torch.float32, seed: int = 0) -> State:
    """Return one layer's state of a mechanism's cache as after `length` tokens, its content random.

    A token's cost depends on the amount of the content, not on the values, and to read 128K tokens
    would take minutes. The tests compare the shapes with those of states that did read a text.
    """
    if mechanism.name not in CACHES:
        raise ValueError(f"cache: got {mechanism.name!r}, wanted one of {', '.join(CACHES)}")
    state = CACHES[mechanism.name].state(mechanism)
    state.fill(length, heads, Draw(kv_heads, head_dim, torch.Generator().manual_seed(seed), dtype))
    return state
