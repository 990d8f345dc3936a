"""The README's tables, generated from the committed results so that they always agree with them."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure

from cca_lab.files import repository
from cca_lab.mechanisms import CCA, DGA, Full, LoCoCo, StreamingLLM
from cca_lab.mechanisms.reading import held
from cca_lab.reporting import write_figure
from cca_lab.studies import compare, model_tables, retrieval
from cca_lab.studies.benchmarks.attention import rates_of, tile_ratio
from cca_lab.studies.benchmarks.gpu import tables as gpu_tables
from cca_lab.studies.benchmarks.wire import hidden_table, measured_table, planned_table
from cca_lab.studies.model_tables import Row, results
from cca_lab.studies.study import label
from cca_lab.studies.summary import swept
from cca_lab.views.figures.caches import holdings
from cca_lab.views.figures.training import comparison, recipes

READS, LENGTH, HEAD_DIM = "docs/reads.png", 48, 16
READERS = {"full attention: every token": Full(), "CCA: cores and a window": CCA(group=4, window=8),
           "DGA: focal tokens and groups": DGA(group=4, gamma=0.1),
           "LoCoCo: a memory of 8 slots": LoCoCo(slots=8, segment=8),
           "StreamingLLM: the nearest": StreamingLLM(sinks=2, recent=10)}
COMPARISON, RECIPES = "docs/results/comparison.png", "docs/results/recipes.png"
MARKED = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.0f} %"


def written(value: float | None, unit: float = 1, digits: int = 0) -> str:
    """Write a number in units; a dash for None."""
    return "-" if value is None else f"{value / unit:.{digits}f}"


def attention() -> str:
    """Return the table of CCA against full attention on a CPU."""
    (study,) = results("attention-cpu.json")
    rows = [[row["pass"], str(row["length"]), str(row["window"]), row["implementation"],
             f"{row['ratio']:.2f}", f"{row['pair_ratio']:.2f}", percent(row["share"]),
             percent(row["full_of_peak"]), percent(row["cca_of_peak"]),
             written(row.get("full_peak"), 2**20), written(row.get("cca_peak"), 2**20)]
            for row in sorted(study["rows"], key=lambda row: row["pass"])]
    where = "{cpu}, {threads} threads, torch {torch}".format_map(study["machine"])
    shape = ", ".join(f"{name} {value}" for name, value in study["shape"].items())
    return table(["pass", "L", "window", "CCA", "full time / CCA time", "full pairs / CCA pairs",
                  "share", "full, of peak", "CCA, of peak", "full MiB", "CCA MiB"], rows) + (
        f"\n{where}; {shape}; medians of {study['rounds']} interleaved rounds; peak: a product "
        f"{study['roof']['product']} in the same rounds.\n")


def families() -> str:
    """Return the table of CCA against full attention in every file, at the lengths of all."""
    rows, notes = [], []
    for study in results("attention-*.json"):
        cpu, dtype = study["machine"]["cpu"], study["shape"]["dtype"]
        notes.append(f"{cpu}, {dtype}: {study['machine']['threads']} threads, medians of "
                     f"{study['rounds']} rounds.")
        for row in study["rows"]:
            if row["length"] not in (8192, 16384):
                continue
            tiles = tile_ratio(row["length"], study["shape"]["group"], row["window"],
                               row["implementation"], dtype)
            rows.append([cpu, dtype, row["pass"], str(row["length"]), str(row["window"]),
                         row["implementation"], f"{1e3 * row['full_seconds']:.0f}",
                         f"{1e3 * row['cca_seconds']:.0f}", f"{row['ratio']:.2f}",
                         f"{row['pair_ratio']:.2f}", f"{tiles:.2f}", percent(row["share"]),
                         percent(row["ratio"] / tiles),
                         *(f"{rate / 1e9:.0f}" for rate in rates_of(row, study["shape"]))])
    return table(["CPU", "dtype", "pass", "L", "window", "CCA", "full ms", "CCA ms", "full / CCA",
                  "pairs", "tiles", "share of pairs", "of tiles", "full GFLOP/s", "CCA GFLOP/s"],
                 rows) + "\n" + " ".join(notes) + "\n"


def decode() -> str:
    """Return the table of one token's attention with each cache against a full cache, by length."""
    (study,) = results("decode-cpu.json")
    lengths = sorted({row["length"] for row in study["rows"]})
    by_cache: dict[tuple[str, str], dict[int, Row]] = {}
    for row in study["rows"]:
        key = f"{row['heads']} / {row['kv_heads']} x {row['head_dim']}", row["cache"]
        by_cache.setdefault(key, {})[row["length"]] = row
    rows = []
    for (shape, cache), by_length in by_cache.items():
        longest = by_length[max(by_length)]
        rows.append([shape, cache, f"{1e3 * longest['seconds']:.2f}",
                     f"{longest['entry_ratio']:.1f}",
                     *(f"{by_length[n]['ratio']:.1f}" if n in by_length else "-" for n in lengths)])
    where = study["machine"]
    return table(["heads / KV heads x head_dim", "cache", "ms a token, longest",
                  "full / its entries, longest",
                  *(f"full / its time, {n // 1024}K" for n in lengths)], rows) + (
        f"\n{where['cpu']}, {where['threads']} threads, torch {where['torch']}; one layer, "
        f"{study['dtype']}, caches filled with random content; medians of {study['rounds']} "
        f"interleaved rounds of {study['tokens']} tokens.\n")


