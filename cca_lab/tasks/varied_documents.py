"""Questions over documents of 5 to 20 tokens that begin anywhere, so that no group size fits the documents.

The question is that of `multi_document_qa` (which surname follows this first name?), with more or fewer words
before and after the two names:

    In Marta Keller.
    A song written by Omar Lindt in the list.
    Note that a test was run by Vera Moss when the other file is not set.
    In Marta                        <- the question; the answer is " Keller"

For a mechanism that pools groups of g tokens, the names stand at every place of a group, and a group holds a
part of a document, a whole document, or parts of several.
"""

from collections import defaultdict

import torch
from torch import Tensor

from cca_lab.tasks.multi_document_qa import WORKS, MultiDocumentQA, QABatch

OPENINGS = (*WORKS, "In", "The", "File of", "The house of", "A name given by", "Note that a test was run by",
            "The first line of the file was written by", "This is the text of a call made by")
CLOSINGS = ("", " here", " too", " again", " in the list", " in the same module", " for this part of it",
            " as the first value of the list", " when the other file is not set",
            " before the other object was set to the default value")


class VariedDocumentQA(MultiDocumentQA):
    """The task with documents whose lengths are drawn uniformly between the shortest and the longest.

    Args:
        tokenizer: a transformers tokenizer.
        shortest, longest: tokens of a document, including its full stop and line end; lengths that no
            pair of opening and closing words has in this tokenizer are left out.

    Raises:
        ValueError: for a tokenizer without the names, or if no document has such a length in its tokens.
    """

    def __init__(self, tokenizer, shortest: int = 5, longest: int = 20) -> None:
        super().__init__(tokenizer)

        def encode(text: str) -> list[int]:
            return tokenizer.encode(text, add_special_tokens=False)

        by_length = defaultdict(list)
        closings = [encode(text) for text in CLOSINGS]
        for opening in map(encode, OPENINGS):
            for closing in closings:
                by_length[len(opening) + 2 + len(closing) + len(self.end)].append((opening, closing))
        self.frames = {n: by_length[n] for n in sorted(by_length) if shortest <= n <= longest}
        if not self.frames:
            raise ValueError(f"shortest, longest: got {shortest} and {longest}, wanted a range that holds one of "
                             f"{', '.join(map(str, sorted(by_length)))} tokens")

    @property
    def name(self) -> str:
        """A name that distinguishes these questions from others in the same tokens."""
        return f"documents of {', '.join(map(str, self.frames))} tokens"

    @property
    def document_length(self) -> int:
        """Tokens of the longest document."""
        return max(self.frames)

    @property
    def question_length(self) -> int:
        """Tokens of the longest question: the opening words and a first name."""
        return max(len(opening) for frames in self.frames.values() for opening, _ in frames) + 1

    def documents_in(self, length: int) -> int:
        """Return how many documents fit before one question in a context of `length` tokens, on average."""
        mean = sum(self.frames) / len(self.frames)
        return max(1, min(int((length - self.question_length) / mean), len(self.first)))

    def _draw(self, rows: int, count: int, generator: torch.Generator) -> list[list[tuple[list[int], int]]]:
        """Draw documents for each row: their token ids, and the index of the surname in them."""
        lengths = list(self.frames)
        order = torch.rand(rows, len(self.first), generator=generator).argsort(dim=1)[:, :count]
        first = self.first[order].tolist()
        last = self.last[torch.randint(len(self.last), (rows, count), generator=generator)].tolist()
        chosen = torch.randint(len(lengths), (rows, count), generator=generator).tolist()
        draws = torch.rand(rows, count, generator=generator).tolist()
        end = self.end.tolist()
        drawn = []
        for row in range(rows):
            documents = []
            for name, surname, length, draw in zip(first[row], last[row], chosen[row], draws[row], strict=True):
                frames = self.frames[lengths[length]]
                opening, closing = frames[int(draw * len(frames))]
                documents.append(([*opening, name, surname, *closing, *end], len(opening) + 1))
            drawn.append(documents)
        return drawn

    def batch(self, rows: int, length: int, generator: torch.Generator,
              position: float | None = None) -> QABatch:
        """Draw contexts that end in one question; the beginning of the first document may be cut off.

        Args:
            rows: B, number of contexts.
            length: tokens of a context; fewer if the documents of all names have fewer tokens.
            generator: random generator of all draws.
            position: place of the answering document among the complete ones, 0 (first) to 1 (last);
                None draws it uniformly for each row.

        Raises:
            ValueError: for a length too short for the longest document and its question.
        """
        if length < self.document_length + self.question_length:
            raise ValueError(f"length: got {length}, wanted at least {self.document_length + self.question_length} "
                             "tokens: the longest document and the longest question")
        count = min(len(self.first), -(-length // min(self.frames)))
        drawn = self._draw(rows, count, generator)
        total = min(sum(len(ids) for ids, _ in documents) for documents in drawn)
        length = min(length, total)
        draws = torch.rand(rows, generator=generator).tolist()
        contexts, answers = [], []
        for ((asked, at), *others), draw in zip(drawn, draws, strict=True):
            fitting, room = 0, length - at - len(asked)
            while fitting < len(others) and len(others[fitting][0]) <= room:
                room -= len(others[fitting][0])
                fitting += 1
            before = int(draw * (fitting + 1)) if position is None else round(position * fitting)
            cut = others[fitting][0] if fitting < len(others) else []  # stands first, cut to what fits
            whole = [*others[:before], (asked, at), *others[before:fitting]]
            text = [*cut, *(token for own, _ in whole for token in own), *asked[:at]]
            contexts.append(text[-length:])
            answers.append(asked[at])
        return QABatch(torch.tensor(contexts), torch.tensor(answers))

    def interleaved_batch(self, rows: int, length: int, generator: torch.Generator,
                          most_questions: float = 0.5) -> tuple[Tensor, Tensor]:
        """Draw contexts in which questions stand anywhere among the documents; as in `MultiDocumentQA`."""
        count = -(-length // min(self.frames))
        drawn = self._draw(rows, min(count, len(self.first)), generator)
        share = (most_questions * torch.rand(rows, generator=generator)).tolist()
        draws = torch.rand(rows, 2, count, generator=generator).tolist()
        contexts, marks = [], []
        for documents, limit, (asks, picks) in zip(drawn, share, draws, strict=True):
            ids, answers, placed = [], [], 0
            for ask, pick in zip(asks, picks, strict=True):
                asked = placed > 0 and (ask < limit or placed == len(documents))  # all placed: questions only
                own, at = documents[int(pick * placed) if asked else placed]
                placed += not asked
                answers += [asked and place == at for place in range(len(own))]
                ids += own
                if len(ids) >= length:
                    break
            contexts.append(ids[:length])
            marks.append(answers[:length])
        return torch.tensor(contexts), torch.tensor(marks)
