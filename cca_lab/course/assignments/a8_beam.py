"""Checks of a8's beam search: a tiny model with a cache, and beam search without one."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a8_oracles import many, need_state
from cca_lab.course.compare import describe, need_same, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, case


class Writer:
    """A tiny model with one attention layer and a cache, for beam search.

    Attributes:
        rows: of each call so far.
    """

    def __init__(self, draw: Draw, words: int, dim: int = 4) -> None:
        self.tables = [2 * draw.normal(words, dim) for _ in range(4)]
        self.rows: list[int] = []

    def start(self) -> dict[str, Any]:
        """Return the state of one row without tokens."""
        return {"key": torch.zeros(1, 0, 4, dtype=torch.float64), "seen": 0,
                "value": torch.zeros(1, 0, 4, dtype=torch.float64)}

    def step(self, state: Any, tokens: Any) -> tuple[Tensor, dict[str, Any]]:
        """Read a token for each row; return the next ones' log-probabilities (rows, words), and the state."""
        q, k, v, out = self.tables
        if not isinstance(tokens, Tensor) or tokens.dim() != 1 or tokens.is_floating_point() or len(tokens) > 1000:
            raise Mistake(f"step got {describe(tokens)} as tokens, wanted int64 of shape (rows,)")
        if len(tokens) and (tokens.min() < 0 or tokens.max() >= len(q)):
            raise Mistake(f"step got token {int(tokens.max())}; there are {len(q)} words, counted from 0")
        state = need_state(state)
        if set(state) != {"key", "value", "seen"}:
            raise Mistake(f"step got a state with {', '.join(state) or 'nothing'}, wanted what the last call returned, "
                          "with other rows: key, seen, value")
        seen = state["seen"]
        shape = (len(tokens), seen, 4)
        for name in ("key", "value"):
            need_tensor(state[name], shape, f"for {len(tokens)} new tokens and {seen} seen, {name!r} in the state")
        self.rows.append(len(tokens))
        key = torch.cat([state["key"], k[tokens.long()][:, None]], dim=1)
        value = torch.cat([state["value"], v[tokens.long()][:, None]], dim=1)
        weights = (key @ q[tokens.long()][..., None])[..., 0].softmax(-1)
        scores = ((weights[:, None] @ value)[:, 0] @ out.T).log_softmax(-1)
        return scores, {"key": key, "value": value, "seen": seen + 1}

    def next_scores(self, text: Sequence[int]) -> Tensor:
        """Return the log-probabilities (words,) of the token after a whole text, without a cache."""
        q, k, v, out = self.tables
        weights = (k[list(text)] @ q[text[-1]]).softmax(-1)
        return (weights @ v[list(text)] @ out.T).log_softmax(-1)

    def best(self, start: int, width: int, length: int) -> Tensor:
        """Return the survivors of beam search, (width, length), reading every text anew."""
        beams: list[tuple[float, list[int]]] = [(0.0, [start])]
        for _ in range(length):
            longer = [(total + score, [*text, word]) for total, text in beams
                      for word, score in enumerate(self.next_scores(text).tolist())]
            beams = sorted(longer, reverse=True)[:width]
        return torch.tensor([text[1:] for _, text in beams])

    def mistaken(self, start: int, width: int, length: int, moved: Collection[str], sums: bool) -> Tensor:
        """Return what beam search with a cache finds if only some things move with their rows, or sums are forgotten.

        Args:
            start, width, length: as for `best`.
            moved: which of "texts", "key" and "value" get the rows of the survivors after each word.
            sums: log-probabilities are added up.
        """
        totals, tokens = torch.zeros(1, dtype=torch.float64), torch.tensor([start])
        texts, state = torch.zeros(1, 0, dtype=torch.int64), self.start()
        calls = len(self.rows)
        for _ in range(length):
            scores, state = self.step(state, tokens)
            totals, places = (sums * totals[:, None] + scores).flatten().topk(width)
            rows, tokens = places // scores.shape[1], places % scores.shape[1]
            stay = torch.arange(width).clamp(max=len(scores) - 1)
            texts = torch.cat([texts[rows if "texts" in moved else stay], tokens[:, None]], dim=1)
            state |= {name: state[name][rows if name in moved else stay] for name in ("key", "value")}
        del self.rows[calls:]
        return texts


def beams(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (words, width, length), small ones first."""
    drawn = [(draw.randint(4, 9), draw.randint(2, 4), draw.randint(3, 9)) for _ in range(8)]
    return [(3, 1, 3), (3, 2, 3), *(sorted(drawn) if draw.secret else [(5, 3, 4), (6, 4, 8), (7, 3, 9)])]


ALL = ("texts", "key", "value")
MISTAKES: tuple[tuple[str, list[tuple[Collection[str], bool]]], ...] = (  # what moves, and whether sums are kept
    ("the rows of the cache, or of some of its tensors, stay where they are: row r of the state must be the row of the "
     "text that survivor r continues", [(("texts",), True), (("texts", "key"), True), (("texts", "value"), True)]),
    ("the cache moves, but the texts so far stay where they are", [(("key", "value"), True)]),
    ("neither the cache nor the texts so far move with their survivors", [((), True)]),
    ("the sums are forgotten, and only the newest log-probability counts", [(ALL, False)]))


def need_survivors(got: Any, writer: Writer, width: int, length: int) -> None:
    """Compare the survivors; what comes out of known mistakes is computed only if they are wrong."""
    wanted = writer.best(0, width, length)
    try:
        need_same(got, wanted, "the table of survivors")
    except Mistake:
        for cause, ways in MISTAKES:
            for others in (writer.mistaken(0, width, length, *way) for way in ways):
                if isinstance(got, Tensor) and torch.equal(got.long(), others):
                    need_same(got, wanted, "the table of survivors", causes={cause: others})
        raise


def beam_tokens(answer: Answer, draw: Draw) -> None:
    """The survivors, in order."""
    for words, width, length in beams(draw):
        writer = Writer(draw, words)
        with case(f"{words} words, width {width}, length {length}"):
            need_survivors(answer(writer.step, writer.start(), 0, width, length), writer, width, length)


def beam_calls(answer: Answer, draw: Draw) -> None:
    """Right survivors from one call for each new token, of the rows that survive."""
    for words, width, length in beams(draw):
        writer = Writer(draw, words)
        with case(f"{words} words, width {width}, length {length}"):
            got = answer(writer.step, writer.start(), 0, width, length)
            wanted = [1] + [width] * (length - 1)
            if len(writer.rows) != length:
                raise Mistake(f"step was called {many(len(writer.rows), 'time')}, wanted {length}: once for each new "
                              "token. What the last token would be followed by is not asked for")
            if writer.rows != wanted:
                raise Mistake(f"the calls of step had {writer.rows} rows, wanted {wanted}: first the one row that "
                              "there is, then the survivors and no others")
            need_survivors(got, writer, width, length)
