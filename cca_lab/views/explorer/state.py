"""What the explorer shows of one head, as plain data: the contract of `js/state.js`, in Python.

Rows, tokens and columns count from 0; L is the number of tokens. The arrays are exact; `to_json` rounds them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DECIMALS = 6  # of a weight in JSON
Weights = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """One column of the softmax.

    Attributes:
        kind: "raw", "sink", "focal", "kept", "core", "group" or "slot", see `kinds`.
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
        return {"lost": round(self.lost, DECIMALS), "distance": round(self.distance, DECIMALS), "k90": self.k90,
                "k90Full": self.k90_full, "entropy": round(self.entropy, DECIMALS),
                "entropyFull": round(self.entropy_full, DECIMALS)}


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
        own = slice(0, self.query + 1)
        return {"query": self.query, "seen": self.seen.tolist(), "weights": rounded(self.weights),
                "effective": rounded(self.effective[own]), "full": rounded(self.full[own]),
                "numbers": self.numbers.to_json()}


@dataclass(frozen=True)
class Totals:
    """What the whole text costs.

    Attributes:
        pairs, pairs_full: pairs of a query and a column that the head scores.
        entries, entries_full: entries of the cache of one KV head; None where a mechanism has no cache of its own.
        bytes, bytes_full: of the cache of one layer, all KV heads; None as `entries`, or without a model.
    """

    pairs: int
    pairs_full: int
    entries: int | None
    entries_full: int
    bytes: int | None = None
    bytes_full: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        return {"pairs": self.pairs, "pairsFull": self.pairs_full, "entries": self.entries,
                "entriesFull": self.entries_full, "bytes": self.bytes, "bytesFull": self.bytes_full}


@dataclass(frozen=True)
class Place:
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
        maps: this head's matrices, JSON values; see `maps`.
        overview: thumbnails of all heads, JSON values; see `maps`.
        rows: the rows of all queries, for a page without a program.
        message: a remark on what is shown, or "".
    """

    words: tuple[str, ...]
    attention: dict[str, str]
    columns: tuple[Column, ...]
    row: Row
    totals: Totals
    place: Place | None = None
    maps: dict[str, Any] | None = None
    overview: dict[str, Any] | None = None
    rows: tuple[Row, ...] | None = None
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"words": list(self.words), "attention": self.attention,
                "columns": [column.to_json() for column in self.columns], "row": self.row.to_json(),
                "totals": self.totals.to_json(), "place": None if self.place is None else vars(self.place),
                "maps": self.maps, "overview": self.overview, "message": self.message,
                **({} if self.rows is None else {"rows": [row.to_json() for row in self.rows]})}


def rounded(weights: Weights) -> list[float]:
    """Return weights as a list of JSON numbers of `DECIMALS` decimals."""
    return [float(weight) for weight in weights.round(DECIMALS)]
