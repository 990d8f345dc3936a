"""One's own questions: JSON lines, {"prompt": ..., "answer": ...} each.

In place of "answer" there may be "answers": [...], all of which are wanted. A "place", 0 to 1, says
where the answer stands in the prompt.
"""

import hashlib
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cca_lab.tasks.corpus import decoded, encoding_problem
from cca_lab.tasks.examples import Example, tokens_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class OwnQuestions:
    """The questions of a file; a task without difficulty, whose examples are as long as they are.

    Attributes:
        name: name of the file.
        digest: first 16 hex digits of the SHA-256 of the file.
        lines: the examples.
    """

    name: str
    digest: str
    lines: tuple[Example, ...]
    _sizes: dict[int, tuple[Any, list[int]]] = field(default_factory=dict, repr=False,
                                                     compare=False)
    placed = filled = False

    def __str__(self) -> str:
        return f"{self.name} {self.digest}"

    def fitting(self, tokenizer: "PreTrainedTokenizerBase", length: int) -> list[Example]:
        """Return the examples of at most `length` tokens with their answers, in the file's order.

        Raises:
            ValueError: if there is none.
        """
        if id(tokenizer) not in self._sizes:  # kept with its tokenizer: no other gets the same id
            self._sizes[id(tokenizer)] = tokenizer, [tokens_of(tokenizer, example)
                                                     for example in self.lines]
        sizes = self._sizes[id(tokenizer)][1]
        fit = [example for example, size in zip(self.lines, sizes, strict=True) if size <= length]
        if not fit:
            raise ValueError(f"length: got {length}, wanted at least {min(sizes)} tokens for the "
                             f"shortest question of {self.name}; give a longer one, or shorter "
                             "questions")
        return fit

    def examples(self, tokenizer: "PreTrainedTokenizerBase", count: int, *, length: int, seed: int,
                 place: float | None = None) -> list[Example]:
        """Return examples that fit a length, in the file's order; some at random if more fit.

        Args:
            tokenizer: counts the tokens.
            count: number of examples, at most.
            length: tokens of a prompt and of the room for its answer, at most.
            seed: seed of the choice.
            place: None; the answers stand where they stand.

        Raises:
            ValueError: for a length too short for every example.
        """
        fit = self.fitting(tokenizer, length)
        if count >= len(fit):
            return fit
        chosen = random.Random(f"{self.digest} {seed}").sample(range(len(fit)), count)
        return [fit[index] for index in sorted(chosen)]


def own_questions(path: str | Path) -> OwnQuestions:
    """Read a file of questions.

    Raises:
        ValueError: naming the first line of another form, or if there is no question.
    """
    path = Path(path)
    data = path.read_bytes()
    if problem := encoding_problem(data):
        raise ValueError(f"task: {path} {problem}")
    lines = []
    for number, text in enumerate(decoded(data).split("\n"), start=1):
        if text.strip():
            try:
                lines.append(example_of(text))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(f"task: {path}, line {number}: {error}") from error
    if not lines:
        raise ValueError(
            f"task: {path} holds no questions, wanted a line of JSON for each; give another file")
    digest = hashlib.sha256(data).hexdigest()[:16]
    return OwnQuestions(path.name, digest, tuple(lines))


def example_of(text: str) -> Example:
    """Return the example that a line of JSON describes.

    Raises:
        ValueError: for another form, or an empty answer, which every text would contain.
        Exception: of another kind, for a value of another type.
    """
    line = json.loads(text)
    key = "answers" if "answers" in line else "answer"
    if "prompt" not in line or key not in line:
        raise ValueError('wanted "prompt", and "answer" or "answers"; add what is missing')
    prompt, given = line["prompt"], line[key]
    if not isinstance(prompt, str):  # an f-string would take it
        raise ValueError(f"prompt: got {prompt!r}, wanted text; put it in quotation marks")
    answers = tuple(each.strip() for each in ([given] if isinstance(given, str) else given))
    "".join((prompt, *answers)).encode()  # half of a surrogate pair cannot be tokenized
    if not answers or not all(answers):
        raise ValueError("an answer is empty")
    return Example(prompt, answers, line.get("place"))
