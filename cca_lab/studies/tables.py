"""The README's tables, generated from the committed results so that they always agree with them."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

from cca_lab.files import models_folder, repository, results_folder
from cca_lab.mechanisms import CCA, DGA, Full, LoCoCo, StreamingLLM
from cca_lab.mechanisms.reading import held
from cca_lab.reporting import write_figure
from cca_lab.studies.benchmarks.attention import tile_ratio
from cca_lab.studies.study import label
from cca_lab.studies.summary import COLUMNS, spoken, summaries, swept
from cca_lab.views.figures.caches import holdings
from cca_lab.views.figures.training import comparison, recipes

READS, LENGTH, HEAD_DIM = "docs/reads.png", 48, 16
READERS = {"full attention: every token": Full(), "CCA: cores and a window": CCA(group=4, window=8),
           "DGA: focal tokens and groups": DGA(group=4, gamma=0.1),
           "LoCoCo: a memory of 8 slots": LoCoCo(slots=8, segment=8),
           "StreamingLLM: the nearest": StreamingLLM(sinks=2, recent=10)}
COMPARISON, RECIPES = "docs/results/comparison.png", "docs/results/recipes.png"
MARKED = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
GROUPS, WINDOW = (4, 8, 16), 64  # of CCA in the table `recovery`
FINDING = [{"group": group, "window": WINDOW} for group in (8, 16)]  # of CCA in the table `finding`
PLACES = {"0.0": "first", "0.5": "middle", "1.0": "last"}


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f}"


def models() -> str:
    """Return the table of the shipped base models: size, perplexity and exact match."""
    rows = []
    for path in sorted(models_folder().glob("*/pretraining.json")):
        card = _read(path)
        found = card["results"]
        match = found["exact_match"][str(card["options"]["context"])]
        rows.append([f"`data/models/{path.parent.name}`", f"{card['parameters'] / 1e6:.1f} M",
                     str(card["options"]["context"]), f"{found['perplexity']['value']:.1f}",
                     f"{min(found['ngram_perplexity'].values()):.1f}",
                     _percent(match["all"]["value"]),
                     f"{card['seconds'] / 60:.0f} min, {card['device']}"])
    return _table(["model", "parameters", "context", "perplexity", "best n-gram", "exact match",
                   "trained in"],
                  rows)


def recovery() -> str:
    """Return the table of what the swap costs, and what finetuning recovers."""
    return _recovery(lambda trial: not _variant(trial))


def variants() -> str:
    """Return the same table for CCA with other windows, groups and poolings."""
    return _recovery(_variant)


def _variant(trial: dict) -> bool:
    return trial["attention"] == "cca" and trial["options"] not in [{"group": g, "window": WINDOW}
                                                                    for g in GROUPS]


def _recovery(shown: Callable[[dict], bool]) -> str:
    rows = []
    for path in sorted(results_folder().glob("recovery-*.json")):
        found = _read(path)
        trials = {name: row for name, row in found["trials"].items() if shown(row["trial"])}
        for name, mean in summaries(trials).items():
            rows.append([f"`{found['model']}`", spoken(name), *mean.cells()])
    return _table(["model", "attention", *COLUMNS], rows)


def finding() -> str:
    """Return the README's table: a swap's cost, and what finetuning recovers, in eight rows."""
    study = _read(results_folder() / "recovery-gpt2-mini.json")
    chosen = {name: row for name, row in study["trials"].items()
              if row["trial"]["reading"]["varied"]
              and (row["trial"]["attention"] in ("full", "dga")
                   or row["trial"]["attention"] == "cca" and row["trial"]["options"] in FINDING)}
    rows = [[spoken(name), *(mean.cells()[at] for at in (0, 2, 3, 5))]
            for name, mean in summaries(chosen).items()]
    return _table(["attention", *(COLUMNS[at] for at in (0, 2, 3, 5))], rows)


def attention() -> str:
    """Return the table of CCA against full attention on a CPU."""
    found = _read(results_folder() / "attention-cpu.json")
    rows = [[row["pass"], str(row["length"]), str(row["window"]), row["implementation"],
             f"{row['ratio']:.2f}", f"{row['pair_ratio']:.2f}", _percent(row["share"]),
             _percent(row["full_of_peak"]), _percent(row["cca_of_peak"]),
             _mib(row.get("full_peak")), _mib(row.get("cca_peak"))]
            for row in found["rows"]]
    rows.sort(key=lambda row: row[0])
    where = "{cpu}, {threads} threads, torch {torch}".format_map(found["machine"])
    shape = ", ".join(f"{name} {value}" for name, value in found["shape"].items())
    header = ["pass", "L", "window", "CCA", "full time / CCA time", "full pairs / CCA pairs",
              "share", "full, of peak", "CCA, of peak", "full MiB", "CCA MiB"]
    return _table(header, rows) + (
        f"\n{where}; {shape}; medians of {found['rounds']} interleaved rounds; peak: a product "
        f"{found['roof']['product']}, {found['roof']['flops'] / 1e9:.0f} GFLOP/s.\n")


def families() -> str:
    """Return the table of CCA against full attention in every file, at the lengths of all."""
    files = [_read(path) for path in sorted(results_folder().glob("attention-*.json"))]
    rows = [_family(found, row) for found in files for row in found["rows"]
            if row["length"] in (8192, 16384)]
    return _table([
        "CPU", "dtype", "pass", "L", "window", "CCA", "full ms", "CCA ms", "full / CCA", "pairs",
        "tiles", "share of pairs", "of tiles", "full GFLOP/s", "CCA GFLOP/s"
    ], rows) + "\n" + " ".join(
        f"{found['machine']['cpu']}, {found['shape']['dtype']}: a product "
        f"{found['roof']['product']} at "
        f"{found['roof']['flops'] / 1e9:.0f} GFLOP/s, {found['machine']['threads']} threads, "
        "medians of "
        f"{found['rounds']} rounds." for found in files) + "\n"


def _family(found: dict, row: dict) -> list[str]:
    dtype, implementation, peak = found["shape"]["dtype"], row[
        "implementation"], found["roof"]["flops"] / 1e9
    tiles = tile_ratio(row["length"], found["shape"]["group"], row["window"], implementation, dtype)
    return [found["machine"]["cpu"], dtype, row["pass"], str(row["length"]), str(row["window"]),
            implementation, f"{1e3 * row['full_seconds']:.0f}", f"{1e3 * row['cca_seconds']:.0f}",
            f"{row['ratio']:.2f}", f"{row['pair_ratio']:.2f}", f"{tiles:.2f}",
            _percent(row["share"]), _percent(row["ratio"] / tiles),
            f"{row['full_of_peak'] * peak:.0f}", f"{row['cca_of_peak'] * peak:.0f}"]


def decode() -> str:
    """Return the table of one token's attention with each cache against a full cache, by length."""
    found = _read(results_folder() / "decode-cpu.json")
    lengths = sorted({row["length"] for row in found["rows"]})
    by_cache: dict[tuple, dict[int, dict]] = {}
    for row in found["rows"]:
        key = f"{row['heads']} / {row['kv_heads']} x {row['head_dim']}", row["cache"]
        by_cache.setdefault(key, {})[row["length"]] = row
    rows = []
    for (shape, cache), by_length in by_cache.items():
        longest = by_length[max(by_length)]
        rows.append([shape, cache, f"{1e3 * longest['seconds']:.2f}",
                     f"{longest['entry_ratio']:.1f}",
                     *(f"{by_length[n]['ratio']:.1f}" if n in by_length else "-" for n in lengths)])
    header = ["heads / KV heads x head_dim", "cache", "ms a token, longest",
              "full / its entries, longest", *(f"full / its time, {n // 1024}K" for n in lengths)]
    return _table(header, rows) + (
        f"\n{found['machine']['cpu']}, {found['machine']['threads']} threads, torch "
        f"{found['machine']['torch']}; one layer, {found['dtype']}, caches filled with random "
        f"content; medians of {found['rounds']} interleaved rounds of {found['tokens']} tokens.\n")


