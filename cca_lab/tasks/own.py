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

from cca_lab.settings import check_integers
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
            ValueError: for a number out of range, a place, or a length too short for every example.
        """
        check_integers(1, count=count, length=length)
        check_integers(0, seed=seed)
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
            except ValueError as error:
                raise ValueError(f"task: {path}, line {number}: {error}") from error
            numbers.append(number)
    if not lines:
        raise ValueError(
            f"task: {path} holds no questions, wanted a line of JSON for each; give another file")
    digest = hashlib.sha256(data).hexdigest()[:16]
    return OwnQuestions(path.name, digest, tuple(lines), tuple(numbers))


def example_of(line: str) -> Example:
    """Return the example that a line of JSON describes, or raise ValueError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON ({error}); write one object per line") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"got {_kind(value)}, wanted an object, such as {{\"prompt\": ..., \"answer\": ...}}")
    for keys, form in FORMS.items():
        if all(key in value for key in keys):
            example = form(value)
            # half of a surrogate pair cannot be tokenized
            "".join((example.prompt, *example.answers)).encode()
            return example
    raise ValueError(f"got the keys {', '.join(map(repr, value)) or 'of an empty object'}, wanted "
                     f"one of the forms {'; '.join(', '.join(keys) for keys in FORMS)}; add what "
                     "is missing")


def _prompt(line: Line) -> Example:
    if "answer" in line and "answers" in line:
        raise ValueError("got answer and answers, wanted one of them")
    answers = _answers(line, "answers") if "answers" in line else (_text(line, "answer").strip(),)
    place = line.get("place")
    if place is not None and (not isinstance(place, int | float) or isinstance(place, bool)
                              or not 0 <= place <= 1):
        raise ValueError(f"place: got {place!r}, wanted a number from 0 to 1")
    return Example(_text(line, "prompt"), answers, place)


def _ruler(line: Line) -> Example:
    prefix = _text(line, "answer_prefix", "") if "answer_prefix" in line else ""
    return Example(_text(line, "input") + prefix, _answers(line, "outputs"))


def _long_bench(line: Line) -> Example:
    question = _text(line, "input", "")  # empty for summaries
    prompt = "\n\n".join(filter(None, (_text(line, "context"), question, "Answer:")))
    return Example(prompt, _answers(line, "answers"), one_is_enough=True)


def _key_values(line: Line) -> Example:
    pairs, key, value = line["ordered_kv_records"], _text(line, "key"), _text(line, "value")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2
                                              and {str} == set(map(type, pair)) for pair in pairs):
        raise ValueError("ordered_kv_records: wanted a list of pairs of texts, [[key, value], ...]")
    if [key, value] not in pairs:
        raise ValueError(f"key, value: the pair {key!r}, {value!r} is not in ordered_kv_records")
    place = pairs.index([key, value]) / max(1, len(pairs) - 1)
    return Example(prompt_of([(name, text) for name, text in pairs], key), (value,), place)


def _documents(line: Line) -> Example:
    documents = line["ctxs"]
    if not isinstance(documents, list) or not documents \
            or not all(isinstance(document, dict) for document in documents):
        raise ValueError('ctxs: wanted a list of objects, [{"title": ..., "text": ...}, ...]')
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
    """Return the text of a key; it may be empty or left out only if there is a default."""
    value = line.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key}: got {_kind(value)}, wanted text; put it in quotation marks")
    if not value.strip() and default is None:
        raise ValueError(f"{key}: is empty, wanted text")
    return value


def _answers(line: Line, key: str) -> tuple[str, ...]:
    value = [line[key]] if isinstance(line[key], str) else line[key]
    if not isinstance(value, list):
        raise ValueError(f"{key}: got {_kind(value)}, wanted a list of texts")
    for text in value:
        if not isinstance(text, str):
            raise ValueError(
                f"{key}: got {_kind(text)} in the list, wanted text; put it in quotation marks")
    answers = tuple(text.strip() for text in value)
    if not answers or not all(answers):
        empty = "holds an empty answer" if answers else "is empty"
        raise ValueError(f"{key}: {empty}, wanted one answer or more")
    return answers


def _kind(value: Any) -> str:
    """Return the JSON type of a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number",
             float: "a number", type(None): "null"}
    return names[type(value)]
