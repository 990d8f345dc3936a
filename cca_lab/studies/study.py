"""A study: its settings, its measurement, and the JSON file, table and figure that result."""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from rich.console import Console
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.files import check_file, held, new_result
from cca_lab.mechanisms import KeptHeads, Mechanism
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.models import attention_of, load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.plugin import written_choice
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import as_json, device, training_progress, write_figure, write_json
from cca_lab.settings import REQUIRED, check, option
from cca_lab.stored import matches, read_json
from cca_lab.tasks.corpus import Corpus, load_corpus

PACKAGES = ("cca-lab", "torch", "transformers", "tokenizers", "numpy")
MOST_SEEDS = 100
Report = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A measurement, its settings as fields; a subclass gives `result`, `show`, perhaps `draw`."""

    out: Path | None = option(None, "JSON file to write.", output="file")
    default_file: ClassVar[str] = ""  # below data/results; it may name fields: "heads-{name}.json"

    def run(self) -> dict[str, Any]:
        """Measure, write the file, draw the figure and print the table; return what is written."""
        check(self)
        quiet()
        out, figure = self.file, getattr(self, "figure", None)
        if figure is not None and figure == out:
            raise ValueError(f"figure: got {figure}, which is the JSON file too; choose another "
                             "name")
        if figure is not None and figure.suffix.lower() != ".png":
            raise ValueError(f"figure: got {figure}, wanted a name that ends in .png, as a PNG is "
                             "written")
        with nullcontext() if out is None else held(out):
            result = as_json(self.result())  # shown and drawn is what is written
            if out is not None:
                write_json(out, result)
        if figure is not None:
            write_figure(figure, self.draw(result))
        self.show(result)
        return result

    @cached_property
    def file(self) -> Path | None:
        """The file to write, after a check that it can be written."""
        if self.out is None and not self.default_file:
            return None
        return check_file(self.out or new_result(self.default_file.format(self=self)))

    def result(self) -> dict[str, Any]:
        """Measure everything; return what is written."""
        raise NotImplementedError

    def draw(self, result: Mapping[str, Any]) -> Any:
        """Return the figure of what is written."""
        raise NotImplementedError

    def show(self, result: Mapping[str, Any]) -> None:
        """Print what is written as tables."""
        raise NotImplementedError


class Interval(TypedDict):
    """A measured number and its 95 % interval, as a file holds them."""

    value: float
    low: float
    high: float


class Continued(Study):
    """A study of named cells; those in its file are not measured again, so it can be continued."""

    rows: ClassVar[str] = "rows"  # key of the measurements in the file
    row: ClassVar[Any] = dict  # what one of them holds, as far as it is shown; a TypedDict

    def settings(self) -> dict[str, Any]:
        """Return the entries that the file of an earlier call must share."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return what else the first call writes, such as the machine."""
        return {}

    def cells(self) -> Mapping[str, Any]:
        """Return what is measured, by name."""
        raise NotImplementedError

    def check_row(self, name: str, cell: Any, row: Any) -> None:
        """Raise ValueError if a measurement in the file is not that of a cell."""

    def measure(self, name: str, cell: Any, report: Report) -> Any:
        """Return a cell's measurement as JSON values; `report(share, text)` tells how far it is."""
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """Measure the cells that are missing in the file, and write it after each."""
        cells, settings = self.cells(), self.settings()
        result = continued(self.file, settings, self.rows, self.row)
        result = result or {**settings, **self.facts(), self.rows: {}}
        for name in cells.keys() & result[self.rows].keys():
            self.check_row(name, cells[name], result[self.rows][name])
        with training_progress(type(self).__name__.lower(), len(cells)) as report:
            for done, (name, cell) in enumerate(cells.items()):
                def part(share: float, text: str, done: int = done, name: str = name) -> None:
                    report(done + share, f"{name} {text}")

                part(0, "")
                if name not in result[self.rows]:
                    result[self.rows][name] = self.measure(name, cell, part)
                    if self.file is not None:
                        write_json(self.file, result)
            report(len(cells), "")
        return result


