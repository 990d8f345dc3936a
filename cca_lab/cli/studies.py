"""The commands whose options are settings: `cca-lab study NAME`, training and evaluation."""

from typing import ClassVar

import typer

from cca_lab.cli.command import Commands, Group
from cca_lab.studies.registry import STUDIES

WAS = {"bench": ("attention", "decode", "model", "wire", "gpu"),
       "experiments": ("noise", "convergence", "lengths", "needles", "heads", "mqar")}


class Studies(Group):
    """Every study by its name."""

    lazy = STUDIES


class Lab(Commands):
    """All commands, with the old names of studies."""

    lazy: ClassVar = {
        "pretrain": (
            "cca_lab.studies.pretrain:Pretrain",
            "Train a tokenizer and a small base model that reads and retrieves, and write its card."
        ), "finetune": (
            "cca_lab.studies.finetune:Finetune",
            "Swap a model's attention and finetune it on text and questions; Ctrl-C saves the run."
        ), "evaluate": (
            "cca_lab.studies.evaluate:Evaluate",
            "Measure perplexity and exact match of a model under any attention, and the answers to "
            "prompts."
        ),
    }
    moved: ClassVar = {**{name: f"study {name}" for name in ("recover", "sweep", "compare",
                                                             "reproduce", "sparsity")},
                       **{f"{old} {name}": f"study {name}" for old, names in WAS.items()
                          for name in names},
                       "kernels report": "study kernels"}


study = typer.Typer(name="study", cls=Studies, no_args_is_help=True,
                    help="Measure: every number of the lab, by the name of its study.")


@study.callback()
def _study() -> None:
    pass