def peers() -> str:
    """Return the table of published attention for the CPU beside CCA, by dtype and length."""
    (study,) = results("peers-cpu.json")
    cells: dict[tuple[str, ...], list[str]] = {}
    reasons: dict[str, list[str]] = {}
    pairs: dict[str, float] = {}
    for row in study["rows"]:
        name, length = (row["dtype"], row["form"], row["pattern"]), row["length"]
        if "reason" in row:
            reasons.setdefault(f"{', '.join(name)}: {row['reason']}", []).append(str(length))
        if row["pattern"] not in ("full", "CCA"):
            pairs[row["pattern"]] = max(pairs.get(row["pattern"], 0), row["pairs_of_cca"])
        cells.setdefault(name, []).extend(
            ["-"] * 3 if "reason" in row else [
                written(row["seconds"], 1e-3), written(row["rate"], 1e9),
                written(row["sdpa_ratio"], 1, 2)])
    lengths = dict.fromkeys(row["length"] for row in study["rows"])
    columns = [text for length in lengths
               for text in (f"ms, {length} tokens", "GFLOP/s", "SDPA's time / its")]
    notes = ["{cpu}, {threads} threads".format_map(study["machine"]),
             ", ".join(f"{name} {number}" for name, number in study["versions"].items()),
             label("", study["shape"]).strip(),
             f"medians of at most {study['rounds']} interleaved rounds",
             *(f"{pattern}: at most {ratio:.2f} times CCA's pairs"
               for pattern, ratio in pairs.items()),
             *(f"not measured at {', '.join(where)} tokens: {reason}"
               for reason, where in reasons.items())]
    return table(["dtype", "operator", "sees", *columns],
                 [[*name, *row] for name, row in cells.items()]) + f"\n{'; '.join(notes)}.\n"


def gpu(make: Callable[[Row], gpu_tables.Table], file: str = "gpu-h100.json") -> str:
    """Return a table of `study gpu`, as the command prints it."""
    (study,) = results(file)
    return table(*make(study["sections"])) + (
        "\n{gpu}, torch {torch}, triton {triton}, CUDA {cuda}.\n".format_map(study["machine"]))


def model(file: str = "model-cpu.json") -> str:
    """Return the table of first token, next tokens, memory and training for each attention."""
    (study,) = results(file)
    prompts = sorted({row["prompt"] for row in study["writing"]})
    steps = sorted({step["length"] for step in study["training"]})
    peak = any("peak_bytes" in row for row in study["writing"])
    training = {(step["attention"], step["length"]): step for step in study["training"]}
    rows: dict[str, list[str]] = {}
    for row in sorted(study["writing"], key=lambda row: row["prompt"]):
        rows.setdefault(row["attention"], [row["attention"]]).extend(
            [f"{1e3 * row['first_seconds']:.0f}", f"{1e3 * row['token_seconds']:.1f}",
             *[written(row.get("peak_bytes"), 2**20)][:peak]])
    for name, cells in rows.items():
        cells += [written(training.get((name, length), {}).get("tokens_a_second"))
                  for length in steps]
    size = study["model"]
    title = size.get("name") or "GPT-2 of random weights"
    return table(["attention",
                  *(text for n in prompts
                    for text in (f"first token ms, {n} tokens", "next token ms",
                                 *["peak MiB"][:peak])),
                  *("training tokens / s" + f", {length} tokens" * (len(steps) > 1)
                    for length in steps)], rows.values()) + (
        f"\n{title}, {size['layers']} layers, width {size['width']}, "
        f"{size['parameters'] / 1e6:.1f} M weights; {study['device']}; medians of at most "
        f"{study['rounds']} interleaved rounds.\n")