def model() -> str:
    """Return the table of first token, next tokens and training step for each attention."""
    found = _read(results_folder() / "model-cpu.json")
    steps, prompts = ({row["attention"]: row for row in found["training"]},
                      sorted({row["prompt"] for row in found["writing"]}))
    rows = []
    for name, step in steps.items():
        own = {row["prompt"]: row for row in found["writing"] if row["attention"] == name}
        cells = [(f"{1e3 * own[n]['first_seconds']:.0f}", f"{1e3 * own[n]['token_seconds']:.1f}")
                 for n in prompts]
        rows.append(
            [name, *(cell for pair in cells for cell in pair), f"{step['tokens_a_second']:.0f}"])
    header = ["attention",
              *(text for n in prompts for text in (f"first token ms, {n} tokens", "next token ms")),
              "training tokens / s"]
    size = found["model"]
    return _table(header, rows) + (
        f"\nGPT-2, {size['layers']} layers, width {size['width']}, {size['parameters'] / 1e6:.1f} "
        f"M random weights; {found['device']}; medians of {found['rounds']} interleaved rounds.\n")


def compare() -> str:
    """Return the table of every mechanism on one model at an equal budget."""
    found = _read(results_folder() / "compare-gpt2-mini.json")
    rows = []
    for row in found["rows"].values():
        matches, size, decode = row["exact_match"], row["cache_bytes"], row["decode_seconds"]
        rows.append([row["title"], f"{row['perplexity']['value']:.1f}",
                     *(_percent(matches[place]["value"]) for place in PLACES),
                     _percent(matches["all"]["value"]),
                     "all" if size is None else f"{size / 1024:.0f}",
                     f"{1e3 * row['prefill_seconds']:.0f}",
                     "-" if decode is None else f"{1e3 * decode:.1f}"])
    header = ["mechanism", "perplexity", *PLACES.values(), "all places", "cache KiB", "prefill ms",
              "ms a token"]
    return _table(header, rows) + (
        f"\n{found['model']}, {found['length']} tokens, {found['entries']} entries a KV head, "
        f"{found['questions']} questions a place; {found['device']}.\n")


