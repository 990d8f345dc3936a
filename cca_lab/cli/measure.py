"""Commands that measure speed and look at kernels."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.options import door

bench = typer.Typer(name="bench", no_args_is_help=True, help="Measure on this machine.")
kernels = typer.Typer(name="kernels", no_args_is_help=True, help="Look at the Triton kernels.")


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


@kernels.command("report")
def kernels_report(out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None) -> None:
    """Compile every kernel for four targets, without a GPU, and show what each takes."""
    from cca_lab.commands.kernels import report

    with door():
        report(out)
