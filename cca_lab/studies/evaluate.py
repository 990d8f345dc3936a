"""`cca-lab evaluate`: perplexity, exact match and answers of a model under any attention."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.models.evaluate import (
    OFFSETS,
    POSITIONS,
    Answer,
    Answers,
    Estimate,
    answer_examples,
    bootstrap_mean,
    exact_match,
    task_examples,
    window_losses,
)
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import device_name, print_table, training_progress
from cca_lab.settings import check_sizes, option
from cca_lab.studies.study import SwappedStudy, context_of, note, note_full
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA
from cca_lab.tasks.own import OwnQuestions
from cca_lab.tasks.prompts import AnyTask, chosen_tasks

MOST_SAMPLES = 2**16  # windows, or questions per position
KINDS = ("exact_match", "varied_match")  # of the measurements, in the order of `question_tasks`
TASKS = ("Prompts to answer: niah_single, niah_multikey, niah_multivalue, variable_tracking, "
         "common_words, frequent_words, key_values, or a file of your own questions in JSON lines; "
         "repeatable.")
LENGTH = "the model's context, at most 1024"

@dataclass(frozen=True)
class Evaluation:
    """Held-out text and questions for one tokenizer, the same for every attention."""

    stream: torch.Tensor  # (n,) token ids of the held-out text
    tasks: tuple[MultiDocumentQA, ...]  # over documents of one length, then of varied ones
    length: int  # tokens per window and per context
    windows: int = 64
    questions: int = 64  # per position

    def losses(self, model: PreTrainedModel) -> np.ndarray:
        """Return the mean loss of each window of text, (windows,) in nats."""
        return window_losses(model, self.stream, length=self.length, windows=self.windows)

    def measure(self, model: PreTrainedModel, losses: np.ndarray | None = None) -> dict:
        """Return perplexity and exact match by position, as JSON; `losses` may be known already."""
        losses = self.losses(model) if losses is None else losses
        found = {"perplexity": asdict(bootstrap_mean(losses, np.exp))}
        for kind, task in zip(KINDS, self.tasks if self.questions else (), strict=False):
            matches = exact_match(model, task, length=self.length, text=self.stream,
                                  questions=self.questions)
            found[kind] = matches.as_json() | {
                "documents": task.documents_in(self.length - OFFSETS + 1), "hits": matches.packed()}
        return found

    def by_length(self, model: PreTrainedModel, lengths: Sequence[int]) -> dict:
        """Return exact match at other lengths, over documents of varied lengths, as JSON values."""
        return {str(length): exact_match(model, self.tasks[-1], length=length, text=self.stream,
                                         questions=self.questions).as_json() for length in lengths}


def make_evaluation(model: PreTrainedModel, tokenizer, corpus: Corpus, *, length: int | None = None,
                    windows: int = 64, questions: int = 64) -> Evaluation:
    """Prepare an evaluation on the held-out side of a corpus."""
    context = context_of(model)
    length = min(1024, context) if length is None else length
    if not 2 <= length <= context:
        raise ValueError(
            f"length: got {length}, wanted 2 to {context}, the model's context; give a shorter one")
    check_sizes(windows=(windows, 1, MOST_SAMPLES), questions=(questions, 0, MOST_SAMPLES))
    questions = -(-questions // OFFSETS) * OFFSETS  # the same number at each offset
    return Evaluation(tokenize(corpus.validation, tokenizer), question_tasks(tokenizer), length,
                      windows, questions)


def question_tasks(tokenizer) -> tuple[MultiDocumentQA, ...]:
    """Return the questions in a tokenizer's tokens; none, and a note, if it lacks the names."""
    try:
        return MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)
    except ValueError as error:
        Console(stderr=True).print(f"no questions, text only: {error}", highlight=False)
        return ()


def print_evaluations(found: dict[str, dict], title: str) -> None:
    """Print measurements, a row per name; exact match is over every offset of the text."""
    rows = []
    for name, measured in found.items():
        matches = measured.get("exact_match", {})
        cells = [f"{100 * matches[str(position)]['value']:.0f} %" if matches else "-"
                 for position in POSITIONS]
        offsets = [share["value"] for share in matches.get("by_offset", ())]
        worst = f"{100 * min(offsets):.0f} %" if offsets else "-"
        rows.append([name, str(Estimate(**measured["perplexity"])), *cells, worst,
                     *(_share(Estimate(**measured[kind]["all"])) if kind in measured else "-"
                       for kind in KINDS)])
    columns = ["attention", "perplexity [95 %]",
               *(f"answer at {position:.0%}" for position in POSITIONS), "worst offset",
               "one length [95 %]", "5-20 tokens [95 %]"]
    print_table(title, columns, rows)


