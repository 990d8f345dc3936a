"""What the studies of models share: a model and its text, files that go on, notes and tables."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import Tensor

from cca_lab import models
from cca_lab.files import check_file, held
from cca_lab.mechanisms import KeptHeads, Mechanism
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.options import Natural
from cca_lab.reporting import as_json, device, training_progress, write_json
from cca_lab.stored import read_json
from cca_lab.tasks.corpus import Corpus, load_corpus

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Report = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class ModelStudy:
    """The model that a study measures."""

    model: str
    """Folder of a model or an adapter, or a model's name on the Hugging Face hub."""
    adapter: str | None = None
    """Folder of an adapter of this model, as a finetuning with --strategy lora writes it."""

    @property
    def name(self) -> str:
        """The model's name: that of its folder, or of its adapter's."""
        return name_of(self.adapter or self.model)

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """The model with full attention, and its tokenizer."""
        return load(self.model, "full", adapter=self.adapter)

    @property
    def context(self) -> int:
        """The longest sequence that the model reads, in tokens."""
        return context_of(self.loaded[0])


@dataclass(frozen=True, kw_only=True)
class TextStudy(ModelStudy):
    """A model and a text."""

    text: str | None = None
    """Text to read: a file or a folder; by default Python's library."""

    @cached_property
    def corpus(self) -> Corpus:
        """The text; files of a folder that are left out are named."""
        return noted_corpus(self.text)

    @cached_property
    def held_out(self) -> Tensor:
        """The held-out side of the text, (n,) token ids."""
        from cca_lab.models.pretrain import tokenize

        return tokenize(self.corpus.validation, self.loaded[1])

    def about_text(self) -> dict[str, Any]:
        """Return what a file says about the text."""
        return {"name": self.corpus.name, "fingerprint": self.corpus.fingerprint}


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """A mechanism of choice; without one the attention that the model was saved with."""

    attention: str | None = None
    """Mechanism to swap in, such as cca or dga."""
    group: int | float | None = None
    """Tokens per group."""
    window: int | None = None
    """Local window, in tokens."""
    option: tuple[str, ...] = ()
    """Other options of the mechanism, NAME=VALUE, such as gamma=0.2."""
    heads: Path | None = None
    """File of `study retrieval`; its best KV heads attend in full, the others with --attention."""
    keep: Natural | None = None
    """How many KV heads of the model attend in full."""

    @cached_property
    def choice(self) -> tuple[str | None, dict[str, Any]]:
        """The mechanism's name and its checked options."""
        options = given(self.attention, self.option, group=self.group, window=self.window)
        return with_kept_heads(self.attention, options, self.heads, self.keep)


@dataclass(frozen=True, kw_only=True)
class SwappedStudy(ModelStudy, MechanismOptions):
    """A model under a mechanism of choice."""

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """The model under the mechanism, and its tokenizer."""
        attention, options = self.choice
        note_other_model(self.heads, self.model)
        return load(self.model, attention, adapter=self.adapter, **options)

    @property
    def mechanism(self) -> Mechanism:
        """How the model attends."""
        return models.attention_of(self.loaded[0])


def name_of(folder: str) -> str:
    """Return the name of a model's folder; a finetuning calls every folder `model`: of its run."""
    path = Path(folder).resolve()
    return path.parent.name if path.name == "model" else path.name


def load(model: str, attention: str | None = None, *, adapter: str | None = None,
         **options: Any) -> "tuple[PreTrainedModel, Any]":
    """Return a model on the device of `cca_lab.reporting.device`, and its tokenizer."""
    from cca_lab.models.checkpoints import quiet

    quiet()
    loaded, tokenizer = models.load_pretrained(model, attention, adapter=adapter, **options)
    loaded.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
    return loaded, tokenizer


def noted_corpus(text: str | None) -> Corpus:
    """Return a text, after a note if files of its folder look like text and cannot be read."""
    corpus = load_corpus(text)
    if corpus.left_out:
        note(f"{len(corpus.left_out)} file(s) of {corpus.name} are left out, the first: "
             f"{corpus.left_out[0]}")
    return corpus


def given(attention: str | None, written: Sequence[str] = (), **named: Any) -> dict[str, Any]:
    """Return a mechanism's checked options; values of `written` are JSON, or else kept as text."""
    options = {name: value for name, value in named.items() if value is not None}
    for words in written:
        name, equals, value = words.partition("=")
        if not equals:
            raise ValueError(f"option: got {words!r}, wanted NAME=VALUE, such as gamma=0.2")
        if name in options:
            raise ValueError(f"{name}: given twice, wanted once; leave one out")
        try:
            options[name] = json.loads(value)
        except ValueError:  # not JSON, or a number of thousands of digits
            options[name] = value
    if attention is None and options:
        raise ValueError(f"{next(iter(options))}: given without --attention; name the mechanism "
                         "too")
    if attention is None:
        return options
    from cca_lab.models.plugin import written_choice

    return written_choice(attention, options)


def with_kept_heads(attention: str | None, options: dict[str, Any], heads: Path | None,
                    keep: int | None) -> tuple[str | None, dict[str, Any]]:
    """Return the name and the options of a mechanism beside kept heads, if there are any.

    Args:
        attention, options: the mechanism, as `given` returns its options.
        heads: a file of `study retrieval`.
        keep: how many heads to keep; the best by that file.
    """
    if (heads is None) != (keep is None):
        raise ValueError("heads, keep: got one without the other, wanted both: the file of `study "
                         "retrieval`, and how many of its KV heads to keep")
    if heads is None or keep is None:
        return attention, options
    if attention is None:
        raise ValueError("heads: given without --attention; name the other heads' mechanism too")
    from cca_lab.models.plugin import written_choice

    kept = {"kept": best_heads(ranked_heads(heads), keep), "others": {"name": attention, **options}}
    return KeptHeads.name, written_choice(KeptHeads.name, kept)


