"""Commands that measure speed and inspect kernels."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App, checked_path
from cca_lab.cli.options import ResultFile, out_folder

bench = App(name="bench", no_args_is_help=True, help="Measure speed and memory on this machine.")
kernels = App(name="kernels", no_args_is_help=True, help="Inspect the Triton kernels.")

Rounds = Annotated[int, typer.Option(help="Interleaved rounds; each time is the median over them.")]


@bench.command("attention")
def bench_attention(
    out: ResultFile = None,
    length: Annotated[list[int] | None, typer.Option(help="Sequence length, in tokens; repeatable.",
                                                     show_default="2048 to 32768, doubling")] = None,
    window: Annotated[list[int] | None, typer.Option(help="Local window, in tokens; repeatable.",
                                                     show_default="256 and 1024")] = None,
    rounds: Rounds = 5,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure peak memory too.")] = True,
    native: Annotated[bool | None, typer.Option("--native/--no-native", help="Measure the native C++ op too.",
                                                show_default="if it can be built")] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file to write, with the roofline.", show_default="none",
                                                callback=checked_path("file"))] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Measure CCA against PyTorch's full attention on the CPU: time, pairs, the matrix peak, memory."""
    from cca_lab.studies.benchmarks.attention import LENGTHS, WINDOWS, run

    run(length or LENGTHS, window or WINDOWS, rounds, out, memory, native, figure, dtype)


@bench.command("decode")
def bench_decode(
    out: ResultFile = None,
    length: Annotated[list[int] | None, typer.Option(help="Tokens read before the timed ones; repeatable.",
                                                     show_default="4096 to 131072, doubling")] = None,
    cache: Annotated[list[str] | None, typer.Option(help="Mechanism whose cache is measured; repeatable.",
                                                    show_default="all")] = None,
    rounds: Rounds = 3,
) -> None:
    """Measure one token's attention with each cache against a full cache: time, bytes, entries."""
    from cca_lab.studies.benchmarks.decode import LENGTHS, run

    run(length or LENGTHS, cache, rounds, out)


@bench.command("model")
def bench_model(
    out: ResultFile = None,
    layers: Annotated[int, typer.Option(help="Transformer blocks.")] = 4,
    width: Annotated[int, typer.Option(help="Width of the residual stream; a multiple of the heads.")] = 256,
    heads: Annotated[int, typer.Option(help="Heads per block.")] = 4,
    prompt: Annotated[list[int] | None, typer.Option(help="Tokens per prompt; repeatable.",
                                                     show_default="1024 and 8192")] = None,
    attention: Annotated[list[str] | None, typer.Option(help="Mechanism to measure beside full; repeatable.",
                                                        show_default="cca, dga, streaming_llm, lococo")] = None,
    rounds: Rounds = 3,
) -> None:
    """Measure a GPT-2 of random weights with each attention: first token, next tokens and a training step."""
    from cca_lab.studies.benchmarks.model import ATTENTIONS, PROMPTS, run

    run(layers=layers, width=width, heads=heads, prompts=prompt or PROMPTS, attentions=attention or ATTENTIONS,
        rounds=rounds, out=out)


@bench.command("wire")
def bench_wire(
    out: ResultFile = None,
    processes: Annotated[list[int] | None, typer.Option(help="Number of processes to measure with; repeatable.",
                                                        show_default="2 and 4")] = None,
    length: Annotated[int, typer.Option(help="Tokens of the measured text.")] = 8192,
    group: Annotated[int, typer.Option(help="Group size.")] = 16,
    window: Annotated[int, typer.Option(help="Local window, in tokens.")] = 256,
    tokens: Annotated[int, typer.Option(help="Tokens of the planned text.")] = 2**20,
    gpus: Annotated[int, typer.Option(help="GPUs of the plan.")] = 64,
) -> None:
    """Count what travels when one text is spread over processes, measured here and planned for many GPUs."""
    from cca_lab.studies.benchmarks.wire import run

    run(processes or (2, 4), length, group, window, out, (tokens, gpus))


@bench.command("gpu")
def bench_gpu(
    out: Annotated[Path, out_folder("Folder for gpu.json, a JSON file per section and the figures.")],
) -> None:
    """Check and time the kernels on one GPU, within ten minutes; TRITON_INTERPRET=1 tries it at tiny sizes without."""
    from cca_lab.studies.benchmarks.gpu.run import run

    run(out)


@kernels.command("report")
def kernels_report(
    target: Annotated[list[str] | None, typer.Option(help="Target to compile for; repeatable.",
                                                     show_default="sm_80, sm_90, sm_100 and gfx942")] = None,
    out: ResultFile = None,
) -> None:
    """Compile every kernel for each target, without a GPU, and show the registers, memory and instructions it uses."""
    from cca_lab.studies.kernels import report

    report(out, targets=target)
