"""The scores of a checkpoint: perplexity, exact match on questions, and answers to prompts.

RULER's score of a prompt is the share of the references that the continuation contains, whatever
their case and order; an exact match contains all of them, or one where one answer is enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import binomtest, bootstrap
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models.inputs import check_length
from cca_lab.models.plugin import attention_of
from cca_lab.tasks.examples import Example, answer_room, prompt_ids
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.multi_document_qa import OFFSETS, POSITIONS, MultiDocumentQA
from cca_lab.tasks.prompts import AnyTask

RESAMPLES = 2000
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}


@dataclass(frozen=True)
class Estimate:
    """A value, the ends of its 95 % confidence interval, and its number of independent samples."""

    value: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap_mean(values: np.ndarray, transform: Callable[[float], float] = lambda mean: mean,
                   seed: int = 0) -> Estimate:
    """Estimate transform(mean of values) with a percentile bootstrap interval over the values."""
    point = float(transform(values.mean()))
    if len(values) < 2 or np.ptp(values) == 0:  # nothing to resample
        return Estimate(point, point, point, len(values))
    interval = bootstrap((values,), np.mean, n_resamples=RESAMPLES, method="percentile",
                         rng=np.random.default_rng(seed)).confidence_interval
    return Estimate(point, float(transform(interval.low)), float(transform(interval.high)),
                    len(values))


def perplexity(model: PreTrainedModel, stream: Tensor, *, length: int, windows: int = 64,
               batch: int = 4) -> Estimate:
    """Return the perplexity per token: exp of the mean of `window_losses`."""
    return bootstrap_mean(window_losses(model, stream, length=length, windows=windows, batch=batch),
                          np.exp)


@torch.no_grad()
def window_losses(model: PreTrainedModel, stream: Tensor, *, length: int, windows: int = 64,
                  batch: int = 4) -> np.ndarray:
    """Return the mean loss of each of some evenly spaced windows of a stream, (windows,) in nats.

    Every window of the stream (n,) starts without context; at most n // length are used, `batch`
    in a forward. The losses of two models on the same windows can be compared in pairs.
    """
    check_length(model, "length", length)
    rows = texts_of(stream, windows, length)
    losses = [_row_losses(model, ids) for ids in rows.to(model.device).split(batch)]
    return torch.cat(losses).double().cpu().numpy()


def texts_of(stream: Tensor, count: int, length: int) -> Tensor:
    """Cut at most `count` evenly spaced texts, (count, length), from a stream of token ids."""
    if count < 1 or len(stream) < length:
        raise ValueError(
            f"count, stream: got {count} texts of {length} tokens from {len(stream)}, wanted at "
            "least 1 and a stream that holds it; give more text or a shorter length")
    starts = window_starts(len(stream), length, min(count, len(stream) // length))
    return stream[starts[:, None] + torch.arange(length)]


def window_starts(tokens: int, length: int, windows: int) -> Tensor:
    """Return the starts of windows spaced evenly over a stream of tokens, int64 (windows,)."""
    last = tokens - length
    return torch.linspace(0, last, windows).long().clamp(max=last)  # float32 rounds up beyond 2**24


def _row_losses(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of each row's tokens after the first, (B,)."""
    logits = _in_eval_mode(model, input_ids)[:, :-1].float().transpose(1, 2)  # (B, V, L-1)
    return F.cross_entropy(logits, input_ids[:, 1:], reduction="none").mean(dim=1)


def _in_eval_mode(model: PreTrainedModel, input_ids: Tensor, **options: Any) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        return model(input_ids=input_ids, use_cache=False, **options).logits
    finally:
        model.train(was_training)


def share_right(hits: np.ndarray) -> Estimate:
    """Estimate a share with Wilson's interval, which has a width even if all are right or wrong."""
    interval = binomtest(int(hits.sum()), hits.size).proportion_ci(method="wilson")
    return Estimate(float(hits.mean()), float(interval.low), float(interval.high), hits.size)


