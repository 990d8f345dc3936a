"""The reader's own module: every turn of the ladder that passes is kept in `my_attention.py`.

The module stands beside the notebooks. It has the functions in the order of the ladder; one that
the reader has not written yet is the notebooks' solution, and the line above it says so. Its end
makes mechanisms of the functions, so that a model can attend with them.
"""

import ast
import importlib.util
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from timeit import repeat
from types import ModuleType
from typing import Any

from cca_lab.course.registry import TURNS
from cca_lab.course.solved import BEGIN, solution_of, solved_cells
from cca_lab.files import notebooks_folder, replacing
from cca_lab.mechanisms import CCA, StreamingLLM
from cca_lab.mechanisms.examine import examine, heads

FILE = "my_attention.py"
# The turns that are kept, in the order of the ladder, each with its function: all but the small
# kernels on the way to 01.17.
LADDER = {task_id: task.answer for task_id, task in TURNS.items()
          if task_id not in ("01.11", "01.13", "01.14", "01.15")}
YOURS, SOLUTION = "yours", "from the solutions"
MARK = re.compile(r"^# ---- \d\d\.\d+ (\w+): (yours|from the solutions)\n", re.MULTILINE)
END = "# ---- mechanisms, made of the functions above\n"
HEAD = '''"""Long-context attention, written in the notebooks: one head, q, k and v of shape (L, D).

`python -m pytest my_attention.py` runs the lab's bench on it. In a model:

    import my_attention
    from cca_lab import swap_attention
    swap_attention(model, my_attention.MyCCA(group=8, window=64))
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.base import WHOLE_PROMPT
from cca_lab.mechanisms.examine import examine
from cca_lab.mechanisms.own import OwnAttention
from cca_lab.views.notebook_tools import interpret_kernels

with suppress(RuntimeError):  # Triton was imported already: then the kernels need a GPU
    interpret_kernels()

from cca_lab.attention.kernels.language import tl, triton

'''
TAIL = '''

@dataclass(frozen=True, kw_only=True)
class MyCCA(OwnAttention):
    """CCA-Attention: columns of cores and tokens (03.8), and three ways to attend to them."""

    group: int = 8
    window: int = 64
    name: ClassVar = "my_cca"
    title: ClassVar = "my CCA-Attention"
    sizes: ClassVar = ("group", "window")
    rungs: ClassVar = {"mask": by_mask, "tiles": in_tiles, "kernel": by_kernel}

    def one_head(self, q, k, v, scale):
        return cca_columns(q, k, v, self.group, self.window, scale)

    def one_head_loops(self, q, k, v, scale):
        return cca_loop(q, k, v, self.group, self.window, scale)

    def exact_when(self, length):
        return self.group == 1 or length < self.group + self.window


@dataclass(frozen=True, kw_only=True)
class MyDGA(OwnAttention):
    """DGA: the tokens that get most attention (04.2) stay raw, the others are pooled (04.7)."""

    group: int = 8
    gamma: float = 0.1
    name: ClassVar = "my_dga"
    title: ClassVar = "my DGA"
    sizes: ClassVar = ("group", "gamma")
    rungs: ClassVar = {"mask": by_mask, "tiles": in_tiles, "kernel": by_kernel}
    causal_scope: ClassVar = WHOLE_PROMPT  # every row has a say in what is important

    def one_head(self, q, k, v, scale):
        length, count = len(q), int(self.gamma * len(q))
        count += (length - count) % self.group  # so that the others fill their groups
        scores = importance_of(attend_dense(q, k, torch.eye(length, dtype=q.dtype), scale))
        focal = sorted(scores.argsort(descending=True)[:count].tolist())
        others = [t for t in range(length) if t not in focal]
        groups = [others[z : z + self.group] for z in range(0, len(others), self.group)]
        cores = [core_token(q[members], k[members], v[members], scale) for members in groups]
        keys, values = (torch.cat([x[focal], *(core[side][None] for core in cores), x[others]])
                        for side, x in enumerate((k, v)))
        return keys, values, group_table(length, focal, groups)


@dataclass(frozen=True, kw_only=True)
class MyStreaming(OwnAttention):
    """StreamingLLM: the tokens themselves, and a table (06.6); row by row, the step of 08.2."""

    sinks: int = 4
    recent: int = 59
    name: ClassVar = "my_streaming"
    title: ClassVar = "my StreamingLLM"
    sizes: ClassVar = ("sinks", "recent")
    rungs: ClassVar = {"mask": by_mask, "tiles": in_tiles, "kernel": by_kernel}

    def one_head(self, q, k, v, scale):
        return k, v, window_table(len(q), self.sinks, self.recent)

    def one_head_loops(self, q, k, v, scale):
        rows, keys, values = [], k[:0], v[:0]
        scaled = q * scale * q.shape[1] ** 0.5  # the step has the scale D ** -0.5
        for query, key, value in zip(scaled, k, v):
            row, keys, values = streaming_step(query, key, value, keys, values,
                                               self.sinks, self.recent)
            rows.append(row)
        return torch.stack(rows)

    def exact_when(self, length):
        return length <= self.sinks + self.recent + 1


@dataclass(frozen=True, kw_only=True)
class MyH2O(OwnAttention):
    """H2O, by the step of 08.4 with the rule of 06.2: what was read most so far stays."""

    heavy: int = 32
    recent: int = 31
    name: ClassVar = "my_h2o"
    title: ClassVar = "my H2O"
    sizes: ClassVar = ("heavy", "recent")

    def one_head_loops(self, q, k, v, scale):
        def keep(scores):
            return kept_places(scores, self.heavy, self.recent)

        rows, keys, values, received = [], k[:0], v[:0], k[:0, 0]
        scaled = q * scale * q.shape[1] ** 0.5
        for query, key, value in zip(scaled, k, v):
            row, keys, values, received = h2o_step(query, key, value, keys, values, received, keep)
            rows.append(row)
        return torch.stack(rows)


MECHANISMS |= {mine.name: mine for mine in (MyCCA, MyDGA, MyStreaming, MyH2O)}


def test_my_cca():
    examine(MyCCA(group=3, window=5))


def test_my_streaming():
    examine(MyStreaming(sinks=2, recent=5))
'''


