"""What the page knows besides its program: models, tokenizer, questions, mechanisms, settings."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from cca_lab.mechanisms import Full, Mechanism, mechanism_of
from cca_lab.models.checkpoints import load_pretrained
from cca_lab.models.evaluate import OFFSETS
from cca_lab.models.plugin import attention_of
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA
from cca_lab.views.page.mechanisms import check_options, controls
from cca_lab.views.page.weights import pack, sizes

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase | None]
BEFORE = ('"""Read the lines of a file, and return those that are not empty, '
          'in the order of the file."""\n\n\n')
SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def page_data(sources: Sequence[str], attention: str | None = None,
              options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the page's program reads, as JSON values.

    Args:
        sources: folders of models of one architecture and one tokenizer, a finetuned one after that
            which it began as.
        attention: the mechanism that is chosen at first; by default that of a model, or full.
        options: of that mechanism; those left out are the model's, or the defaults.

    Raises:
        ValueError: for a model or mechanism that the page cannot compute, or different tokenizers.
    """
    if not sources:
        raise ValueError("model: got none, wanted one or more; give data/models/gpt2-mini")
    if attention is not None:
        check_options(attention, options or {})
    loaded = [load_pretrained(source, merged=True) for source in sources]
    for (model, _), source in zip(loaded, sources, strict=True):
        sizes(model, source)
    words = _words(loaded, sources)
    packed = pack([model for model, _ in loaded], sources)
    trained = [attention_of(model) for model, _ in loaded]
    chosen = [mechanism for mechanism in trained if mechanism.name != "full"
              and _offered(mechanism)]
    start = chosen[0] if chosen else Full()
    if attention not in (None, start.name):
        start = mechanism_of(attention, {})
    return {"packed": asdict(packed), "vocabulary": words, "questions": questions(loaded[0][1]),
            "mechanisms": controls(packed.config["positions"]),
            "models": [{"name": Path(source).name, "trained": str(mechanism)}
                       for source, mechanism in zip(sources, trained, strict=True)],
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
    all_words = [vocabulary(tokenizer, source) for (_, tokenizer), source
                 in zip(loaded, sources, strict=True)]
    for words, source in zip(all_words, sources, strict=True):
        if words != all_words[0]:
            raise ValueError(
                f"tokenizer: that of {source} differs from that of {sources[0]}, wanted one "
                "tokenizer for all models of a page; write two pages")
    return all_words[0]


def questions(tokenizer: Any) -> dict[str, Any]:
    """Return names, phrases and the text before the documents, as a tokenizer's tokens.

    "first" and "last" are names, one token each; "kinds" has for each kind of documents its title
    and its frames, the words before and after the two names, by the tokens of a document; of
    "before" the last 0 to `OFFSETS` - 1 tokens stand before the documents.
    """
    even, varied = MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)
    end = even.end.tolist()
    fixed = [[work, end] for work in even.works.tolist()]
    frames = [[[opening, [*closing, *end]] for opening, closing in pairs]
              for pairs in varied.frames.values()]
    return {"first": even.first.tolist(), "last": even.last.tolist(), "offsets": OFFSETS,
            "before": tokenizer.encode(BEFORE, add_special_tokens=False)[-OFFSETS:],
            "kinds": [{"title": f"of {even.document_length} tokens", "frames": [fixed]},
                      {"title": f"of {min(varied.frames)} to {max(varied.frames)} tokens",
                       "frames": frames}]}


def vocabulary(tokenizer: PreTrainedTokenizerBase | None, name: str) -> dict[str, Any]:
    """Return merges and tokens of a byte-level BPE, a character of code 0 to 255 a byte."""
    kind = "none" if tokenizer is None else type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    settings = {} if backend is None else json.loads(backend.to_str())
    model, split = settings.get("model", {}), settings.get("pre_tokenizer") or {}
    if (model.get("type") != "BPE" or settings["normalizer"]
            or {key: split.get(key) for key in SPLIT} != SPLIT):
        raise ValueError(
            f"tokenizer: {name} has {kind}, wanted byte-level BPE as `cca-lab pretrain` trains it; "
            "take data/models/gpt2-mini")
    special = [token["content"] for token in settings["added_tokens"]]
    byte_of = {character: chr(byte) for byte, character in bytes_to_unicode().items()}
    ids = model["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    as_bytes = str.maketrans(byte_of)
    return {"tokens": [token if token in special else token.translate(as_bytes)
                       for token in tokens],
            "merges": [[ids[left], ids[right]] for left, right in model["merges"]],
            "special": special}
