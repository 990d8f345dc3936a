"""Everything that the page knows besides its program: models, tokenizer, questions, mechanisms, the first setting."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.mechanisms import Full, Mechanism, mechanism_of
from cca_lab.models.checkpoints import load_pretrained
from cca_lab.models.plugin import attention_of
from cca_lab.views.page.mechanisms import check_options, controls
from cca_lab.views.page.questions import questions
from cca_lab.views.page.vocabulary import vocabulary
from cca_lab.views.page.weights import pack, sizes

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase | None]


def page_data(sources: Sequence[str], attention: str | None = None,
              options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the page's program reads, as JSON values.

    Args:
        sources: folders of models of one architecture and one tokenizer, a finetuned one after that which it began as.
        attention: the mechanism that is chosen at first; None for the one that a model was saved with, or full.
        options: of that mechanism; those left out keep the values that the model was saved with, or the defaults.

    Raises:
        ValueError: for a model or a mechanism that the page cannot compute, before any work; for different tokenizers.
    """
    if not sources:
        raise ValueError("model: got none, wanted one or more; give data/models/gpt2-mini")
    if attention is not None:
        check_options(attention, options or {})
    loaded = [load_pretrained(source) for source in sources]
    for (model, _), source in zip(loaded, sources, strict=True):
        sizes(model, source)
    words = _words(loaded, sources)
    packed = pack([model for model, _ in loaded], sources)
    trained = [attention_of(model) for model, _ in loaded]
    start = next((one for one in trained if one.name != "full" and _offered(one)), Full())
    if attention not in (None, start.name):
        start = mechanism_of(attention, {})
    return {"packed": asdict(packed), "vocabulary": words, "questions": questions(loaded[0][1]),
            "mechanisms": controls(packed.config["positions"]),
            "models": [{"name": Path(source).name, "trained": str(one)}
                       for source, one in zip(sources, trained, strict=True)],
            "start": {"mechanism": start.name, "options": start.options() | (options or {})}}


def _offered(mechanism: Mechanism) -> bool:
    """Return whether the page can compute a mechanism with all its options."""
    try:
        check_options(mechanism.name, mechanism.options())
    except ValueError:
        return False
    return True


def _words(loaded: Sequence[Loaded], sources: Sequence[str]) -> dict[str, Any]:
    """Return the vocabulary that all models share."""
    all_words = [vocabulary(tokenizer, source) for (_, tokenizer), source in zip(loaded, sources, strict=True)]
    for words, source in zip(all_words, sources, strict=True):
        if words != all_words[0]:
            raise ValueError(f"tokenizer: that of {source} differs from that of {sources[0]}, wanted one tokenizer for "
                             "all models of a page; write two pages")
    return all_words[0]
