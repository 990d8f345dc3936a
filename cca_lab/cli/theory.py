"""Commands that check the papers' claims, measurements and experiments."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App, checked_path
from cca_lab.cli.options import (
    Difficulty,
    Group,
    Model,
    Option,
    ResultFile,
    Text,
    TrialsFile,
    Window,
    given,
    json_file,
)

app = App()
experiments = App(name="experiments", no_args_is_help=True,
                  help="Repeat the papers' experiments at a small scale.")


@app.command()
def verify(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Claims to verify, such as T1.",
                                                    show_default="all")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print each claim in full, with its proof.")] = False,
    papers: Annotated[Path | None, typer.Option(help="Folder with the papers' texts (cca.txt, cca-poster.txt, dga.txt, "
                                                     "lococo.txt), to look each quotation up.",
                                                show_default="quotations are not looked up")] = None,
) -> int:
    """Verify the papers' theorems and numbers, and write the ledger of claims."""
    from cca_lab.theory.verify import verify as run

    failed = run(ids or (), explain=explain, papers=papers)
    return 1 if failed else 0


@app.command()
def prove() -> int:
    """Prove index statements for all integers with z3, from the functions that the lab runs."""
    from cca_lab.theory.prove import prove as run

    failed = run()
    return 1 if failed else 0


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
    from cca_lab.studies.sparsity import SparsityOptions
    from cca_lab.studies.sparsity import sparsity as run

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
    from cca_lab.studies.dga_figures import noise as run

    run(model, out, texts=texts, length=length, seeds=seeds, steps=steps, text=text)


@experiments.command("convergence")
def convergence(
    seeds: Annotated[int, typer.Option(help="Training runs per attention, with seeds 0, 1, ...")] = 4,
    steps: Annotated[int, typer.Option(help="Optimizer steps per run.")] = 100,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/convergence.json")] = None,
) -> None:
    """DGA's Figures 3a and 4: measure whether grouped attention learns faster than full, from the same seeds."""
    from cca_lab.studies.convergence import Budget
    from cca_lab.studies.dga_figures import convergence as run

    run(out, seeds=seeds, budget=Budget(steps=steps), text=text)


@experiments.command("lengths")
def lengths(
    model: Model,
    out: TrialsFile,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 4096,
    windows: Annotated[int, typer.Option(help="Number of windows of held-out text.")] = 4,
    entries: Annotated[int, typer.Option(help="Entries (a key and a value each) to keep per KV head.")] = 512,
    attention: Annotated[list[str] | None, typer.Option(help="Mechanism to swap in, untrained; repeatable.",
                                                        show_default="all")] = None,
    trained: Annotated[list[str] | None, typer.Option(metavar="NAME=FOLDER", show_default="none",
                                                      help="A finetuned model to measure as well; repeatable.")] = None,
    text: Text = None,
) -> None:
    """Measure a model's perplexity by the length of the context, with every mechanism at an equal memory budget."""
    from cca_lab.studies.by_length import lengths as run

    folders = dict(one.partition("=")[::2] for one in trained or ())
    run(model, out, length=length, windows=windows, entries=entries, attentions=attention or (), trained=folders,
        text=text)


@experiments.command("needles")
def needles(
    model: Model,
    attention: Annotated[str | None, typer.Option(help="Mechanism to swap in, such as cca or dga.",
                                                  show_default="the attention the model was saved with")] = None,
    group: Group = None,
    window: Window = None,
    option: Option = None,
    length: Annotated[list[int] | None, typer.Option(help="Tokens per prompt, with its answer; repeatable.",
                                                     show_default="a quarter, half and all of the context")] = None,
    task: Annotated[str, typer.Option(help="niah_single, niah_multikey, niah_multivalue, variable_tracking or "
                                           "key_values.")] = "niah_single",
    difficulty: Difficulty = None,
    depths: Annotated[int, typer.Option(help="Number of depths, from the beginning of the prompt to its end.")] = 5,
    samples: Annotated[int, typer.Option(help="Prompts for each depth and length.")] = 4,
    seed: Annotated[int, typer.Option(help="Random seed of the prompts.")] = 0,
    out: ResultFile = None,
    figure: Annotated[Path | None, typer.Option(help="PNG of the heat map to write.", show_default="none",
                                                callback=checked_path("file"))] = None,
) -> None:
    """RULER's and Lost in the Middle's question: what a model finds, by its depth in the prompt and the length."""
    from cca_lab.studies.needles import needles as run

    run(model, attention, given(attention, option, group=group, window=window), lengths=length or (), task=task,
        difficulty=difficulty or (), depths=depths, samples=samples, seed=seed, out=out, figure=figure)


@experiments.command("heads")
def heads(
    model: Model,
    texts: Annotated[int, typer.Option(help="Number of held-out texts.")] = 8,
    length: Annotated[int, typer.Option(help="Tokens per text.")] = 512,
    text: Text = None,
    out: Annotated[Path | None, json_file("data/results/heads-MODEL.json")] = None,
) -> None:
    """Measure how sparse every head is: k90, effective tokens, the weight of the first token and of far tokens."""
    from cca_lab.studies.heads import heads as run

    run(model, out, texts=texts, length=length, text=text)


@experiments.command("mqar")
def mqar(
    length: Annotated[int, typer.Option(help="Tokens per text.")] = 64,
    pairs: Annotated[int, typer.Option(help="Keys with a value in a text; each is asked once.")] = 4,
    vocabulary: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 8192,
    attention: Annotated[list[str] | None, typer.Option(
        help="Mechanism to compare with full attention; repeatable.", show_default="all that can be sized")] = None,
    entries: Annotated[list[int] | None, typer.Option(
        help="Keys, and as many values, that a decoder may keep; repeatable.",
        show_default="a quarter, half and three quarters of the tokens")] = None,
    seeds: Annotated[int, typer.Option(help="Training runs of each, with seeds 0, 1, ...")] = 1,
    steps: Annotated[int, typer.Option(help="Optimizer steps at most per training run.")] = 3000,
    quick: Annotated[bool, typer.Option("--quick", help="Only CCA and StreamingLLM, at half of the tokens.")] = False,
    out: Annotated[Path | None, json_file("data/results/mqar-LENGTH-PAIRS.json")] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG of the frontier to write.", show_default="none",
                                                callback=checked_path("file"))] = None,
) -> None:
    """Zoology's recall task: how many keys each mechanism answers with how much memory, trained from scratch."""
    from cca_lab.studies.mqar import mqar as run
    from cca_lab.studies.mqar_training import Recipe
    from cca_lab.tasks.mqar import MQAR

    run(MQAR(length=length, pairs=pairs, vocabulary=vocabulary), Recipe(steps=steps), out, names=attention or (),
        entries=entries or (), seeds=seeds, quick=quick, figure=figure)
