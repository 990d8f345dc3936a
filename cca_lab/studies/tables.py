"""The README's tables, generated from the committed results so that they always agree with them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from matplotlib.figure import Figure

from cca_lab.files import repository
from cca_lab.mechanisms import CCA, DGA, Full, LoCoCo, StreamingLLM
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.mechanisms.reading import held
from cca_lab.reporting import write_figure
from cca_lab.studies import compare, model_tables, retrieval
from cca_lab.studies.benchmarks import attention, decode, gpu, model, steps
from cca_lab.studies.model_tables import Row, results
from cca_lab.views.figures.caches import holdings
from cca_lab.views.figures.sparsity import by_layer
from cca_lab.views.figures.training import answered, comparison

LENGTH, HEAD_DIM = 48, 16  # of the README's picture
READERS = {"full attention": Full(), "CCA": CCA(group=4, window=8),
           "DGA": DGA(group=4, gamma=0.1), "LoCoCo": LoCoCo(slots=8, segment=8),
           "StreamingLLM": StreamingLLM(sinks=2, recent=10)}
T = TypeVar("T")
MARKED = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def of_file(make: Callable[[Row], T], file: str) -> Callable[[], T]:
    """Return what makes a table or a figure of a file of results."""
    return lambda: make(results(file)[0])


TABLES: dict[str, Callable[[], str]] = {
    "finding": model_tables.finding,
    "compare": of_file(compare.table, "compare-gpt2-mini.json"),
    "lengths": model_tables.lengths,
    "retrieval": lambda: retrieval.table(results("retrieval-smollm2*.json")),
    "alike": model_tables.alike,
    "families": lambda: attention.families_table(results("attention-*.json")),
    "decode": of_file(decode.table, "decode-cpu.json"),
    "steps": of_file(steps.table, "steps-cpu.json"),
    "compiled-steps": of_file(steps.compiled_table, "steps-compiled-cpu.json"),
    "next-token": of_file(steps.next_table, "steps-cpu.json"),
    "model": of_file(model.table, "model-cpu.json"),
    "gpu-speed": of_file(lambda result: gpu.speed_table(result, ("CCA, kernel",)), "gpu-h100.json"),
    "gpu-model": of_file(gpu.model_table, "gpu-h100-first.json")}


def marked_pages() -> list[Path]:
    """Return the README and every document that holds a marked table."""
    documents = sorted((repository() / "docs").glob("*/*.md"))
    return [repository() / "README.md", *(path for path in documents
                                          if MARKED.search(path.read_text(encoding="utf-8")))]


def updated(text: str) -> str:
    """Return a text with every marked table written again; ValueError for an unknown one."""
    def fill(mark: re.Match[str]) -> str:
        name = mark["name"]
        if name not in TABLES:
            raise ValueError(f"table: got {name!r}, wanted one of {', '.join(TABLES)}")
        return mark[1] + TABLES[name]() + mark[4]

    return MARKED.sub(fill, text)


def write() -> list[Path]:
    """Write the marked tables of all pages again; return the pages."""
    pages = marked_pages()
    for path in pages:
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return pages


def reads() -> Figure:
    """Return the README's picture: what random queries read of 48 random keys."""
    q, k = torch.randn(2, 1, 1, LENGTH, HEAD_DIM, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0))
    figure = holdings({title: held(mechanism, q, k)[0] for title, mechanism in READERS.items()})
    figure.set_size_inches(8.2, 2.6)  # so that a phone shows the titles large enough to read
    for axes in figure.axes:
        axes.title.set_fontsize(11.5)
    return figure


def kept(result: Row) -> Figure:
    """Return the picture of the gain of each head, with the eight best framed."""
    title, gain = "gain on needles and text", result["scores"]["gain"]
    return by_layer({title: gain}, marked={title: best_heads(gain, 8)})


FIGURES: dict[str, Callable[[], Figure]] = {
    "reads": reads, "results/answers": lambda: answered(model_tables.answers()),
    "results/comparison": of_file(lambda study: comparison(study["rows"]),
                                  "compare-gpt2-mini.json"),
    "results/retrieval": of_file(kept, "retrieval-gain-smollm2.json"),
    "results/roofline": of_file(attention.draw, "attention-cpu.json"),
    "results/first_token": of_file(model.draw, "model-smollm2.json"),
    "results/gpu": of_file(gpu.draw, "gpu-h100.json")}


def draw() -> Path:
    """Draw the figures of README and docs/ again; return their folder."""
    for name, figure in FIGURES.items():
        write_figure(repository() / "docs" / f"{name}.png", figure())
    return repository() / "docs"
