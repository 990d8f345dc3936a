"""What a cache costs around attention, in a small Llama: `cca-lab study steps`.

At these sizes attention itself takes little, so that the table shows what is done beside it: for a
decoded token in each layer, for rows of different length, and, with a long prompt, for the choice
of tokens. A second table has the next token of a model of SmolLM2-135M's sizes after caches filled
with any content. Times are CPU seconds of one thread, in interleaved rounds; the base is the
model's own attention with transformers' DynamicCache.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cca_lab import models
from cca_lab.mechanisms.caching.state import Draw
from cca_lab.options import Count
from cca_lab.reporting import machine
from cca_lab.studies.benchmarks.model import new_cache
from cca_lab.studies.benchmarks.timing import median_and_range, rotating
from cca_lab.studies.study import markdown, result_file

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

FULL = "full"
OPTIONS: dict[str, dict[str, Any]] = {
    "cca": {"group": 16, "window": 64}, "streaming_llm": {"sinks": 4, "recent": 80},
    "kept_heads": {"kept": [[0]], "others": {"name": "cca", "group": 16, "window": 64}},
    "lococo": {"slots": 64, "segment": 64}, "dga": {"group": 16, "gamma": 0.1},
    "h2o": {"heavy": 32, "recent": 64}}
LONG: dict[str, dict[str, Any]] = {  # of a prompt
    "cca": {"group": 16, "window": 256}, "streaming_llm": {"sinks": 4, "recent": 1020},
    "kept_heads": {"kept": [[0]], "others": {"name": "cca", "group": 16, "window": 256}},
    "lococo": {"slots": 256, "segment": 256}, "dga": {"group": 16, "gamma": 0.1},
    "h2o": {"heavy": 512, "recent": 512}}
LAYERS, LONG_LAYERS = 8, 2
PROMPT, TOKENS, LONG_PROMPT = 300, 48, 16_000
PADS = (0, 7, 14, 21)  # padding before the rows of different length
STATIC, COMPILER = ("cca", "streaming_llm"), "inductor"
MORE = 4  # times the rounds of single rows' steps, which are short
REAL = {"cca": {"group": 16, "window": 128, "sinks": 4},
        "streaming_llm": {"sinks": 4, "recent": 395}}
REAL_LENGTHS, REAL_TOKENS = (1028, 2052, 4100, 8196), 6  # closed groups behind four sinks


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Measure what each cache costs beside attention, in small models."""

    rounds: Count = 3
    """Interleaved rounds; each time is the median over them."""
    out: Path | None = None
    """JSON file to write."""
    compiled: bool = False
    """Measure a token's step alone, growing caches beside compiled static ones; compiles long."""

    def run(self) -> None:
        """Measure a row per attention; print both tables, or that of compiled steps."""
        if self.compiled:
            with result_file(self.out) as result:
                result |= {"machine": machine(), "bench": "steps", "rounds": self.rounds,
                           "compiled": compiled_steps(MORE * self.rounds)}
            print(compiled_table(result))
            return
        with result_file(self.out) as result:
            result |= {"machine": machine(), "bench": "steps", "rounds": self.rounds,
                       "rows": measure(self.rounds), "next": measure_next(self.rounds)}
        print(table(result), next_table(result), sep="\n\n")