def lengths() -> str:
    """Return the table of SmolLM2's perplexity by the length of the context."""
    found = _read(results_folder() / "lengths-smollm2.json")
    ends = found["buckets"]
    rows = []
    for name, row in found["rows"].items():
        title = spoken(label(row["attention"], {})) if row["swapped"] else name
        marked = "" if row["swapped"] is False or "every row" in row["causal_scope"] else " *"
        rows.append([title + marked, *(f"{one['value']:.1f}" for one in row["perplexity"])])
    machine = found["rows"]["full"]["machine"]
    return _table(["attention", *(f"{low} to {high}" for low, high in pairwise(ends))], rows) + (
        f"\n{found['model']}, {found['windows']} windows of {found['length']} tokens, "
        f"{found['entries']} entries a KV head if a cache can be sized; {machine['cpu']}, torch "
        f"{machine['torch']}. * chooses from the whole text.\n")


def needles() -> str:
    """Return the table of the answers that SmolLM2 finds at each depth, over all lengths."""
    rows, found = [], {}
    for path in sorted(results_folder().glob("needles-smollm2*.json"), key=lambda path: path.stem):
        found = _read(path)
        by_depth = [[cell["exact"] for cell in found["cells"] if cell["depth"] == depth]
                    for depth in found["depths"]]
        rows.append([found["model"],
                     *(f"{sum(one['value'] * one['samples'] for one in cells):.0f} of "
                       f"{sum(one['samples'] for one in cells)}" for cells in by_depth)])
    return _table(["model", *(f"at {_percent(depth)}" for depth in found["depths"])], rows) + (
        f"\n{found['task']}, prompts of {', '.join(map(str, found['lengths']))} tokens, "
        f"{found['samples']} for each length and depth; {found['machine']['cpu']}.\n")


def wire() -> str:
    """Return the table of what travelled between processes, and of the largest error."""
    found = _read(results_folder() / "wire.json")
    rows = [[str(row["ranks"]), row["balance"], f"{row['error']:.1e}", f"{row['bytes'] / 1024:.0f}",
             "-" if row["wire"] is None else f"{row['wire'] / 1024:.0f}",
             f"{row['ring_bytes'] / 1024:.0f}"]
            for row in found["measured"]]
    shape = found["shape"]
    return _table([
        "processes", "pieces", "largest error, float32", "KiB, closed form", "KiB on the wire",
        "KiB, ring"
    ], rows) + (
        f"\n{found['length']} tokens, group size {found['group']}, window {found['window']}, "
        f"{shape['heads']} query and {shape['kv_heads']} KV heads of {shape['head_dim']}, float32; "
        f"sums over the processes, gloo; {found['machine']['cpu']}.\n")


def wire_plan() -> str:
    """Return the table of a long text on many GPUs, planned by the closed forms."""
    found = _read(results_folder() / "wire.json")
    rows = [[row["method"], f"{row['bytes'] / 1e6:.0f}", f"{row['resident'] / 1e6:.0f}",
             f"{row['balance']:.2f}", f"{row['flop'] / 1e12:.1f}", f"{row['link'] / 1e9:.1f}"]
            for row in found["planned"]]
    shape = found["planned_shape"]
    tokens, gpus = found["planned_size"]
    return _table([
        "method", "MB received", "MB of keys and values", "pairs over the mean",
        "TFLOP of attention", "GB/s to hide"
    ], rows) + (
        f"\n{tokens} tokens on {gpus} GPUs, {shape['heads']} query and {shape['kv_heads']} KV "
        "heads of "
        f"{shape['head_dim']}, {shape['number']} bytes a number; attention at "
        f"{found['flops'] / 1e12:.0f} TFLOP/s is "
        "assumed for the last column.\n")


TABLES = {"finding": finding, "models": models, "recovery": recovery, "variants": variants,
          "attention": attention, "compare": compare, "decode": decode, "model": model,
          "lengths": lengths, "needles": needles, "wire": wire, "wire-plan": wire_plan,
          "families": families}

def marked_pages() -> list[Path]:
    """Return the README and every document that holds a marked table."""
    documents = sorted((repository() / "docs").glob("*/*.md"))
    return [repository() / "README.md", *(path for path in documents
                                          if MARKED.search(path.read_text(encoding="utf-8")))]


def updated(text: str) -> str:
    """Return a text with every marked table written again; ValueError for an unknown one."""
    def fill(mark: re.Match) -> str:
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


def reads():
    """Return the README's picture: what random queries read of 48 random keys."""
    q, k = torch.randn(2, 1, 1, LENGTH, HEAD_DIM, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0))
    return holdings({title: held(mechanism, q, k)[0] for title, mechanism in READERS.items()})


def draw() -> Path:
    """Draw the figures of README and docs/ again; return their folder."""
    write_figure(repository() / READS, reads())
    write_figure(repository() / COMPARISON,
                 comparison(_read(results_folder() / "compare-gpt2-mini.json")["rows"]))
    write_figure(repository() / RECIPES,
                 recipes(*swept(_read(results_folder() / "sweep-gpt2-mini.json")["trials"])))
    return repository() / "docs"
