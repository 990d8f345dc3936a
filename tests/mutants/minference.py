"""Wrong MInference attentions, one trap each: another mask, or another choice, than the paper's."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms.minference import BlockSparse, VerticalSlash
from cca_lab.mechanisms.minference.patterns import Choice, block_means
from cca_lab.mechanisms.tokens import best, causal_mask


def under_mask(q: Tensor, k: Tensor, v: Tensor, visible: Tensor,
               scale: float | None = None) -> Tensor:
    """Attend under a mask; a row that sees nothing gives 0."""
    scores = q @ expand_heads(k, q.shape[1]).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num(0.0)
    return weights @ expand_heads(v, q.shape[1])


def _parts(q: Tensor, k: Tensor, selection, options: dict) -> tuple[Tensor, Tensor, Tensor]:
    """Chosen columns (B, H, 1, L), diagonals of each block (B, H, L, L), the causal mask."""
    columns, offsets = VerticalSlash(**options).select(q, k) if selection is None else selection
    length, block = q.shape[2], options["block"]
    token = torch.arange(length)
    on_column = (columns[..., None] == token).any(-2)[:, :, None]
    # (B, H, L, 1, slash)
    start = (token // block * block)[:, None, None] - offsets[:, :, None, None]
    at = token[:, None]
    near = ((at >= start) & (at < start + block)).any(-1)
    return on_column, near, causal_mask(length)


# ---------------------------------------------------------------- vertical-slash

def columns_without_causal_test(q: Tensor, k: Tensor, v: Tensor, *, selection=None,
                                **options) -> Tensor:
    """Gathered columns are not tested, so early rows read later tokens."""
    on_column, near, past = _parts(q, k, selection, options)
    return under_mask(q, k, v, on_column | (near & past))


def diagonals_without_causal_test(q: Tensor, k: Tensor, v: Tensor, *, selection=None,
                                  **options) -> Tensor:
    """The range of diagonal 0 is read to the end of a row's own block."""
    on_column, near, past = _parts(q, k, selection, options)
    return under_mask(q, k, v, (on_column & past) | near)


def bare_diagonals(q: Tensor, k: Tensor, v: Tensor, *, selection=None, **options) -> Tensor:
    """The mask that was asked for, diagonals one token wide, not the one that a kernel reads."""
    chosen = VerticalSlash(**options).select(q, k) if selection is None else selection
    visible = VerticalSlash(block=1).represented(q, k, selection=chosen)
    return under_mask(q, k, v, visible)


def range_one_early(q: Tensor, k: Tensor, v: Tensor, *, selection=None, **options) -> Tensor:
    """Ranges [mB - o - 1, mB - o + B - 1): the end of the block counted from its last row."""
    columns, offsets = VerticalSlash(**options).select(q, k) if selection is None else selection
    moved = Choice(columns, offsets + 1)
    return under_mask(q, k, v, VerticalSlash(**options).represented(q, k, selection=moved))


def near_columns_dropped(q: Tensor, k: Tensor, v: Tensor, *, selection=None, **options) -> Tensor:
    """Columns behind the nearest range are lost, as in an index builder whose diagonals lack 0."""
    on_column, near, past = _parts(q, k, selection, options)
    last = (near & past).long().flip(-1).argmax(-1, keepdim=True)                  # (B, H, L, 1)
    before = torch.arange(q.shape[2]) < q.shape[2] - 1 - last - options["block"]
    return under_mask(q, k, v, (on_column & before | near) & past)


def first_rows_choose(q: Tensor, k: Tensor, v: Tensor, *, last: int, **options) -> Tensor:
    """The first rows of the prompt choose, who have seen nothing yet."""
    chosen = VerticalSlash(last=last, **options).select(q[:, :, :last], k[:, :, :last])
    return under_mask(q, k, v, VerticalSlash(**options).represented(q, k, selection=chosen))


