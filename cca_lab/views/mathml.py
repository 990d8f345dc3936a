"""Formulas as MathML, which browsers show without a script: the renderer of the site."""

import re
from typing import Any

from latex2mathml.converter import convert


def to_mathml(formula: str, display: str) -> str:
    """Convert a LaTeX formula without dollar signs; `display` is "inline" or "block"."""
    try:
        mathml = convert(formula, display=display)
    except Exception as error:  # the converter has a dozen error types without a common parent
        raise ValueError(f"formula: {formula!r} does not parse ({type(error).__name__}); "
                         "check its braces") from error
    unknown = re.search(r"\\[A-Za-z]+", mathml)
    if unknown:
        raise ValueError(f"formula: {formula!r} uses {unknown.group()}, which has no MathML here; "
                         "write it with a more common command")
    return mathml


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer `mathml` with Sphinx; it warns of what cannot be converted."""
    from docutils import nodes
    from sphinx.util import logging

    log = logging.getLogger(__name__)

    def visit(display: str) -> Any:
        def visit_math(self: Any, node: Any) -> None:
            try:
                self.body.append(to_mathml(node.astext(), display))
            except ValueError as error:
                log.warning(str(error), location=node)
            raise nodes.SkipNode
        return visit_math

    app.add_html_math_renderer("mathml", (visit("inline"), None), (visit("block"), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
