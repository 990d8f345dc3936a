"""Who imports whom in `cca_lab`: always a lower layer, so that no two packages need each other."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from cca_lab import files

ROOT = files.repository()
PACKAGE = "cca_lab"
LIBRARY = {"attention", "mechanisms", "models", "tasks"}
LEAVES = {"extras", "files", "freed_memory", "settings"}
# From the bottom up. A part imports itself and parts of lower layers; parts of one layer do not
# know each other. The nine rooms, and the modules beside them.
LAYERS = (
    LEAVES,
    {"attention", "tasks"},
    {"mechanisms", "reporting"},
    {"models"},
    {"theory"},
    {"views"},
    {"studies"},
    {"course"},
    {"cli"},
    {"__init__", "__main__"},
)
LAYER = {part: level for level, parts in enumerate(LAYERS) for part in parts}


class Import(NamedTuple):
    """One import of the lab by the lab.

    Attributes:
        module: the importing module, such as "cca_lab.models.plugin".
        imported: the module that is imported.
        lazy: the import stands inside a function, or below `if TYPE_CHECKING`.
    """

    module: str
    imported: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.imported}" + (" inside a function"
                                                           if self.lazy else "")


def sources(root: Path = ROOT) -> dict[str, str]:
    """Return the source of every module by its dotted name; that of a package is the package's."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def imports(modules: dict[str, str]) -> list[Import]:
    """Return every import of the lab by the lab.

    `from package import name` counts as its module where it is one.
    """
    found: set[Import] = set()
    for module, source in modules.items():
        for node, lazy in statements_of(source):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                assert not node.level, f"{module}: relative imports are not used here"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules else node.module for name in whole]
            found |= {Import(module, name, lazy) for name in names if name.split(".")[0] == PACKAGE}
    return sorted(found)


@cache
def statements_of(source: str) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Return every import of a module, and whether it runs later than the module."""
    return tuple(statements(ast.parse(source), False))


def statements(node: ast.AST, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield every import below a node, and whether it runs later than the module."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, lazy
    later = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
        isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        yield from statements(child, later)


def part(module: str) -> str:
    """Return the package or module directly below `cca_lab` that a module belongs to."""
    return [*module.split("."), "__init__"][1]


def upward(imported: list[Import]) -> list[Import]:
    """Return the imports between parts that do not go to a lower layer.

    The rooms around the library may import the public names, as a user does.
    """
    public = LAYER["theory"]
    return [each for each in imported if part(each.module) != part(each.imported)
            and LAYER[part(each.imported)] >= LAYER[part(each.module)]
            and not (each.imported == PACKAGE and LAYER[part(each.module)] >= public)]


def cycle(pairs: list[tuple[str, str]]) -> str:
    """Return one cycle of a graph of (who, imported), or an empty string."""
    graph: dict[str, set[str]] = {}
    for who, imported in pairs:
        graph.setdefault(who, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def between_parts(found: list[Import]) -> list[tuple[str, str]]:
    """Return the imports between parts as pairs of them."""
    return [(part(one.module), part(one.imported))
            for one in found
            if part(one.module) != part(one.imported)]


MODULES = sources()
IMPORTS = imports(MODULES)
EAGER = [one for one in IMPORTS if not one.lazy]
LAZY = [one for one in IMPORTS if one.lazy]


def test_every_part_has_a_layer():
    assert sum(map(len, LAYERS)) == len(LAYER), "a part stands in two layers"
    assert {part(module)
            for module in MODULES} == set(LAYER), "name new parts in LAYERS, drop those that went"


@pytest.mark.parametrize("found", [EAGER, LAZY], ids=["of modules", "of functions"])
def test_imports_go_down(found: list[Import]):
    assert found
    assert not upward(found), "\n".join(map(str, upward(found)))


def test_the_library_imports_no_other_room():
    for each in IMPORTS:
        if part(each.module) in LIBRARY:
            assert part(each.imported) in LIBRARY | LEAVES, each


def test_no_cycles():
    assert not cycle(between_parts(IMPORTS))
    assert not cycle([(one.module, one.imported)
                      for one in EAGER]), "modules import each other while they load"


# module, a line added to it, and whether packages then need each other in a circle
MUTANTS = {
    "up": ("attention.plan", "from cca_lab.mechanisms import MECHANISMS", True),
    "up, the package": ("mechanisms.cca.mechanism", "from cca_lab import models", True),
    "up, later": ("mechanisms.cca.mechanism",
                  "def late():\n    from cca_lab.models import swap_attention", True),
    "up, for annotations": ("attention.plan", "if TYPE_CHECKING:\n    import cca_lab.models.plugin",
                            True),
    "beside": ("attention.plan", "import cca_lab.tasks.corpus", False),
}


@pytest.mark.parametrize("module, line, circular", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_import_is_found(module: str, line: str, circular: bool):
    name = f"{PACKAGE}.{module}"
    found = imports({**MODULES, name: f"{MODULES[name]}\n{line}\n"})
    assert [one.module for one in upward(found)] == [name]
    assert bool(cycle(between_parts(found))) == circular


def test_a_mutant_cycle_of_two_modules_is_found():
    pair = [f"{PACKAGE}.attention.plan", f"{PACKAGE}.attention.tiles"]
    mutant = {
        name: f"{MODULES[name]}\nimport {other}\n"
        for name, other in pairwise([*pair, pair[0]])
    }
    found = imports({**MODULES, **mutant})
    assert not upward(found)
    assert cycle([(one.module, one.imported) for one in found if not one.lazy])
