"""`cca-lab evaluate`: perplexity, exact match and answers of a model under any attention."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cca_lab.options import Count, Natural
from cca_lab.reporting import device_name, training_progress
from cca_lab.studies.study import (
    SwappedStudy,
    TextStudy,
    context_of,
    interval,
    markdown,
    note,
    note_full,
    percent,
    result_file,
    share,
)
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.multi_document_qa import (
    OFFSETS,
    POSITIONS,
    MultiDocumentQA,
    VariedDocumentQA,
)
from cca_lab.tasks.own import OwnQuestions
from cca_lab.tasks.prompts import AnyTask, chosen_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from cca_lab.models.evaluate import Answer, Answers

WINDOWS = 4  # in a forward pass, as in `cca_lab.models.evaluate`
PLACES = {"0.0": "first", "0.5": "middle", "1.0": "last"}
KINDS = ("exact_match", "varied_match")  # of the measurements, in the order of `question_tasks`


@dataclass(frozen=True)
class Evaluation:
    """Held-out text and questions for one tokenizer, the same for every attention."""

    stream: torch.Tensor  # (n,) token ids of the held-out text
    tasks: tuple[MultiDocumentQA, ...]  # over documents of one length, then of varied ones
    length: int  # tokens per window and per context
    windows: int = 64
    questions: int = 64  # per position

    def losses(self, model: "PreTrainedModel") -> np.ndarray:
        """Return the mean loss of each window of text, (windows,) in nats."""
        from cca_lab.models.evaluate import window_losses

        return window_losses(model, self.stream, length=self.length, windows=self.windows)

    def measure(self, model: "PreTrainedModel", losses: np.ndarray | None = None) -> dict[str, Any]:
        """Return perplexity and exact match by position, as JSON; `losses` may be known already."""
        from cca_lab.models.evaluate import bootstrap_mean, exact_match

        losses = self.losses(model) if losses is None else losses
        found: dict[str, Any] = {"perplexity": asdict(bootstrap_mean(losses, np.exp))}
        for kind, task in zip(KINDS, self.tasks if self.questions else (), strict=False):
            matches = exact_match(model, task, length=self.length, text=self.stream,
                                  questions=self.questions)
            found[kind] = matches.as_json() | {
                "documents": task.documents_in(self.length - OFFSETS + 1), "hits": matches.packed()}
        return found


def make_evaluation(model: "PreTrainedModel", tokenizer: Any, corpus: Corpus, *,
                    length: int | None = None, windows: int = 64,
                    questions: int = 64) -> Evaluation:
    """Prepare an evaluation on the held-out side of a corpus."""
    from cca_lab.models.pretrain import tokenize

    context = context_of(model)
    length = min(1024, context) if length is None else length
    if not 2 <= length <= context:
        raise ValueError(
            f"length: got {length}, wanted 2 to {context}, the model's context; give a shorter one")
    questions = -(-questions // OFFSETS) * OFFSETS  # the same number at each offset
    return Evaluation(tokenize(corpus.validation, tokenizer), question_tasks(tokenizer), length,
                      windows, questions)


def question_tasks(tokenizer: Any) -> tuple[MultiDocumentQA, ...]:
    """Return the questions in a tokenizer's tokens; none, and a note, if it lacks the names."""
    try:
        return MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)
    except ValueError as error:
        note(f"no questions, text only: {error}")
        return ()


def note_too_long(task: AnyTask, tokenizer: Any, length: int) -> None:
    """Note that questions of a file do not fit a length, in tokens."""
    if isinstance(task, OwnQuestions):
        missing = len(task.lines) - len(task.fitting(tokenizer, length))
        if missing:
            note(f"{missing} of {len(task.lines)} questions of {task.name} have more than {length} "
                 "tokens with their answers, and are left out")


