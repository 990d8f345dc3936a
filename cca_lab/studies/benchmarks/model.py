"""A model with each attention and its cache: `cca-lab study model`.

The time to the first token, of each further token, and of a training step; attentions are
interleaved in rotating order, and the ratio to full attention is taken within a round. The model is
a GPT-2 of random weights, or a real one, whose peak memory is measured too, and whose training is
`finetune`'s.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import Cache, DynamicCache, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from cca_lab.mechanisms.caches import CACHES, with_sized
from cca_lab.models import load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.finetune import Finetuner
from cca_lab.models.inputs import check_length
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import device, device_name, machine, print_table
from cca_lab.settings import option
from cca_lab.studies.benchmarks.timing import (
    MOST_ROUNDS,
    ROUNDS,
    compared,
    peak_of,
    rotating,
    seconds,
)
from cca_lab.studies.study import Study, with_kept_heads
from cca_lab.tasks.mixture import Mixture
from cca_lab.views.figures.costs import bars

OPTIONS: dict[str, dict[str, Any]] = with_sized(
    {"cca": {"group": 16, "window": 256}, "mean_pooling": {"group": 16, "window": 256},
     "random_tokens": {"group": 16, "window": 256},
     "dga": {"group": 16, "gamma": 0.1, "recent": 64}, "lococo": {"slots": 256, "segment": 256},
     "h2o": {"heavy": 256, "recent": 256}, "streaming_llm": {"sinks": 4, "recent": 508},
     "lm_infinite": {"local": 509, "global_tokens": 4}},
    entries=512, length=8192)
# Of a real model: docs/results/smollm2.md, whose window has CCA's entries at 4096 tokens.
REAL = {"cca": {"group": 16, "window": 128, "sinks": 4},
        "streaming_llm": {"sinks": 4, "recent": 395}}
FULL, LOWER, KEPT = "full", ", bfloat16", "kept_heads"  # the second ends a name: in this dtype
BESIDE, BESIDE_REAL = ("cca", "dga", "streaming_llm", "lococo"), (FULL + LOWER, *REAL)
PROMPTS, PROMPTS_REAL, STEPS_REAL = (1024, 8192), (2048, 4096, 8192), (1024, 4096)
WARM = 256  # tokens of a real model's prompt in the round that is not counted
CELL = 60.0  # seconds of a real model's prompt after which no round begins, the first excepted
TOKENS = 16  # decoded after a prompt, and timed
STEP = (2, 1024)  # rows and tokens of a training step
VOCABULARY = 4096


class Written(NamedTuple):
    """The measurements of one prompt and the tokens after it."""

    first: float  # seconds until the logits of the first token
    tokens: list[float]  # seconds of each further token
    nbytes: int | None  # of the cache after the prompt; None without one


@dataclass(frozen=True, kw_only=True)
class ModelBench(Study):
    """Measure a model with each attention."""

    model: str | None = option(None, "Folder of a model, or its name on the Hugging Face hub.",
                               shown="a GPT-2 of random weights")
    retrieval: Path | None = option(None, "File of `study retrieval`; its best KV heads are kept "
                                          "in full, the others attend with CCA.")
    keep: int | None = option(None, "How many KV heads of the model are kept in full.", least=0,
                              shown="none")
    layers: int = option(4, "Transformer blocks of the random GPT-2.", least=1, most=100)
    width: int = option(256, "Width of its residual stream; a multiple of the heads.", least=1,
                        most=16384)
    heads: int = option(4, "Heads per block.", least=1, most=1024)
    prompt: tuple[int, ...] = option((), "Tokens per prompt; repeatable.", least=1, most=2**18,
                                     shown="1024 and 8192; of a --model 2048, 4096 and 8192")
    attention: tuple[str, ...] = option(
        (), 'Mechanism to measure beside full; of a --model also with the dtype, as in "cca, '
            'bfloat16"; repeatable.', shown="a few of them")
    rounds: int = option(3, ROUNDS, least=1, most=MOST_ROUNDS)
    figure: Path | None = option(None, "PNG file to write, with the times to the first token.",
                                 output="file")
    step: tuple[int, int] = STEP  # rows and tokens of the random GPT-2's training step
    trained: tuple[int, ...] = STEPS_REAL  # tokens of a real model's training steps

    def result(self) -> dict[str, Any]:
        """Measure one row per attention and prompt, and one per attention for training."""
        if (self.retrieval is None) != (self.keep is None) or self.keep is not None \
                and self.model is None:
            raise ValueError("retrieval, keep: got one alone, or no --model, wanted both for a "
                             "model: the file of `study retrieval`, and how many heads to keep")
        if self.model is not None:
            return self._of_real(self.model)
        names = [FULL, *(self.attention or BESIDE)]
        _check_names(names[1:], OPTIONS)
        if self.width % self.heads:
            raise ValueError(
                f"heads: got {self.heads}, which does not divide the width {self.width}; choose a "
                "divisor")
        prompts = self.prompt or PROMPTS
        torch.manual_seed(0)
        context = max(*prompts, self.step[1]) + TOKENS
        model = new_gpt2(self.layers, self.width, self.heads, context)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        writing = [row for prompt in prompts
                   for row in measure_writing(model, names, prompt, self.rounds)]
        return self._about(model) | {
            "options": {name: OPTIONS[name] for name in names[1:]}, "writing": writing,
            "training": measure_training(model, names, self.step, self.rounds)}

    def _of_real(self, folder: str) -> dict[str, Any]:
        """Measure a model's time and memory per attention and prompt, and its finetuning."""
        options = OPTIONS | REAL
        if self.retrieval is not None:
            options[KEPT] = with_kept_heads("cca", REAL["cca"], self.retrieval, self.keep)[1]
        names = [FULL, *(self.attention or BESIDE_REAL + (KEPT,) * (KEPT in options))]
        _check_names(names[1:], options | {FULL: {}}, LOWER)
        prompts = self.prompt or PROMPTS_REAL
        model, lower = (_loaded(folder, name) for name in (FULL, FULL + LOWER))
        check_length(model, "prompt", max(prompts) + TOKENS)
        writing = []
        for prompt in prompts:
            rows = measure_writing(model, names, prompt, self.rounds, options, lower)
            for row in rows:
                name = row["attention"]
                row["peak_bytes"] = peak_of(prepare, folder, name, _options(name, options), prompt)
            writing += rows
        del lower
        training = [row for length in self.trained for row in measure_finetuning(
            model, [FULL, "cca"], length, max(1, self.rounds * self.trained[0] // length), options)]
        return self._about(model) | {
            "options": {name: _options(name, options) for name in names[1:]}, "writing": writing,
            "training": training}

    def _about(self, model: PreTrainedModel) -> dict[str, Any]:
        """Return what the file says of the measurement and the model."""
        config = model.config
        return {"bench": "model", "machine": machine(), "device": device_name(),
                "rounds": self.rounds, "tokens": TOKENS,
                "model": {"family": config.model_type,
                          "name": self.model and Path(self.model).resolve().name,
                          "layers": config.num_hidden_layers, "width": config.hidden_size,
                          "heads": config.num_attention_heads,
                          "parameters": sum(p.numel() for p in model.parameters())}}

    def draw(self, result: Mapping[str, Any]) -> Figure:
        """Draw the time to the first token of the longest prompt."""
        longest = max(row["prompt"] for row in result["writing"])
        return bars({row["attention"]: row["first_seconds"] for row in result["writing"]
                     if row["prompt"] == longest}, xlabel="seconds to the first token",
                    title=f"{_title(result['model'])}: a prompt of {longest} tokens")

    def show(self, result: Mapping[str, Any]) -> None:
        """Print two tables: decoding, then training."""
        rows = [(row["attention"], row["prompt"], f"{row['first_seconds'] * 1e3:.0f}",
                 f"{row['first_ratio']:.2f}", f"{row['token_seconds'] * 1e3:.2f}",
                 f"{row['token_ratio']:.2f}", f"{row['cache_bytes'] / 2**20:.2f}",
                 "-" if row.get("peak_bytes") is None else f"{row['peak_bytes'] / 2**20:.0f}")
                for row in result["writing"]]
        print_table(f"{_title(result['model'])}; {result['device']}, torch "
                    f"{result['machine']['torch']}",
                    ("attention", "prompt", "first token ms", "full / it", "next token ms",
                     "full / it", "cache MiB", "peak MiB"), rows)
        print_table("A training step", ("attention", "tokens", "tokens a second", "full / it"),
                    [(row["attention"], f"{row['rows']} x {row['length']}",
                      f"{row['tokens_a_second']:.0f}", f"{row['step_ratio']:.2f}")
                     for row in result["training"]])


def _title(size: Mapping[str, Any]) -> str:
    name = size["name"] or "GPT-2 of random weights"
    return (f"{name}, {size['layers']} layers, width {size['width']}, "
            f"{size['parameters'] / 1e6:.1f} M")


def _check_names(names: Sequence[str], options: Mapping[str, Any], ending: str = "") -> None:
    for name in names:
        if (name.removesuffix(ending) if ending else name) not in options:
            raise ValueError(f"attention: got {name!r}, wanted one of {', '.join(options)}")


def _options(name: str, options: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return options.get(name.removesuffix(LOWER), {})


def _loaded(folder: str, name: str) -> PreTrainedModel:
    """Return a model with full attention, in the dtype of an attention's name."""
    dtype = torch.bfloat16 if name.endswith(LOWER) else torch.float32
    model, _ = load_pretrained(folder, FULL, dtype=dtype)
    model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
    return model


def prepare(folder: str, name: str, options: Mapping[str, Any],
            prompt: int) -> Callable[[], object]:
    """Load a model and swap its attention; return the call that reads a prompt and one token."""
    quiet()
    model, name = _loaded(folder, name), name.removesuffix(LOWER)
    ids = random_ids(model, prompt + 1)
    swap_attention(model, name, **options)

    def call(size: int = prompt) -> object:
        return write(model, new_cache(model, name), ids[:size], ids[-1:])

    call(min(prompt, WARM))  # so that one-time loading is not counted
    return call


def random_ids(model: PreTrainedModel, *shape: int) -> Tensor:
    """Return the same random token ids in every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.config.vocab_size, shape, generator=generator).to(model.device)


def new_gpt2(layers: int, width: int, heads: int, context: int) -> PreTrainedModel:
    """Return a GPT-2 of random weights without dropout."""
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=context, n_embd=width, n_layer=layers,
                        n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    return model


@contextmanager
def attending(model: PreTrainedModel, name: str,
              options: Mapping[str, Any]) -> Iterator[PreTrainedModel]:
    """Swap a mechanism into a model within the context; restore its own attention afterwards."""
    torch.manual_seed(0)  # for the mechanism's own weights
    swap_attention(model, name, **options)
    try:
        yield model
    finally:
        swap_attention(model, FULL)


def new_cache(model: PreTrainedModel, name: str) -> Cache:
    """Return an empty cache for the mechanism of a model; for "full", transformers' own."""
    return CACHES[name](model) if name in CACHES else DynamicCache()


@torch.no_grad()
def write(model: PreTrainedModel, cache: Cache | None, prompt: Tensor, rest: Tensor) -> Written:
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
    if isinstance(cache, DynamicCache):
        layers: list[Any] = cache.layers
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)
    return int(cache.nbytes())


def measure_writing(model: PreTrainedModel, names: Sequence[str], prompt: int, rounds: int,
                    options: Mapping[str, dict] = OPTIONS,
                    lower: PreTrainedModel | None = None) -> list[dict[str, Any]]:
    """Return a row per attention: first token, next tokens and cache after a random prompt.

    With `lower`, the same model in bfloat16 for the names that say so, rounds are short: the first
    reads the beginning of the prompt only, and none begins after `CELL` seconds.
    """
    ids = random_ids(model, prompt + TOKENS)
    texts: dict[str, list[Written]] = {name: [] for name in names}
    for round_, name in rotating(names, rounds, math.inf if lower is None else CELL):
        used = lower if lower is not None and name.endswith(LOWER) else model
        read = min(prompt, WARM) if lower is not None and round_ < 0 else prompt
        mechanism = name.removesuffix(LOWER)
        with attending(used, mechanism, _options(name, options)):
            written = write(used, new_cache(used, mechanism), ids[:read], ids[prompt:])
        if round_ >= 0:
            texts[name].append(written)
    first = {name: [text.first for text in texts[name]] for name in names}
    token = {name: [sum(text.tokens) / TOKENS for text in texts[name]] for name in names}
    return [{"attention": name, "prompt": prompt, "cache_bytes": texts[name][0].nbytes,
             "rounds": len(texts[name]), **_compared("first", first, name),
             **_compared("token", token, name)} for name in names]


def measure_training(model: PreTrainedModel, names: Sequence[str], step: tuple[int, int],
                     rounds: int) -> list[dict[str, Any]]:
    """Return a row per attention: tokens per second of forward, backward and AdamW."""
    ids = random_ids(model, *step)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def train() -> None:
        model(ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times: dict[str, list[float]] = {name: [] for name in names}
    for round_, name in rotating(names, rounds):
        with attending(model.train(), name, OPTIONS.get(name, {})):
            time = seconds(train)
        if round_ >= 0:
            times[name].append(time)
    return _training_rows(times, *step)


def measure_finetuning(model: PreTrainedModel, names: Sequence[str], length: int, rounds: int,
                       options: Mapping[str, dict]) -> list[dict[str, Any]]:
    """Return a row per attention: tokens a second of `finetune`'s steps, one row of text each.

    The attentions take turns within one run, which trains the model in place. A single round has
    no warm-up before it.
    """
    turns = [(0, name) for name in names] if rounds == 1 else list(rotating(names, rounds))
    config = FinetuneConfig(steps=len(turns), learning_rate=1e-6, grow=0, precision="float32")
    text = random_ids(model, 2 * length).cpu()
    finetuner = Finetuner(model, Mixture(text, (), length, rows=1, text_share=1), config)
    times: dict[str, list[float]] = {name: [] for name in names}
    start = 0.0

    def turn(record: Mapping[str, Any]) -> None:
        nonlocal start
        ended, step = perf_counter(), record["step"]
        if step and turns[step - 1][0] >= 0:
            times[turns[step - 1][1]].append(ended - start)
        if step < len(turns):
            swap_attention(model, turns[step][1], **options.get(turns[step][1], {}))
        start = perf_counter()

    turn({"step": 0})
    finetuner.run(turn)
    return _training_rows(times, 1, length)


def _training_rows(times: Mapping[str, list[float]], rows: int,
                   length: int) -> list[dict[str, Any]]:
    made = [{"attention": name, "rows": rows, "length": length, **_compared("step", times, name)}
            for name in times]
    return [row | {"tokens_a_second": rows * length / row["step_seconds"]} for row in made]


def _compared(what: str, times: Mapping[str, Sequence[float]], name: str) -> dict[str, Any]:
    """Return the seconds of one attention beside full attention's, as `what` is called."""
    return {f"{what}_{key}": value for key, value in compared(times, name, FULL).items()}
