"""One decoded token with each cache against a full cache: `cca-lab study decode`.

A layer's attention is timed from the new token's q, k, v to its output, the update of the cache
(appending, pooling, dropping) included, over as many layers as take a quarter of a gigabyte, at
most 8: a single small cache would stay in the processor's. The full cache is written in place and
read by SDPA; "full, copied" makes a longer tensor, as transformers' DynamicCache. A round is 18
tokens, and the next goes on from there: CCA closes one or two groups in a round, DGA makes one.
LoCoCo's compression, once per segment of 512, falls into long runs only: its cache is as after one,
at its smallest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.mechanisms import Mechanism, mechanism_of
from cca_lab.mechanisms.caching.state import Copies, Draw, GrowingBuffers, State
from cca_lab.options import Count
from cca_lab.reporting import machine
from cca_lab.studies.benchmarks.results import chosen
from cca_lab.studies.benchmarks.timing import compared, interleave
from cca_lab.studies.study import markdown, result_file

SHAPES = ({"heads": 8, "kv_heads": 8, "head_dim": 64},
          {"heads": 32, "kv_heads": 8, "head_dim": 128})
# The papers' settings, or about 2048 entries if a paper names several or none.
OPTIONS: dict[str, dict[str, Any]] = {
    "cca": {"group": 16, "window": 1024}, "mean_pooling": {"group": 16, "window": 1024},
    "random_tokens": {"group": 16, "window": 1024},
    "dga": {"group": 16, "gamma": 0.1, "floor": 1024}, "lococo": {"slots": 512, "segment": 512},
    "h2o": {"heavy": 1024, "recent": 1024}, "streaming_llm": {"sinks": 4, "recent": 2044},
    "lm_infinite": {"local": 2045, "global_tokens": 4}}
FULL, COPIED = "full", "full, copied"
TOKENS = 18  # per round: DGA with groups of 16 makes one group in 18 tokens
LAYERS, SPREAD = 8, 2**28  # layers that are read in turn: as many as take so many bytes together


@dataclass(frozen=True, kw_only=True)
class Decode:
    """Measure one token's attention with each cache against a full cache: time, bytes, entries.

    Seconds are per token, medians with [lowest, highest]; ratios are full over cache.
    """

    length: tuple[Count, ...] = (4096, 8192, 16384, 32768, 65536, 131072)
    """Tokens read before the timed ones."""
    cache: tuple[str, ...] = ()
    """Mechanisms whose caches are measured; all without the option."""
    rounds: Count = 3
    """Interleaved rounds; each time is the median over them."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> None:
        """Measure a row per length, shape and cache; print the table."""
        options = chosen("cache", self.cache, every_cache())
        with result_file(self.out) as result:
            result |= {"machine": machine(), "bench": "decode", "rounds": self.rounds,
                       "tokens": TOKENS, "dtype": "float32",
                       "content": "random, of the sizes after so many tokens", "options": options}
            result["rows"] = [row for length, shape in product(sorted(self.length), SHAPES)
                              for row in measure(tuple(options), length, shape, self.rounds)]
        print(table(result))


def table(result: Mapping[str, Any]) -> str:
    """Return the table of one token's attention with each cache, by length."""
    lengths = sorted({row["length"] for row in result["rows"]})
    by_cache: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for row in result["rows"]:
        key = f"{row['heads']} / {row['kv_heads']} x {row['head_dim']}", row["cache"]
        by_cache.setdefault(key, {})[row["length"]] = row
    rows = []
    for (shape, cache), by_length in by_cache.items():
        longest = by_length[max(by_length)]
        rows.append([shape, cache, f"{1e3 * longest['seconds']:.2f}",
                     f"{longest['entry_ratio']:.1f}",
                     *(f"{by_length[n]['ratio']:.1f}" if n in by_length else "-" for n in lengths)])
    return markdown(
        ["heads / KV heads x head_dim", "cache", "ms a token, longest",
         "full / its entries, longest", *(f"full / its time, {n // 1024}K" for n in lengths)], rows,
        "{cpu}, {threads} threads, torch {torch}".format_map(result["machine"])
        + f"; one layer, {result['dtype']}, caches filled with random content; medians of "
        f"{result['rounds']} interleaved rounds of {result['tokens']} tokens.")


def every_cache() -> dict[str, dict[str, Any]]:
    """Return the options of each mechanism that has a cache; others' are of 2048 entries."""
    from cca_lab.mechanisms.caches import with_sized  # late, as help needs no transformers

    return with_sized(OPTIONS, entries=2048, length=131072)


@torch.no_grad()
def measure(caches: Sequence[str], length: int, shape: dict[str, int],
            rounds: int) -> list[dict[str, Any]]:
    """Return the rows of one length and shape, all from the same rounds."""
    makers: dict[str, Callable[[], FullBuffers | State]] = {
        FULL: partial(FullBuffers, length, shape),
        COPIED: partial(FullBuffers, length, shape, copies=True),
        **{name: partial(filled_state, mechanism_of(name, every_cache()[name]), length,
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
    from cca_lab.mechanisms.caches import CACHES

    state = CACHES[mechanism.name].state(mechanism)
    state.fill(length, heads, Draw(kv_heads, head_dim, torch.Generator().manual_seed(seed), dtype))
    return state
