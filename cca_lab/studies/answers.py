"""The scores of prompts beside a measurement: tasks by name, or files of one's own questions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.models.evaluate import POSITIONS, Answer, Answers, Estimate, answer_examples, task_examples
from cca_lab.reporting import print_table, training_progress
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.own import OwnQuestions
from cca_lab.tasks.prompts import AnyTask, chosen_tasks


def tasks_for(sources: Sequence[str], difficulty: Sequence[str], questions: int,
              out: Path | None = None) -> tuple[AnyTask, ...]:
    """Return the tasks that an evaluation names.

    Args:
        sources: names of tasks, or files of questions.
        difficulty: as in `chosen_task`, for all of them.
        questions: examples at each place.
        out: the file that will be written; it may be none of the sources.

    Raises:
        ValueError: for a task or difficulty that is refused, no questions, or an output that is an input.
    """
    for source in sources:
        if out is not None and out.resolve() == Path(source).resolve():
            raise ValueError(f"out: {out} is the file of questions itself; choose another name")
    tasks = chosen_tasks(sources, difficulty)
    if tasks and questions < 1:
        raise ValueError(f"questions: got {questions} with --task, wanted 1 or more; leave --task out for text alone")
    return tasks


def note_left_out(corpus: Corpus) -> None:
    """Print a note on stderr if files of a folder look like text and could not be read."""
    if corpus.left_out:
        _note(f"{len(corpus.left_out)} file(s) of {corpus.name} are left out, the first: {corpus.left_out[0]}")


def note_too_long(task: AnyTask, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
    """Print a note on stderr if questions of a file do not fit a length, in tokens."""
    if isinstance(task, OwnQuestions):
        missing = len(task.lines) - len(task.fitting(tokenizer, length))
        if missing:
            _note(f"{missing} of {len(task.lines)} questions of {task.name} have more than {length} tokens with their "
                  "answers, and are left out")


def _note(words: str) -> None:
    Console(stderr=True).print(f"note: {words}", highlight=False, markup=False, soft_wrap=True)


def measure_tasks(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tasks: Sequence[AnyTask], *, length: int,
                  questions: int) -> dict[str, Answers]:
    """Score a model on tasks, with a progress bar.

    Args:
        model: with its present attention.
        tokenizer: the model's own.
        tasks: what is asked.
        length: tokens of a prompt and of the room for its answer, at most.
        questions: examples at each place; a task without places has as many altogether.

    Returns:
        The answers by task.
    """
    asked = {str(task): task_examples(model, tokenizer, task, length=length, each=questions) for task in tasks}
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


def print_answers(found: dict[str, Answers], title: str) -> None:
    """Print scores as a table, one row per task; the columns by place are shares of the answers."""
    rows = []
    for name, answers in found.items():
        places = answers.by_place()
        cells = [f"{100 * places[place].share.value:.0f} %" if place in places else "-" for place in POSITIONS]
        rows.append([name, len(answers.each), _percent(answers.share), _percent(answers.exact), *cells])
    columns = ["task", "questions", "answers found [95 %]", "all found [95 %]",
               *(f"found at {place:.0%}" for place in POSITIONS)]
    print_table(title, columns, rows)


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.0f} % [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
