"""`cca-lab study lengths`: the loss by the length of the context, with every mechanism."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab import models
from cca_lab.mechanisms import MECHANISMS, Mechanism, class_of, mechanism_of
from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.options import Count
from cca_lab.reporting import command_line, device, machine
from cca_lab.studies.study import (
    TextStudy,
    cell,
    continued,
    load,
    markdown,
    measure_missing,
    with_kept_heads,
    writing,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FIRST = 256  # tokens of the first bucket; each next one is as long as all before it
HIDDEN_AT_ONCE = 512  # rows of logits in memory at a time
STAR = "* chooses with the help of later tokens."


@dataclass(frozen=True, kw_only=True)
class Lengths(TextStudy):
    """Measure the loss by context length of every untrained swap, and of finetuned models.

    A token is predicted from all tokens of its window before it. A mechanism whose rows depend on
    later tokens (its causal scope says so) has no perplexity in that sense; its number is marked.
    """

    length: Count = 4096
    """Tokens per window."""
    windows: Count = 4
    """Number of windows of held-out text."""
    entries: Count = 512
    """Entries (a key and a value each) to keep per KV head."""
    attention: tuple[str, ...] = ()
    """Mechanisms to swap in, untrained; by default all."""
    swapped: tuple[str, ...] = ()
    """Mechanisms with options of their own, NAME=JSON: sink={"name": "cca", "sinks": 1}; with
    "heads" (a file) and "keep", kept heads beside it."""
    trained: tuple[str, ...] = ()
    """Finetuned models to measure as well, NAME=FOLDER."""
    out: Path | None = None
    """JSON file to write; what it holds is not measured again."""

    def run(self) -> dict[str, Any]:
        """Measure the mechanisms and models that the file lacks; print the table."""
        from cca_lab.models.evaluate import texts_of

        with writing(self.out):
            if not FIRST <= self.length <= self.context:
                raise ValueError(f"length: got {self.length}, wanted {FIRST} to {self.context}, "
                                 "the model's context; choose another number")
            ids = texts_of(self.held_out, self.windows, self.length).to(device())
            settings = {"model": self.name, "length": self.length, "windows": len(ids),
                        "entries": self.entries, "buckets": buckets(self.length),
                        "corpus": self.about_text()}
            result = continued(self.out, settings, "rows") or {
                **settings, "command": command_line(), "rows": {}}
            cells = self.cells()
            for name in cells.keys() & result["rows"].keys():
                each, row = cells[name], result["rows"][name]
                if not isinstance(each, str) and row["options"] != each.options():
                    raise ValueError(f"out: {self.out} holds {name!r} with the options "
                                     f"{row['options']}, wanted {each.options()}; choose another "
                                     "name or file")
            measure_missing(self.out, result, cells,
                            lambda name, each, report: self.row(each, ids))
        print(table(result))
        return result

    def cells(self) -> dict[str, Mechanism | str]:
        """Return the mechanisms, and the folders of the models."""
        from cca_lab.mechanisms.caches import fits, fitted

        cells: dict[str, Mechanism | str] = {}
        names = self.attention or [
            "full", *(name for name, mechanism in MECHANISMS.items() if name != "full"
                      and not (mechanism.training_only or mechanism.of_one_model))]
        for name in names:
            class_of(name, "attention")
            cells[name] = fitted(self.loaded[0].config, name, self.entries, self.length) \
                if fits(name) else mechanism_of(name, {})
        for name, mechanism in map(_named_mechanism, self.swapped):
            _check_new("swapped", name, cells)
            cells[name] = mechanism
        for words in self.trained:
            name, _, folder = words.partition("=")
            _check_new("trained", name, cells)
            cells[name] = folder
        return cells

    def row(self, each: Mechanism | str, ids: Tensor) -> dict[str, Any]:
        """Return the losses of a mechanism, or of the finetuned model in a folder."""
        if isinstance(each, str):
            model, _ = load(each)
        else:
            torch.manual_seed(0)  # of a mechanism's own weights
            model = models.swap_attention(self.loaded[0], each)
            model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        return {"swapped": not isinstance(each, str), "machine": machine(),
                **losses_of(model, ids)}


def _check_new(option: str, name: str, cells: Mapping[str, Any]) -> None:
    """Raise ValueError for the name of another row, or of a mechanism with its own options."""
    if name in cells or name in MECHANISMS:
        raise ValueError(f"{option}: got {name!r}, the name of another row or of a mechanism; "
                         f"choose another, such as {name}-2")


def _named_mechanism(words: str) -> tuple[str, Mechanism]:
    """Return the name and the mechanism of a NAME=JSON."""
    name, _, text = words.partition("=")
    options = json.loads(text)
    heads, keep, attention = (options.pop(key, None) for key in ("heads", "keep", "name"))
    from cca_lab.models.plugin import written_choice

    chosen, written = with_kept_heads(attention, written_choice(attention, options),
                                      None if heads is None else Path(heads), keep)
    return name, mechanism_of(str(chosen), written)


def buckets(length: int) -> list[int]:
    """Return the first token of each bucket and, last, the length: 0, 256, 512, 1024, ..."""
    edges = [0, FIRST]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return edges


def losses_of(model: "PreTrainedModel", ids: Tensor) -> dict[str, Any]:
    """Return mean loss and perplexity of each bucket, ids (windows, length), as JSON."""
    from cca_lab.models.evaluate import bootstrap_mean

    edges, mechanism = buckets(ids.shape[1]), models.attention_of(model)
    losses = np.stack([token_losses(model, row) for row in ids])  # (windows, length - 1)
    # token t is predicted from t tokens, and stands at index t - 1
    means = np.stack([losses[:, max(0, low - 1):high - 1].mean(1)
                      for low, high in pairwise(edges)], axis=1)
    return {"attention": mechanism.name, "options": mechanism.options(),
            "causal_scope": mechanism.causal_scope, "losses": means.round(5).tolist(),
            "perplexity": [asdict(bootstrap_mean(column, np.exp)) for column in means.T]}


@torch.no_grad()
def token_losses(model: "PreTrainedModel", ids: Tensor) -> np.ndarray:
    """Return the loss of tokens after the first, (L - 1,) in nats; few logits at a time."""
    model.eval()
    head, output = model.get_output_embeddings(), model.base_model(ids[None], use_cache=False)
    chunks = zip(output.last_hidden_state[0, :-1].split(HIDDEN_AT_ONCE),
                 ids[1:].split(HIDDEN_AT_ONCE), strict=True)
    losses = [F.cross_entropy(head(hidden).float(), targets, reduction="none")
              for hidden, targets in chunks]
    return torch.cat(losses).double().cpu().numpy()


def table(result: Mapping[str, Any], titles: Mapping[str, str] | None = None) -> str:
    """Return the table of perplexity by context length; `titles` chooses and names the rows."""
    titles = titles or {name: name for name in result["rows"]}
    rows = [[starred(title, result["rows"][name]),
             *(cell(each["value"], digits=1) for each in result["rows"][name]["perplexity"])]
            for name, title in titles.items()]
    machines = [row["machine"] for row in result["rows"].values()]
    cpus = " and ".join(dict.fromkeys(each["cpu"] for each in machines))
    return markdown(
        ["attention", *(f"{low} to {high}" for low, high in pairwise(result["buckets"]))], rows,
        "{model}, {windows} windows of {length} tokens, {entries} entries a KV head if a cache can "
        "be sized and no options are named; ".format_map(result)
        + f"{cpus}, torch {machines[0]['torch']}. {STAR}")


def starred(title: str, row: Mapping[str, Any]) -> str:
    """Return the title, with a star if what a row reads depends on later tokens."""
    return title + " *" * (row["causal_scope"] != EVERY_ROW)