def choice_without_causal_softmax(q: Tensor, k: Tensor, v: Tensor, *, last: int, vertical: int,
                                  slash: int, forced_vertical: int, forced_slash: int,
                                  block: int) -> Tensor:
    """The last rows weigh later tokens too."""
    length = q.shape[2]
    weights = (q[:, :, -last:] @ expand_heads(k, q.shape[1]).mT * q.shape[-1] ** -0.5).softmax(-1)
    token, row = torch.arange(length), torch.arange(length)[-last:, None]
    by_offset = torch.stack([(weights * (row - token == o)).sum((-2, -1)) for o in range(length)],
                            dim=-1)
    columns = best(weights.sum(-2), vertical, (token >= forced_vertical).long())
    offsets = best(by_offset, slash, (token > 0).long() + (token >= forced_slash))
    chosen = Choice(columns, offsets)
    return under_mask(q, k, v, VerticalSlash(block=block).represented(q, k, selection=chosen))


def first_sequence_chooses(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The diagonals of the first sequence serve the whole batch: right for a batch of one."""
    chosen = VerticalSlash(**options).select(q[:1], k[:1])
    chosen = Choice(*(x.expand(len(q), -1, -1) for x in chosen))
    return under_mask(q, k, v, VerticalSlash(**options).represented(q, k, selection=chosen))


# ---------------------------------------------------------------- block-sparse

def blocks_without_row_test(q: Tensor, k: Tensor, v: Tensor, *, block: int, selection=None,
                            **options) -> Tensor:
    """Causal between blocks only: a row reads its whole block."""
    chosen = BlockSparse(block=block, **options).select(q, k) if selection is None else selection
    of = torch.arange(q.shape[2]) // block
    return under_mask(q, k, v, chosen[:, :, of[:, None], of])


def short_block_filled_with_zeros(q: Tensor, k: Tensor, v: Tensor, *, block: int,
                                  **options) -> Tensor:
    """The mean of a short last block counts the tokens it lacks as zeros."""
    padded = [torch.nn.functional.pad(x, (0, 0, 0, -x.shape[2] % block)) for x in (q, k)]
    chosen = BlockSparse(block=block, **options).select(*padded)
    return under_mask(q, k, v, BlockSparse(block=block).represented(q, k, selection=chosen))


def blocks_ranked_over_all(q: Tensor, k: Tensor, v: Tensor, *, block: int, top_k: int,
                           **_) -> Tensor:
    """The best of all blocks, then the causal mask: later blocks take places."""
    judges, keys = block_means(q, block), expand_heads(block_means(k, block), q.shape[1])
    best = (judges @ keys.mT).topk(min(top_k, judges.shape[2]), dim=-1).indices
    chosen = torch.zeros(*judges.shape[:3], judges.shape[2], dtype=torch.bool).scatter(-1, best,
                                                                                       True)
    return under_mask(q, k, v, BlockSparse(block=block).represented(q, k, selection=chosen))


# ---------------------------------------------------------------- A-shape

def window_without_itself(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, window: int) -> Tensor:
    """`window` tokens and the row's own beside them: another mechanism's count, one token more."""
    token = torch.arange(q.shape[2])
    near = token[:, None] - token <= window
    return under_mask(q, k, v, ((token < sinks) | near) & causal_mask(q.shape[2]))


def sinks_counted_twice(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, window: int) -> Tensor:
    """First tokens and window side by side: a first token inside the window is read twice."""
    length, rows = q.shape[2], []
    for i in range(length):
        tokens = [*range(min(sinks, i + 1)), *range(max(0, i + 1 - window), i + 1)]
        keys, values = (expand_heads(x, q.shape[1])[:, :, tokens] for x in (k, v))
        weights = (q[:, :, i : i + 1] @ keys.mT * q.shape[-1] ** -0.5).softmax(-1)
        rows.append(weights @ values)
    return torch.cat(rows, dim=2)