def measure_tasks(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase",
                  tasks: Sequence[AnyTask], *, length: int, questions: int
                  ) -> "dict[str, Answers]":
    """Score a model on tasks, with a progress bar; the prompts have at most `length` tokens."""
    from cca_lab.models.evaluate import answer_examples, task_examples

    asked = {str(task): task_examples(model, tokenizer, task, length=length, each=questions)
             for task in tasks}
    found = {}
    for task in tasks:
        note_too_long(task, tokenizer, length)
        with answering(task.name, len(asked[str(task)])) as on_answer:
            found[str(task)] = answer_examples(model, tokenizer, asked[str(task)], on_answer)
    return found


@contextmanager
def answering(title: str, total: int) -> "Iterator[Callable[[Answer], None]]":
    """Yield a function that moves a progress bar by one answer of `total`."""
    done = count(1)
    with training_progress(f"answering {title}", total) as report:
        yield lambda answer: report(next(done), "")


@dataclass(frozen=True, kw_only=True)
class Evaluate(SwappedStudy, TextStudy):
    """Measure perplexity, exact match and the answers to prompts under any attention."""

    length: int | None = None
    """Tokens per sequence; by default the model's context, at most 1024."""
    windows: Count = 64
    """Number of windows of held-out text."""
    questions: Natural = 64
    """Questions per answer position, rounded up to a multiple of 16; those of --task exactly."""
    task: tuple[str, ...] = ()
    """Prompts to answer: niah_single, niah_multikey, niah_multivalue, variable_tracking,
    key_values, or a file of your own questions in JSON lines."""
    difficulty: tuple[str, ...] = ()
    """Difficulty of the tasks, NAME=VALUE, such as chains=2."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> dict[str, Any]:
        """Measure the model on the text, the questions and the tasks; print the tables."""
        tasks, _ = chosen_tasks(self.task, self.difficulty), self.choice
        with result_file(self.out) as result:
            model, tokenizer = self.loaded
            evaluation = make_evaluation(model, tokenizer, self.corpus, length=self.length,
                                         windows=self.windows, questions=self.questions)
            note_full(self.mechanism, evaluation.length)
            answers = measure_tasks(model, tokenizer, tasks, length=evaluation.length,
                                    questions=self.questions)
            asked = len(evaluation.tasks) * len(POSITIONS) * OFFSETS * bool(self.questions)
            total, done = asked + -(-self.windows // WINDOWS), count(1)
            with training_progress("reading", total) as report:
                model.register_forward_hook(lambda *_: report(min(next(done), total), ""))
                measured = evaluation.measure(model)
            result |= {"model": self.name, "attention": self.mechanism.name,
                       "options": self.mechanism.options(), "length": evaluation.length,
                       "corpus": self.about_text(), "questions": evaluation.questions,
                       "device": device_name(), **measured}
            if answers:
                result["tasks"] = {name: each.as_json() for name, each in answers.items()}
        print(table(result, str(self.mechanism)))
        if "tasks" in result:
            print(task_table(result["tasks"]))
        return result


def table(result: Mapping[str, Any], attention: str) -> str:
    """Return the table of a measurement; exact match is over every offset of the text."""
    matches = result.get("exact_match", {})
    offsets = [each["value"] for each in matches.get("by_offset", ())]
    return markdown(
        ["attention", "perplexity [95 %]", *(f"answer {place}" for place in PLACES.values()),
         "worst offset", "one length [95 %]", "5-20 tokens [95 %]"],
        [[attention, interval(result["perplexity"]),
          *(percent(matches[place]["value"]) if matches else "-" for place in PLACES),
          percent(min(offsets)) if offsets else "-",
          *(share(result[kind]["all"]) if kind in result else "-" for kind in KINDS)]],
        f"{result['model']}, {result['length']} tokens, {result['corpus']['name']}")


def task_table(scores: Mapping[str, Any]) -> str:
    """Return the table of answers to prompts; the columns by place are shares of the answers."""
    rows = []
    for name, score in scores.items():
        places = [score["by_place"].get(place) for place in PLACES]
        rows.append([name, score["exact"]["samples"], share(score["share"]), share(score["exact"]),
                     *("-" if place is None else percent(place["share"]["value"])
                       for place in places)])
    return markdown(["task", "questions", "answers found [95 %]", "all found [95 %]",
                     *(f"found {place}" for place in PLACES.values())], rows)
