"""Commands that check the papers: their claims, their measurements, their experiments."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import Model, Text, door, json_file

app = App()
experiments = App(name="experiments", no_args_is_help=True,
                  help="Repeat the papers' experiments at a small scale.")


@app.command()
def verify(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Claims to verify, such as T1.",
                                                    show_default="all")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each claim in full, with its proof.")] = False,
) -> None:
    """Verify the papers' theorems and numbers, and write the ledger of claims."""
    from cca_lab.commands.verify import verify as run

    with door():
        failed = run(ids or (), explain=explain)
    raise typer.Exit(1 if failed else 0)


@app.command()
def sparsity(
    model: Model,
    texts: Annotated[int, typer.Option(help="How many texts.")] = 100,
    length: Annotated[int | None, typer.Option(help="Tokens of a text.",
                                               show_default="the model's context, at most 1000")] = None,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/sparsity-MODEL.json")] = None,
) -> None:
    """Measure how sparse each head's attention is, and compare it with what theory predicts."""
    from cca_lab.commands.sparsity import SparsityOptions
    from cca_lab.commands.sparsity import sparsity as run

    with door():
        run(SparsityOptions(model, texts, length, text, out))


@experiments.command("noise")
def noise(
    model: Annotated[str | None, typer.Option(help="A model's folder, or its name on the hub.",
                                              show_default="the shipped gpt2-mini")] = None,
    texts: Annotated[int, typer.Option(help="Windows of held-out text.")] = 8,
    length: Annotated[int, typer.Option(help="Tokens of a window.")] = 256,
    seeds: Annotated[int, typer.Option(help="Draws of the noise.")] = 3,
    steps: Annotated[int, typer.Option(help="Finetuning steps of each attention; 0 for none.")] = 30,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/noise-MODEL.json")] = None,
) -> None:
    """DGA's Figure 3b: what noise in the attention does to the next-token distribution."""
    from cca_lab.commands.experiments import noise as run

    with door():
        run(model, out, texts=texts, length=length, seeds=seeds, steps=steps, text=text)


@experiments.command("convergence")
def convergence(
    seeds: Annotated[int, typer.Option(help="Runs of each attention.")] = 4,
    steps: Annotated[int, typer.Option(help="Optimizer steps of a run.")] = 100,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/convergence.json")] = None,
) -> None:
    """DGA's Figures 3a and 4: does a model with grouped attention learn faster, from the same seeds?"""
    from cca_lab.commands.experiments import convergence as run
    from cca_lab.theory.convergence import Budget

    with door():
        run(out, seeds=seeds, budget=Budget(steps=steps), text=text)
