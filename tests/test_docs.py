"""docs/use/adding_a_mechanism.md, followed to the letter in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cca_lab.files import repository

PAGE = repository() / "docs" / "use" / "adding_a_mechanism.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
# what runs for each mechanism or cache of the tables, at least
OF_EVERY_MECHANISM = (*(f"tests/mechanisms/test_{name}.py" for name in (
    "every_mechanism", "exact_when", "strided")), "tests/models/test_doors.py",
    "tests/studies/benchmarks/test_decode.py",
    *(f"tests/attention/kernels/test_{name}.py" for name in ("mechanisms", "caches")))


def insert(path: Path, *pairs: tuple[str, str]) -> None:
    """Put text behind the first place where a pattern occurs in a file."""
    content = path.read_text(encoding="utf-8")
    for after, new in pairs:
        assert after in content, f"{path.name} lacks {after!r}; does the page say what to do?"
        content = content.replace(after, after + new, 1)
    path.write_text(content, encoding="utf-8")


def add_to(path: Path, name: str, lines: str) -> None:
    """Put lines at the head of the list or dictionary that a file assigns to a name."""
    content = path.read_text(encoding="utf-8")
    start = re.search(rf"^{name}(: [^=\n]+)? = [{{\[]", content, re.MULTILINE)
    assert start, f"{path.name} does not assign {name}; does the page say what to do?"
    path.write_text(content[:start.end()] + "\n" + lines + content[start.end():].lstrip("\n"),
                    encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Path:
    """A copy of package and tests in which the page's steps were taken."""
    folder = tmp_path_factory.mktemp("followed")
    for name in ("cca_lab", "tests"):
        shutil.copytree(repository() / name, folder / name,
                        ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository() / "pyproject.toml", folder)
    (folder / "notebooks").mkdir()
    for module in (repository() / "notebooks").glob("*.py"):  # which tests import
        shutil.copy(module, folder / "notebooks")
    shutil.copytree(repository() / "data" / "models" / "gpt2-mini",
                    folder / "data" / "models" / "gpt2-mini")
    built = repository() / "build" / "native"  # the native op is compiled once for both
    built.mkdir(parents=True, exist_ok=True)
    (folder / "build").mkdir()
    (folder / "build" / "native").symlink_to(built)
    for block in BLOCKS:
        first, rest = block.split("\n", 1)
        if first.startswith("# new file: "):
            path = folder / first.removeprefix("# new file: ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(rest, encoding="utf-8")
        elif listed := re.fullmatch(r"# in (\w+) of: (\S+)", first):
            add_to(folder / listed[2], listed[1], rest)
        else:
            assert first == "# run", f"the page has a block that is not followed: {first}"
    insert(folder / "cca_lab/mechanisms/__init__.py",
           ("import StreamingLLM\n", "from cca_lab.mechanisms.strided.mechanism import Strided\n"),
           ("__all__ = [", '"Strided", '), ("for cls in (\n", "    Strided,\n"))
    insert(folder / "cca_lab/mechanisms/caches.py",
           ("import LMInfiniteCache, StreamingLLMCache\n",
            "from cca_lab.mechanisms.strided.cache import StridedCache\n"),
           ("for cache in (", "StridedCache, "), ("__all__ = [", '"StridedCache", '))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run Python; kernels are interpreted."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"TRITON_INTERPRET": "1"}, check=False)


def test_the_example_passes_the_bench_and_its_own_tests_and_no_list_misses_it(followed):
    done = run(followed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k",
               "strided or every_cache or every_mechanism_has", *OF_EVERY_MECHANISM)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(re.search(r"(\d+) passed", done.stdout).group(1))
    assert passed >= 50 and "skipped" not in done.stdout


def test_the_last_block_runs(followed):
    (block,) = (block for block in BLOCKS if block.startswith("# run"))
    done = run(followed, "-c", block)
    assert done.returncode == 0 and "bytes" in done.stdout, done.stderr[-2000:]


def test_the_example_keeps_the_rules_of_the_project(followed):
    files = [block.split("\n", 1)[0].removeprefix("# new file: ")
             for block in BLOCKS if block.startswith("# new")]
    done = run(followed, "-m", "ruff", "check", "--no-cache", *files)
    assert done.returncode == 0, done.stdout
