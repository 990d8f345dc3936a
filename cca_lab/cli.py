"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="cca-lab", no_args_is_help=True, pretty_exceptions_show_locals=False,
                  add_completion=False,
                  help="Long-context attention, from loops to models.")
bench = typer.Typer(name="bench", no_args_is_help=True, help="Measure on this machine.")
app.add_typer(bench)

Start = Annotated[str | None, typer.Option("--from", help="First notebook to run, such as 05.")]
Only = Annotated[str | None, typer.Option("--only", help="The one notebook to run, such as 01.")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder of the notebooks.",
                                             show_default="notebooks/ of the clone")]
Model = Annotated[str, typer.Option(help="A model's folder, or its name on the hub.")]
Attention = Annotated[str, typer.Option(help="full or cca.")]
Group = Annotated[int | None, typer.Option(help="CCA: tokens a core.", show_default="the mechanism's")]
Window = Annotated[int | None, typer.Option(help="CCA: local window.", show_default="the mechanism's")]
Length = Annotated[int | None, typer.Option(help="Tokens of a sequence.",
                                            show_default="the model's context, at most 1024")]
Text = Annotated[str | None, typer.Option(help="A text file, a folder, or hub:NAME.",
                                          show_default="the standard library")]


@contextmanager
def door() -> Iterator[None]:
    """Turn a ValueError, which says what was wrong with the input, into one line and exit status 2."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def doctor() -> None:
    """Check the installation, and say what to do about each problem."""
    from cca_lab.doctor import run

    raise typer.Exit(run())


@app.command()
def walkthrough(
    start: Start = None,
    only: Only = None,
    out: Annotated[Path, typer.Option(help="Where notebooks, pages and summary go.")]
    = Path("build/walkthrough"),
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write HTML pages.")] = True,
    folder: Folder = None,
) -> None:
    """Run the notebooks in order, and write pages and a summary."""
    from cca_lab.paths import notebooks_folder
    from cca_lab.walkthrough.run import walkthrough as run

    with door():
        status = run(folder or notebooks_folder(), out, start=start, only=only, with_pages=html)
    raise typer.Exit(status)


@app.command(hidden=True)
def notebooks(start: Start = None, only: Only = None, folder: Folder = None) -> None:
    """Run the notebooks in place, to commit their outputs (for maintainers)."""
    from cca_lab.paths import notebooks_folder
    from cca_lab.walkthrough.refresh import refresh

    with door():
        status = refresh(folder or notebooks_folder(), start=start, only=only)
    raise typer.Exit(status)


@app.command(hidden=True)
def checksums(write: Annotated[bool, typer.Option("--write", help="Write them anew.")] = False) -> None:
    """Verify the checksums of the shipped data (for maintainers: write them)."""
    from cca_lab import checksums as sums
    from cca_lab.paths import data_folder

    with door():
        if write:
            typer.echo(f"written: {sums.write(data_folder())}")
            return
        problems = sums.problems(data_folder())
    typer.echo("\n".join(problems) or "all files are as shipped")
    raise typer.Exit(1 if problems else 0)


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")],
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
) -> None:
    """Train a tokenizer and a small base model that reads and retrieves, and write its card."""
    from cca_lab.commands.pretrain import PretrainOptions
    from cca_lab.commands.pretrain import pretrain as run

    with door():
        run(PretrainOptions(family, out, tokens, context, vocabulary, width, layers, heads, learning_rate,
                            seed, text, threads))
    typer.echo(f"written: {out}")


@app.command()
def finetune(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder of the run: log, state, model.")],
    attention: Attention = "cca",
    group: Group = None,
    window: Window = None,
    strategy: Annotated[str, typer.Option(help="full, qkv (W^Q, W^K, W^V only) or none.")] = "full",
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 100,
    learning_rate: Annotated[float, typer.Option(help="After warm-up.")] = 1e-3,
    warmup: Annotated[int, typer.Option(help="Steps of warm-up.")] = 10,
    accumulation: Annotated[int, typer.Option(help="Micro-steps a step.")] = 1,
    rows: Annotated[int, typer.Option(help="Sequences a micro-step and process.")] = 8,
    length: Length = None,
    text_share: Annotated[float, typer.Option(help="Share of sequences that are text.")] = 0.75,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: at the end only.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
    text: Text = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
) -> None:
    """Swap a model's attention and finetune it on text and questions; Ctrl-C saves before it leaves."""
    from cca_lab.commands.finetune import Reading
    from cca_lab.commands.finetune import finetune as run
    from cca_lab.models.finetune import FinetuneConfig

    with door():
        config = FinetuneConfig(steps, strategy, learning_rate, warmup, accumulation, save_every=save_every)
        try:
            run(model, attention, _given(group=group, window=window), config,
                Reading(length, rows, text_share, seed), out, text=text, resume=resume)
        except KeyboardInterrupt:
            saved = (out / "state").exists()
            typer.echo(f"stopped; saved in {out}, continue with --resume" if saved else "stopped; nothing saved yet",
                       err=True)
            raise typer.Exit(130) from None


@app.command()
def evaluate(
    model: Model,
    attention: Annotated[str | None, typer.Option(help="full or cca.",
                                                  show_default="the attention the model was saved with")] = None,
    group: Group = None,
    window: Window = None,
    length: Length = None,
    windows: Annotated[int, typer.Option(help="Windows of held-out text.")] = 64,
    questions: Annotated[int, typer.Option(help="Questions for each answer position.")] = 40,
    text: Text = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.", show_default="none")] = None,
) -> None:
    """Measure perplexity and exact match of a model under any attention."""
    from cca_lab.commands.evaluate import evaluate as run

    with door():
        run(model, attention, _given(group=group, window=window), length=length, windows=windows,
            questions=questions, text=text, out=out)


@app.command()
def recover(
    model: Model,
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    group: Annotated[int, typer.Option(help="Tokens a core.")] = 16,
    window: Annotated[int, typer.Option(help="Local window.")] = 128,
    steps: Annotated[int, typer.Option(help="Optimizer steps of each finetuning.")] = 200,
    learning_rate: Annotated[float, typer.Option(help="Of each finetuning.")] = 1e-3,
    rows: Annotated[int, typer.Option(help="Sequences a step.")] = 8,
    length: Length = None,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
    text: Text = None,
) -> None:
    """Measure a model before the swap to CCA, after it, and after finetuning."""
    from cca_lab.commands.finetune import Reading
    from cca_lab.commands.recover import recover as run

    with door():
        run(model, {"group": group, "window": window}, steps, learning_rate,
            Reading(length, rows, seed=seed), out, text=text)


def _given(**options) -> dict:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


@app.command(hidden=True)
def readme() -> None:
    """Write the README's tables from data/ (for maintainers)."""
    from cca_lab.commands.readme import write

    with door():
        typer.echo(f"written: {write()}")


@bench.command("attention")
def bench_attention(
    out: Annotated[Path | None, typer.Option(help="JSON file to write.", show_default="none")] = None,
    length: Annotated[list[int] | None, typer.Option(help="A length; may be given several times.",
                                                     show_default="2048 to 32768")] = None,
    window: Annotated[list[int] | None, typer.Option(help="A local window; may be given several times.",
                                                     show_default="256 and 1024")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds behind every median.")] = 5,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure the peak memory too.")] = True,
) -> None:
    """Measure blocked CCA against PyTorch's full attention: time, pairs, memory."""
    from cca_lab.bench.attention import LENGTHS, WINDOWS, run

    with door():
        run(length or LENGTHS, window or WINDOWS, rounds, out, memory)
