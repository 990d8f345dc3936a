"""Wrong readings, which the checks of `test_reading.py` must catch."""

from dataclasses import replace

import numpy as np

from cca_lab.views.explorer.reading import Reading
from cca_lab.views.explorer.state import Column, Row


class SeenOneLate(Reading):
    """The columns that a row sees are off by one."""

    def row(self, head: int, query: int) -> Row:
        right = super().row(head, query)
        return replace(right, seen=np.minimum(right.seen + 1, len(self.kinds) - 1))


class RowOfAnotherQuery(Reading):
    """The view shows the row before the query's."""

    def row(self, head: int, query: int) -> Row:
        return replace(super().row(head, max(query - 1, 0)), query=query)


class WeightsOfAnotherHead(Reading):
    """The weights of the columns are those of the next head."""

    def row(self, head: int, query: int) -> Row:
        return replace(super().row(head, query), weights=super().row((head + 1) % 2, query).weights)


class PoolingOfAnotherHead(Reading):
    """The tokens of a column have the pooling weights of the other KV head."""

    def columns(self, head: int) -> tuple[Column, ...]:
        return super().columns((head + self.given.q.shape[1] // 2) % self.given.q.shape[1])


class EqualPooling(Reading):
    """The tokens of a column count alike."""

    def columns(self, head: int) -> tuple[Column, ...]:
        return tuple(replace(column, weights=np.full(len(column.tokens), 1 / len(column.tokens)))
                     for column in super().columns(head))


class FullOfTheMechanism(Reading):
    """What is called full attention is the mechanism's own."""

    def row(self, head: int, query: int) -> Row:
        right = super().row(head, query)
        return replace(right, full=right.effective)


MUTANTS = (SeenOneLate, RowOfAnotherQuery, WeightsOfAnotherHead, PoolingOfAnotherHead, EqualPooling,
           FullOfTheMechanism)
