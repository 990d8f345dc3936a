"""A GPT-2 of random weights with each attention and its cache: `cca-lab study model`.

The time to the first token, of each further token, and of a training step; attentions are
interleaved in rotating order, and the ratio to full attention is taken within a round.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from cca_lab.mechanisms.caches import CACHES, with_sized
from cca_lab.reporting import device, device_name, machine, print_table
from cca_lab.settings import option
from cca_lab.studies.benchmarks.timing import MOST_ROUNDS, ROUNDS, compared, rotating, seconds
from cca_lab.studies.study import Study

OPTIONS: dict[str, dict[str, Any]] = with_sized(
    {"cca": {"group": 16, "window": 256}, "mean_pooling": {"group": 16, "window": 256},
     "random_tokens": {"group": 16, "window": 256},
     "dga": {"group": 16, "gamma": 0.1, "recent": 64}, "lococo": {"slots": 256, "segment": 256},
     "h2o": {"heavy": 256, "recent": 256}, "streaming_llm": {"sinks": 4, "recent": 508},
     "lm_infinite": {"local": 509, "global_tokens": 4}},
    entries=512, length=8192)
FULL = "full"
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
    """Measure a GPT-2 of random weights with each attention."""

    layers: int = option(4, "Transformer blocks.", least=1, most=100)
    width: int = option(256, "Width of the residual stream; a multiple of the heads.", least=1,
                        most=16384)
    heads: int = option(4, "Heads per block.", least=1, most=1024)
    prompt: tuple[int, ...] = option((1024, 8192), "Tokens per prompt; repeatable.", least=1,
                                     most=2**18)
    attention: tuple[str, ...] = option(("cca", "dga", "streaming_llm", "lococo"),
                                        "Mechanism to measure beside full; repeatable.")
    rounds: int = option(3, ROUNDS, least=1, most=MOST_ROUNDS)
    step: tuple[int, int] = STEP  # rows and tokens of a training step

    def result(self) -> dict[str, Any]:
        """Measure one row per attention and prompt, and one per attention for training."""
        for name in self.attention:
            if name not in OPTIONS:
                raise ValueError(f"attention: got {name!r}, wanted one of {', '.join(OPTIONS)}")
        if self.width % self.heads:
            raise ValueError(
                f"heads: got {self.heads}, which does not divide the width {self.width}; choose a "
                "divisor")
        torch.manual_seed(0)
        context = max(*self.prompt, self.step[1]) + TOKENS
        model = new_gpt2(self.layers, self.width, self.heads, context)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        names = [FULL, *self.attention]
        writing = [row for prompt in self.prompt
                   for row in measure_writing(model, names, prompt, self.rounds)]
        return {"bench": "model", "machine": machine(), "device": device_name(),
                "rounds": self.rounds, "tokens": TOKENS,
                "model": {"family": "gpt2", "layers": self.layers, "width": self.width,
                          "heads": self.heads,
                          "parameters": sum(p.numel() for p in model.parameters())},
                "options": {name: OPTIONS[name] for name in self.attention}, "writing": writing,
                "training": measure_training(model, names, self.step, self.rounds)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print two tables: decoding, then training."""
        size = result["model"]
        title = (f"GPT-2, {size['layers']} layers, width {size['width']}, "
                 f"{size['parameters'] / 1e6:.1f} M; {result['device']}, torch "
                 f"{result['machine']['torch']}")
        rows = [(row["attention"], row["prompt"], f"{row['first_seconds'] * 1e3:.0f}",
                 f"{row['first_ratio']:.2f}", f"{row['token_seconds'] * 1e3:.2f}",
                 f"{row['token_ratio']:.2f}", f"{row['cache_bytes'] / 2**20:.2f}")
                for row in result["writing"]]
        print_table(title, ("attention", "prompt", "first token ms", "full / it", "next token ms",
                            "full / it", "cache MiB"), rows)
        print_table("A training step", ("attention", "tokens", "tokens a second", "full / it"),
                    [(row["attention"], f"{row['rows']} x {row['length']}",
                      f"{row['tokens_a_second']:.0f}", f"{row['step_ratio']:.2f}")
                     for row in result["training"]])


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
    from cca_lab.models import swap_attention

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
                    options: Mapping[str, dict] = OPTIONS) -> list[dict[str, Any]]:
    """Return a row per attention: first token, next tokens and cache after a random prompt."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (prompt + TOKENS, ), generator=generator)
    ids = ids.to(model.device)
    texts: dict[str, list[Written]] = {name: [] for name in names}
    for round_, name in rotating(names, rounds):
        with attending(model, name, options.get(name, {})):
            written = write(model, new_cache(model, name), ids[:prompt], ids[prompt:])
        if round_ >= 0:
            texts[name].append(written)
    first = {name: [text.first for text in texts[name]] for name in names}
    token = {name: [sum(text.tokens) / TOKENS for text in texts[name]] for name in names}
    return [{"attention": name, "prompt": prompt, "cache_bytes": texts[name][0].nbytes,
             **_compared("first", first, name), **_compared("token", token, name)}
            for name in names]


def measure_training(model: PreTrainedModel, names: Sequence[str], step: tuple[int, int],
                     rounds: int) -> list[dict[str, Any]]:
    """Return a row per attention: tokens per second of forward, backward and AdamW."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, step, generator=generator).to(model.device)
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
    rows = [{"attention": name, "rows": step[0], "length": step[1],
             **_compared("step", times, name)} for name in names]
    return [row | {"tokens_a_second": ids.numel() / row["step_seconds"]} for row in rows]


def _compared(what: str, times: Mapping[str, Sequence[float]], name: str) -> dict[str, Any]:
    """Return the seconds of one attention beside full attention's, as `what` is called."""
    return {f"{what}_{key}": value for key, value in compared(times, name, FULL).items()}
