"""A model with each attention and its cache: `cca-lab study model`.

The time to the first token, of each further token, and of a training step; attentions are
interleaved in rotating order, and the ratio to full attention is taken within a round. The model is
a GPT-2 of random weights, or a real one, whose peak memory is measured too. What needs transformers
is imported late, so that help is quick.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from cca_lab import models
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.options import Count, Natural
from cca_lab.reporting import device, device_name, machine
from cca_lab.studies.benchmarks.results import chosen
from cca_lab.studies.benchmarks.timing import compared, peak_of, rotating, seconds
from cca_lab.studies.study import cell, markdown, name_of, ranked_heads, result_file

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

OPTIONS: dict[str, dict[str, Any]] = {
    "cca": {"group": 16, "window": 256}, "dga": {"group": 16, "gamma": 0.1, "recent": 64},
    "streaming_llm": {"sinks": 4, "recent": 508}, "lococo": {"slots": 256, "segment": 256}}
# Of a real model: docs/results/smollm2.md, whose window has CCA's entries at 4096 tokens.
REAL = {"cca": {"group": 16, "window": 128, "sinks": 4},
        "streaming_llm": {"sinks": 4, "recent": 395}}
FULL = "full"
PROMPTS, PROMPTS_REAL = (1024, 8192), (2048, 4096, 8192)
STEP, STEPS_REAL = (2, 1024), ((1, 1024), (1, 4096))  # rows and tokens of a training step
WARM = 256  # tokens of the prompt before the one whose memory is measured
TOKENS = 16  # decoded after a prompt, and timed
VOCABULARY = 4096


class Written(NamedTuple):
    """The measurements of one prompt and the tokens after it."""

    first: float  # seconds until the logits of the first token
    tokens: list[float]  # seconds of each further token
    nbytes: int | None  # of the cache after the prompt; None without one


@dataclass(frozen=True, kw_only=True)
class ModelBench:
    """Measure a model, random or real, with each attention: first token, next tokens, training."""

    model: str | None = None
    """Folder of a model, or its name on the Hugging Face hub; else a GPT-2 of random weights."""
    retrieval: Path | None = None
    """File of `study retrieval`; its best KV heads are kept in full, the others have CCA."""
    keep: Natural = 0
    """How many KV heads of the model are kept in full."""
    layers: Count = 4
    """Transformer blocks of the random GPT-2."""
    width: Count = 256
    """Width of its residual stream; a multiple of the heads."""
    heads: Count = 4
    """Heads per block."""
    prompt: tuple[Count, ...] = ()
    """Tokens per prompt; without the option 1024 and 8192, of a real model 2048, 4096 and 8192."""
    attention: tuple[str, ...] = ()
    """Mechanisms beside full attention."""
    rounds: Count = 3
    """Interleaved rounds; each time is the median over them."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> None:
        """Measure one row per attention and prompt, and one per attention for training."""
        from cca_lab.models.checkpoints import quiet
        from cca_lab.models.inputs import check_length

        quiet()
        with result_file(self.out) as result:
            options = chosen("attention", self.attention, self._known())
            prompts = self.prompt or (PROMPTS if self.model is None else PROMPTS_REAL)
            steps: tuple[tuple[int, int], ...] = STEPS_REAL
            if self.model is None:
                torch.manual_seed(0)
                model = new_gpt2(self.layers, self.width, self.heads,
                                 max(*prompts, STEP[1]) + TOKENS)
                model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
                steps, trained = (STEP,), [FULL, *options]
            else:
                model, trained = _loaded(self.model), [FULL, "cca"]
            check_length(model, "prompt", max(prompts) + TOKENS)
            result |= {"machine": machine(), "bench": "model", "device": device_name(),
                       "rounds": self.rounds, "tokens": TOKENS, "model": self._about(model),
                       "options": options, "writing": []}
            for prompt in prompts:
                rows = measure_writing(model, [FULL, *options], prompt, self.rounds, options)
                for row in rows if self.model is not None else ():
                    row["peak_bytes"] = peak_of(prepare, self.model, row["attention"],
                                                options.get(row["attention"], {}), prompt)
                result["writing"] += rows
            result["training"] = [row for step in steps for row in measure_training(
                model, trained, step, self.rounds, options)]
        print(table(result))

    def _known(self) -> dict[str, dict[str, Any]]:
        """Return the options of the attentions beside full attention."""
        if self.model is None:
            return OPTIONS
        if self.retrieval is None:
            return REAL
        kept = best_heads(ranked_heads(self.retrieval), self.keep)
        return {**REAL, "kept_heads": {"kept": kept, "others": {"name": "cca", **REAL["cca"]}}}

    def _about(self, model: "PreTrainedModel") -> dict[str, Any]:
        config = model.config
        return {"family": config.model_type,
                "name": self.model and name_of(self.model),
                "layers": config.num_hidden_layers, "width": config.hidden_size,
                "heads": config.num_attention_heads,
                "parameters": sum(p.numel() for p in model.parameters())}


def table(result: Mapping[str, Any]) -> str:
    """Return the table of first token, next tokens, memory and training for each attention."""
    writing = sorted(result["writing"], key=lambda row: row["prompt"])
    steps = sorted({step["length"] for step in result["training"]})
    rates = {(step["attention"], step["length"]): step["tokens_a_second"]
             for step in result["training"]}
    peak = any("peak_bytes" in row for row in writing)
    columns, rows = ["attention"], {row["attention"]: [row["attention"]] for row in writing}
    for prompt in dict.fromkeys(row["prompt"] for row in writing):
        columns += [f"first token ms, {prompt} tokens", "next token ms", *["peak MiB"][:peak]]
    for row in writing:
        rows[row["attention"]] += [cell(row["first_seconds"], 1e-3),
                                   cell(row["token_seconds"], 1e-3, 1),
                                   *[cell(row.get("peak_bytes"), 2**20)][:peak]]
    columns += ["training tokens / s" + f", {length} tokens" * (len(steps) > 1) for length in steps]
    return markdown(
        columns, [[*cells, *(cell(rates.get((name, length))) for length in steps)]
                  for name, cells in rows.items()],
        f"{_title(result['model'])} weights; {result['device']}; medians of {result['rounds']} "
        "interleaved rounds.")


