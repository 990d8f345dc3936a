"""Two numbers for a checkpoint: perplexity on held-out text, exact match on questions."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import bootstrap
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.tasks.multi_document_qa import MultiDocumentQA

RESAMPLES = 2000
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        samples: how many independent samples (windows, questions) it rests on.
    """

    value: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap_mean(values: np.ndarray, transform=lambda mean: mean, seed: int = 0) -> Estimate:
    """Estimate transform(mean of values) with a percentile bootstrap interval over the values."""
    point = float(transform(values.mean()))
    if len(values) < 2 or np.ptp(values) == 0:  # nothing to resample
        return Estimate(point, point, point, len(values))
    interval = bootstrap((values,), np.mean, n_resamples=RESAMPLES, method="percentile",
                         rng=np.random.default_rng(seed)).confidence_interval
    return Estimate(point, float(transform(interval.low)), float(transform(interval.high)), len(values))


@torch.no_grad()
def perplexity(model: PreTrainedModel, stream: Tensor, *, length: int, windows: int = 64,
               batch: int = 4) -> Estimate:
    """Return the perplexity per token over evenly spread windows of a held-out stream.

    exp of the mean negative log-likelihood; every window starts without context,
    so its first tokens are harder than they would be in running text.

    Args:
        model: in evaluation mode or not; its mode is kept.
        stream: (n,) token ids.
        length: tokens of a window, at most the model's context.
        windows: how many windows, at most n // length.
        batch: windows a forward.

    Raises:
        ValueError: for no window, one that predicts nothing, or a stream shorter than one.
    """
    if windows < 1:
        raise ValueError(f"windows: got {windows}, wanted 1 or more")
    if length < 2:
        raise ValueError(f"length: got {length}, wanted 2 or more; the first token of a window is not predicted")
    if len(stream) < length:
        raise ValueError(f"stream: {len(stream)} tokens, wanted at least one window of {length}; "
                         "give more text or a shorter length")
    starts = window_starts(len(stream), length, min(windows, len(stream) // length))
    rows = stream[starts[:, None] + torch.arange(length)]  # (windows, length)
    losses = [_window_losses(model, chunk) for chunk in rows.to(model.device).split(batch)]
    return bootstrap_mean(torch.cat(losses).double().cpu().numpy(), np.exp)


def window_starts(tokens: int, length: int, windows: int) -> Tensor:
    """Return where windows spread evenly over a stream of tokens begin, int64 (windows,)."""
    last = tokens - length
    return torch.linspace(0, last, windows).long().clamp(max=last)  # float32 rounds up beyond 2**24


def _window_losses(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of each row's tokens 1.., (B,)."""
    logits = _in_eval_mode(model, input_ids)[:, :-1].float()  # (B, L-1, V)
    losses = F.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none")  # (B, L-1)
    return losses.mean(dim=1)


def _in_eval_mode(model: PreTrainedModel, input_ids: Tensor, **options) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        return model(input_ids=input_ids, use_cache=False, **options).logits
    finally:
        model.train(was_training)


@torch.no_grad()
def exact_match(model: PreTrainedModel, task: MultiDocumentQA, *, length: int, questions: int = 100,
                positions: tuple[float, ...] = POSITIONS, batch: int = 10,
                seed: int = 1) -> dict[float | str, Estimate]:
    """Return the share of questions whose greedily decoded answer is exactly right.

    Args:
        model: any causal language model of transformers.
        task: the questions, in the model's tokens.
        length: the longest context, in tokens.
        questions: how many questions for each position.
        positions: where the answering document stands, 0 (first) to 1 (last).
        batch: contexts a forward.
        seed: of the questions; the same for every model, so that they compare.

    Returns:
        One estimate for each position, and one under "all".

    Raises:
        ValueError: for no questions, or a context too short for one document.
    """
    if questions < 1 or length < task.document_length + task.question_length:
        raise ValueError(f"questions, length: got {questions} and {length}, wanted at least 1 question and "
                         f"{task.document_length + task.question_length} tokens (one document and the question)")
    hits: dict[float | str, np.ndarray] = {}
    for position in positions:
        generator = torch.Generator().manual_seed(seed)
        right = []
        for start in range(0, questions, batch):
            rows = min(batch, questions - start)
            drawn = task.batch(rows, length, generator, position)
            logits = _in_eval_mode(model, drawn.input_ids.to(model.device), logits_to_keep=1)
            right.append(logits[:, -1].argmax(-1).cpu() == drawn.answers)  # an answer is one token
        hits[position] = torch.cat(right).double().numpy()
    hits["all"] = np.concatenate(list(hits.values()))
    return {key: bootstrap_mean(values) for key, values in hits.items()}
