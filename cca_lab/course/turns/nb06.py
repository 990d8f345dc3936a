"""What the reader writes in notebook 06: H2O's eviction, blocks, and a table of intervals."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close, need_tensor
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case
from cca_lab.mechanisms.base import Mechanism


def _need_list(got: Any, wanted: list[int], what: str, causes: dict[str, Sequence[int]]) -> None:
    """Compare a list of tokens; a wrong one that equals a cause is told so."""
    got = got.tolist() if isinstance(got, Tensor) else got
    if not isinstance(got, (list, tuple)) or not all(type(token) is int for token in got):
        raise Mistake(f"{what} are {describe(got)}, wanted a list of integers")
    if list(got) != wanted:
        raise Mistake(f"{what} are {list(got)}, wanted {wanted}"
                      + cause_of(causes, lambda other: list(got) == list(other)))


def _loop(q: Tensor, k: Tensor, v: Tensor, reads: list[list[int]]) -> Tensor:
    """Return attention row by row: row i reads the tokens reads[i]."""
    return torch.stack([(k[read] @ q[row] / 4).softmax(0) @ v[read]  # 4 = sqrt(16)
                        for row, read in enumerate(reads)])


def _on_every_rung(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, wanted: Tensor) -> None:
    """Compare attention over the intervals of a table, (L, n, 2), with the loop's result."""
    from cca_lab.attention import interval_attention
    from cca_lab.attention.fused import interpreted

    for backend in ("dense", "blocked", *(["triton"] if interpreted() else [])):
        dtype = torch.float32 if backend == "triton" else torch.float64
        one_q, one_k, one_v = (x[None, None].to(dtype) for x in (q, keys, values))
        with case(f"backend {backend}"):
            # float32: 16 products and at most 20 weights are added, and rounded once each
            tolerance = 36 * torch.finfo(dtype).eps if backend == "triton" else 1e-12
            got = interval_attention(one_q, one_k, one_v, table[None, None].long(),
                                     backend=backend)
            need_close(got[0, 0].to(wanted), wanted, "the output", tolerance=tolerance)


def _against(mechanism: Mechanism, inputs: Sequence[Tensor], got: Tensor, **options: Any) -> None:
    """Compare the loop's rows of one head, (L, D), with every form of the mechanism."""
    from cca_lab.attention.fused import interpreted

    for backend in mechanism.backends:
        if backend in ("dense", "blocked") or backend == "triton" and interpreted():
            dtype = torch.float32 if backend == "triton" else torch.float64
            form = type(mechanism)(**mechanism.options() | {"backend": backend})
            with case(f"your loop against {mechanism.title}, backend {backend}"):
                out = form.attention(*(x[None, None].to(dtype) for x in inputs), **options)
                tolerance = 36 * torch.finfo(dtype).eps if backend == "triton" else 1e-12
                need_close(got, out[0, 0].to(got), "the output", tolerance=tolerance)


# 06.2: which tokens H2O keeps
def keep(scores: Sequence[float], heavy: int, recent: int, *, old_wins: bool = False,
         lightest: bool = False, in_order: bool = True) -> list[int]:
    """Return the tokens that are kept; options are mistakes."""
    older = range(max(0, len(scores) - recent))
    sign = 1 if lightest else -1
    chosen = sorted(older, key=lambda t: (sign * scores[t], t if old_wins else -t))[:heavy]
    return [*(sorted(chosen) if in_order else chosen), *range(len(older), len(scores))]


