"""What no reader executes: `make readers`.

Notebooks, solutions of the assignments, and the Python and the commands of README and docs/ run
under coverage.py; the functions of the package of which they execute no line are listed by module.
Such code finds a reader, or leaves. Documented commands that train or measure for minutes run with
`--help` only, so what stands in the list is a question and not a verdict.
"""

import ast
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import coverage

from tests.test_readme import BLOCK, COMMANDS, PAGES, ROOT

MINUTES = 20  # of one notebook or command
QUICK = ("doctor", "checksums", "verify", "prove", "course check", "native")
CONFIG = """[run]
parallel = true
patch = subprocess
source = {root}/cca_lab
data_file = {folder}/data
"""


def programs(folder: Path) -> Iterator[list[str]]:
    """Yield what a reader runs, as the words behind `python`; notebooks that ran go to a folder."""
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        yield ["-m", "nbconvert", "--execute", "--to", "notebook", "--output-dir", str(folder),
               str(notebook)]
    for source in sorted((ROOT / "lab" / "source").glob("*/*.ipynb")):
        yield ["-m", "cca_lab", "course", "check", str(source)]
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        quick = " ".join(words).startswith(QUICK)
        yield ["-m", "cca_lab", *(words if quick else [*words, "--help"])]
    for page in PAGES.values():
        for language, block in BLOCK.findall(page):
            if language == "python":
                (folder / "block.py").write_text(block, encoding="utf-8")
                yield [str(folder / "block.py")]


def never_executed(data: coverage.Coverage) -> dict[str, list[tuple[str, int]]]:
    """Return (function, lines) of every function without an executed line, by module."""
    listed: dict[str, list[tuple[str, int]]] = {}
    for module in sorted((ROOT / "cca_lab").rglob("*.py")):
        run = set(data.get_data().lines(str(module)) or ())
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not _decorated(node):
                lines = range(node.body[0].lineno, node.end_lineno + 1)
                if run.isdisjoint(lines):
                    name = module.relative_to(ROOT).as_posix()
                    listed.setdefault(name, []).append(
                        (node.name, node.end_lineno - node.lineno + 1))
    return listed


def _decorated(node: ast.FunctionDef) -> bool:
    """Return whether coverage.py cannot see a function: a kernel, or one of types alone."""
    return any(ast.unparse(each).rpartition(".")[2] in ("jit", "overload")
               for each in node.decorator_list)


def main() -> None:
    """Run everything, and print what was not executed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "coveragerc"
        config.write_text(CONFIG.format(root=ROOT, folder=folder), encoding="utf-8")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        for words in programs(folder):
            command = [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", *words]
            try:
                done = subprocess.run(command, cwd=ROOT, env=environment, check=False,
                                      capture_output=True, text=True, timeout=60 * MINUTES)
                status = f"exit status {done.returncode}"
            except subprocess.TimeoutExpired:
                status = f"stopped after {MINUTES} minutes"
            print(f"{status}: {shlex.join(words)[:90]}", file=sys.stderr, flush=True)
        data = coverage.Coverage(config_file=str(config))
        data.combine()
        listed = never_executed(data)
    for module, functions in listed.items():
        print(f"{module}: {sum(lines for _, lines in functions)} lines: "
              + ", ".join(name for name, _ in functions))
    print(f"{sum(lines for each in listed.values() for _, lines in each)} lines in "
          f"{sum(map(len, listed.values()))} functions")


if __name__ == "__main__":
    main()