@dataclass(frozen=True, kw_only=True)
class ModelStudy(Study):
    """A study of one model on held-out text."""

    model: str = option(REQUIRED, "Folder of a model or an adapter, or a model's name on the "
                                  "Hugging Face hub.")
    adapter: str | None = option(None, "Folder of an adapter of this model, as a finetuning with "
                                       "--strategy lora writes it.")
    text: str | None = option(None, "Text to read: a file, a folder, or hub:NAME for a data set.",
                              shown="Python's standard library")

    @property
    def name(self) -> str:
        """The model's name: that of its folder, or of its adapter's."""
        return Path(self.adapter or self.model).resolve().name

    @cached_property
    def loaded(self) -> tuple[PreTrainedModel, Any]:
        """The model with full attention, and its tokenizer."""
        model, tokenizer = load_pretrained(self.model, "full", adapter=self.adapter)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        return model, tokenizer

    @property
    def context(self) -> int:
        """The longest sequence that the model reads, in tokens."""
        return context_of(self.loaded[0])

    @cached_property
    def corpus(self) -> Corpus:
        """The text."""
        return load_corpus(self.text)

    @cached_property
    def held_out(self) -> Tensor:
        """The held-out side of the text, (n,) token ids."""
        return tokenize(self.corpus.validation, self.loaded[1])

    def about_text(self) -> dict[str, Any]:
        """Return what a file says about the text."""
        return {"name": self.corpus.name, "fingerprint": self.corpus.fingerprint}


@dataclass(frozen=True, kw_only=True)
class SwappedStudy(ModelStudy):
    """A study of a model under a mechanism of choice."""

    attention: str | None = option(None, "Mechanism to swap in, such as cca or dga.",
                                   shown="the attention the model was saved with")
    group: int | None = option(None, "Tokens per group.", shown="the mechanism's default")
    window: int | None = option(None, "Local window, in tokens.", shown="the mechanism's default")
    heads: Path | None = option(None, "File of `study retrieval`; its best KV heads attend in full,"
                                      " the others with --attention.")
    keep: int | None = option(None, "How many KV heads of the model attend in full.", least=0,
                              shown="none")
    option: tuple[str, ...] = option((), "Option of the mechanism, such as gamma=0.2; repeatable.",
                                     metavar="NAME=VALUE")

    @cached_property
    def choice(self) -> tuple[str | None, dict[str, Any]]:
        """The mechanism's name and the options that are given, checked."""
        options = given(self.attention, self.option, group=self.group, window=self.window)
        return with_kept_heads(self.attention, options, self.heads, self.keep)

    @cached_property
    def loaded(self) -> tuple[PreTrainedModel, Any]:
        """The model under the mechanism, and its tokenizer."""
        attention, options = self.choice
        model, tokenizer = load_pretrained(self.model, attention, adapter=self.adapter, **options)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        return model, tokenizer

    @property
    def mechanism(self) -> Mechanism:
        """How the model attends."""
        return attention_of(self.loaded[0])


def option_of(kind: type[Any], name: str) -> Any:
    """Return a field with the default and the option of another dataclass's field."""
    (original,) = (each for each in fields(kind) if each.name == name)
    return field(default=original.default, metadata=original.metadata)


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
    return options if attention is None else written_choice(attention, options)


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
    kept = {"kept": best_heads(ranked_heads(heads), keep), "others": {"name": attention, **options}}
    return KeptHeads.name, written_choice(KeptHeads.name, kept)


class Ranked(TypedDict):
    """What is read in a file of `study retrieval`."""

    best: str
    scores: dict[str, list[list[float]]]


def ranked_heads(path: Path) -> list[list[float]]:
    """Return the best scores in a file of `study retrieval`, (layers, Hk)."""
    advice = "write it with: cca-lab study retrieval"
    if not path.is_file():
        raise ValueError(f"heads: {path} is no file; {advice}")
    content = read_json(path, "heads", advice)
    matches(content, Ranked, f"heads: {path}", advice)
    if content["best"] not in content["scores"]:
        raise ValueError(f"heads: {path} names {content['best']!r} as its best score, wanted one "
                         f"that it has; {advice}")
    scores: list[list[float]] = content["scores"][content["best"]]
    return scores


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


def context_of(model: PreTrainedModel) -> int:
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


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a measurement depends on."""
    numbers = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:  # run from a folder that is not installed
            numbers[package] = "unknown"
    return numbers


def continued(out: Path | None, settings: Mapping[str, Any], rows: str = "trials",
              row: Any = dict) -> dict[str, Any] | None:
    """Return the content of a study's file, or None if there is none.

    Raises:
        ValueError: if the file is not of these settings, or if one of its `rows` is no `row`.
    """
    if out is None or not out.exists():
        return None
    advice = "name another file, or remove it"
    content = read_json(out, "out", advice)
    if not isinstance(content, dict) or not isinstance(content.get(rows), dict):
        raise ValueError(f"out: {out} holds something else than a study; {advice}")
    wanted = json.loads(json.dumps(settings))
    differing = [key for key, value in wanted.items() if content.get(key) != value]
    if differing:
        raise ValueError(f"out: {out} holds a study with another {', '.join(differing)}; {advice}")
    matches(content[rows], dict[str, row], f"out: {out}: {rows}", advice)
    return content