def kept(answer: Answer, draw: Draw) -> None:
    """Scores in the order of the text, as H2O has added them up."""
    cases = [([1.43, 1.47, 0.10], 1, 1), ([2.0, 0.5, 3.0, 1.0, 2.5], 2, 1),
             ([3.0, 1.0, 2.0, 5.0, 4.0, 0.2], 2, 2), ([1.0, 2.0], 3, 2), ([4.0], 1, 1),
             ([3.0, 2.0, 1.0], 0, 2), ([3.0, 1.0, 2.0], 2, 0),
             ([1.0, 3.0, 1.0, 2.0, 9.0], 2, 1), ([1.0, 1.0, 1.0, 1.0, 9.0], 2, 1)]
    for _ in range(6):
        scores = [round(draw.uniform(0, 5), 2) for _ in range(draw.randint(3, 12))]
        cases.append((scores, draw.randint(1, 4), draw.randint(1, 4)))
    for scores, heavy, recent in cases:
        wanted, last = keep(scores, heavy, recent), set(keep(scores, 0, recent))
        heaviest = keep(scores, len(scores), 0, in_order=False)  # of all tokens, recent ones too
        causes: dict[str, Sequence[int]] = {
            "the recent tokens take part in the choice of the heavy ones; those are chosen from "
            "the others": sorted({*heaviest[:heavy], *last}),
            "the recent tokens are not kept whatever their score":
                sorted(heaviest[: heavy + recent]),
            "the lightest are kept, and the heaviest leave":
                keep(scores, heavy, recent, lightest=True),
            "of equal scores the newer leaves; in H2O here it is the older":
                keep(scores, heavy, recent, old_wins=True),
            "the places are in the order of their scores; they belong in the order of the text":
                keep(scores, heavy, recent, in_order=False),
            "only the heavy ones are returned": [t for t in wanted if t not in last],
            "scores[-0:] is the whole list": list(range(len(scores))),
        }
        with case(f"scores {scores}, heavy {heavy}, recent {recent}"):
            _need_list(answer(scores, heavy, recent), wanted, "the places", causes)


# 06.6: what a row reads of columns and diagonals in blocks
def tokens_of(columns: Sequence[int], offsets: Sequence[int], last: int, low: int,
              high: int) -> list[int]:
    """Return, up to `last`, the columns and each diagonal o's tokens low - o to high - o - 1."""
    return [t for t in range(last + 1) if t in columns
            or any(low - o <= t < high - o for o in offsets)]


def in_blocks(answer: Answer, draw: Draw) -> None:
    """Rows of several blocks; the first case tells the usual mistakes apart."""
    cases: list[tuple[int, list[int], list[int], int]] = [
        (7, [2, 8], [0, 5], 3), (1, [0], [0, 5], 3), (11, [2], [0, 4], 4), (6, [], [0, 1], 1),
        (9, [1, 9], [0, 2], 5)]
    for _ in range(8):
        columns = sorted(draw.sample(range(20), draw.randint(0, 3)))
        cases.append((draw.randint(0, 19), columns, [0, *sorted(draw.sample(range(1, 18), 2))],
                      draw.randint(1, 5)))
    for row, columns, offsets, block in cases:
        chosen, first = (columns, offsets), row - row % block
        end = first + block
        wanted, ranges = (tokens_of(read, offsets, row, first, end) for read in (columns, []))
        causes: dict[str, Sequence[int]] = {
            "a diagonal is one token; a block of rows reads `block` tokens of it":
                tokens_of(*chosen, row, row, row + 1),
            "the range begins at the row's own place; it begins at that of the block's first row":
                tokens_of(*chosen, row, row, row + block),
            "the range ends where it should begin":
                tokens_of(*chosen, row, first - block + 1, first + 1),
            "the range is one token too long": tokens_of(*chosen, row, first, end + 1),
            "later tokens are read too":
                tokens_of(*chosen, max([end - 1, *columns]), first, end),
            "only the diagonals are read": ranges,
            "a token is listed twice": sorted([*ranges, *(t for t in columns if t <= row)]),
        }
        with case(f"row {row}, columns {columns}, diagonals {offsets}, block {block}"):
            got = answer(row, columns, offsets, block)
            if isinstance(got, (list, tuple)) and any(type(t) is int and t < 0 for t in got):
                raise Mistake(f"the tokens are {list(got)}: a range that begins before the text is "
                              "cut at 0")
            _need_list(got, wanted, "the tokens", causes)


