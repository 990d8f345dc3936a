"""The studies by name: module and class of the settings; importable without torch."""

import ast
from importlib.util import find_spec
from pathlib import Path

STUDIES = {
    "recover": "cca_lab.studies.recover:Recover",
    "sweep": "cca_lab.studies.sweep:Sweep",
    "compare": "cca_lab.studies.compare:Compare",
    "lengths": "cca_lab.studies.lengths:Lengths",
    "needles": "cca_lab.studies.needles:Needles",
    "retrieval": "cca_lab.studies.retrieval:Retrieval",
    "reproduce": "cca_lab.studies.reproduce.run:Reproduce",
    "heads": "cca_lab.studies.heads:Heads",
    "attention": "cca_lab.studies.benchmarks.attention:AttentionBench",
    "decode": "cca_lab.studies.benchmarks.decode:Decode",
    "steps": "cca_lab.studies.benchmarks.steps:Steps",
    "model": "cca_lab.studies.benchmarks.model:ModelBench",
    "gpu": "cca_lab.studies.benchmarks.gpu:GpuBench",
}

# Commands of their own, whose options are settings too.
COMMANDS = {
    "pretrain": "cca_lab.studies.pretrain:Pretrain",
    "finetune": "cca_lab.studies.finetune:Finetune",
    "evaluate": "cca_lab.studies.evaluate:Evaluate",
}


def sentence(address: str) -> str:
    """Return the first line of a class's docstring, from the source, which is not imported."""
    module, _, kind = address.partition(":")
    source = Path(str(getattr(find_spec(module), "origin", ""))).read_text(encoding="utf-8")
    (found,) = (node for node in ast.parse(source).body
                if isinstance(node, ast.ClassDef) and node.name == kind)
    return str(ast.get_docstring(found)).split("\n")[0]