def ranked_heads(path: Path) -> list[list[float]]:
    """Return the best scores in a file of `study retrieval`, (layers, Hk)."""
    content = read_json(path, "heads", "write it with: cca-lab study retrieval")
    try:
        scores: list[list[float]] = content["scores"][content["best"]]
        return scores
    except (KeyError, TypeError) as error:
        raise ValueError(f"heads: {path} is no file of `cca-lab study retrieval`; write it with "
                         "that command") from error


def note_other_model(heads: Path | None, model: str) -> None:
    """Note that a file of heads names another model than the one that is read."""
    if heads is not None:
        scored = read_json(heads, "heads").get("model")
        if scored != name_of(model):
            note(f"{heads} ranks the heads of {scored}, and {model} is read")


def label(name: str, options: Mapping[str, Any]) -> str:
    """Return a short name of a mechanism and its options; an option holds no space."""
    words = [name]
    for key, value in options.items():
        if isinstance(value, float):
            value = f"{value:.3g}"
        elif not isinstance(value, str):
            value = json.dumps(value, separators=(",", ":"))
        words.append(f"{key}={value}")
    return " ".join(words)


def context_of(model: "PreTrainedModel") -> int:
    """Return the longest sequence a model reads, in tokens, or 1024 if its config does not say."""
    return getattr(model.config, "max_position_embeddings", 1024)


def note(words: str) -> None:
    """Print a note on stderr."""
    Console(stderr=True).print(f"note: {words}", highlight=False, markup=False, soft_wrap=True)


def note_full(mechanism: Mechanism, length: int) -> None:
    """Note that a mechanism equals full attention at a length."""
    if mechanism.name != "full" and mechanism.exact_when(length):
        name, _, options = str(mechanism).partition(", ")
        note(f"{name} with {options} attends in full to {length} tokens")


@contextmanager
def writing(out: Path | None) -> Iterator[None]:
    """Check that a file can be written, and keep other commands from it within the context."""
    with nullcontext() if out is None else held(check_file(out)):
        yield


@contextmanager
def result_file(out: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a result; what the block adds to it is written to `out` as JSON."""
    result: dict[str, Any] = {}
    with writing(out):
        yield result
        written = as_json(result)
        if out is not None:
            write_json(out, written)
    result.clear()
    result.update(written)  # shown is what is written


def continued(out: Path | None, settings: Mapping[str, Any], rows: str = "trials"
              ) -> dict[str, Any] | None:
    """Return the content of a study's file, or None if there is none.

    Raises:
        ValueError: if the file is not of these settings, or holds something else.
    """
    if out is None or not out.exists():
        return None
    advice = "name another file, or remove it"
    content = read_json(out, "out", advice)
    if not isinstance(content, dict) or not isinstance(content.get(rows), dict):
        raise ValueError(f"out: {out} holds something else than a study; {advice}")
    wanted = as_json(settings)
    differing = [key for key, value in wanted.items() if content.get(key) != value]
    if differing:
        raise ValueError(f"out: {out} holds a study with another {', '.join(differing)}; {advice}")
    return content


def measure_missing(out: Path | None, result: dict[str, Any], cells: Mapping[str, Any],
                    measure: Callable[[str, Any, Report], Any], rows: str = "rows") -> None:
    """Measure the cells that `result[rows]` lacks, and write the file after each.

    Args:
        out: the file; None writes none.
        result: its content, which gets the new rows.
        cells: what is measured, by name.
        measure: returns the row of (name, cell, report); `report(share, text)` shows how far it is.
        rows: the key of the rows.
    """
    missing = {name: each for name, each in cells.items() if name not in result[rows]}
    if not missing:
        return
    with training_progress("measuring", len(missing)) as report:
        for done, (name, each) in enumerate(missing.items()):
            def part(share: float, text: str, done: int = done, name: str = name) -> None:
                report(done + share, f"{name} {text}")

            part(0, "")
            result[rows][name] = as_json(measure(name, each, part))
            if out is not None:
                write_json(out, result)
        report(len(missing), "")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], notes: str = "") -> str:
    """Return a table in Markdown, with notes below it."""
    import pandas  # late, as help needs no tables

    text = pandas.DataFrame([list(map(str, row)) for row in rows], columns=list(columns)
                            ).to_markdown(index=False, disable_numparse=True)
    return f"{text}\n" + (f"\n{notes}\n" if notes else "")


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.0f} %"


def cell(value: float | None, unit: float = 1, digits: int = 0) -> str:
    """Return a number in units as text; a dash for None."""
    return "-" if value is None else f"{value / unit:.{digits}f}"


def interval(estimate: Mapping[str, float], digits: int = 2) -> str:
    """Return a measured number with its 95 % interval."""
    return "{value:.{0}f} [{low:.{0}f}, {high:.{0}f}]".format(digits, **estimate)


def share(estimate: Mapping[str, float]) -> str:
    """Return a measured share as a percentage with its 95 % interval."""
    return interval({key: 100 * estimate[key] for key in ("value", "low", "high")}, 0).replace(
        " [", " % [")
