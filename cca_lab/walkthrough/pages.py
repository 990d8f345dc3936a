"""HTML pages that open offline: they load no scripts, fonts or formulas from the network.

nbconvert renders the cells, latex2mathml the formulas (browsers display MathML
directly), and `page.html` is the template of every page.
"""

import html
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

LIGHT, DARK = "default", "github-dark"  # colours of code
RELATIVE_LINK = re.compile(r'(<a\b[^>]*?\bhref=")([^"#:]+)([^":]*")')  # a colon means a scheme


def to_mathml(formula: str, display: str) -> str:
    """Convert a LaTeX formula to MathML.

    Args:
        formula: the formula without its dollar signs.
        display: "inline" or "block".

    Raises:
        ValueError: if it cannot be parsed, or uses a command that latex2mathml does not know.
    """
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


class _Renderer(IPythonRenderer):
    """Renders Markdown as HTML with formulas as MathML; a formula that cannot be converted is shown as its source."""

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        anchor = html.escape(re.sub(r"<[^>]*>", "", text).strip().replace(" ", "-"))
        return f'<h{level} id="{anchor}">{text}</h{level}>\n'

    def _formula(self, formula: str, display: str) -> str:
        try:
            return to_mathml(formula, display)
        except ValueError as error:
            return f'<code class="formula" title="{html.escape(str(error))}">{html.escape(formula)}</code>'

    def inline_math(self, body: str) -> str:
        return self._formula(body, "inline")

    def block_math(self, body: str) -> str:
        return self._formula(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return self._formula(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


class _Exporter(HTMLExporter):
    """nbconvert's exporter of a notebook's body, without a page around it."""

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        cell = context.get("cell", {})
        renderer = _Renderer(escape=False, attachments=cell.get("attachments", {}), embed_images=True,
                             path=context.get("resources", {}).get("metadata", {}).get("path", ""))
        return MarkdownWithMath(renderer=renderer).render(source)


@cache
def _highlighting() -> str:
    light = HtmlFormatter(style=LIGHT).get_style_defs(".highlight")
    dark = HtmlFormatter(style=DARK).get_style_defs(".highlight")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n" \
           ".highlight { background: var(--box) !important; }"


def page(title: str, body: str, links: list[tuple[str, str]] | None = None) -> str:
    """Return a whole page.

    Args:
        title: the page's title, plain text.
        body: HTML.
        links: (text, address) of the links above and below the body.
    """
    anchors = " ".join(f'<a href="{html.escape(address)}">{html.escape(text)}</a>'
                       for text, address in links or [])
    frame = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return frame.substitute(title=html.escape(title), body=body, highlighting=_highlighting(),
                            navigation=f"<nav>{anchors}</nav>" if anchors else "",
                            end=f'<nav class="end">{anchors}</nav>' if anchors else "")


def notebook_body(notebook: NotebookNode, folder: Path, out: Path) -> str:
    """Render the cells of a notebook, with their outputs, as HTML.

    Args:
        notebook: executed or not.
        folder: the notebook's folder, for its pictures and relative links.
        out: the page's folder; links to other notebooks lead to their pages there.
    """
    exporter = _Exporter(template_name="basic")
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"path": str(folder)}})

    def relocate(match: re.Match[str]) -> str:
        before, address, after = match.groups()
        target = Path(address)
        if target.suffix == ".ipynb" and target.parent == Path():
            return before + target.with_suffix(".html").as_posix() + after
        moved = Path(os.path.relpath(folder / target, out)).as_posix()
        return before + moved + after

    return RELATIVE_LINK.sub(relocate, body)


def title_of(notebook: NotebookNode, otherwise: str) -> str:
    """Return the first heading of a notebook without markup, or `otherwise` if it has none."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    return re.sub(r"[*_`$]", "", heading.group(1)).strip() if heading else otherwise