def draw(result: Mapping[str, Any]) -> Any:
    """Draw the time to the first token of the longest prompt, for each attention."""
    from cca_lab.views.figures.costs import bars

    longest = max(row["prompt"] for row in result["writing"])
    return bars({row["attention"]: row["first_seconds"] for row in result["writing"]
                 if row["prompt"] == longest}, xlabel="seconds to the first token",
                title=f"{_title(result['model'])}: a prompt of {longest} tokens")


def _title(size: Mapping[str, Any]) -> str:
    name = size.get("name") or "GPT-2 of random weights"
    return (f"{name}, {size['layers']} layers, width {size['width']}, "
            f"{size['parameters'] / 1e6:.1f} M")


def _loaded(folder: str) -> "PreTrainedModel":
    """Return a model with full attention."""
    model, _ = models.load_pretrained(folder, FULL, dtype=torch.float32)
    model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
    return model


def prepare(folder: str, name: str, options: Mapping[str, Any],
            prompt: int) -> Callable[[], object]:
    """Load a model and swap its attention; return the call that reads a prompt and one token."""
    from cca_lab.models.checkpoints import quiet

    quiet()
    model = models.swap_attention(_loaded(folder), name, **options)
    ids = random_ids(model, prompt + 1)

    def call(size: int = prompt) -> object:
        return write(model, new_cache(model, name), ids[:size], ids[-1:])

    call(min(prompt, WARM))  # so that one-time loading is not counted
    return call


def random_ids(model: "PreTrainedModel", *shape: int) -> Tensor:
    """Return the same random token ids in every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.config.vocab_size, shape, generator=generator).to(model.device)


def new_gpt2(layers: int, width: int, heads: int, context: int) -> "PreTrainedModel":
    """Return a GPT-2 of random weights without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    model.loss_type = "ForCausalLM"
    return model


def new_cache(model: "PreTrainedModel", name: str) -> "Cache":
    """Return an empty cache for the mechanism of a model; for "full", transformers' own."""
    from transformers import DynamicCache

    from cca_lab.mechanisms.caches import CACHES

    return CACHES[name](model) if name in CACHES else DynamicCache()


@torch.no_grad()
def write(model: "PreTrainedModel", cache: "Cache | None", prompt: Tensor,
          rest: Tensor) -> Written:
    """Time the forward of a prompt (P,) and, with a cache, of the tokens `rest` (n,) one by one."""
    model.eval()

    def forward(ids: Tensor) -> object:
        return model(ids.view(1, -1), past_key_values=cache, use_cache=cache is not None,
                     logits_to_keep=1)

    first = seconds(partial(forward, prompt))
    if cache is None:
        return Written(first, [], None)
    size = nbytes(cache)
    return Written(first, [seconds(partial(forward, token)) for token in rest], size)


def nbytes(cache: Any) -> int:
    """Return the bytes of the keys, the values and everything else that a cache stores."""
    if hasattr(cache, "nbytes"):  # the lab's
        return int(cache.nbytes())
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def measure_writing(model: "PreTrainedModel", names: Sequence[str], prompt: int, rounds: int,
                    options: Mapping[str, dict]) -> list[dict[str, Any]]:
    """Return a row per attention: first token, next tokens and cache after a random prompt."""
    ids = random_ids(model, prompt + TOKENS)
    texts: dict[str, list[Written]] = {name: [] for name in names}
    for round_, name in rotating(names, rounds):
        torch.manual_seed(0)  # for the mechanism's own weights
        with models.swapped(model, name, **options.get(name, {})):
            written = write(model, new_cache(model, name), ids[:prompt], ids[prompt:])
        if round_ >= 0:
            texts[name].append(written)
    first = {name: [text.first for text in texts[name]] for name in names}
    token = {name: [sum(text.tokens) / TOKENS for text in texts[name]] for name in names}
    return [{"attention": name, "prompt": prompt, "cache_bytes": texts[name][0].nbytes,
             **_compared("first", first, name), **_compared("token", token, name)}
            for name in names]


def measure_training(model: "PreTrainedModel", names: Sequence[str], step: tuple[int, int],
                     rounds: int, options: Mapping[str, dict]) -> list[dict[str, Any]]:
    """Return a row per attention: tokens per second of forward, backward and AdamW.

    The model is trained in place.
    """
    (rows, length), ids = step, random_ids(model, *step)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def train() -> None:
        model(ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times: dict[str, list[float]] = {name: [] for name in names}
    for round_, name in rotating(names, rounds):
        torch.manual_seed(0)
        with models.swapped(model.train(), name, **options.get(name, {})):
            time = seconds(train)
        if round_ >= 0:
            times[name].append(time)
    made = [{"attention": name, "rows": rows, "length": length, **_compared("step", times, name)}
            for name in names]
    return [row | {"tokens_a_second": rows * length / row["step_seconds"]} for row in made]


def _compared(what: str, times: Mapping[str, Sequence[float]], name: str) -> dict[str, Any]:
    """Return the seconds of one attention beside full attention's, as `what` is called."""
    return {f"{what}_{key}": value for key, value in compared(times, name, FULL).items()}
