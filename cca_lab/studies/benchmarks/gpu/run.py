"""Check and measure the kernels on one GPU: `cca-lab study gpu --out FOLDER`, within ten minutes.

Each section runs in a process with a time limit: a kernel that crashes the GPU or hangs ends only
its section, whose results until then are on disk. FOLDER/gpu.json gathers all, with the targets.
Without a GPU it runs only under Triton's interpreter, at tiny sizes, which measures nothing.
"""

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from cca_lab.attention.fused import interpreted
from cca_lab.files import check_folder
from cca_lab.reporting import machine, write_json
from cca_lab.settings import REQUIRED, option
from cca_lab.studies.benchmarks.gpu.section import BY_NAME, REAL, TOY, Section, Sizes, told
from cca_lab.studies.study import Study

# Seconds after which a section starts no new case. It is stopped GRACE seconds later; all but the
# tiles, whose kernels compile for minutes, take under ten minutes.
LIMITS = {"correctness": 130.0, "speed": 180.0, "decode": 30.0, "model": 110.0, "tiles": 420.0}
ASKED_FOR = ("tiles",)  # sections that run only by name
GRACE = 30.0


@dataclass(frozen=True, kw_only=True)
class GpuBench(Study):
    """Check and time the kernels on a GPU; TRITON_INTERPRET=1 tries it at tiny sizes without."""

    out: Path = option(REQUIRED, "Folder for gpu.json, a JSON file per section and the figures.",
                       output="folder")
    section: tuple[str, ...] = option(
        (), f"Section to run: {', '.join(LIMITS)}; repeatable.",
        shown=f"all but {', '.join(ASKED_FOR)}")
    sizes: Sizes | None = None  # None: the real ones, or under the interpreter tiny ones
    apart: bool = True  # each section in a separate process

    def run(self) -> dict[str, Any]:
        """Run the sections; compare the results with the targets, print and draw them."""
        if unknown := sorted(set(self.section) - LIMITS.keys()):
            raise ValueError(f"section: got {unknown[0]!r}, wanted one of {', '.join(LIMITS)}")
        if not torch.cuda.is_available() and not interpreted():
            raise ValueError(
                "gpu: got none (torch.cuda.is_available() is False), wanted one; run this where a "
                "GPU is, or with TRITON_INTERPRET=1 to try the command itself at tiny sizes")
        sizes, out = self.sizes or (TOY if interpreted() else REAL), check_folder(Path(self.out))
        if self.section and (out / "gpu.json").exists():
            raise ValueError(f"out: {out.name} has a gpu.json, whose other sections would be lost; "
                             "choose another folder")
        start, sections = perf_counter(), {}
        for name, limit in LIMITS.items():
            if name not in (self.section or LIMITS.keys() - ASKED_FOR):
                continue
            print(f"{name}: at most {limit + GRACE:.0f} s", flush=True)
            file = out / f"{name}.json"
            file.unlink(missing_ok=True)  # of an earlier run: a section may not start
            error = (_apart if self.apart else _here)(name, out, sizes, limit)
            results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {
                "rows": [], "left_out": []}
            sections[name] = results | {"error": error}
            write_json(out / "gpu.json", gathered(sections, sizes, perf_counter() - start))
        result = gathered(sections, sizes, perf_counter() - start)
        # an error here leaves gpu.json
        from cca_lab.studies.benchmarks.gpu.tables import draw, show

        show(result)
        draw(result, out)
        return result


def run_section(name: str, out: Path, sizes: Sizes, limit: float) -> None:
    """Run one section; its results are written to out/NAME.json."""
    section = Section(out / f"{name}.json", limit)
    importlib.import_module(f"cca_lab.studies.benchmarks.gpu.{name}").run(sizes, section)
    section.write()


def _apart(name: str, out: Path, sizes: Sizes, limit: float) -> str | None:
    """Run a section in a separate process; return its error, or None."""
    command = [sys.executable, "-m", "cca_lab.studies.benchmarks.gpu.run", name, str(out),
               sizes.name, str(limit)]
    try:
        status = subprocess.run(command, timeout=limit + GRACE, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"ended after {limit + GRACE:.0f} s"
    return f"exit status {status}" if status else None


def _here(name: str, out: Path, sizes: Sizes, limit: float) -> str | None:
    try:
        run_section(name, out, sizes, limit)
    except Exception as error:
        return told(error)
    return None


def gathered(sections: dict[str, dict[str, Any]], sizes: Sizes, seconds: float) -> dict[str, Any]:
    """Return all sections, the machine, and the targets."""
    from cca_lab.studies.benchmarks.gpu.tables import targets

    return {"bench": "gpu", "machine": machine() | gpu_facts(), "sizes": sizes.name,
            "seconds": seconds, "heads": sizes.heads, "head_dim": sizes.head_dim,
            "targets": targets(sections), "sections": sections}


def gpu_facts() -> dict[str, Any]:
    """Return Triton's and CUDA's version, and memory, processors and capability of the GPU."""
    try:
        facts: dict[str, Any] = {"triton": version("triton")}
    except PackageNotFoundError:
        facts = {"triton": None}
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        facts |= {"cuda": torch.version.cuda, "memory": card.total_memory,
                  "processors": card.multi_processor_count,
                  "capability": f"{card.major}.{card.minor}"}
    return facts


if __name__ == "__main__":
    section_name, folder, sizes_name, seconds_limit = sys.argv[1:]
    run_section(section_name, Path(folder), BY_NAME[sizes_name], float(seconds_limit))
