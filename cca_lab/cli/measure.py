"""Commands that measure speed and look at kernels."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import ResultFile, check_option, door, out_folder

bench = App(name="bench", no_args_is_help=True, help="Measure on this machine.")
kernels = App(name="kernels", no_args_is_help=True, help="Look at the Triton kernels.")

Rounds = Annotated[int, typer.Option(help="Interleaved rounds behind every median.")]


@bench.command("attention")
def bench_attention(
    out: ResultFile = None,
    length: Annotated[list[int] | None, typer.Option(help="A length; may be given several times.",
                                                     show_default="2048 to 32768")] = None,
    window: Annotated[list[int] | None, typer.Option(help="A local window; may be given several times.",
                                                     show_default="256 and 1024")] = None,
    rounds: Rounds = 5,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure the peak memory too.")] = True,
    native: Annotated[bool | None, typer.Option("--native/--no-native", help="Measure the native operator too.",
                                                show_default="where it can be built")] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file to draw the roofline into.", show_default="none",
                                                callback=check_option)] = None,
) -> None:
    """Measure CCA against PyTorch's full attention on the CPU: time, pairs, the matrix peak, memory."""
    from cca_lab.bench.attention import LENGTHS, WINDOWS, run

    with door():
        run(length or LENGTHS, window or WINDOWS, rounds, out, memory, native, figure)


@bench.command("decode")
def bench_decode(
    out: ResultFile = None,
    length: Annotated[list[int] | None, typer.Option(help="Tokens in the cache; may be given several times.",
                                                     show_default="4096 to 131072")] = None,
    cache: Annotated[list[str] | None, typer.Option(help="A mechanism; may be given several times.",
                                                    show_default="all that have a cache")] = None,
    rounds: Rounds = 3,
) -> None:
    """Measure one token's attention with each cache against a full cache: time, bytes, entries."""
    from cca_lab.bench.decode import LENGTHS, run

    with door():
        run(length or LENGTHS, cache, rounds, out)


@bench.command("model")
def bench_model(
    out: ResultFile = None,
    layers: Annotated[int, typer.Option(help="Blocks.")] = 4,
    width: Annotated[int, typer.Option(help="Residual width.")] = 256,
    heads: Annotated[int, typer.Option(help="Heads of a block.")] = 4,
    prompt: Annotated[list[int] | None, typer.Option(help="Tokens of a prompt; may be given several times.",
                                                     show_default="1024 and 8192")] = None,
    attention: Annotated[list[str] | None, typer.Option(help="A mechanism; may be given several times.",
                                                        show_default="cca, dga, streaming_llm, lococo")] = None,
    rounds: Rounds = 3,
) -> None:
    """Measure a GPT-2 of random weights: first token, next tokens and a training step, attention by attention."""
    from cca_lab.bench.model import ATTENTIONS, PROMPTS, run

    with door():
        run(layers=layers, width=width, heads=heads, prompts=prompt or PROMPTS, attentions=attention or ATTENTIONS,
            rounds=rounds, out=out)


@bench.command("gpu")
def bench_gpu(
    out: Annotated[Path, out_folder("Folder for gpu.json and the figures.")],
) -> None:
    """Check and measure the kernels on one GPU, in ten minutes; interpreted and tiny under TRITON_INTERPRET=1."""
    from cca_lab.bench.gpu import run

    with door():
        run(out)


@kernels.command("report")
def kernels_report(out: ResultFile = None) -> None:
    """Compile every kernel for four targets, without a GPU, and show what each takes."""
    from cca_lab.commands.kernels import report

    with door():
        report(out)
