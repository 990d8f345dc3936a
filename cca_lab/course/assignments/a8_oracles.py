"""What a8 compares with: attention over whole texts under a table of reads, and brute force."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a5_cca import cores_of
from cca_lab.course.compare import describe, many, need_items, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, case

SHAPES = [(1, 1, 1, 2), (1, 2, 1, 4), (2, 4, 2, 4)]  # batch, query heads, KV heads, head dim
CHUNKS = [[2, 4], [5, 1, 7], [40, 7, 7, 7, 1, 1, 1]]  # in two, groups fill all behind the sinks

BESIDE = 1024  # bytes of counts and names in a state, far fewer than the largest text has


@dataclass(frozen=True)
class ChunkedText:
    """A text, q (B, H, L, D), k and v (B, Hk, L, D), that comes in chunks of so many tokens."""

    q: Tensor
    k: Tensor
    v: Tensor
    chunks: list[int]

    @property
    def entry(self) -> int:
        """Return the bytes of a key and a value of all KV heads and rows of the batch."""
        return 2 * self.k[:, :, 0].numel() * self.k.element_size()

    @property
    def starts(self) -> Tensor:
        """Return the first row of the chunk of each row, (L,)."""
        sizes = torch.tensor(self.chunks)
        return (sizes.cumsum(0) - sizes).repeat_interleave(sizes)

    def __str__(self) -> str:
        """Return the sizes for a message."""
        batch, heads, length, _ = self.q.shape
        single = set(self.chunks) == {1}
        how = "one at a time" if single else f"in chunks {', '.join(map(str, self.chunks))}"
        return (f"{many(length, 'token')} {how}, batch {batch}, {many(heads, 'query head')}, "
                f"{many(self.k.shape[1], 'KV head')}")


def texts(draw: Draw, *, single: bool = False, dtype: torch.dtype = torch.float64,
          tail: int = 0) -> list[ChunkedText]:
    """Return three texts, small ones first; `tail` single tokens come behind the chunks."""
    result = []
    for (batch, heads, shared, dim), chunks in zip(SHAPES, CHUNKS, strict=True):
        if draw.secret:
            batch, shared = (batch + draw.randint(0, 1),
                             shared + draw.randint(0, 1)) if heads > 1 else (1, 1)
            heads = shared * max(1, heads // 2 + draw.randint(0, 1))
            chunks = [size + draw.randint(0, 3) for size in chunks] + [1] * draw.randint(0, 3)
        chunks = [1] * min(24, sum(chunks)) if single else chunks + [1] * tail
        q, k, v = (draw.normal(batch, n, sum(chunks), dim, dtype=dtype)
                   for n in (heads, shared, shared))
        result.append(ChunkedText(1.5 * q, k, v, chunks))
    return result


def need_state(got: Any) -> dict[str, Any]:
    """Return a state if it is a dict of tensors and integers."""
    if not isinstance(got, dict):
        raise Mistake(f"the state is {describe(got)}, wanted a dict of tensors and integers")
    for key, value in got.items():
        integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        if not isinstance(value, Tensor) and not integer:
            raise Mistake(f"the state holds {describe(value)} as {key!r}, wanted only tensors and "
                          "Python integers")
    return got


def need_bytes(state: dict[str, Any], entries: int, entry: int) -> None:
    """The tensors of the state take as many bytes as they should, and keep no others alive."""
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    beside = sum(len(str(key).encode()) + 8 * (value.dim() if isinstance(value, Tensor) else 1)
                 for key, value in state.items())
    if beside > BESIDE:
        raise Mistake(f"the state holds {beside} bytes beside the numbers in its tensors (8 for "
                      "each integer and each axis, and the letters of the keys), wanted at most "
                      f"{BESIDE}: what is kept of the text belongs into tensors")
    total = sum(value.numel() * value.element_size() for value in tensors.values())
    shapes = ", ".join(f"{key} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
                       for key, value in tensors.items())
    if total != entries * entry:
        raise Mistake(f"the state takes {total} bytes, wanted {many(entries, 'entry', 'entries')} "
                      f"of {entry} bytes = {entries * entry}. It holds {shapes or 'no tensor'}")
    for key, value in tensors.items():
        bytes_of = value.numel() * value.element_size()
        kept = getattr(value, "kept_bytes", 0)
        if kept > bytes_of:
            raise Mistake(f"{key!r} is a view: it has {bytes_of} bytes, and keeps {kept} alive. "
                          "Copy what stays with clone(); contiguous() does not copy a slice that "
                          "is contiguous already")


def forgetful(answer: Answer, draw: Draw, calls: int = 7) -> Answer:
    """Return the answer; its process forgets all once when marks are given: the state must do."""
    count = 0

    def call(*args: Any) -> Any:
        nonlocal count
        count += 1
        if draw.secret and count == calls and hasattr(answer, "forget"):
            answer.forget()
        return answer(*args)

    return call


def stepped(answer: Answer, pair: Sequence[ChunkedText], options: Sequence[Any],
            entries: Callable[[int], int] | None = None) -> list[Tensor]:
    """Return the outputs (B, H, L, D) of texts that take turns, each with its own state.

    The answer gets (state, q, k, v, *options); `entries` says how many a state must hold after how
    many tokens.
    """
    states: list[dict[str, Any]] = [{} for _ in pair]
    outputs: list[list[Tensor]] = [[] for _ in pair]
    at = [0 for _ in pair]
    for turn in range(len(pair[0].chunks)):
        for i, text in enumerate(pair):
            size = text.chunks[turn]
            now = slice(at[i], at[i] + size)
            with case(f"row {now.start}" if size == 1 else f"rows {now.start} to {now.stop - 1}"):
                got = answer(states[i], text.q[:, :, now], text.k[:, :, now], text.v[:, :, now],
                             *options)
                need_items(got, 2, "(output, state)")
                outputs[i].append(need_tensor(got[0], text.q[:, :, now].shape,
                                              "the output").double())
                states[i] = need_state(got[1])
            at[i] += size
            if entries is not None:
                with case(f"after {many(at[i], 'token')}"):
                    need_bytes(states[i], entries(at[i]), text.entry)
    return [torch.cat(chunks, dim=2) for chunks in outputs]


def dense(q: Tensor, k: Tensor, v: Tensor, reads: Tensor, scale: float, *,
          tiled: bool = False) -> Tensor:
    """Return attention of a whole text, (B, H, L, D), float64, zero in rows that read nothing.

    `reads` (L, C) says how often a row reads a column; `tiled` is a mistake: KV head h % Hk.
    """
    times = q.shape[1] // k.shape[1]
    spread = (lambda x: x.repeat(1, times, 1,
                                 1)) if tiled else (lambda x: x.repeat_interleave(times, dim=1))
    scores = scale * q.double() @ spread(k.double()).transpose(-1, -2) + reads.double().log()
    return scores.softmax(-1).nan_to_num(0.0) @ spread(v.double())


def rotated(x: Tensor, position: Tensor) -> Tensor:
    """Turn pairs of features (d, d + D/2) of (..., L, D) by position * 10000^(-2d/D)."""
    half = x.shape[-1] // 2
    angle = position.double()[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    pairs = torch.complex(x[..., :half].double(),
                          x[..., half:].double()) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def held(tokens: int, sinks: int, group: int, window: int) -> int:
    """Return the entries after some tokens: sinks, finished cores, raw tokens of the next row."""
    raw = max(0, tokens - sinks - group * cores_of(tokens, sinks, group, window))
    return min(tokens, sinks) + max(0, tokens - sinks) // group + raw


def pooled(text: ChunkedText, sinks: int, group: int, scale: float,
           judge: str | int = "mean") -> tuple[Tensor, Tensor]:
    """Return keys and values (B, Hk, P + L, D): cores of whole groups, then all tokens.

    The mean of the last token's queries judges; "first head", the mean of "softmaxes", a "sum" and
    the number of a row that judges all groups are mistakes.
    """
    keys, values = [], []
    queries = text.q.double().unflatten(1, (text.k.shape[1], -1))  # (B, Hk, H / Hk, L, D)
    queries = {"first head": queries[:, :, :1], "softmaxes": queries,
               "sum": queries.sum(dim=2, keepdim=True)}.get(str(judge), queries.mean(2, True))
    for stop in range(sinks + group, text.q.shape[2] + 1, group):
        members = slice(stop - group, stop)
        k, v = text.k[:, :, members].double(), text.v[:, :, members].double()
        own = judge if isinstance(judge, int) else stop - 1
        weights = (scale * queries[:, :, :, own] @ k.transpose(-1, -2)).softmax(-1).mean(
            dim=2, keepdim=True)
        keys.append(weights @ k)
        values.append(weights @ v)
    return torch.cat([*keys, text.k.double()], dim=2), torch.cat([*values, text.v.double()], dim=2)


def core_reads(length: int, sinks: int, group: int, window: int, late: int = 0, *,
               twice: bool = False) -> Tensor:
    """Return 0/1 (L, P + L), what rows read: cores `late` by so many rows, or all raw `twice`."""
    groups = max(0, length - sinks) // group
    reads = torch.zeros(length, groups + length)
    for row in range(length):
        n = min(groups, cores_of(row - late, sinks, group, window))
        reads[row, :n] = 1
        reads[row, groups : groups + min(sinks, row + 1)] = 1
        reads[row, groups + sinks + (0 if twice else group * n) : groups + row + 1] = 1
    return reads


def corners(q: Tensor, size: Tensor, scale: float) -> Tensor:
    """Return the largest error of scores (B, Hk, T) of keys off by half a `size`."""
    # (2^D, D).
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=q.shape[-1])), dtype=torch.float64)
    errors = 0.5 * size.double()[..., None, None] * signs  # (B, Hk, T, 2^D, D)
    return (scale * errors @ q.double()[:, :, None, :, None])[..., 0].abs().amax(dim=-1)