def measure(rounds: int) -> list[dict[str, Any]]:
    """Return a row for each attention: a step, rows of different length, and a long prompt."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = interleaved(MORE * rounds, OPTIONS, LAYERS,
                           lambda model, name: decoding(model, name, 1))
        ragged = interleaved(rounds, OPTIONS, LAYERS, lambda model, name: (
            decoding(model, name, len(PADS), PADS) / decoding(model, name, len(PADS))))
        prompt = interleaved(rounds, LONG, LONG_LAYERS, reading)
    finally:
        torch.set_num_threads(threads)
    return [{"attention": name, "microseconds": _scaled(step[name], 1e6 / LAYERS),
             "beyond_full": _scaled([x - y for x, y in zip(step[name], step[FULL], strict=True)],
                                    1e6 / LAYERS),
             "step_ratio": _ratio(step[name], step[FULL]),
             "ragged_ratio": median_and_range(ragged[name]),
             "prompt_seconds": _scaled(prompt[name], 1.0),
             "prompt_ratio": _ratio(prompt[name], prompt[FULL])} for name in step]


def table(result: Mapping[str, Any]) -> str:
    """Return the table of steps, rows of different length and long prompts by attention."""
    def cell(value: Sequence[Any], digits: int) -> str:
        middle, (low, high) = value
        return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    rows = [[row["attention"], cell(row["microseconds"], 0), cell(row["beyond_full"], 0),
             cell(row["step_ratio"], 2), cell(row["ragged_ratio"], 2),
             cell(row["prompt_seconds"], 2), cell(row["prompt_ratio"], 2)]
            for row in result["rows"]]
    return markdown(
        ["attention", "a step, us a layer", "us more than full", "its time / full's",
         "rows of different / of equal length", f"{LONG_PROMPT} tokens, s", "its time / full's"],
        rows, f"{_machine_and_sizes(result)}, and {LONG_LAYERS} layers for the prompt; medians "
        f"[lowest, highest] of {result['rounds']} interleaved rounds, of a step "
        f"{MORE * result['rounds']}.")


def compiled_steps(rounds: int) -> list[dict[str, Any]]:
    """Return a row for each attention: a token's step, growing and with a compiled static cache."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = interleaved(
            rounds, {name: OPTIONS[name] for name in STATIC}, LAYERS, lambda model, name: (
                decoding(model, name, 1), decoding(model, name, 1, static=True)))
    finally:
        torch.set_num_threads(threads)
    return [{"attention": name, "microseconds": [_scaled(each, 1e6 / LAYERS) for each in pair],
             "ratio": _ratio(*pair)}
            for name, pair in ((name, list(zip(*times[name], strict=True))) for name in times)]


def compiled_table(result: Mapping[str, Any]) -> str:
    """Return the table of growing caches beside compiled static ones."""
    rows = [[row["attention"], *(f"{middle:.0f} [{low:.0f}, {high:.0f}]" for middle, (low, high)
                                 in row["microseconds"]), f"{row['ratio'][0]:.1f}"]
            for row in result["compiled"]]
    return markdown(["attention", "a step, us a layer", "static and compiled", "ratio"], rows,
                    f"{_machine_and_sizes(result)}; medians [lowest, highest] of "
                    f"{MORE * result['rounds']} interleaved rounds.")


def _machine_and_sizes(result: Mapping[str, Any]) -> str:
    return ("{cpu}, one thread, CPU time, torch {torch}".format_map(result["machine"])
            + f"; Llama of width 64, 4 heads, 2 KV heads, {LAYERS} layers after {PROMPT} tokens")


def measure_next(rounds: int) -> list[dict[str, Any]]:
    """Return a row for each attention and length: the next token of a model of SmolLM2's sizes."""
    threads, model, rows = torch.get_num_threads(), smollm2(), []
    torch.set_num_threads(1)
    try:
        for length in REAL_LENGTHS:
            times: dict[str, list[float]] = {FULL: [], **{name: [] for name in REAL}}
            for round_, name in rotating(list(times), rounds):
                with models.swapped(model, name, **REAL.get(name, {})):
                    seconds = next_token(model, name, length)
                if round_ >= 0:
                    times[name].append(seconds)
            rows += [{"attention": name, "length": length,
                      "milliseconds": _scaled(times[name], 1e3),
                      "ratio": _ratio(times[FULL], times[name])} for name in times]
    finally:
        torch.set_num_threads(threads)
    return rows


def next_table(result: Mapping[str, Any]) -> str:
    """Return the table of the next token by attention and length."""
    by_name: dict[str, list[str]] = {}
    for row in result["next"]:
        (time_, _), (ratio, (low, high)) = row["milliseconds"], row["ratio"]
        by_name.setdefault(row["attention"], []).append(
            f"{time_:.0f} ms, {ratio:.2f} [{low:.2f}, {high:.2f}]")
    lengths = [length - 4 for length in REAL_LENGTHS]
    return markdown(
        ["attention", *(f"{length} tokens, full / it" for length in lengths)],
        [[name, *cells] for name, cells in by_name.items()],
        "{cpu}, one thread, CPU time, torch {torch}".format_map(result["machine"])
        + "; a Llama of SmolLM2-135M's sizes and random weights, after so many tokens and four; "
        f"medians [lowest, highest] of {result['rounds']} interleaved rounds of {REAL_TOKENS} "
        "tokens.")


