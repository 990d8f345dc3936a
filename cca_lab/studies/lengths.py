"""`cca-lab study lengths`: the loss by the length of the context, with every mechanism."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.mechanisms import MECHANISMS, Mechanism, class_of, mechanism_of
from cca_lab.mechanisms.caches import LEAST, fits, fitted
from cca_lab.models import attention_of, load_pretrained, swap_attention
from cca_lab.models.checkpoints import config_of, parts_of, source_of
from cca_lab.models.evaluate import bootstrap_mean, window_starts
from cca_lab.models.plugin import written_choice
from cca_lab.reporting import command_line, device, machine, print_table
from cca_lab.settings import LARGEST_WRITTEN, check_sizes, option
from cca_lab.studies.study import Continued, Interval, ModelStudy, Report, with_kept_heads

FIRST = 256  # tokens of the first bucket; each next one is as long as all before it
HIDDEN_AT_ONCE = 512  # rows of logits in memory at a time


class LengthsRow(TypedDict):
    """What one mechanism measured, as far as it is shown."""

    attention: str
    options: dict[str, Any]
    perplexity: list[Interval]


@dataclass(frozen=True, kw_only=True)
class Lengths(Continued, ModelStudy):
    """Measure the loss by context length of every untrained swap, and of finetuned models.

    A token is predicted from all tokens of its window before it. A mechanism whose rows depend on
    later tokens (its causal scope says so) has no perplexity in that sense; its number is marked.
    """

    row: ClassVar[Any] = LengthsRow
    length: int = option(4096, "Tokens per window.")
    windows: int = option(4, "Number of windows of held-out text.", least=1, most=2**16)
    entries: int = option(512, "Entries (a key and a value each) to keep per KV head.", least=LEAST,
                          most=LARGEST_WRITTEN)
    attention: tuple[str, ...] = option((), "Mechanism to swap in, untrained; repeatable.",
                                        shown="all")
    swapped: tuple[str, ...] = option(
        (), 'A mechanism with options of its own, under a name: sink={"name": "cca", "sinks": 1}; '
            'with "heads" (a file) and "keep", kept heads beside it; repeatable.',
        metavar="NAME=JSON")
    trained: tuple[str, ...] = option((), "A finetuned model to measure as well; repeatable.",
                                      metavar="NAME=FOLDER")

    @cached_property
    def ids(self) -> Tensor:
        """The windows, (windows, length) token ids."""
        check_sizes(length=(self.length, FIRST, self.context))
        starts = window_starts(len(self.held_out), self.length,
                               min(self.windows, len(self.held_out) // self.length))
        return self.held_out[starts[:, None] + torch.arange(self.length)].to(device())

    def settings(self) -> dict[str, Any]:
        """Return the model and the sizes."""
        return {"model": self.name, "length": self.length, "windows": len(self.ids),
                "entries": self.entries, "buckets": buckets(self.length),
                "corpus": self.about_text()}

    def facts(self) -> dict[str, Any]:
        """Return the first command."""
        return {"command": command_line()}

    def cells(self) -> dict[str, Mechanism | str]:
        """Return the mechanisms, and the folders of the finetuned models.

        Raises:
            ValueError: if a mechanism does not fit into the budget, or if there is no such folder.
        """
        cells: dict[str, Mechanism | str] = {}
        names = self.attention or [
            "full", *(name for name, mechanism in MECHANISMS.items() if name != "full"
                      and not (mechanism.training_only or mechanism.of_one_model))]
        for name in names:
            class_of(name, "attention")
            cells[name] = fitted(self.loaded[0].config, name, self.entries, self.length) \
                if fits(name) else mechanism_of(name, {})
        for name, mechanism in map(_named_mechanism, self.swapped):
            if name in cells:
                raise ValueError(f"swapped: got {name!r} twice, wanted each name once; choose "
                                 "another")
            cells[name] = mechanism
        for words in self.trained:
            name, _, folder = words.partition("=")
            if not name or not folder:
                raise ValueError(f"trained: got {words!r}, wanted NAME=FOLDER")
            if name in MECHANISMS:
                raise ValueError(
                    f"trained: got {name!r}, the name of a mechanism that is not trained; name the "
                    f"model otherwise, such as {name}-finetuned")
            if name in cells:
                raise ValueError(f"trained: got {name!r} twice, wanted each name once; choose "
                                 "another")
            rows = config_of(source_of(parts_of(folder)[0])).vocab_size
            if rows <= int(self.ids.max()):
                raise ValueError(f"trained: {folder} has a vocabulary of {rows} tokens, wanted "
                                 f"that of {self.model}; measure it by itself")
            cells[name] = folder
        return cells

    def check_row(self, name: str, cell: Mechanism | str, row: Mapping[str, Any]) -> None:
        """Raise ValueError if a row was measured with other options than those of now."""
        if not isinstance(cell, str) and row["options"] != cell.options():
            raise ValueError(f"out: {self.file} holds {name!r} with the options {row['options']}, "
                             f"wanted {cell.options()}; choose another name or file")

    def measure(self, name: str, cell: Mechanism | str, report: Report) -> dict[str, Any]:
        """Return the losses of a mechanism, or of the finetuned model in a folder."""
        if isinstance(cell, str):
            model, _ = load_pretrained(cell)
        else:
            model = self.loaded[0]
            torch.manual_seed(0)  # of a mechanism's own weights
            swap_attention(model, cell)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        return {"swapped": not isinstance(cell, str), "machine": machine(),
                **losses_of(model, self.ids)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print perplexity by context length, a row for each mechanism."""
        rows = [[name, *(f"{each['value']:.2f}" for each in row["perplexity"])]
                for name, row in result["rows"].items()]
        print_table(
            f"{result['model']}: perplexity of the tokens from .. to, {result['windows']} windows",
            ["attention", *(f"{low}-{high}" for low, high in pairwise(result["buckets"]))], rows)