@dataclass(frozen=True)
class Matches:
    """Which questions were answered correctly, by place of the answer and offset of the text."""

    hits: np.ndarray  # bool (positions, offsets, questions)
    positions: tuple[float, ...]  # of the answering document, 0 (first) to 1 (last)

    @property
    def overall(self) -> Estimate:
        """The share over all positions and offsets."""
        return share_right(self.hits)

    def by_position(self) -> dict[float, Estimate]:
        """Return the share at each position, over all offsets."""
        return {position: share_right(hits)
                for position, hits in zip(self.positions, self.hits, strict=True)}

    def by_offset(self) -> list[Estimate]:
        """Return the share at each offset (tokens before the documents), over all positions."""
        return [share_right(hits) for hits in self.hits.swapaxes(0, 1)]

    def packed(self) -> str:
        """Return every hit as one bit, in hexadecimal, to compare two models by question."""
        return np.packbits(self.hits).tobytes().hex()

    def as_json(self) -> dict[str, Any]:
        """Return every estimate as JSON values."""
        places = {str(position): asdict(value) for position, value in self.by_position().items()}
        return {**places, "all": asdict(self.overall),
                "by_offset": [asdict(value) for value in self.by_offset()]}


@torch.no_grad()
def exact_match(model: PreTrainedModel, task: MultiDocumentQA, *, length: int,
                text: Tensor | None = None, offsets: int = OFFSETS, questions: int = 64,
                positions: tuple[float, ...] = POSITIONS, batch: int = 16,
                seed: int = 1) -> Matches:
    """Return which questions a model answers exactly, with greedy decoding.

    A mechanism that pools groups of tokens may answer only where a document fills a whole group:
    0, 1, ... `offsets` - 1 tokens drawn from `text` (n,) stand before the documents.

    Args:
        model: any causal language model of transformers.
        task: the questions, in the tokens of the model's tokenizer.
        length: the longest context, in tokens.
        text, offsets: see above.
        questions: questions per position, rounded up to a multiple of `offsets`.
        positions: places of the answering document, 0 (first) to 1 (last).
        batch: contexts per forward pass.
        seed: seed of the questions; use the same for models that are compared.
    """
    check_length(model, "length", length)
    shortest = task.document_length + task.question_length
    if length - offsets + 1 < shortest:
        raise ValueError(f"length: got {length}, wanted at least {shortest + offsets - 1} tokens "
                         "(one document, the question, and the text before them)")
    each = -(-questions // offsets)
    hits = np.zeros((len(positions), offsets, each), dtype=bool)
    for index, offset in np.ndindex(len(positions), offsets):
        entropy = np.random.SeedSequence((seed, index, offset)).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(entropy >> 1))
        drawn = task.batch(each, length - offsets + 1, generator, positions[index])
        ids = drawn.input_ids  # (each, L)
        if offset and text is not None:
            ids = torch.cat([random_windows(text, each, offset, generator), ids], dim=1)
        logits = torch.cat([_in_eval_mode(model, rows.to(model.device), logits_to_keep=1)
                            for rows in ids.split(batch)])
        # every answer is one token
        hits[index, offset] = (logits[:, -1].argmax(-1).cpu() == drawn.answers).numpy()
    return Matches(hits, positions)


@dataclass(frozen=True)
class Answer:
    """What a model wrote after one prompt."""

    continuation: str
    share: float  # of the references in it, 0 to 1
    exact: bool  # whether all of them are
    place: float | None  # of the answer in the prompt, 0 to 1


