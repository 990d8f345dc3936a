"""One pass of a function's loop, cut out of its source: what a proof by induction runs.

loop = Loop(segments)
state = loop.before(length, size)           # the names before the loop
state = loop.once(**state)                  # ... after one more pass; for a `for` loop with its target as well
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


class Loop:
    """The only loop at the top level of a function.

    Args:
        function: a plain function or method whose source can be read.

    Raises:
        ValueError: unless there is one loop, with neither `break` nor `return` nor `else` in it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = inspect.unwrap(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        places = [n for n, line in enumerate(tree.body) if isinstance(line, ast.While | ast.For)]
        if len(places) != 1 or any(isinstance(node, ast.Break | ast.Return | ast.Continue)
                                   for node in ast.walk(tree.body[places[0]])):
            raise ValueError(f"{self.function.__name__}: wanted one plain loop; prove another function")
        self._before, loop = tree.body[: places[0]], tree.body[places[0]]
        assert isinstance(loop, ast.While | ast.For)
        self._body = loop.body
        self._test: ast.expr = loop.test if isinstance(loop, ast.While) else ast.Constant(True)

    def before(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the names that are bound before the loop."""
        given = inspect.signature(self.function).bind(*args, **kwargs)
        given.apply_defaults()
        return self._run(self._before, given.arguments)

    def goes_on(self, **state: Any) -> Any:
        """Return the condition of a `while` loop."""
        return self._run([ast.Assign([ast.Name("goes_on", ast.Store())], self._test)], state)["goes_on"]

    def once(self, **state: Any) -> dict[str, Any]:
        """Return the names after a pass; those of `state` are bound before."""
        return self._run(self._body, state)

    def _run(self, lines: list[ast.stmt], state: dict[str, Any]) -> dict[str, Any]:
        """Run lines of the function among its module's names."""
        module = self.function.__globals__
        names = ", ".join(state)
        shell = ast.parse(f"def _part({names}):\n    pass").body[0]
        assert isinstance(shell, ast.FunctionDef)
        shell.body = [*lines, *ast.parse("return locals()").body]
        made: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(ast.Module([shell], [])), self.function.__name__, "exec"), module, made)
        found: dict[str, Any] = made["_part"](**state)
        return found
