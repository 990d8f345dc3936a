"""The tokenizer in the form that `js/tokenizer.js` reads."""

import json
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def vocabulary(tokenizer: PreTrainedTokenizerBase | None, name: str) -> dict[str, Any]:
    """Return the tokens of a byte-level BPE tokenizer, one character of code 0 to 255 for each byte, and its merges.

    Args:
        tokenizer: as `load_pretrained` returns it.
        name: the model's, for the message.

    Raises:
        ValueError: for any other tokenizer, or none.
    """
    kind = "none" if tokenizer is None else type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    settings = {} if backend is None else json.loads(backend.to_str())
    model, split = settings.get("model", {}), settings.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or settings["normalizer"] or {key: split.get(key) for key in SPLIT} != SPLIT:
        raise ValueError(f"tokenizer: {name} has {kind}, wanted byte-level BPE as `cca-lab pretrain` trains it; take "
                         "data/models/gpt2-mini")
    special = [token["content"] for token in settings["added_tokens"]]
    byte_of = {character: chr(byte) for byte, character in bytes_to_unicode().items()}
    ids = model["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    return {"tokens": [token if token in special else "".join(byte_of[one] for one in token) for token in tokens],
            "merges": [[ids[left], ids[right]] for left, right in model["merges"]], "special": special}