def _named_mechanism(words: str) -> tuple[str, Mechanism]:
    """Return the name and the mechanism of a NAME=JSON."""
    name, _, text = words.partition("=")
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"swapped: got {words!r}, wanted NAME=JSON, such as "
                         'sink={"name": "cca", "sinks": 1}') from error
    if not name or not isinstance(options, dict) or "name" not in options:
        raise ValueError(f"swapped: got {words!r}, wanted a name, and an object with the mechanism "
                         'as "name"')
    if name in MECHANISMS:
        raise ValueError(f"swapped: got {name!r}, the name of a mechanism with its own options; "
                         f"name it otherwise, such as {name}-large")
    heads, keep = options.pop("heads", None), options.pop("keep", None)
    attention = options.pop("name")
    if heads is not None and not isinstance(heads, str):
        raise ValueError(f"swapped: got {heads!r} as heads, wanted the path of a file of `study "
                         "retrieval`")
    chosen, written = with_kept_heads(attention, written_choice(attention, options),
                                      None if heads is None else Path(heads), keep)
    return name, mechanism_of(str(chosen), written)


def buckets(length: int) -> list[int]:
    """Return the first token of each bucket and, last, the length: 0, 256, 512, 1024, ..."""
    edges = [0, FIRST]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return edges


def losses_of(model: PreTrainedModel, ids: Tensor) -> dict[str, Any]:
    """Return mean loss and perplexity of each bucket, ids (windows, length), as JSON."""
    edges, mechanism = buckets(ids.shape[1]), attention_of(model)
    losses = np.stack([token_losses(model, row) for row in ids])  # (windows, length - 1)
    # token t is predicted from t tokens, and stands at index t - 1
    means = np.stack([losses[:, max(0, low - 1):high - 1].mean(1)
                      for low, high in pairwise(edges)], axis=1)
    return {"attention": mechanism.name, "options": mechanism.options(),
            "causal_scope": mechanism.causal_scope, "losses": means.round(5).tolist(),
            "perplexity": [asdict(bootstrap_mean(column, np.exp)) for column in means.T]}


@torch.no_grad()
def token_losses(model: PreTrainedModel, ids: Tensor) -> np.ndarray:
    """Return the loss of tokens after the first, (L - 1,) in nats; few logits at a time."""
    model.eval()
    head, output = model.get_output_embeddings(), model.base_model(ids[None], use_cache=False)
    chunks = zip(output.last_hidden_state[0, :-1].split(HIDDEN_AT_ONCE),
                 ids[1:].split(HIDDEN_AT_ONCE), strict=True)
    losses = [F.cross_entropy(head(hidden).float(), targets, reduction="none")
              for hidden, targets in chunks]
    return torch.cat(losses).double().cpu().numpy()
