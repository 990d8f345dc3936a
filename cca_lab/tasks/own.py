"""One's own questions: JSON lines in a form of the lab or of a published benchmark.

    {"prompt": ..., "answer": ...}  or  "answers": [...], all wanted; a "place": 0 to 1 may be given
    {"input": ..., "outputs": [...]}                  RULER; an "answer_prefix" follows the input
    {"context": ..., "input": ..., "answers": [...]}  LongBench; one of the answers is enough
    Lost in the Middle:
    {"ordered_kv_records": [[key, value], ...], "key": ..., "value": ...}
    {"question": ..., "answers": [...], "ctxs": [{"title": ..., "text": ...}, ...]}

Differs from the benchmarks: LongBench has a prompt for each of its data sets, and Lost in the
Middle an instruction; here context, question and "Answer:" follow each other. RULER's questions
with alternatives count as if all were wanted.
"""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cca_lab.tasks.corpus import decoded, encoding_problem
from cca_lab.tasks.examples import Example, tokens_of
from cca_lab.tasks.ruler import prompt_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Line = dict[str, Any]


@dataclass(frozen=True)
class OwnQuestions:
    """The questions of a file; a task without difficulty, whose examples are as long as they are.

    Attributes:
        name: name of the file.
        digest: first 16 hex digits of the SHA-256 of the file.
        lines: the examples.
        numbers: the line of each example in the file, from 1.
    """

    name: str
    digest: str
    lines: tuple[Example, ...]
    numbers: tuple[int, ...]
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
                             f"shortest question of {self.name}, line "
                             f"{self.numbers[sizes.index(min(sizes))]}; give a longer one, or "
                             "shorter questions")
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
            ValueError: for a place, or a length too short for every example.
        """
        if place is not None:
            raise ValueError(f"place: got {place} for {self.name}, whose answers stand where they "
                             "stand; leave it out")
        fit = self.fitting(tokenizer, length)
        if count >= len(fit):
            return fit
        chosen = random.Random(f"{self.digest} {seed}").sample(range(len(fit)), count)
        return [fit[index] for index in sorted(chosen)]


def own_questions(path: str | Path) -> OwnQuestions:
    """Read a file of questions.

    Raises:
        ValueError: naming the first line in no accepted form, or if there is no question.
    """
    path = Path(path)
    data = path.read_bytes()
    if problem := encoding_problem(data):
        raise ValueError(f"task: {path} {problem}")
    lines, numbers = [], []
    for number, text in enumerate(decoded(data).split("\n"), start=1):
        if text.strip():
            try:
                lines.append(example_of(text))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(f"task: {path}, line {number}: {error}") from error
            numbers.append(number)
    if not lines:
        raise ValueError(
            f"task: {path} holds no questions, wanted a line of JSON for each; give another file")
    digest = hashlib.sha256(data).hexdigest()[:16]
    return OwnQuestions(path.name, digest, tuple(lines), tuple(numbers))


def example_of(line: str) -> Example:
    """Return the example that a line of JSON describes.

    Raises:
        ValueError: for another form, or an empty answer, which every text would contain.
        Exception: of another kind, for a value of another type.
    """
    value = json.loads(line)
    for keys, form in FORMS.items():
        if all(key in value for key in keys):
            example = form(value)
            # half of a surrogate pair cannot be tokenized
            "".join((example.prompt, *example.answers)).encode()
            if not example.answers or not all(example.answers):
                raise ValueError("an answer is empty")
            return example
    raise ValueError("got none of the forms "
                     f"{'; '.join(', '.join(keys) for keys in FORMS)}; add what is missing")


def _prompt(line: Line) -> Example:
    answers = _answers(line, "answers" if "answers" in line else "answer")
    return Example(_text(line, "prompt"), answers, line.get("place"))


def _ruler(line: Line) -> Example:
    return Example(_text(line, "input") + _text(line, "answer_prefix", ""),
                   _answers(line, "outputs"))


def _long_bench(line: Line) -> Example:
    question = _text(line, "input", "")  # empty for summaries
    prompt = "\n\n".join(filter(None, (_text(line, "context"), question, "Answer:")))
    return Example(prompt, _answers(line, "answers"), one_is_enough=True)


def _key_values(line: Line) -> Example:
    pairs, key, value = line["ordered_kv_records"], _text(line, "key"), _text(line, "value")
    place = pairs.index([key, value]) / max(1, len(pairs) - 1)
    return Example(prompt_of([(name, text) for name, text in pairs], key), (value,), place)


def _documents(line: Line) -> Example:
    documents = line["ctxs"]
    texts = [f"[{number}] {_text(document, 'title', '')}\n{_text(document, 'text')}"
             for number, document in enumerate(documents, start=1)]
    gold = [index for index, document in enumerate(documents) if document.get("isgold") is True]
    place = gold[0] / max(1, len(documents) - 1) if gold else None
    question = f"Question: {_text(line, 'question')}\nAnswer:"
    return Example("\n\n".join([*texts, question]), _answers(line, "answers"), place,
                   one_is_enough=True)


FORMS: dict[tuple[str, ...], Callable[[Line], Example]] = {
    ("prompt", "answers"): _prompt, ("prompt", "answer"): _prompt,
    ("ordered_kv_records", "key", "value"): _key_values,
    ("question", "answers", "ctxs"): _documents, ("context", "input", "answers"): _long_bench,
    ("input", "outputs"): _ruler,
}


def _text(line: Line, key: str, default: str | None = None) -> str:
    value = line.get(key, default)
    if not isinstance(value, str):  # an f-string would take it
        raise ValueError(f"{key}: got {value!r}, wanted text; put it in quotation marks")
    return value


def _answers(line: Line, key: str) -> tuple[str, ...]:
    value = line[key]
    return tuple(text.strip() for text in ([value] if isinstance(value, str) else value))
