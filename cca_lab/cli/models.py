"""Commands that train and judge models."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import (
    FINETUNING,
    READING,
    Group,
    Grow,
    Length,
    Model,
    Optimizer,
    Option,
    Precision,
    Rate,
    ResultFile,
    Rows,
    Steps,
    Strategy,
    Text,
    TextShare,
    TrialsFile,
    Window,
    door,
    given,
    out_folder,
)
from cca_lab.recipe import FinetuneConfig, Reading

app = App()


@app.command()
def pretrain(
    out: Annotated[Path, out_folder("Folder to write the model to.")],
    family: Annotated[str, typer.Option(help="gpt2 or opt.")] = "gpt2",
    tokens: Annotated[float, typer.Option(help="Training tokens to spend.")] = 20e6,
    context: Annotated[int, typer.Option(help="The most tokens the model reads.")] = 512,
    layers: Annotated[int, typer.Option(help="Blocks.")] = 4,
    width: Annotated[int, typer.Option(help="Residual width.")] = 128,
    heads: Annotated[int, typer.Option(help="Query heads a block.")] = 4,
    vocabulary: Annotated[int, typer.Option(help="Tokens of the tokenizer.")] = 2048,
    learning_rate: Annotated[float, typer.Option(help="Peak rate.")] = 8e-3,
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    text: Text = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for torch's choice.")] = 0,
    attention: Annotated[str, typer.Option(help="The mechanism to train with from the first step on.")] = "full",
    group: Group = None,
    window: Window = None,
    option: Option = None,
    text_only: Annotated[bool, typer.Option("--text-only", help="Learn to read only, no questions.")] = False,
) -> None:
    """Train a tokenizer and a small base model that reads and retrieves, and write its card."""
    from cca_lab.commands.pretrain import PretrainOptions
    from cca_lab.commands.pretrain import pretrain as run

    with door():
        run(PretrainOptions(family, out, tokens, context, vocabulary, width, layers, heads, learning_rate,
                            seed, text, threads, attention, given(attention, option, group=group, window=window),
                            text_only))
    typer.echo(f"written: {out}")


@app.command()
def finetune(
    model: Model,
    out: Annotated[Path, out_folder("Folder of the run: log, state, model.")],
    attention: Annotated[str, typer.Option(help="A mechanism, such as full, cca or dga.")] = "cca",
    group: Group = None,
    window: Window = None,
    option: Option = None,
    strategy: Strategy = FINETUNING.strategy,
    steps: Steps = FINETUNING.steps,
    learning_rate: Rate = FINETUNING.learning_rate,
    optimizer: Optimizer = FINETUNING.optimizer,
    grow: Grow = FINETUNING.grow,
    warmup: Annotated[int, typer.Option(help="Steps of warm-up.")] = FINETUNING.warmup,
    accumulation: Annotated[int, typer.Option(help="Micro-steps into which a step's sequences are cut.")] = 1,
    rows: Rows = READING.rows,
    length: Length = None,
    text_share: TextShare = READING.text_share,
    precision: Precision = FINETUNING.precision,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: at the end only.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
    text: Text = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
) -> None:
    """Swap a model's attention and finetune it on text and questions; Ctrl-C saves before it leaves."""
    from cca_lab.commands.finetune import finetune as run

    with door():
        config = FinetuneConfig(steps, strategy, learning_rate, optimizer, warmup, accumulation,
                                save_every=save_every, grow=grow, precision=precision)
        try:
            run(model, attention, given(attention, option, group=group, window=window), config,
                Reading(length, rows, text_share, seed), out, text=text, resume=resume)
        except KeyboardInterrupt:
            saved = (out / "state").exists()
            typer.echo(f"stopped; saved in {out}, continue with --resume" if saved else "stopped; nothing saved yet",
                       err=True)
            raise typer.Exit(130) from None


@app.command()
def evaluate(
    model: Model,
    attention: Annotated[str | None, typer.Option(help="A mechanism, such as cca or dga.",
                                                  show_default="the attention the model was saved with")] = None,
    group: Group = None,
    window: Window = None,
    option: Option = None,
    length: Length = None,
    windows: Annotated[int, typer.Option(help="Windows of held-out text.")] = 64,
    questions: Annotated[int, typer.Option(help="Questions for each answer position.")] = 64,
    text: Text = None,
    out: ResultFile = None,
) -> None:
    """Measure perplexity and exact match of a model under any attention."""
    from cca_lab.commands.evaluate import evaluate as run

    with door():
        run(model, attention, given(attention, option, group=group, window=window), length=length, windows=windows,
            questions=questions, text=text, out=out)


@app.command()
def recover(
    model: Model,
    out: TrialsFile,
    group: Annotated[list[int] | None, typer.Option(help="Tokens a core; may be given several times.",
                                                    show_default="8, 4, 16")] = None,
    window: Annotated[list[int] | None, typer.Option(help="Local window; may be given several times.",
                                                     show_default="64")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Another mechanism to finetune beside CCA; may be "
                                                             "given several times.", show_default="none")] = None,
    option: Option = None,
    aligned: Annotated[bool, typer.Option("--aligned", help="Also train on documents at fixed places only.")] = False,
    seeds: Annotated[int, typer.Option(help="Finetunings of each setting.")] = 3,
    strategy: Strategy = FINETUNING.strategy,
    steps: Steps = FINETUNING.steps,
    learning_rate: Rate = FINETUNING.learning_rate,
    optimizer: Optimizer = FINETUNING.optimizer,
    grow: Grow = FINETUNING.grow,
    rows: Rows = READING.rows,
    length: Length = None,
    text_share: TextShare = READING.text_share,
    text: Text = None,
) -> None:
    """Measure a model before the swap to CCA, after it, and after finetuning, at every offset of the text."""
    from cca_lab.commands.recover import recover as run

    with door():
        config = FinetuneConfig(steps, strategy, learning_rate, optimizer, grow=grow)
        run(model, out, config=config, reading=Reading(length, rows, text_share), groups=group or (8, 4, 16),
            windows=window or (64,), options=given("cca", option), seeds=seeds, mechanisms=mechanism or (),
            aligned=aligned, text=text)


@app.command()
def sweep(
    model: Model,
    out: TrialsFile,
    group: Annotated[int, typer.Option(help="Tokens a core.")] = 8,
    window: Annotated[int, typer.Option(help="Local window.")] = 64,
    seeds: Annotated[int, typer.Option(help="Of the recipes that are close to each other.")] = 3,
    text: Text = None,
) -> None:
    """Try recipes for finetuning on CCA, and on full attention as the control."""
    from cca_lab.commands.sweep import sweep as run

    with door():
        run(model, out, group=group, window=window, seeds=seeds, text=text)


@app.command()
def compare(
    model: Model,
    entries: Annotated[int, typer.Option(help="Keys and values a KV head may keep.")] = 96,
    length: Length = None,
    windows: Annotated[int, typer.Option(help="Windows of held-out text.")] = 40,
    questions: Annotated[int, typer.Option(help="Questions for each answer position.")] = 20,
    text: Text = None,
    out: ResultFile = None,
) -> None:
    """Measure every mechanism on one model, untrained, at an equal budget of memory."""
    from cca_lab.commands.compare import compare as run

    with door():
        run(model, entries=entries, length=length, windows=windows, questions=questions, text=text, out=out)