def my_attention() -> ModuleType:
    """Return the reader's module, `my_attention.py` in the working folder, completed and loaded.

    What was not climbed yet is filled in from the solutions.
    """
    path = Path.cwd() / FILE
    if list(sections := _sections(path)) != list(LADDER):
        _write(path, sections)
    spec = importlib.util.spec_from_file_location("my_attention", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_attention"] = module
    spec.loader.exec_module(module)
    return module


def keep(task_id: str, answer: Callable[..., Any], cell: str, *, copied: bool = False) -> None:
    """Keep the source of an answer that passed its turn; nothing happens off the ladder.

    Args:
        task_id: the turn, such as "03.2".
        answer: the function.
        cell: the source of the cell that ran.
        copied: whether it is the folded solution.
    """
    if LADDER.get(task_id) != getattr(answer, "__name__", None):
        return
    path = Path.cwd() / FILE
    copied = copied or BEGIN in cell  # the committed notebooks
    source = definitions(cell) if f"def {answer.__name__}(" in cell else inspect.getsource(answer)
    parts = [*_brought(answer, definitions(cell), known=set(LADDER.values())), source.strip()]
    sections = _sections(path)
    sections[task_id] = (SOLUTION if copied else YOURS, "\n\n\n".join(parts) + "\n")
    _write(path, sections)


def card(scores: Mapping[str, str]) -> None:
    """Print what the reader built: functions and their use, what passes, how fast it is, scores.

    `scores` are those of a model, by what was measured.
    """
    module = my_attention()
    sections, used = _sections(Path.cwd() / FILE), used_again(module)
    print(f"{'turn':6}{'function':18}{'written':20}used again in")
    for task_id, name in LADDER.items():
        print(f"{task_id:6}{name:18}{sections[task_id][0]:20}{', '.join(used[name])}")
    inputs = heads(512)
    for mine, small, beside in (
            (module.MyCCA(), module.MyCCA(group=3, window=5), CCA(group=8, window=64)),
            (module.MyStreaming(), module.MyStreaming(sinks=2, recent=5),
             StreamingLLM(sinks=4, recent=59))):
        with redirect_stdout(StringIO()) as said, suppress(AssertionError):
            examine(small)
        lines = said.getvalue().splitlines()
        print(f"\n{mine.title}: passes {sum(line.startswith('  ok') for line in lines)} of the "
              f"bench's {len(lines)} tests; on this machine, two heads of 512 tokens take")
        rungs = [replace(mine, backend=name) for name in ("loops", *mine.rungs) if name != "kernel"]
        for mechanism in (*rungs, beside):
            seconds = min(repeat(partial(mechanism.attention, *inputs), number=1, repeat=3))
            name = "the package's" if mechanism is beside else mechanism.backend
            print(f"    {name:14}{1000 * seconds:8.1f} ms")
    for what, score in scores.items():
        print(f"{what}: {score}")


def used_again(module: ModuleType) -> dict[str, list[str]]:
    """Return where each function of the ladder is used: in others of the module, in notebooks.

    A bare name counts in the function's own notebook alone, and nowhere if it is a variable's.
    """
    defined = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    places = [(node.name, node) for node in defined
              if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    cells = [(path.stem[:2], ast.parse("".join(cell["source"])))
             for path in sorted(notebooks_folder().glob("*.ipynb"))
             for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
             if cell["cell_type"] == "code"]
    used: dict[str, list[str]] = {name: [] for name in LADDER.values()}
    own_notebook = {name: task_id[:2] for task_id, name in LADDER.items()}
    for place, tree in (*places, *cells):
        nodes = list(ast.walk(tree))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)} | {
            node.id for node in names if isinstance(node.ctx, ast.Store)}
        bare = {node.id for node in names} - own
        of_module = {node.attr for node in nodes if isinstance(node, ast.Attribute)
                     and isinstance(node.value, ast.Name) and node.value.id == "mine"}
        for name in used:
            if place not in used[name] and (name in of_module or name in bare and (
                    place[0].isalpha() or place == own_notebook[name])):
                used[name].append(place)
    return used