def _share(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.0f} % [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"


def tasks_for(sources: Sequence[str], difficulty: Sequence[str], questions: int,
              out: Path | None = None) -> tuple[AnyTask, ...]:
    """Return the tasks that names or files say; ValueError if `out` is one of the files."""
    for source in sources:
        if out is not None and out.resolve() == Path(source).resolve():
            raise ValueError(f"out: {out} is the file of questions itself; choose another name")
    tasks = chosen_tasks(sources, difficulty)
    if tasks and questions < 1:
        raise ValueError(
            f"questions: got {questions} with --task, wanted 1 or more; leave --task out for text "
            "alone")
    return tasks


def note_left_out(corpus: Corpus) -> None:
    """Print a note on stderr if files of a folder look like text and could not be read."""
    if corpus.left_out:
        note(f"{len(corpus.left_out)} file(s) of {corpus.name} are left out, the first: "
             f"{corpus.left_out[0]}")


def note_too_long(task: AnyTask, tokenizer: Any, length: int) -> None:
    """Print a note on stderr if questions of a file do not fit a length, in tokens."""
    if isinstance(task, OwnQuestions):
        missing = len(task.lines) - len(task.fitting(tokenizer, length))
        if missing:
            note(f"{missing} of {len(task.lines)} questions of {task.name} have more than {length} "
                 "tokens with their answers, and are left out")


def measure_tasks(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase,
                  tasks: Sequence[AnyTask], *, length: int, questions: int) -> dict[str, Answers]:
    """Score a model on tasks, with a progress bar; the prompts have at most `length` tokens."""
    asked = {str(task): task_examples(model, tokenizer, task, length=length, each=questions)
             for task in tasks}
    found = {}
    for task in tasks:
        note_too_long(task, tokenizer, length)
        with answering(task.name, len(asked[str(task)])) as on_answer:
            found[str(task)] = answer_examples(model, tokenizer, asked[str(task)], on_answer)
    return found


@contextmanager
def answering(title: str, total: int) -> Iterator[Callable[[Answer], None]]:
    """Yield a function that moves a progress bar by one answer of `total`."""
    done = count(1)
    with training_progress(f"answering {title}", total) as report:
        yield lambda answer: report(next(done), "")


def print_answers(scores: Mapping[str, dict], title: str) -> None:
    """Print scores as a table, one row per task; the columns by place are shares of the answers."""
    rows = []
    for name, score in scores.items():
        places = [score["by_place"].get(str(place)) for place in POSITIONS]
        rows.append([name, score["exact"]["samples"],
                     *(_share(Estimate(**score[key])) for key in ("share", "exact")),
                     *("-" if place is None else f"{100 * place['share']['value']:.0f} %"
                       for place in places)])
    columns = ["task", "questions", "answers found [95 %]", "all found [95 %]",
               *(f"found at {place:.0%}" for place in POSITIONS)]
    print_table(title, columns, rows)


@dataclass(frozen=True, kw_only=True)
class Evaluate(SwappedStudy):
    """Measure perplexity, exact match and the answers to prompts under any attention."""

    length: int | None = option(None, "Tokens per sequence.", shown=LENGTH)
    windows: int = option(64, "Number of windows of held-out text.", least=1, most=MOST_SAMPLES)
    questions: int = option(
        64, "Questions per answer position; rounded up to a multiple of 16, but not those of "
            "--task.", least=0, most=MOST_SAMPLES)
    task: tuple[str, ...] = option((), TASKS, metavar="NAME|FILE")
    difficulty: tuple[str, ...] = option(
        (), "Difficulty of the tasks, such as 8 or chains=2; repeatable.", metavar="N|NAME=VALUE")

    def result(self) -> dict[str, Any]:
        """Measure the model on the text, the questions and the tasks."""
        tasks, _ = tasks_for(self.task, self.difficulty, self.questions, self.file), self.choice
        model, tokenizer = self.loaded
        evaluation = make_evaluation(model, tokenizer, self.corpus, length=self.length,
                                     windows=self.windows, questions=self.questions)
        note_full(self.mechanism, evaluation.length)
        note_left_out(self.corpus)
        answers = measure_tasks(model, tokenizer, tasks, length=evaluation.length,
                                questions=self.questions)
        result = {"model": self.name, "attention": self.mechanism.name,
                  "options": self.mechanism.options(), "length": evaluation.length,
                  "corpus": self.about_text(), "questions": evaluation.questions,
                  "device": device_name(), **evaluation.measure(model)}
        return result | ({"tasks": {name: each.as_json() for name, each in answers.items()}}
                         if answers else {})

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the measurement, and the scores of the tasks."""
        title = f"{result['model']}, {result['length']} tokens"
        print_evaluations({str(self.mechanism): dict(result)},
                          f"{title}, {result['corpus']['name']}")
        if "tasks" in result:
            print_answers(result["tasks"], f"{result['model']}, {self.mechanism}, prompts of "
                                           f"{result['length']} tokens")
