"""Is one setting better than another, and does a whole order hold? Differences paired by seed or by window."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from cca_lab.models.evaluate import bootstrap_mean
from cca_lab.studies.convergence import Difference, paired
from cca_lab.studies.evaluate import KINDS

AGREES, DISAGREES, UNSEEN, ONE_SEED = "agrees", "disagrees", "not seen here", "one seed"
VERDICTS = (AGREES, DISAGREES, UNSEEN, ONE_SEED)


def difference(rows: Sequence[dict], others: Sequence[dict], metric: str) -> Difference | None:
    """Return the mean difference of two settings with its 95 % interval; None where nothing tells its spread.

    Trained settings are paired by seed (Student's t over the seeds). Settings with one row each are paired by window of
    text or by question (bootstrap), which says nothing about another training run.

    Args:
        rows, others: the measurements of the two settings, one for each seed, in the order of the seeds.
        metric: as in `values`.
    """
    if min(len(rows), len(others)) >= 2:
        count = min(len(rows), len(others))
        return paired(values(rows, metric)[:count], values(others, metric)[:count])
    samples = [_samples(row[0], metric) for row in (rows, others)]
    if any(sample is None for sample in samples):
        return None
    found = bootstrap_mean(np.subtract(*samples))
    return Difference(found.value, (found.high - found.low) / 2)


def _samples(row: dict, metric: str) -> np.ndarray | None:
    """Return the loss of each window of text, or 1 for each question not answered; None if the row does not tell."""
    if metric == "perplexity":
        return np.array(row["losses"]) if "losses" in row else None
    kinds = [row[kind] for kind in KINDS]
    if not all("hits" in kind for kind in kinds):
        return None
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(kind["hits"]), dtype=np.uint8)) for kind in kinds]
    return 1.0 - np.concatenate([found[: kind["all"]["samples"]] for found, kind in zip(bits, kinds, strict=True)])


def values(rows: Sequence[dict], metric: str) -> np.ndarray:
    """Return a number for each row.

    Args:
        rows: measurements of a study.
        metric: "perplexity", the logarithm of the perplexity over the base's; or "answers", the share of questions
            that is not answered, over documents of both kinds. Smaller is better for both.
    """
    if metric == "perplexity":
        return np.log([row["perplexity_ratio"]["value"] for row in rows])
    return 1 - np.mean([[row[kind]["all"]["value"] for kind in KINDS] for row in rows], axis=1)


def ordering(arms: Mapping[str, Sequence[dict]], order: Sequence[str], metric: str) -> str:
    """Return the verdict on an order that a paper claims.

    Args:
        arms: measurements by setting.
        order: the settings from the best to the worst, as claimed; missing ones are left out.
        metric: as in `values`.

    Returns:
        DISAGREES if any two neighbours, or the two ends, differ the other way round with 95 % confidence;
        AGREES if otherwise the ends differ as claimed; UNSEEN if no difference is large enough to tell.
    """
    there = [name for name in order if arms.get(name)]
    if len(there) < 2:
        return UNSEEN
    ends = difference(arms[there[0]], arms[there[-1]], metric)
    pairs = [difference(arms[left], arms[right], metric) for left, right in pairwise(there)]
    if any(pair is not None and pair.verdict == "higher" for pair in (ends, *pairs)):
        return DISAGREES
    return AGREES if ends is not None and ends.verdict == "lower" else UNSEEN