def definitions(cell: str) -> str:
    """Return the imports, functions, classes and assignments of a cell, without its hints.

    Imports that stand in the module's head, or of the course, are left out.
    """
    code = solution_of(cell)[-1]
    lines = code.splitlines()
    taken = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
    kept: list[str] = []
    for node in ast.parse(code).body:
        if isinstance(node, taken) and not _is_left_out(node):
            first = min([node.lineno, *(each.lineno for each in getattr(
                node, "decorator_list", []))])
            kept += ["", *([""] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []),
                     *lines[first - 1 : node.end_lineno]]
    return "\n".join(kept).strip()


def _is_left_out(node: ast.stmt) -> bool:
    head = [ast.dump(each) for each in ast.walk(ast.parse(HEAD))
            if isinstance(each, (ast.Import, ast.ImportFrom))]
    return ast.dump(node) in head or getattr(node, "module", None) == "cca_lab.course"


def _brought(answer: Callable[..., Any], source: str, known: set[str]) -> list[str]:
    """Return what an answer uses of other cells: the reader's own helpers, imports, and numbers.

    What is in `source` or `known` stands in the module already. Other objects, such as tensors and
    a notebook's classes, cannot be written as source: the module says so when the function is
    called.
    """
    parts = []
    for name, value in inspect.getclosurevars(inspect.unwrap(answer)).globals.items():
        if name in known | {"math", "torch", "tl", "triton"} or re.search(
                rf"^((def|class) {name}\b|{name} =|.*import.*\b{name}\b)", source, re.MULTILINE):
            continue
        known.add(name)  # once, though helpers may call each other
        if inspect.ismodule(value):
            parts.append(f"import {value.__name__} as {name}")
        elif inspect.isroutine(value) or inspect.isclass(value):
            if value.__module__ != "__main__":
                parts.append(f"from {value.__module__} import {value.__name__} as {name}")
                continue
            if inspect.isroutine(value):
                parts += _brought(value, "", known)
            with suppress(OSError):  # before Python 3.13 a notebook's class has no source
                parts.append(inspect.getsource(value).strip())
        elif isinstance(value, float):  # infinity and NaN have no literal
            parts.append(f"{name} = {value}" if math.isfinite(value) else
                         f'{name} = float("{value}")')
        else:
            with suppress(ValueError, SyntaxError):
                ast.literal_eval(repr(value))
                parts.append(f"{name} = {value!r}")
    return parts


def _sections(path: Path) -> dict[str, tuple[str, str]]:
    """Return who wrote each turn's function, and its source, as the module has them.

    A function is known by its name: the module may have been written under older numbers.
    """
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8").partition(END)[0]
    pieces = MARK.split(text)[1:]
    found = {name: (author, source.strip() + "\n") for name, author, source
             in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)}
    return {task_id: found[name] for task_id, name in LADDER.items() if name in found}


def _write(path: Path, sections: dict[str, tuple[str, str]]) -> None:
    """Write the module, with solutions for the turns that it lacks.

    What the reader changed above the first function and below the last one stays.

    Raises:
        ValueError: for a file of this name that is another module.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    first, (_, end, tail) = MARK.search(before), before.partition(END)
    if before.strip() and not first:
        raise ValueError(f"my_attention: {path} has none of the lines '# ---- 03.2 core_token: "
                         "yours' and its like, so it is another module; rename it")
    solved = {} if set(sections) >= set(LADDER) else solved_cells()
    parts = []
    for task_id, name in LADDER.items():
        author, source = sections.get(task_id) or (SOLUTION, definitions(solved[task_id]))
        parts.append(f"# ---- {task_id} {name}: {author}\n{source.strip()}\n")
    text = [before[: first.start()] if first else HEAD, "\n\n".join(parts), "\n\n", END,
            tail if end else TAIL]
    with replacing(path) as new:
        new.write_text("".join(text), encoding="utf-8")
