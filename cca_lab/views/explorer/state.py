"""What the explorer shows of one head, as plain data: the contract of `js/view.js`, in Python.

Rows, tokens and columns count from 0; L is the number of tokens. The arrays are exact; `to_json`
rounds them and writes names as JavaScript does: pairs_full becomes pairsFull.
"""

import base64
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

MOST = 128  # rows and columns of a head's matrix
THUMBNAIL = 32  # of a small one
DECIMALS = 6  # of a weight in JSON
Weights = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """One column of the softmax."""

    kind: str  # "raw", "sink", "focal", "kept", "core", "group" or "slot", see `reading.kinds`
    tokens: Indices   # in it, ascending
    weights: Weights  # as many: its row of P, which sums to 1

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {"kind": self.kind, "tokens": self.tokens.tolist(), "weights": rounded(self.weights)}


@dataclass(frozen=True)
class Numbers:
    """One row of attention against full attention's row of the same query."""

    lost: float      # full attention's weight on tokens that are in no seen column
    distance: float  # their total variation, 1 - `statistics.overlap`
    k90: int         # tokens with the largest weights that reach 90 %
    k90_full: int
    entropy: float   # in nats
    entropy_full: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {_camel(name): round(value, DECIMALS) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Row:
    """What one query reads."""

    query: int          # the token whose query it is
    seen: Indices       # the columns that it sees, ascending
    weights: Weights    # as many: its row of A
    effective: Weights  # its row of E = A P, (L,)
    full: Weights       # full attention's row, (L,)
    numbers: Numbers    # the losses

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values; weights of later tokens, which are 0, are left out."""
        past = slice(0, self.query + 1)
        return {"query": self.query, "seen": self.seen.tolist(), "weights": rounded(self.weights),
                "effective": rounded(self.effective[past]), "full": rounded(self.full[past]),
                "numbers": self.numbers.to_json()}


@dataclass(frozen=True)
class Totals:
    """What the whole text costs; None without a cache of its own, or without a model."""

    pairs: int  # of a query and a column that the head scores
    pairs_full: int
    entries: int | None  # of the cache of one KV head
    entries_full: int
    bytes: int | None = None  # of the cache of one layer, all KV heads
    bytes_full: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        return {_camel(name): value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Head:
    """Which head of which model; `layers` and `heads` are how many there are."""

    model: str
    layer: int
    head: int
    layers: int
    heads: int


@dataclass(frozen=True)
class State:
    """All that the view draws."""

    words: tuple[str, ...]  # (L,) texts of the tokens
    attention: dict[str, str]  # "name", "title" and "settings" of the mechanism
    columns: tuple[Column, ...]  # those that exist, in the order of the softmax
    row: Row
    totals: Totals
    place: Head | None = None  # None for tensors without a model
    maps: dict[str, Any] | None = None  # see `head_maps`
    overview: dict[str, Any] | None = None  # see `overview`
    rows: tuple[Row, ...] | None = None  # of all queries, for a page without a program
    message: str = ""  # a remark on what is shown

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"words": list(self.words), "attention": self.attention,
                "columns": [column.to_json() for column in self.columns], "row": self.row.to_json(),
                "totals": self.totals.to_json(), "place": None if self.place is None
                else vars(self.place), "maps": self.maps, "overview": self.overview,
                "message": self.message, **({} if self.rows is None
                                            else {"rows": [row.to_json() for row in self.rows]})}


def _camel(name: str) -> str:
    """Return a name such as pairs_full as pairsFull."""
    return name.replace("_full", "Full")


def rounded(weights: Weights) -> list[float]:
    """Return weights as a list of JSON numbers of `DECIMALS` decimals."""
    return [float(weight) for weight in weights.round(DECIMALS)]


# ---------------------------------------------------------------- matrices as bytes

def encoded(weights: Tensor, most: int) -> tuple[int, str]:
    """Return the size of matrices (..., L, L), and bytes round(255 sqrt(weight)) in base64.

    Larger matrices than `most` become smaller, each entry the largest of those that it stands for.
    """
    length = weights.shape[-1]
    size = min(length, most)
    flat = weights.detach().reshape(-1, length, length).float().cpu()
    smaller = flat if size == length else adaptive_max_pool2d(flat, size)
    values = (255 * smaller.clamp(0, 1).sqrt()).round().to(torch.uint8)
    return size, base64.b64encode(values.numpy().tobytes()).decode("ascii")


def head_maps(effective: Tensor, full: Tensor) -> dict[str, Any]:
    """Return the matrices of one head, (L, L) each, as the view's `Maps`."""
    size, first = encoded(effective, MOST)
    return {"size": size, "own": first, "full": encoded(full, MOST)[1]}


def overview(effective: Tensor, distances: Tensor) -> dict[str, Any]:
    """Return thumbnails (layers, H, n, n) as the view's `Overview`.

    `distances` (layers, H) are the mean distances of a row from full attention's.
    """
    size, maps = encoded(effective, THUMBNAIL)
    return {"layers": effective.shape[0], "heads": effective.shape[1], "size": size, "maps": maps,
            "distances": distances.flatten().double().cpu().numpy().round(4).tolist()}


def thumbnails(effective: Tensor) -> Tensor:
    """Return (H, L, L) matrices made smaller, (H, n, n) with n at most `THUMBNAIL`."""
    maps = effective.float()
    return maps if maps.shape[-1] <= THUMBNAIL else adaptive_max_pool2d(maps, THUMBNAIL)