def wire() -> str:
    """Return the table of what travelled between processes, and of the largest error."""
    (study,) = results("wire.json")
    shape = study["shape"]
    return table(*measured_table(study)) + (
        f"\n{study['length']} tokens, group size {study['group']}, window {study['window']}, "
        f"{shape['heads']} query and {shape['kv_heads']} KV heads of {shape['head_dim']}, float32; "
        f"sums over the processes, gloo; {study['machine']['cpu']}.\n")


def wire_hidden() -> str:
    """Return the table of how much of a slow link's time the local window's work hides."""
    (study,) = results("wire.json")
    return table(*hidden_table(study)) + (
        f"\nThe same text and layer, two processes of one thread, zigzag; an exchange takes "
        f"{1e3 * study['latency']:g} ms and its bytes; medians of {study['rounds']} interleaved "
        f"rounds, of each the slower process; {study['machine']['cpu']}.\n")


def wire_plan() -> str:
    """Return the table of a long text on many machines, computed from measured rates."""
    (study,) = results("wire.json")
    shape, rates = study["planned_shape"], study["rates"]
    return table(*planned_table(study)) + (
        f"\n{study['tokens']} tokens, {shape['layers']} layers of {shape['heads']} query and "
        f"{shape['kv_heads']} KV heads of {shape['head_dim']}, {shape['number']} bytes a number; "
        f"links of {study['link'] / 1e3:g} GB/s. Attention at the rates in `{rates['file']}` "
        f"({rates['cpu']}, {rates['threads']} threads, {rates['dtype']}, {rates['length']} "
        f"tokens): {rates['cca'] / 1e9:.0f} and {rates['full'] / 1e9:.0f} GFLOP/s of visible "
        "pairs.\n")


def of_file(table: Callable[[Row], str], file: str) -> Callable[[], str]:
    """Return what writes the table of a file of results."""
    return lambda: table(results(file)[0])


TABLES: dict[str, Callable[[], str]] = {
    "finding": model_tables.finding, "models": model_tables.models,
    "recovery": model_tables.recovery, "phases": model_tables.phases,
    "variants": lambda: model_tables.recovery(model_tables.is_variant),
    "compare": of_file(compare.table, "compare-gpt2-mini.json"),
    "lengths": model_tables.lengths, "needles": model_tables.needles,
    "retrieval": lambda: retrieval.table(results("retrieval-smollm2*.json")),
    "kept": model_tables.kept, "kept-frontier": model_tables.kept_frontier,
    "alike": model_tables.alike, "alike-tasks": model_tables.alike_tasks,
    "attention": attention, "decode": decode, "model": model,
    "peers": peers, "real-model": partial(model, "model-smollm2.json"),
    "gpu-speed": partial(gpu, gpu_tables.speed_table),
    "gpu-rates": partial(gpu, gpu_tables.rate_table),
    "gpu-decode": partial(gpu, gpu_tables.decode_table, "gpu-h100-first.json"),
    "gpu-model": partial(gpu, gpu_tables.model_table, "gpu-h100-first.json"),
    "wire": wire, "wire-hidden": wire_hidden, "wire-plan": wire_plan, "families": families}


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
    return holdings({title: held(mechanism, q, k)[0] for title, mechanism in READERS.items()})


def draw() -> Path:
    """Draw the figures of README and docs/ again; return their folder."""
    (compared,), (sweep,) = results("compare-gpt2-mini.json"), results("sweep-gpt2-mini.json")
    write_figure(repository() / READS, reads())
    write_figure(repository() / COMPARISON, comparison(compared["rows"]))
    write_figure(repository() / RECIPES, recipes(*swept(sweep["trials"])))
    return repository() / "docs"