def interleaved(rounds: int, options: Mapping[str, dict[str, Any]], layers: int,
                measured: "Callable[[PreTrainedModel, str], Any]") -> dict[str, list[Any]]:
    """Return what is measured of each attention, full too, in each round."""
    swapped = {FULL: llama(layers)}
    for name, chosen in options.items():
        swapped[name] = models.swap_attention(llama(layers), name, **chosen)
    times: dict[str, list[Any]] = {name: [] for name in swapped}
    for round_, name in rotating(list(swapped), rounds):
        seconds = measured(swapped[name], name)
        if round_ >= 0:
            times[name].append(seconds)
    return times


def llama(layers: int) -> "PreTrainedModel":
    """Return a small Llama of random weights."""
    return new_llama(vocab_size=256, hidden_size=64, intermediate_size=128,
                     num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
                     max_position_embeddings=65536)


def smollm2() -> "PreTrainedModel":
    """Return a Llama of the sizes of SmolLM2-135M, of random weights."""
    return new_llama(vocab_size=49152, hidden_size=576, intermediate_size=1536,
                     num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                     max_position_embeddings=16384, tie_word_embeddings=True)


def new_llama(**sizes: Any) -> "PreTrainedModel":
    """Return a Llama of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


@torch.no_grad()
def next_token(model: "PreTrainedModel", name: str, length: int) -> float:
    """Return the CPU seconds of a token's forward after `length` tokens of any content."""
    config, cache = model.config, new_cache(model, name)
    heads, features = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    generator = torch.Generator().manual_seed(0)
    for layer in range(config.num_hidden_layers):
        if name == FULL:
            keys = torch.randn(1, heads, 1, features, generator=generator)
            cache.update(keys.repeat(1, 1, length, 1), keys.repeat(1, 1, length, 1), layer)
        else:
            state: Any = cache.layers[layer]
            state.states[0].fill(length, config.num_attention_heads, Draw(heads, features,
                                                                          generator))
            state.columns, state.batch, state.dtype = length, 1, torch.float32
    ids = torch.zeros(1, 1, dtype=torch.int64)
    model(ids, past_key_values=cache, use_cache=True)
    start = time.process_time()
    for _ in range(REAL_TOKENS):
        model(ids, past_key_values=cache, use_cache=True)
    return (time.process_time() - start) / REAL_TOKENS


def empty_cache(model: "PreTrainedModel", name: str, static: bool = False) -> "Cache":
    """Return an empty cache for a model's attention."""
    from transformers import StaticCache

    from cca_lab.mechanisms import static_cache
    from cca_lab.mechanisms.caches import CACHES

    if not static:
        return new_cache(model, name)
    longest = PROMPT + TOKENS
    return static_cache.StaticCache(model, longest) if name in CACHES else StaticCache(
        model.config, longest)


@torch.no_grad()
def decoding(model: "PreTrainedModel", name: str, rows: int, pads: Sequence[int] = (), *,
             static: bool = False) -> float:
    """Return the CPU seconds of one forward for a token of each row, after a prompt."""
    from transformers import CompileConfig

    later: Any = model.get_compiled_call(CompileConfig(
        fullgraph=True, mode="default", backend=COMPILER)) if static else model
    ids = torch.randint(256, (rows, PROMPT + TOKENS), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    for row, pad in enumerate(pads):
        mask[row, :pad] = 0
    positions, cache = (mask.cumsum(-1) - 1).clamp(min=0), empty_cache(model, name, static)

    def forward(first: int, stop: int) -> Tensor:
        now = slice(first, stop)
        padding = {"attention_mask": mask[:, :stop], "position_ids": positions[:, now]}
        step = later if first else model
        logits: Tensor = step(ids[:, now], past_key_values=cache, use_cache=True,
                               **padding if pads else {}).logits
        return logits

    forward(0, PROMPT)
    forward(PROMPT, PROMPT + 1)
    start = time.process_time()
    for token in range(PROMPT + 1, PROMPT + TOKENS):
        forward(token, token + 1)
    return (time.process_time() - start) / (TOKENS - 1)


@torch.no_grad()
def reading(model: "PreTrainedModel", name: str) -> float:
    """Return the CPU seconds of the forward over a long prompt."""
    ids = torch.randint(256, (1, LONG_PROMPT), generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    model(ids, past_key_values=new_cache(model, name), use_cache=True, logits_to_keep=1)
    return time.process_time() - start


def _scaled(values: Sequence[float], factor: float) -> tuple[float, list[float]]:
    return median_and_range([factor * value for value in values])


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, list[float]]:
    return median_and_range([x / y for x, y in zip(above, below, strict=True)])