@dataclass(frozen=True)
class Answers:
    """What a model wrote after several prompts, in their order, and its scores."""

    each: tuple[Answer, ...]

    @cached_property
    def share(self) -> Estimate:
        """RULER's score with a bootstrap interval over the examples."""
        return bootstrap_mean(np.array([answer.share for answer in self.each]))

    @cached_property
    def exact(self) -> Estimate:
        """The share of exact matches with Wilson's interval."""
        return share_right(np.array([answer.exact for answer in self.each]))

    def by_place(self, places: Sequence[float] = POSITIONS) -> dict[float, "Answers"]:
        """Return the answers at each place that has some, those in between at the nearest."""
        by_place: dict[float, list[Answer]] = {place: [] for place in places}
        for answer in self.each:
            if answer.place is not None:
                nearest = np.abs(np.array(places) - answer.place).argmin()
                by_place[places[int(nearest)]].append(answer)
        return {place: Answers(tuple(answers)) for place, answers in by_place.items() if answers}

    def as_json(self) -> dict[str, Any]:
        """Return every estimate as JSON values."""
        def both(answers: Answers) -> dict[str, Any]:
            return {"share": asdict(answers.share), "exact": asdict(answers.exact)}

        places = {str(place): both(answers) for place, answers in self.by_place().items()}
        return {**both(self), "by_place": places}


def task_examples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: AnyTask, *,
                  length: int, each: int, places: Sequence[float] = POSITIONS,
                  seed: int = 1) -> list[Example]:
    """Return the examples by which a model is scored on a task, those of the first place first.

    A prompt and its answer have at most `length` tokens. There are `each` examples at each place; a
    task without places has as many altogether.
    """
    check_tokenizer(tokenizer)
    check_length(model, "length", length)
    if not task.placed:
        return task.examples(tokenizer, each * len(places), length=length, seed=seed)
    return [example for place in places
            for example in task.examples(tokenizer, each, length=length, seed=seed, place=place)]


def answer_examples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase,
                    examples: Sequence[Example],
                    on_answer: Callable[[Answer], None] = lambda answer: None) -> Answers:
    """Score a model on examples by greedy decoding; `on_answer` is called after each."""
    check_tokenizer(tokenizer)
    if not examples:
        raise ValueError("examples: got none, wanted one or more")
    answers = []
    for example in examples:
        text = continuation(model, tokenizer, example.prompt, answer_room(tokenizer, example))
        share = contained(text, example)
        answers.append(Answer(text, share, share == 1, example.place))
        on_answer(answers[-1])
    return Answers(tuple(answers))


def check_tokenizer(tokenizer: Any) -> None:
    """Raise ValueError unless there is a tokenizer."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"tokenizer: got {type(tokenizer).__name__}, wanted one of transformers; "
                         "save the model's tokenizer beside it")


def contained(text: str, example: Example) -> float:
    """Return the share of an example's references in a text."""
    hits = [reference.casefold() in text.casefold() for reference in example.answers]
    return sum(hits) / len(hits)


@torch.no_grad()
def continuation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str,
                 tokens: int) -> str:
    """Return the text of at most `tokens` tokens that a model writes after a prompt, greedily.

    It is generated with the cache of the model's present attention; where a mechanism has none,
    every token is computed from the whole text.
    """
    ids = torch.tensor([prompt_ids(tokenizer, prompt)], dtype=torch.long)
    check_length(model, "prompt", ids.shape[1] + tokens)
    name = attention_of(model).name
    past: dict[str, Any] = {"use_cache": name == "full"}
    if name in CACHES:
        past = {"past_key_values": CACHES[name](model)}
    end = model.generation_config.eos_token_id  # generation asks for padding, one row needs none
    ids, training = ids.to(model.device), model.training
    try:
        model.eval()
        generator: Any = model  # its mixin's attributes are not annotated
        written = generator.generate(ids, attention_mask=torch.ones_like(ids),
                                     max_new_tokens=tokens, **GREEDY, **past,
                                     pad_token_id=end if isinstance(end, int) else 0)
    finally:
        model.train(training)
    return str(tokenizer.decode(written[0, ids.shape[1]:], skip_special_tokens=True))
