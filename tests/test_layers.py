"""Who imports whom in `cca_lab`: always a lower layer, so that no two packages need each other."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from cca_lab import files

PACKAGE = "cca_lab"
LIBRARY = {"attention", "mechanisms", "models", "tasks"}
LEAVES = {"extras", "files", "freed_memory", "options", "settings", "stored"}
# From the bottom up: a room imports itself and rooms of lower layers, none of its own layer.
LAYERS = (LEAVES, {"attention", "tasks"}, {"mechanisms", "reporting"}, {"models"}, {"theory"},
          {"views"}, {"studies"}, {"course"}, {"cli"}, {"__init__", "__main__"})
LAYER = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


class Import(NamedTuple):
    """One import; it is lazy inside a function, or below `if TYPE_CHECKING`."""

    module: str
    imported: str
    lazy: bool

    @property
    def rooms(self) -> tuple[str, str]:
        return room(self.module), room(self.imported)


def room(module: str) -> str:
    """Return the package or module directly below `cca_lab` that a module belongs to."""
    return [*module.split("."), "__init__"][1]


def sources() -> dict[str, str]:
    """Return the source of every module by its dotted name; that of a package is the package's."""
    modules = {}
    for path in sorted((files.repository() / PACKAGE).rglob("*.py")):
        words = path.relative_to(files.repository()).with_suffix("").parts
        name = ".".join(words[:-1] if words[-1] == "__init__" and len(words) > 2 else words)
        modules[name] = path.read_text(encoding="utf-8")
    return modules


def imports(modules: dict[str, str]) -> list[Import]:
    """Return the lab's imports of the lab; a `from` import counts as a module where it is one."""
    every: set[Import] = set()
    for module, source in modules.items():
        for node, lazy in statements_of(source):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                assert not node.level, f"{module}: relative imports are not used here"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules else node.module for name in whole]
            every |= {Import(module, name, lazy) for name in names if name.split(".")[0] == PACKAGE}
    return sorted(every)


@cache
def statements_of(source: str) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Return every import of a module, and whether it runs later than the module."""
    def below(node: ast.AST, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, lazy
        lazy |= (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                 or isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for child in ast.iter_child_nodes(node):
            yield from below(child, lazy)

    return tuple(below(ast.parse(source), False))


def upward(imported: list[Import]) -> list[Import]:
    """Return the imports between rooms that do not go down.

    The rooms around the library may import the public names, as a user does.
    """
    def wrong(each: Import) -> bool:
        low, high = (LAYER[name] for name in each.rooms)
        public = each.imported == PACKAGE and low >= LAYER["theory"]
        return each.rooms[0] != each.rooms[1] and high >= low and not public

    return [each for each in imported if wrong(each)]


def cycle(pairs: Iterable[tuple[str, str]]) -> str:
    """Return one cycle of a graph of (who, imported), or an empty string; loops do not count."""
    graph: dict[str, set[str]] = {}
    for who, imported in pairs:
        graph.setdefault(who, set()).update({imported} - {who})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


MODULES = sources()
IMPORTS = imports(MODULES)


def test_every_room_has_a_layer():
    assert sum(map(len, LAYERS)) == len(LAYER), "a room stands in two layers"
    assert set(map(room, MODULES)) == set(LAYER), "name new rooms in LAYERS, drop those that went"


def test_imports_go_down():
    assert {each.lazy for each in IMPORTS} == {False, True}
    assert upward(IMPORTS) == []


def test_the_library_imports_no_other_room():
    for each in IMPORTS:
        importing, imported = each.rooms
        assert importing not in LIBRARY or imported in LIBRARY | LEAVES, each


def test_no_cycles():
    assert not cycle(each.rooms for each in IMPORTS)
    assert not cycle(each[:2] for each in IMPORTS if not each.lazy), "while modules load"
