"""Commands that check the papers' claims, measurements and experiments."""

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
    explain: Annotated[bool, typer.Option("--explain", help="Print each claim in full, with its proof.")] = False,
) -> None:
    """Verify the papers' theorems and numbers, and write the ledger of claims."""
    from cca_lab.experiments.verify import verify as run

    with door():
        failed = run(ids or (), explain=explain)
    raise typer.Exit(1 if failed else 0)


@app.command()
def sparsity(
    model: Model,
    texts: Annotated[int, typer.Option(help="Number of held-out texts.")] = 100,
    length: Annotated[int | None, typer.Option(help="Tokens per text.",
                                               show_default="the model's context, at most 1000")] = None,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/sparsity-MODEL.json")] = None,
) -> None:
    """Measure how sparse each head's attention is, and compare it with what theory predicts."""
    from cca_lab.experiments.sparsity import SparsityOptions
    from cca_lab.experiments.sparsity import sparsity as run

    with door():
        run(SparsityOptions(model, texts, length, text, out))


@experiments.command("noise")
def noise(
    model: Annotated[str | None, typer.Option(help="Folder of a model, or its name on the Hugging Face hub.",
                                              show_default="the shipped gpt2-mini")] = None,
    texts: Annotated[int, typer.Option(help="Number of windows of held-out text.")] = 8,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 256,
    seeds: Annotated[int, typer.Option(help="Random draws of the noise.")] = 3,
    steps: Annotated[int, typer.Option(help="Optimizer steps to finetune each attention; 0 for none.")] = 30,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/noise-MODEL.json")] = None,
) -> None:
    """DGA's Figure 3b: measure what noise in the attention does to the next-token distribution."""
    from cca_lab.experiments.dga_figures import noise as run

    with door():
        run(model, out, texts=texts, length=length, seeds=seeds, steps=steps, text=text)


@experiments.command("convergence")
def convergence(
    seeds: Annotated[int, typer.Option(help="Training runs per attention, with seeds 0, 1, ...")] = 4,
    steps: Annotated[int, typer.Option(help="Optimizer steps per run.")] = 100,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/convergence.json")] = None,
) -> None:
    """DGA's Figures 3a and 4: measure whether grouped attention learns faster than full, from the same seeds."""
    from cca_lab.experiments.convergence import Budget
    from cca_lab.experiments.dga_figures import convergence as run

    with door():
        run(out, seeds=seeds, budget=Budget(steps=steps), text=text)
