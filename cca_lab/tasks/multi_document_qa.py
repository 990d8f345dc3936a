"""Multi-document question answering, in the manner of *Lost in the Middle*.

Many one-line documents, one of which answers the question at the end:

    A map drawn by Marta Keller.
    A song written by Omar Lindt.
    ...
    A map drawn by Marta            <- the question; the answer is " Keller"

Only the first name identifies a document (it never repeats within one context), so a model must
find that name in the context. The position of the answering document is controlled, and the score
is exact match of the greedily decoded surname.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FIRST_NAMES = tuple("""
Ada Adele Agnes Aldo Alice Alma Amir Anders Anita Anton Arlo Astrid Bela Berta Bianca Boris
Bruno Carla Carmen Cecil Celia Chen Clara Colin Cora Cyrus Dana Daphne Dario Delia Diego Dora
Edgar Edith Elena Elias Elsa Emil Enzo Erik Esther Eva Fabio Farah Felix Fiona Flora Franz
Freya Frida Gemma Gerda Gina Greta Gustav Hamid Hanna Harold Hector Heidi Helga Henrik Hilda Hugo
Ida Igor Ines Ingrid Irene Iris Ivan Ivo Jaime Janet Jonas Jorge Josef Judith Julia Kamal
Karim Karla Katja Kenji Kira Klaus Laila Lars Leila Lena Leo Liam Linda Livia Lorenz Lotte
Lucia Lukas Luna Mabel Magda Malik Marta Mateo Maya Milan Mina Mona Nadia Naomi Nelson Nico
Nina Nora Olga Omar Oscar Otto Pablo Paula Petra Pierre Quinn Rafael Rosa Ruben Sofia Tamar
""".split())

SURNAMES = tuple("""
Abbott Adler Albers Amado Arden Atkins Bach Baker Banks Barlow Becker Bellini Benson Berg Bishop
Blake Bloch Bolton Bosch Brandt Bright Brooks Burke Burton Caldwell Calvo Carter Castle Chandler
Clark Cole Conrad Cooper Costa Craig Crane Cruz Curtis Dalton Davies Decker Dixon Doyle Drake Dunn
Eaton Ebert Ellis Engel Ericson Falk Farmer Ferrara Fischer Fletcher Flores Foster Fowler Fraser
Fuchs Gallo Garner Gibbs Glover Gordon Graham Gray Griffin Haas Haines Hardy Harper Hayes Heller
Herzog Hobbs Holt Horn Howell Huber Jensen Jordan Kane Keller Kemp Kerr Klein Knight Koch Kramer
Kruger Lamb Lang Larsen Lindt Lopez Lowell Lutz Mann Marsh Mendez Meyer Miller Moreno Moss Navarro
Nolan Norris Olsen Ortega Page Palmer Parker Pratt Quist Ramos Reed Rossi Ryan Sanders Shaw Silva
Stark Sutton Thorne Vogel Wagner Zeller
""".split())

WORKS = ("A map drawn by", "A song written by", "A letter signed by", "A house built by",
         "A book read by", "A film made by", "A race won by", "A word said by")
FEWEST_NAMES = 16
OFFSETS = 16  # tokens of text before the documents: 0 to 15
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the answering document, first to last
OPENINGS = (*WORKS, "In", "The", "File of", "The house of", "A name given by",
            "Note that a test was run by", "The first line of the file was written by",
            "This is the text of a call made by")
CLOSINGS = ("", " here", " too", " again", " in the list", " in the same module",
            " for this part of it", " as the first value of the list",
            " when the other file is not set",
            " before the other object was set to the default value")


@dataclass(frozen=True)
class QABatch:
    """A batch of contexts with their answers.

    Attributes:
        input_ids: (B, L) token ids; each row ends with the last token of its question.
        answers: (B,) the token id that should follow.
    """

    input_ids: Tensor
    answers: Tensor


class MultiDocumentQA:
    """The questions in the tokens of one tokenizer.

    It uses the names that are a single token (with their leading space) and the phrases of the most
    common length, so that all contexts of a batch have the same length; the lab's own tokenizer is
    trained to have them all.

    Args:
        tokenizer: a transformers tokenizer.

    Attributes:
        name: tells these questions from others in the same tokens.
        document_length, question_length: tokens of the longest ones; a question is a document up to
            its first name.

    Raises:
        ValueError: if fewer than `FEWEST_NAMES` first names or surnames are one token.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._encode = partial(tokenizer.encode, add_special_tokens=False)
        self.first = self._single_tokens(FIRST_NAMES, "first names")
        self.last = self._single_tokens(SURNAMES, "surnames")
        works = [self._encode(text) for text in WORKS]
        lengths = [len(ids) for ids in works]
        common = max(set(lengths), key=lengths.count)
        self.works = torch.tensor([ids for ids in works if len(ids) == common])  # (n, W)
        self.end = torch.tensor(self._encode(".\n"))
        self.question_length, self.document_length = common + 1, common + 2 + len(self.end)
        self.name = f"documents of {self.document_length} tokens"

    def _single_tokens(self, words: tuple[str, ...], kind: str) -> Tensor:
        encoded = [self._encode(" " + word) for word in words]
        ids = [tokens[0] for tokens in encoded if len(tokens) == 1]
        if len(ids) < FEWEST_NAMES:
            raise ValueError(
                f"tokenizer: {len(ids)} of {len(words)} {kind} are one token, wanted "
                f"{FEWEST_NAMES} or more; use a tokenizer trained by `cca-lab pretrain`")
        return torch.tensor(ids)

    def documents_in(self, length: int) -> int:
        """Return how many documents fit before one question in a context of `length` tokens."""
        count = (length - self.question_length) // self.document_length
        return max(1, min(count, len(self.first)))

    def _documents(self, count: int, rows: int,
                   generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw documents: their token ids (B, n, document_length) and surnames (B, n)."""
        # one random permutation per row: argsort of uniform numbers
        order = torch.rand(rows, len(self.first), generator=generator).argsort(dim=1)[:, :count]
        first = self.first[order]  # (B, n)
        last = self.last[torch.randint(len(self.last), (rows, count), generator=generator)]
        works = self.works[torch.randint(len(self.works), (rows, count), generator=generator)]
        end = self.end.expand(rows, count, -1)
        return torch.cat([works, first[..., None], last[..., None], end], dim=-1), last

    def batch(self, rows: int, length: int, generator: torch.Generator,
              position: float | None = None) -> QABatch:
        """Draw contexts of at most `length` tokens that end in one question.

        Args:
            rows, length: B contexts, all of one length.
            generator: random generator of all draws.
            position: place of the answering document, 0 (first) to 1 (last); None draws it for each
                row.
        """
        count = self.documents_in(length)
        documents, last = self._documents(count, rows, generator)
        if position is None:
            chosen = torch.randint(count, (rows,), generator=generator)
        else:
            chosen = torch.full((rows,), round(position * (count - 1)))
        index = torch.arange(rows)
        question = documents[index, chosen, :self.question_length]  # (B, question_length)
        input_ids = torch.cat([documents.flatten(1), question], dim=1)  # (B, L)
        return QABatch(input_ids, last[index, chosen])

    def training_batch(self, rows: int, length: int,
                       generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw contexts of exactly `length` tokens: documents, then several questions with answers.

        Several questions per sequence give more training signal for the same computation; they are
        documents of this context, repeated in another order.

        Returns:
            input_ids (B, L) and a mask (B, L), true where the token is an answer.
        """
        asked = max(1, length // 4 // self.document_length)
        count = min(max(1, length // self.document_length - asked), len(self.first))
        documents, _ = self._documents(count, rows, generator)
        asked = -(-(length - count * self.document_length) // self.document_length)
        chosen = torch.randint(count, (rows, asked), generator=generator)
        questions = torch.take_along_dim(documents, chosen[..., None], dim=1)
        input_ids = torch.cat([documents, questions], dim=1).flatten(1)[:, :length]  # (B, L)
        is_answer = torch.zeros(count + asked, self.document_length, dtype=torch.bool)
        is_answer[count:, self.question_length] = True
        return input_ids, is_answer.flatten()[:length].expand(rows, -1)

    def interleaved_batch(self, rows: int, length: int, generator: torch.Generator,
                          most_questions: float = 0.5) -> tuple[Tensor, Tensor]:
        """Draw contexts in which questions, with their answers, stand anywhere among the documents.

        Each asks for a document before it, so that a model must search every part of a context. A
        small model learns each position separately: trained only on contexts that end in questions
        (`training_batch`), it answers nothing that stands in the last quarter. Each row draws its
        share of questions between 0 and `most_questions`.

        Returns:
            input_ids (B, L) and a mask (B, L), true where the token is an answer.
        """
        slots = -(-length // self.document_length)
        count = min(slots, len(self.first))
        documents, _ = self._documents(count, rows, generator)  # (B, count, document_length)
        share = most_questions * torch.rand(rows, 1, generator=generator)
        asked = torch.rand(rows, slots, generator=generator) < share  # (B, n)
        asked[:, 0] = False
        asked[:, count:] = True  # every document has been placed: questions only
        earlier = torch.ones(slots, slots, dtype=torch.bool).tril(-1)
        draws = torch.rand(rows, slots, slots, generator=generator)
        before = draws.masked_fill(asked[:, None] | ~earlier, -1.0).argmax(dim=-1)
        chosen = torch.where(asked, before, torch.arange(slots))
        input_ids = torch.take_along_dim(documents, chosen[..., None], dim=1).flatten(1)
        is_answer = torch.zeros(rows, slots, self.document_length, dtype=torch.bool)
        is_answer[..., self.question_length] = asked
        return input_ids[:, :length], is_answer.flatten(1)[:, :length]


def sample_text(documents: int, generator: torch.Generator) -> str:
    """Return random documents as text, for the training of a tokenizer."""
    def draw(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (1,), generator=generator))]

    return "".join(f"{draw(WORKS)} {draw(FIRST_NAMES)} {draw(SURNAMES)}.\n"
                   for _ in range(documents))


class VariedDocumentQA(MultiDocumentQA):
    """Questions over documents of 5 to 20 tokens that begin anywhere: no group size fits them.

    The question is the same, with more or fewer words before and after the two names; the lengths
    are drawn uniformly between the shortest and the longest:

        In Marta Keller.
        A song written by Omar Lindt in the list.
        Note that a test was run by Vera Moss when the other file is not set.
        In Marta                        <- the question; the answer is " Keller"

    For a mechanism that pools groups of g tokens, a group holds a part of a document, a whole one,
    or parts of several, and the names stand at every place of a group.

    Full stop and line end included; lengths that no pair of opening and closing words has in this
    tokenizer are left out.

    Raises:
        ValueError: for a tokenizer without the names.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        super().__init__(tokenizer)
        by_length = defaultdict(list)
        for frame in product(map(self._encode, OPENINGS), map(self._encode, CLOSINGS)):
            by_length[sum(map(len, frame)) + 2 + len(self.end)].append(frame)
        self.frames = {n: by_length[n] for n in sorted(by_length) if 5 <= n <= 20}
        self.document_length = max(self.frames)
        self.question_length = 1 + max(len(opening) for frames in self.frames.values()
                                       for opening, _ in frames)
        self.name = f"documents of {', '.join(map(str, self.frames))} tokens"

    def documents_in(self, length: int) -> int:
        """Return how many documents fit before a question in `length` tokens, on average."""
        mean = sum(self.frames) / len(self.frames)
        return max(1, min(int((length - self.question_length) / mean), len(self.first)))

    def _draw(self, rows: int, count: int,
              generator: torch.Generator) -> list[list[tuple[list[int], int]]]:
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
            for name, surname, length, draw in zip(first[row], last[row], chosen[row], draws[row],
                                                   strict=True):
                frames = self.frames[lengths[length]]
                opening, closing = frames[int(draw * len(frames))]
                documents.append(([*opening, name, surname, *closing, *end], len(opening) + 1))
            drawn.append(documents)
        return drawn

    def batch(self, rows: int, length: int, generator: torch.Generator,
              position: float | None = None) -> QABatch:
        """Draw contexts that end in one question; the first document may be cut off at its start.

        As in `MultiDocumentQA`, with positions among the complete documents. The contexts have
        `length` tokens, or fewer if the documents of all names have fewer.

        Raises:
            ValueError: for a length too short for the longest document and its question.
        """
        if length < self.document_length + self.question_length:
            raise ValueError(f"length: got {length}, wanted at least "
                             f"{self.document_length + self.question_length} tokens: the longest "
                             "document and the longest question")
        count = min(len(self.first), -(-length // min(self.frames)))
        drawn = self._draw(rows, count, generator)
        length = min(length, *(sum(len(ids) for ids, _ in documents) for documents in drawn))
        draws = torch.rand(rows, generator=generator).tolist()
        contexts, answers = [], []
        for ((asked, at), *others), draw in zip(drawn, draws, strict=True):
            fitting, room = 0, length - at - len(asked)
            while fitting < len(others) and len(others[fitting][0]) <= room:
                room -= len(others[fitting][0])
                fitting += 1
            before = int(draw * (fitting + 1)) if position is None else round(position * fitting)
            cut = others[fitting:fitting + 1]  # stands first, cut to what fits
            shown = [*cut, *others[:before], (asked, at), *others[before:fitting]]
            text = [*(token for ids, _ in shown for token in ids), *asked[:at]]
            contexts.append(text[-length:])
            answers.append(asked[at])
        return QABatch(torch.tensor(contexts), torch.tensor(answers))

    def interleaved_batch(self, rows: int, length: int, generator: torch.Generator,
                          most_questions: float = 0.5) -> tuple[Tensor, Tensor]:
        """Draw contexts in which questions stand anywhere, as in `MultiDocumentQA`."""
        count = -(-length // min(self.frames))
        drawn = self._draw(rows, min(count, len(self.first)), generator)
        share = (most_questions * torch.rand(rows, generator=generator)).tolist()
        draws = torch.rand(rows, 2, count, generator=generator).tolist()
        contexts, marks = [], []
        for documents, limit, (asks, picks) in zip(drawn, share, draws, strict=True):
            ids, answers, placed = [], [], 0
            for ask, pick in zip(asks, picks, strict=True):
                # once every document is placed, questions only
                asked = placed > 0 and (ask < limit or placed == len(documents))
                document, at = documents[int(pick * placed) if asked else placed]
                placed += not asked
                answers += [asked and index == at for index in range(len(document))]
                ids += document
                if len(ids) >= length:
                    break
            contexts.append(ids[:length])
            marks.append(answers[:length])
        return torch.tensor(contexts), torch.tensor(marks)
