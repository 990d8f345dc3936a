"""`cca-lab evaluate`: perplexity and exact match of a checkpoint under any attention."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from transformers import PreTrainedModel

from cca_lab.mechanisms import Mechanism
from cca_lab.models import attention_of, load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import OFFSETS, POSITIONS, Estimate, bootstrap_mean, exact_match, window_losses
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import device, device_name, print_table, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.answers import measure_tasks, note_left_out, print_answers, tasks_for
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA

MOST_SAMPLES = 2**16  # windows, or questions per position
KINDS = ("exact_match", "varied_match")  # keys of the measurements, in the order of `question_tasks`


@dataclass(frozen=True)
class Evaluation:
    """Held-out text and questions for one tokenizer, the same for every attention.

    Attributes:
        stream: (n,) token ids of the held-out text.
        tasks: the questions, over documents of one length and of varied lengths; empty if the tokenizer does
            not have the names. A context holds at most one document per first name; the measurement records
            the number as "documents".
        length: tokens per window and per context.
        windows: number of windows of text.
        questions: questions per position.
    """

    stream: torch.Tensor
    tasks: tuple[MultiDocumentQA, ...]
    length: int
    windows: int = 64
    questions: int = 64

    def losses(self, model: PreTrainedModel) -> np.ndarray:
        """Return the mean loss of each window of text, (windows,) in nats."""
        return window_losses(model, self.stream, length=self.length, windows=self.windows)

    def measure(self, model: PreTrainedModel, losses: np.ndarray | None = None) -> dict:
        """Return the perplexity and the exact match by position, as JSON values; `losses` if they are known already."""
        losses = self.losses(model) if losses is None else losses
        found = {"perplexity": asdict(bootstrap_mean(losses, np.exp))}
        for kind, task in zip(KINDS, self.tasks if self.questions else (), strict=False):
            matches = exact_match(model, task, length=self.length, text=self.stream, questions=self.questions)
            found[kind] = matches.as_json() | {"documents": task.documents_in(self.length - OFFSETS + 1),
                                               "hits": matches.packed()}
        return found

    def by_length(self, model: PreTrainedModel, lengths: Sequence[int]) -> dict:
        """Return exact match at other lengths, over documents of varied lengths, as JSON values."""
        return {str(length): exact_match(model, self.tasks[-1], length=length, text=self.stream,
                                         questions=self.questions).as_json() for length in lengths}


def context_of(model: PreTrainedModel) -> int:
    """Return the longest sequence a model reads, in tokens, or 1024 if its config does not say."""
    return getattr(model.config, "max_position_embeddings", 1024)


def note_full(mechanism: Mechanism, length: int) -> None:
    """Print a note on stderr if a mechanism equals full attention at this length, so that nothing of it is measured."""
    if mechanism.name != "full" and mechanism.exact_when(length):
        name, _, options = str(mechanism).partition(", ")
        Console(stderr=True).print(f"note: {name} with {options} attends in full to {length} tokens", highlight=False,
                                   markup=False, soft_wrap=True)


def make_evaluation(model: PreTrainedModel, tokenizer, corpus: Corpus, *, length: int | None = None,
                    windows: int = 64, questions: int = 64) -> Evaluation:
    """Prepare an evaluation on the held-out side of a corpus.

    Raises:
        ValueError: if a number is out of range; the length is at most the model's context.
    """
    context = context_of(model)
    length = min(1024, context) if length is None else length
    if not 2 <= length <= context:
        raise ValueError(f"length: got {length}, wanted 2 to {context}, the model's context; give a shorter one")
    check_sizes(windows=(windows, 1, MOST_SAMPLES), questions=(questions, 0, MOST_SAMPLES))
    questions = -(-questions // OFFSETS) * OFFSETS  # the same number at each offset
    return Evaluation(tokenize(corpus.validation, tokenizer), question_tasks(tokenizer), length, windows, questions)


def question_tasks(tokenizer) -> tuple[MultiDocumentQA, ...]:
    """Return the questions in a tokenizer's tokens, documents of one length first, then of varied lengths.

    If the tokenizer does not have the names, the tuple is empty and a line on stderr says so.
    """
    try:
        return MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)
    except ValueError as error:
        Console(stderr=True).print(f"no questions, text only: {error}", highlight=False)
        return ()


def print_evaluations(found: dict[str, dict], title: str) -> None:
    """Print measurements as a table, one row per name; exact match is over every offset of the text."""
    rows = []
    for name, measured in found.items():
        matches = measured.get("exact_match", {})
        cells = [f"{100 * matches[str(position)]['value']:.0f} %" if matches else "-" for position in POSITIONS]
        worst = f"{100 * min(share['value'] for share in matches['by_offset']):.0f} %" if matches else "-"
        rows.append([name, str(Estimate(**measured["perplexity"])), *cells, worst,
                     *(_share(measured[kind]["all"]) if kind in measured else "-" for kind in KINDS)])
    columns = ["attention", "perplexity [95 %]", *(f"answer at {position:.0%}" for position in POSITIONS),
               "worst offset", "one length [95 %]", "5-20 tokens [95 %]"]
    print_table(title, columns, rows)


def _share(estimate: dict) -> str:
    return f"{100 * estimate['value']:.0f} % [{100 * estimate['low']:.0f}, {100 * estimate['high']:.0f}]"


def evaluate(model_name: str, attention: str | None, options: dict, *, length: int | None = None,
             windows: int = 64, questions: int = 64, text: str | None = None, out: Path | None = None,
             tasks: Sequence[str] = (), difficulty: Sequence[str] = ()) -> dict:
    """Load a model, measure it, print the table and write the JSON if requested; return the measurement.

    `tasks` and `difficulty` are those of `chosen_tasks`; their scores are the entry "tasks", by task.
    """
    quiet()
    asked = tasks_for(tasks, difficulty, questions, out)
    model, tokenizer = load_pretrained(model_name, attention, **options)
    corpus = load_corpus(text)
    evaluation = make_evaluation(model, tokenizer, corpus, length=length, windows=windows, questions=questions)
    model.to(device())
    mechanism = attention_of(model)
    note_full(mechanism, evaluation.length)
    note_left_out(corpus)
    answers = measure_tasks(model, tokenizer, asked, length=evaluation.length, questions=questions)
    found = evaluation.measure(model)
    result = {"model": Path(model_name).name, "attention": mechanism.name, "options": mechanism.options(),
              "length": evaluation.length, "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
              "questions": evaluation.questions, "device": device_name(), **found}
    result |= {"tasks": {name: own.as_json() for name, own in answers.items()}} if answers else {}
    if out is not None:
        write_json(out, result)
    print_evaluations({str(mechanism): found}, f"{result['model']}, {evaluation.length} tokens, {corpus.name}")
    if answers:
        print_answers(answers, f"{result['model']}, {mechanism}, prompts of {evaluation.length} tokens")
    return result
