"""The two scores of a checkpoint: perplexity on held-out text, and exact match on questions."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import binomtest, bootstrap
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.models.inputs import check_length, check_model, check_token_ids
from cca_lab.settings import check_integers, check_numbers
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.multi_document_qa import MultiDocumentQA

RESAMPLES = 2000
OFFSETS = 16
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        samples: number of independent samples (windows, questions).
    """

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
    return Estimate(point, float(transform(interval.low)), float(transform(interval.high)), len(values))


def perplexity(model: PreTrainedModel, stream: Tensor, *, length: int, windows: int = 64,
               batch: int = 4) -> Estimate:
    """Return the perplexity per token over evenly spaced windows of a held-out stream.

    It is exp of the mean of `window_losses`, and takes the same arguments.
    """
    return bootstrap_mean(window_losses(model, stream, length=length, windows=windows, batch=batch), np.exp)


@torch.no_grad()
def window_losses(model: PreTrainedModel, stream: Tensor, *, length: int, windows: int = 64,
                  batch: int = 4) -> np.ndarray:
    """Return the mean negative log-likelihood of each of some evenly spaced windows of a stream, (windows,) in nats.

    Every window starts without context, so its first tokens are harder to predict than in running
    text. The losses of two models on the same windows can be compared in pairs.

    Args:
        model: evaluated in evaluation mode; its own mode is restored.
        stream: (n,) token ids.
        length: tokens per window, at most the model's context.
        windows: number of windows; at most n // length are used.
        batch: windows per forward pass.

    Raises:
        ValueError: for zero windows, a window of one token or longer than the model's context, a stream shorter
            than a window, or ids outside the model's vocabulary.
    """
    check_model(model)
    check_integers(1, windows=windows, batch=batch)
    check_integers(2, length=length)  # the first token of a window is not predicted
    check_length(model, "length", length)
    check_token_ids(model, "stream", stream)
    if len(stream) < length:
        raise ValueError(f"stream: {len(stream)} tokens, wanted at least one window of {length}; "
                         "give more text or a shorter length")
    starts = window_starts(len(stream), length, min(windows, len(stream) // length))
    rows = stream[starts[:, None] + torch.arange(length)]  # (windows, length)
    losses = [_row_losses(model, chunk) for chunk in rows.to(model.device).split(batch)]
    return torch.cat(losses).double().cpu().numpy()


def window_starts(tokens: int, length: int, windows: int) -> Tensor:
    """Return the starts of windows spaced evenly over a stream of tokens, int64 (windows,)."""
    last = tokens - length
    return torch.linspace(0, last, windows).long().clamp(max=last)  # float32 rounds up beyond 2**24


def _row_losses(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of each row's tokens after the first, (B,)."""
    logits = _in_eval_mode(model, input_ids)[:, :-1].float()  # (B, L-1, V)
    losses = F.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none")  # (B, L-1)
    return losses.mean(dim=1)


def _in_eval_mode(model: PreTrainedModel, input_ids: Tensor, **options: Any) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        return model(input_ids=input_ids, use_cache=False, **options).logits
    finally:
        model.train(was_training)


def share_right(hits: np.ndarray) -> Estimate:
    """Estimate a share of successes with Wilson's interval, which has a width even if all are right or all wrong."""
    found = binomtest(int(hits.sum()), hits.size)
    interval = found.proportion_ci(method="wilson")
    return Estimate(float(hits.mean()), float(interval.low), float(interval.high), hits.size)


@dataclass(frozen=True)
class Matches:
    """Which questions were answered correctly, by the place of the answer and the offset of the text.

    Attributes:
        hits: bool (positions, offsets, questions).
        positions: places of the answering document, 0 (first) to 1 (last).
    """

    hits: np.ndarray
    positions: tuple[float, ...]

    @property
    def overall(self) -> Estimate:
        """The share over all positions and offsets."""
        return share_right(self.hits)

    def by_position(self) -> dict[float, Estimate]:
        """Return the share at each position, over all offsets."""
        return {position: share_right(hits) for position, hits in zip(self.positions, self.hits, strict=True)}

    def by_offset(self) -> list[Estimate]:
        """Return the share at each offset (0, 1, ... tokens before the documents), over all positions."""
        return [share_right(hits) for hits in self.hits.swapaxes(0, 1)]

    def packed(self) -> str:
        """Return every hit as one bit, in hexadecimal, so that two models can be compared question by question."""
        return np.packbits(self.hits).tobytes().hex()

    def as_json(self) -> dict[str, Any]:
        """Return every estimate as JSON values."""
        return {**{str(position): asdict(value) for position, value in self.by_position().items()},
                "all": asdict(self.overall), "by_offset": [asdict(value) for value in self.by_offset()]}


@torch.no_grad()
def exact_match(model: PreTrainedModel, task: MultiDocumentQA, *, length: int, text: Tensor | None = None,
                offsets: int = OFFSETS, questions: int = 64, positions: tuple[float, ...] = POSITIONS,
                batch: int = 16, seed: int = 1) -> Matches:
    """Return which questions a model answers exactly, with greedy decoding.

    A mechanism that pools groups of tokens may answer only where a document fills a whole group.
    Therefore the documents are preceded by 0, 1, ... `offsets` - 1 tokens of other text.

    Args:
        model: any causal language model of transformers.
        task: the questions, in the tokens of the model's tokenizer.
        length: the longest context, in tokens.
        text: (n,) token ids of a text from which the tokens before the documents are drawn.
        offsets: number of offsets: 0, 1, ... tokens of text before the documents.
        questions: questions per position, rounded up to a multiple of `offsets`.
        positions: places of the answering document, 0 (first) to 1 (last).
        batch: contexts per forward pass.
        seed: seed of the questions; use the same for models that are compared.

    Raises:
        ValueError: for zero questions, a context too short for one document or longer than the model's, offsets
            without text, or ids outside the model's vocabulary.
    """
    check_model(model)
    check_integers(1, questions=questions, length=length, offsets=offsets, batch=batch)
    check_integers(0, seed=seed)
    check_length(model, "length", length)
    for position in positions:
        check_numbers(0, 1, positions=position)
    if text is not None:
        check_token_ids(model, "text", text)
    shortest = task.document_length + task.question_length
    if length - offsets + 1 < shortest:
        raise ValueError(f"length: got {length}, wanted at least {shortest + offsets - 1} tokens (one document, the "
                         "question, and the text before them)")
    if offsets > 1 and (text is None or len(text) < offsets):
        raise ValueError(f"offsets: got {offsets}, wanted 1, or a text of as many tokens to put before the documents")
    each = -(-questions // offsets)
    hits = np.zeros((len(positions), offsets, each), dtype=bool)
    for at in np.ndindex(len(positions), offsets):
        place, offset = at
        generator = torch.Generator().manual_seed(_draw_seed(seed, *at))
        drawn = task.batch(each, length - offsets + 1, generator, positions[place])
        before = [random_windows(text, each, offset, generator)] if offset and text is not None else []
        ids = torch.cat([*before, drawn.input_ids], dim=1)  # (each, L)
        logits = torch.cat([_in_eval_mode(model, rows.to(model.device), logits_to_keep=1) for rows in ids.split(batch)])
        hits[at] = (logits[:, -1].argmax(-1).cpu() == drawn.answers).numpy()  # every answer is one token
    return Matches(hits, positions)


def _draw_seed(*entropy: int) -> int:
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
