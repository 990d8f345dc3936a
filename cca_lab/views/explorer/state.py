"""What the explorer shows of one head, as plain data: the contract of `js/view.js`, in Python.

Rows, tokens and columns count from 0; L is the number of tokens. The arrays are exact; `to_json`
rounds them and
writes names as JavaScript does: pairs_full becomes pairsFull.
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
    """One column of the softmax.

    Attributes:
        kind: "raw", "sink", "focal", "kept", "core", "group" or "slot", see `reading.kinds`.
        tokens: the tokens in it, ascending.
        weights: as many: its row of P, which sums to 1.
    """

    kind: str
    tokens: Indices
    weights: Weights

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {"kind": self.kind, "tokens": self.tokens.tolist(), "weights": rounded(self.weights)}


@dataclass(frozen=True)
class Numbers:
    """One row of attention against full attention's row of the same query.

    Attributes:
        lost: full attention's weight on tokens that are in no seen column.
        distance: their total variation, 1 - `analysis.overlap`.
        k90, k90_full: tokens with the largest weights that reach 90 %.
        entropy, entropy_full: in nats.
    """

    lost: float
    distance: float
    k90: int
    k90_full: int
    entropy: float
    entropy_full: float

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {_camel(name): round(value, DECIMALS) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Row:
    """What one query reads.

    Attributes:
        query: the token whose query it is.
        seen: the columns that it sees, ascending.
        weights: as many: its row of A.
        effective: its row of E = A P, (L,).
        full: full attention's row, (L,).
        numbers: the losses.
    """

    query: int
    seen: Indices
    weights: Weights
    effective: Weights
    full: Weights
    numbers: Numbers

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values; weights of later tokens, which are 0, are left out."""
        past = slice(0, self.query + 1)
        return {"query": self.query, "seen": self.seen.tolist(), "weights": rounded(self.weights),
                "effective": rounded(self.effective[past]), "full": rounded(self.full[past]),
                "numbers": self.numbers.to_json()}


@dataclass(frozen=True)
class Totals:
    """What the whole text costs.

    Attributes:
        pairs, pairs_full: pairs of a query and a column that the head scores.
        entries, entries_full: entries of the cache of one KV head; None where a mechanism has no
            cache of its own.
        bytes, bytes_full: of the cache of one layer, all KV heads; None as `entries`, or without a
            model.
    """

    pairs: int
    pairs_full: int
    entries: int | None
    entries_full: int
    bytes: int | None = None
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
    """All that the view draws.

    Attributes:
        words: (L,) texts of the tokens.
        attention: "name", "title" and "settings" of the mechanism.
        columns: the columns that exist, in the order of the softmax.
        row: what the query reads.
        totals: what the text costs.
        place: the head; None for tensors without a model.
        maps: this head's matrices, JSON values; see `head_maps`.
        overview: thumbnails of all heads, JSON values; see `overview`.
        rows: the rows of all queries, for a page without a program.
        message: a remark on what is shown, or "".
    """

    words: tuple[str, ...]
    attention: dict[str, str]
    columns: tuple[Column, ...]
    row: Row
    totals: Totals
    place: Head | None = None
    maps: dict[str, Any] | None = None
    overview: dict[str, Any] | None = None
    rows: tuple[Row, ...] | None = None
    message: str = ""

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
    """Return matrices as bytes round(255 sqrt(weight)), in base64, with their size.

    Args:
        weights: (..., L, L), 0 to 1.
        most: the largest size; larger matrices become smaller, each entry the largest of those that
            it stands for.

    Returns:
        Rows and columns of a matrix, and all matrices, row by row.
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
    """Return thumbnails as the view's `Overview`.

    Args:
        effective: (layers, H, n, n) matrices, n at most `THUMBNAIL` (see `thumbnails`).
        distances: (layers, H) mean distance of a row from full attention's.
    """
    size, maps = encoded(effective, THUMBNAIL)
    return {"layers": effective.shape[0], "heads": effective.shape[1], "size": size, "maps": maps,
            "distances": distances.flatten().double().cpu().numpy().round(4).tolist()}


def thumbnails(effective: Tensor) -> Tensor:
    """Return (H, L, L) matrices made smaller, (H, n, n) with n at most `THUMBNAIL`."""
    maps = effective.float()
    return maps if maps.shape[-1] <= THUMBNAIL else adaptive_max_pool2d(maps, THUMBNAIL)