# 06.10: shifted blocks without wrap-around
def first_token(row: int, group: int) -> int:
    """Return the first token of the row's shifted block, by going back to its border."""
    while row > 0 and (row - group // 2) % group:
        row -= 1
    return row


def shifted(answer: Answer, draw: Draw) -> None:
    """All rows of a text, so that the whole text tells the mistake; groups are even."""
    for group in (4, 8, 2, 6, 2 * draw.randint(5, 12)):
        rows, half = range(3 * group + 1), group // 2
        got = [answer(row, group) for row in rows]
        causes = {
            "the blocks are not shifted": [row // group * group for row in rows],
            "the blocks are shifted by a whole group":
                [max(0, row // group * group - group) for row in rows],
            "the first half block begins before the text":
                [(row + half) // group * group - half for row in rows],
            "the first half block is forgotten: its rows have a block of their own":
                [max(half, (row + half) // group * group - half) for row in rows],
            "a place is shifted, and its block's first token is not shifted back":
                [(row + half) // group * group for row in rows],
            "all blocks have half the size": [row // half * half for row in rows],
        }
        for row, first in zip(rows, got, strict=True):
            with case(f"row {row}, group {group}"):
                if type(first) is not int:
                    raise Mistake(f"the first token is {describe(first)}, wanted an integer: "
                                  "divide with //")
                if first != (wanted := first_token(row, group)):
                    raise Mistake(f"the first token is {first}, wanted {wanted}"
                                  + cause_of(causes, got.__eq__))


# 06.11: the intervals of StreamingLLM
def check_table(answer: Answer, draw: Draw) -> None:
    """Each row reads the tokens of the definition, each once."""
    for length, sinks, recent in ((8, 1, 2), (6, 0, 0), (9, 3, 4), (5, 8, 1), (1, 2, 2),
                                  (12, 2, 20)):
        with case(f"{length} tokens, sinks {sinks}, recent {recent}"):
            table = need_tensor(answer(length, sinks, recent), (length, 2, 2), "the table", "int")
            for row, ((low, high), (start, end)) in enumerate(table.tolist()):
                written = f"row {row} has [{low}, {high}) and [{start}, {end})"
                wanted = [t for t in range(row + 1) if t < sinks or row - t <= recent]
                if low > high or start > end:
                    raise Mistake(f"{written}: an interval ends before it starts; where it is "
                                  "empty, its end is its start")
                got = [*range(low, high), *range(start, end)]
                if max(got, default=0) > row:
                    raise Mistake(f"{written}: token {max(got)} is in the future of row {row}")
                twice = sorted({t for t in got if got.count(t) > 1})
                if twice:
                    raise Mistake(f"{written}: token {twice[0]} is read twice, and would count "
                                  "twice in the softmax; start the recent ones behind the sinks")
                if got != wanted:
                    raise Mistake(f"{written}, the tokens {got}; wanted {wanted}" + cause_of({
                        "the row's own token is counted among the recent ones; here it comes "
                        "on top of them":
                            [t for t in range(row + 1) if t < sinks or row - t < recent],
                        "the sinks are left out": [t for t in wanted if t >= sinks],
                    }, got.__eq__))


def check_rungs(answer: Answer, draw: Draw) -> None:
    """Attention with the table, on every rung that runs here, against the loop."""
    q, k, v = (draw.normal(20, 16) for _ in "qkv")
    wanted = _loop(q, k, v, [[t for t in range(row + 1) if t < 2 or row - t <= 5]
                             for row in range(20)])
    _on_every_rung(q, k, v, answer(20, 2, 5), wanted)


# 06.4: LM-Infinite's distances
def in_window(row: int, sinks: int, near: int) -> list[int]:
    """Return the first `sinks` tokens and the `near` last ones, the row's own among them."""
    return [t for t in range(row + 1) if t < sinks or row - t < near]


def at_distance(row: int, token: int, near: int) -> int:
    """Return the distance at which LM-Infinite reads a token, with its limit equal to `near`."""
    return row - token if row - token < near else min(near, row)


def distances(answer: Answer, draw: Draw) -> None:
    """Tokens in the window and first tokens outside it, over whole rows."""
    for near in (4, 3, 1, draw.randint(5, 9)):
        pairs = [(row, t) for row in range(3 * near + 3) for t in in_window(row, 2, near)]
        got = [answer(*pair, near) for pair in pairs]
        causes = {
            "the true distance is returned; it has no limit": [r - t for r, t in pairs],
            "all first tokens are treated as far, those in the window too":
                [min(near, r) if t < 2 else r - t for r, t in pairs],
            "the limit is one too small": [min(r - t, near - 1) for r, t in pairs],
            "positions of StreamingLLM are used: a place in the cache":
                [r - t if r - t < near else min(r, near + 1) - t for r, t in pairs],
        }
        for (row, token), distance in zip(pairs, got, strict=True):
            with case(f"row {row}, token {token}, near {near}"):
                if distance != (wanted := at_distance(row, token, near)):
                    raise Mistake(f"the distance is {describe(distance)}, wanted {wanted}"
                                  + cause_of(causes, got.__eq__))


# 06.8: which blocks a block of rows reads
def best(scores: Sequence[float], most: int, *, own: bool = True, lowest: bool = False,
         extra: int = 0) -> list[int]:
    """Return the blocks that are read, ascending; options are mistakes."""
    last, sign = len(scores) - 1, 1 if lowest else -1
    order = sorted(range(len(scores)), key=lambda n: (own and n != last, sign * scores[n], n))
    return sorted(order[: most + extra])


def best_blocks(answer: Answer, draw: Draw) -> None:
    """Scores of the blocks up to the own one, which is the last."""
    cases = [([3.0, 1.0, 2.0, 0.0], 2), ([5.0, 4.0, 3.0], 1), ([0.5], 3), ([1.0, 2.0, 9.0], 2)]
    for _ in range(6):
        scores = [round(draw.uniform(0, 5), 2) for _ in range(draw.randint(3, 8))]
        cases.append((scores, draw.randint(1, 4)))
    for scores, most in cases:
        everyone = sorted(range(len(scores)), key=lambda n: -scores[n])
        causes: dict[str, Sequence[int]] = {
            "the own block is chosen by its score; it is always one of those that are read":
                best(scores, most, own=False),
            "the own block comes on top of the number; it counts": best(scores, most, extra=1),
            "the blocks with the lowest scores are read": best(scores, most, lowest=True),
            "the nearest blocks are read, whatever their scores":
                list(range(len(scores)))[-most:],
            "the blocks are in the order of their scores; they belong in the order of the text":
                [len(scores) - 1, *(n for n in everyone if n != len(scores) - 1)][:most],
        }
        with case(f"scores {scores}, most {most}"):
            _need_list(answer(list(scores), most), best(scores, most), "the blocks", causes)


# 06.12: the columns of mean pooling
def old_groups(row: int, group: int, window: int) -> list[list[int]]:
    """Return the members of each column that a row reads: old groups, then single tokens."""
    columns: list[list[int]] = []
    while len(columns) * group + group - 1 <= row - window:
        columns.append(list(range(len(columns) * group, len(columns) * group + group)))
    return columns + [[t] for t in range(len(columns) * group, row + 1)]


def as_columns(answer: Answer, draw: Draw) -> None:
    """Rows before the first group is old, and after; the first case tells mistakes apart."""
    cases = [(9, 3, 2), (2, 3, 2), (0, 2, 1), (8, 2, 3), (5, 4, 4)]
    cases += [(draw.randint(0, 24), draw.randint(2, 5), draw.randint(1, 6)) for _ in range(8)]
    for row, group, window in cases:
        def build(count: int, first: int, row: int = row, group: int = group) -> list[list[int]]:
            pools = [list(range(p * group, p * group + group)) for p in range(count)]
            return pools + [[t] for t in range(first, row + 1)]

        wanted = old_groups(row, group, window)
        n, closed = max(0, row + 1 - window) // group, (row + 1) // group
        causes = {
            "a group counts as old as soon as it is complete; the window must be past it":
                build(closed, closed * group),
            "the raw tokens are only those of the window; tokens between are missed":
                build(n, max(0, row + 1 - window)),
            "all tokens are raw as well: members of a group are read twice": build(n, 0),
            "the row's own token is forgotten": wanted[:-1],
            "a group is old one row too late":
                build(max(0, row - window) // group, max(0, row - window) // group * group),
        }
        with case(f"row {row}, group {group}, window {window}"):
            got = answer(row, group, window)
            if not isinstance(got, list) or not all(isinstance(one, list) for one in got):
                raise Mistake(f"got {describe(got)}, wanted a list with a list for each column")
            if got != wanted:
                raise Mistake(f"the columns are {got}, wanted {wanted}"
                              + cause_of(causes, got.__eq__))


# Every form of each baseline against the loop over what the reader's function returns
def h2o_rungs(answer: Answer, draw: Draw) -> None:
    """The cache runs through 20 tokens, and evicts with the reader's function."""
    from cca_lab import H2O

    q, k, v = inputs = [draw.normal(20, 16) for _ in "qkv"]
    tokens: list[int] = []
    received: list[float] = []
    rows = []
    for row in range(20):
        tokens, received = [*tokens, row], [*received, 0.0]
        weights = (k[tokens] @ q[row] / 4).softmax(0)
        rows.append(weights @ v[tokens])
        received = [old + new for old, new in zip(received, weights.tolist(), strict=True)]
        places = answer(list(received), 3, 4)
        tokens, received = [tokens[n] for n in places], [received[n] for n in places]
    _against(H2O(heavy=3, recent=4), inputs, torch.stack(rows))


def lm_infinite_rungs(answer: Answer, draw: Draw) -> None:
    """A query is turned by the distance, a key is not turned at all."""
    from cca_lab import LMInfinite
    from cca_lab.attention.rotary import rotate

    q, k, v = (draw.normal(20, 16) for _ in "qkv")
    angle = 0.1 * torch.arange(20, dtype=torch.float64)[:, None].expand(-1, 16)
    cos, sin = angle.cos(), angle.sin()
    rows = []
    for row in range(20):
        tokens = in_window(row, 2, 4)
        scores = [rotate(q[row], cos[d], sin[d]) @ k[t] / 4
                  for t in tokens for d in [answer(row, t, 4)]]
        rows.append(torch.stack(scores).softmax(0) @ v[tokens])
    inputs = rotate(q, cos, sin), rotate(k, cos, sin), v
    for backend in ("dense", "blocked"):
        with case(f"your distances against LM-Infinite, backend {backend}"):
            form = LMInfinite(local=4, global_tokens=2, backend=backend)
            out = form.attention(*(x[None, None] for x in inputs), rotation=(cos, sin))[0, 0]
            need_close(torch.stack(rows), out, "the output", tolerance=1e-12)


def vertical_slash_rungs(answer: Answer, draw: Draw) -> None:
    """Two columns, two diagonals, blocks of 8: a mask, and the kernel that never builds it."""
    from cca_lab import VerticalSlash
    from cca_lab.mechanisms.minference.patterns import Choice

    q, k, v = inputs = [draw.normal(20, 16) for _ in "qkv"]
    choice = Choice(torch.tensor([[[2, 9]]]), torch.tensor([[[0, 5]]]))
    got = _loop(q, k, v, [answer(row, [2, 9], [0, 5], 8) for row in range(20)])
    _against(VerticalSlash(vertical=2, slash=2, block=8), inputs, got, selection=choice)


def block_sparse_rungs(answer: Answer, draw: Draw) -> None:
    """Scores of mean queries and mean keys of blocks of 4 tokens."""
    from cca_lab import BlockSparse

    q, k, v = inputs = [draw.normal(20, 16) for _ in "qkv"]
    means = [x.unflatten(0, (5, 4)).mean(1) for x in (q, k)]
    chosen = [answer((means[1][: m + 1] @ means[0][m]).tolist(), 2) for m in range(5)]
    got = _loop(q, k, v, [[t for t in range(row + 1) if t // 4 in chosen[row // 4]]
                          for row in range(20)])
    _against(BlockSparse(block=4, top_k=2), inputs, got)


def longlora_rungs(answer: Answer, draw: Draw) -> None:
    """The shifted head of two, as one interval a row, on every rung."""
    from cca_lab import LongLoRA

    q, k, v = (draw.normal(20, 16) for _ in "qkv")
    both = (x.expand(1, 2, -1, -1) for x in (q, k, v))
    table = torch.tensor([[[answer(row, 4), row + 1]] for row in range(20)])
    wanted = LongLoRA(group=4, backend="dense").attention(*both)[0, 1]
    _on_every_rung(q, k, v, table, wanted)


def pooled_rungs(answer: Answer, draw: Draw) -> None:
    """Mean pooling and random tokens: one column for each old group, then all raw tokens."""
    from cca_lab import MeanPooling, RandomTokens
    from cca_lab.mechanisms.cca.baselines import kept_tokens

    q, k, v = inputs = [draw.normal(20, 16) for _ in "qkv"]
    columns = [answer(row, 3, 4) for row in range(20)]
    old = [sum(len(members) > 1 for members in row) for row in columns]
    drawn = kept_tokens(old[-1], 3, 0)
    table = torch.tensor([[[0, n], [old[-1] + 3 * n, old[-1] + row + 1]]
                          for row, n in enumerate(old)])
    for mechanism in (MeanPooling(group=3, window=4), RandomTokens(group=3, window=4, seed=0)):
        def made(x: Tensor, members: list[int], pooled: bool = mechanism.name == "mean_pooling"
                 ) -> Tensor:
            return x[members if pooled or len(members) == 1 else [drawn[members[0] // 3]]].mean(0)

        rows = []
        for row, read in enumerate(columns):
            keys, values = (torch.stack([made(x, members) for members in read]) for x in (k, v))
            rows.append((keys @ q[row] / 4).softmax(0) @ values)
        got = torch.stack(rows)
        _against(mechanism, inputs, got)
        groups = [made_of for made_of in columns[-1] if len(made_of) > 1]
        keys, values = (torch.cat([torch.stack([made(x, one) for one in groups]), x])
                        for x in (k, v))
        _on_every_rung(q, keys, values, table, got)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("06.2", "kept_places", "Which tokens H2O keeps", 6, 2, 4, (
        Property("the recent ones, and the heaviest of the others", 1, kept),
        Property("the loop with it equals the mask", 1, h2o_rungs))),
    CourseTask("06.4", "far_distance", "LM-Infinite's distances", 3, 1, 3, (
        Property("true in the window, one for all outside it", 1, distances),
        Property("the loop with it equals every form", 1, lm_infinite_rungs))),
    CourseTask("06.6", "tokens_read", "What a row reads, in blocks", 8, 3, 4, (
        Property("columns and blocks of diagonals, none of the future", 1, in_blocks),
        Property("the loop with it equals the mask and the kernel", 1, vertical_slash_rungs))),
    CourseTask("06.8", "blocks_read", "The best blocks", 5, 2, 3, (
        Property("the own block, and the best of the others", 1, best_blocks),
        Property("the loop with it equals the mask", 1, block_sparse_rungs))),
    CourseTask("06.10", "first_of_block", "Shifted blocks that do not wrap", 5, 2, 4, (
        Property("the borders lie half a block off", 1, shifted),
        Property("every rung on its table equals LongLoRA", 1, longlora_rungs))),
    CourseTask("06.11", "window_table", "StreamingLLM as a table of intervals", 10, 3, 5, (
        Property("the tokens of the definition, each once", 1, check_table),
        Property("every rung that runs here equals the loop", 1, check_rungs))),
    CourseTask("06.12", "columns_of", "Old groups and single tokens", 6, 2, 4, (
        Property("each token of the past is in one column", 1, as_columns),
        Property("two baselines, on every rung", 1, pooled_rungs))),
)
