"""Commands that train and evaluate models."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import (
    FINETUNING,
    READING,
    Difficulty,
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
    Task,
    Text,
    TextShare,
    TrialsFile,
    Window,
    given,
    out_folder,
)
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.reading import Reading

app = App()


@app.command()
def pretrain(
    out: Annotated[Path, out_folder("New folder to write the model to.")],
    family: Annotated[str, typer.Option(help="Architecture: gpt2 or opt.")] = "gpt2",
    tokens: Annotated[float, typer.Option(help="Budget of training tokens.")] = 20e6,
    context: Annotated[int, typer.Option(help="Longest sequence the model reads, in tokens.")] = 512,
    layers: Annotated[int, typer.Option(help="Transformer blocks.")] = 4,
    width: Annotated[int, typer.Option(help="Width of the residual stream; a multiple of the heads.")] = 128,
    heads: Annotated[int, typer.Option(help="Query heads per block.")] = 4,
    vocabulary: Annotated[int, typer.Option(help="Size of the tokenizer's vocabulary.")] = 2048,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 8e-3,
    seed: Annotated[int, typer.Option(help="Random seed of the weights and the data.")] = 0,
    text: Text = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 leaves the choice to PyTorch.")] = 0,
    attention: Annotated[str, typer.Option(help="Mechanism to train with, from the first step.")] = "full",
    group: Group = None,
    window: Window = None,
    option: Option = None,
    text_only: Annotated[bool, typer.Option("--text-only", help="Train on text only, without questions.")] = False,
) -> None:
    """Train a tokenizer and a small base model that reads and retrieves, and write its card."""
    from cca_lab.studies.pretrain import PretrainOptions
    from cca_lab.studies.pretrain import pretrain as run

    run(PretrainOptions(family, out, tokens, context, vocabulary, width, layers, heads, learning_rate,
                        seed, text, threads, attention, given(attention, option, group=group, window=window),
                        text_only))
    typer.echo(f"written: {out}")


@app.command()
def finetune(
    model: Model,
    out: Annotated[Path, out_folder("Folder for the run: its log, state and model.")],
    attention: Annotated[str, typer.Option(help="Mechanism to train with, such as full, cca or dga.")] = "cca",
    group: Group = None,
    window: Window = None,
    option: Option = None,
    strategy: Strategy = FINETUNING.strategy,
    steps: Steps = FINETUNING.steps,
    learning_rate: Rate = FINETUNING.learning_rate,
    optimizer: Optimizer = FINETUNING.optimizer,
    grow: Grow = FINETUNING.grow,
    warmup: Annotated[int, typer.Option(help="Steps of linear warm-up of the learning rate.")] = FINETUNING.warmup,
    accumulation: Annotated[int, typer.Option(help="Micro-steps per step, to save memory.")] = 1,
    rows: Rows = READING.rows,
    length: Length = None,
    text_share: TextShare = READING.text_share,
    precision: Precision = FINETUNING.precision,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0 saves at the end only.")] = 50,
    seed: Annotated[int, typer.Option(help="Random seed of the data.")] = 0,
    text: Text = None,
    task: Task = None,
    difficulty: Difficulty = None,
    context_parallel: Annotated[int, typer.Option(help="Processes of torchrun that share each text, a part of its "
                                                       "tokens each; cca only.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
) -> None:
    """Swap a model's attention and finetune it on text and questions; Ctrl-C saves the run before it stops."""
    from cca_lab.studies.finetune import finetune as run

    config = FinetuneConfig(steps, strategy, learning_rate, optimizer, warmup, accumulation,
                            save_every=save_every, grow=grow, precision=precision)
    try:
        run(model, attention, given(attention, option, group=group, window=window), config,
            Reading(length, rows, text_share, seed), out, text=text, resume=resume, tasks=task or (),
            difficulty=difficulty or (), context_parallel=context_parallel)
    except KeyboardInterrupt:
        saved = (out / "state").exists()
        typer.echo(f"stopped; saved in {out}, continue with --resume" if saved else "stopped; nothing saved yet",
                   err=True)
        raise typer.Exit(130) from None


@app.command()
def evaluate(
    model: Model,
    attention: Annotated[str | None, typer.Option(help="Mechanism to swap in, such as cca or dga.",
                                                  show_default="the attention the model was saved with")] = None,
    group: Group = None,
    window: Window = None,
    option: Option = None,
    length: Length = None,
    windows: Annotated[int, typer.Option(help="Number of windows of held-out text.")] = 64,
    questions: Annotated[int, typer.Option(help="Questions per answer position; rounded up to a multiple of 16, "
                                                "but not those of --task.")] = 64,
    text: Text = None,
    task: Task = None,
    difficulty: Difficulty = None,
    out: ResultFile = None,
) -> None:
    """Measure perplexity and exact match of a model under any attention, and the answers to prompts."""
    from cca_lab.studies.evaluate import evaluate as run

    run(model, attention, given(attention, option, group=group, window=window), length=length, windows=windows,
        questions=questions, text=text, out=out, tasks=task or (), difficulty=difficulty or ())


@app.command()
def recover(
    model: Model,
    out: TrialsFile,
    group: Annotated[list[int] | None, typer.Option(help="Tokens per group; repeatable.",
                                                    show_default="8, 4, 16")] = None,
    window: Annotated[list[int] | None, typer.Option(help="Local window, in tokens; repeatable.",
                                                     show_default="64")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Another mechanism to finetune beside CCA; repeatable.",
                                                        show_default="none")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", show_default="none",
                                                     help="Another option of CCA; repeatable.")] = None,
    aligned: Annotated[bool, typer.Option("--aligned", help="Also finetune on documents at fixed positions.")] = False,
    seeds: Annotated[int, typer.Option(help="Finetuning runs per setting, with seeds 0, 1, ...")] = 3,
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
    from cca_lab.studies.recover import recover as run

    config = FinetuneConfig(steps, strategy, learning_rate, optimizer, grow=grow)
    run(model, out, config=config, reading=Reading(length, rows, text_share), groups=group or (8, 4, 16),
        windows=window or (64,), options=given("cca", option), seeds=seeds, mechanisms=mechanism or (),
        aligned=aligned, text=text)


@app.command()
def sweep(
    model: Model,
    out: TrialsFile,
    group: Annotated[int, typer.Option(help="Tokens per group.")] = 8,
    window: Annotated[int, typer.Option(help="Local window, in tokens.")] = 64,
    seeds: Annotated[int, typer.Option(help="Seeds for the three closest recipes; the others have one.")] = 3,
    text: Text = None,
) -> None:
    """Try recipes for finetuning on CCA, and on full attention as the control."""
    from cca_lab.studies.sweep import sweep as run

    run(model, out, group=group, window=window, seeds=seeds, text=text)


@app.command()
def compare(
    model: Model,
    entries: Annotated[int, typer.Option(help="Entries (a key and a value each) to keep per KV head.")] = 96,
    length: Length = None,
    windows: Annotated[int, typer.Option(help="Number of windows of held-out text.")] = 40,
    questions: Annotated[int, typer.Option(help="Questions per answer position; rounded up to a multiple of 16.")] = 20,
    text: Text = None,
    out: ResultFile = None,
) -> None:
    """Measure every mechanism on one model, without training, at an equal memory budget."""
    from cca_lab.studies.compare import compare as run

    run(model, entries=entries, length=length, windows=windows, questions=questions, text=text, out=out)
