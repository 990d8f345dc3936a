"""HTML pages that open offline: they load no scripts, fonts or formulas from the network.

nbconvert renders the cells, mistune the Markdown, latex2mathml the formulas (browsers display MathML
directly); `page.html` is the template of every page, and `page.css` its look.
"""

import html
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

LIGHT, DARK = "default", "github-dark"  # colours of code
NO_ALT = "A picture that the code above draws; it has no description."
LONG = 26  # characters of an inline formula that would not fit in a line on a phone
RELATIVE_LINK = re.compile(r'(<a\b[^>]*?\bhref=")([^"#:]+)([^":]*")')  # a colon means a scheme
HEADING_ID = re.compile(r'(<h[1-6] id=")([^"]*)(")')


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
        anchor = html.unescape(re.sub(r"<[^>]*>", "", text)).strip().replace(" ", "-")
        return f'<h{level} id="{html.escape(anchor)}">{text}</h{level}>\n'

    def _formula(self, formula: str, display: str) -> str:
        try:
            return to_mathml(formula, display)
        except ValueError as error:
            return f'<code class="formula" title="{html.escape(str(error))}">{html.escape(formula)}</code>'

    def inline_math(self, body: str) -> str:
        formula = self._formula(body, "inline")
        is_long = len(re.sub(r"<[^>]*>", "", formula)) > LONG
        return f'<span class="long">{formula}</span>' if is_long else formula

    def block_math(self, body: str) -> str:
        return self._formula(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return self._formula(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


class _Exporter(HTMLExporter):
    """nbconvert's exporter of a notebook's body, without a page around it."""

    def default_filters(self) -> Any:
        yield from super().default_filters()
        yield "clean_html", _unchanged

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        folder = context.get("resources", {}).get("metadata", {}).get("path", "")
        return _markdown(source, folder, context.get("cell", {}).get("attachments", {}))

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **options: Any) -> Any:
        # HTMLExporter's own method does the same, and then parses the whole page once more, to see which pictures have
        # no text: the other half of the time.
        lexer = nb.metadata.get("language_info", {}).get("name")
        resources = self._init_resources(resources)
        self.register_filter("highlight_code", Highlight2HTML(pygments_lexer=lexer, parent=self))
        self.register_filter("filter_data_type", WidgetsDataTypeFilter(
            notebook_metadata=self._nb_metadata, parent=self, resources=resources))
        return TemplateExporter.from_notebook_node(self, nb, resources, **options)


def _unchanged(code: str) -> str:
    """Stand in for the filter that parses what pygments has just escaped, which takes half of the time."""
    return code


def _markdown(source: str, folder: str, attachments: dict[str, Any]) -> str:
    renderer = _Renderer(escape=False, attachments=attachments, embed_images=True, path=folder)
    return MarkdownWithMath(renderer=renderer).render(source)


@cache
def _exporter() -> _Exporter:
    return _Exporter(template_name="basic")


def environment(*folders: Path) -> Environment:
    """Return the templates of pages: `page.html`, `page.css`, and those of more folders."""
    return Environment(loader=FileSystemLoader([Path(__file__).parent, *folders]), undefined=StrictUndefined,
                       autoescape=lambda name: str(name).endswith(".html"), trim_blocks=True)


@cache
def stylesheet() -> str:
    """Return the look of every page, as CSS."""
    light, dark = HtmlFormatter(style=LIGHT), HtmlFormatter(style=DARK)
    return environment().get_template("page.css").render(
        code_light=light.get_style_defs(".highlight"),
        code_dark_asked=dark.get_style_defs(':root:not([data-scheme="light"]) .highlight'),
        code_dark_chosen=dark.get_style_defs(':root[data-scheme="dark"] .highlight'))


def page(title: str, body: str, links: list[tuple[str, str]] | None = None) -> str:
    """Return a whole page.

    Args:
        title: the page's title, plain text.
        body: HTML.
        links: (text, address) of the links above and below the body.
    """
    return environment().get_template("page.html").render(title=title, body=body, links=links or [],
                                                          style=stylesheet())


def markdown_html(text: str, folder: Path) -> str:
    """Render a Markdown text as HTML, with its pictures inside and its links as they are.

    Args:
        text: the text.
        folder: the text's folder, for its pictures.
    """
    return f'<div class="rendered_html">\n{_different_ids(_markdown(text, str(folder), {}))}</div>\n'


def notebook_html(notebook: NotebookNode, folder: Path) -> str:
    """Render the cells of a notebook, with their outputs, as HTML; arguments as for `notebook_body`."""
    body, _ = _exporter().from_notebook_node(notebook, resources={"metadata": {"path": str(folder)}})
    return _different_ids(re.sub(r"<img\b(?![^>]*\salt=)", f'<img alt="{NO_ALT}"', body))


def _different_ids(body: str) -> str:
    """Number the headings of one name, so that each can be linked to."""
    seen: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        before, name, after = match.groups()
        seen[name] = seen.get(name, 0) + 1
        return match.group() if seen[name] == 1 else f"{before}{name}-{seen[name]}{after}"

    return HEADING_ID.sub(numbered, body)


def notebook_body(notebook: NotebookNode, folder: Path, out: Path) -> str:
    """Render the cells of a notebook, with their outputs, as HTML.

    Args:
        notebook: executed or not.
        folder: the notebook's folder, for its pictures and relative links.
        out: the page's folder; links to other notebooks lead to their pages there.
    """
    def relocate(match: re.Match[str]) -> str:
        before, address, after = match.groups()
        target = Path(address)
        if target.suffix == ".ipynb" and target.parent == Path():
            return before + target.with_suffix(".html").as_posix() + after
        moved = Path(os.path.relpath(folder / target, out)).as_posix()
        return before + moved + after

    return RELATIVE_LINK.sub(relocate, notebook_html(notebook, folder))


def title_of(notebook: NotebookNode, otherwise: str) -> str:
    """Return the first heading of a notebook without markup, or `otherwise` if it has none."""
    return heading_of("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown"), otherwise)


def heading_of(text: str, otherwise: str) -> str:
    """Return the first heading of a Markdown text without markup, or `otherwise` if it has none."""
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    return re.sub(r"[*`$]|\b_|_\b", "", heading.group(1)).strip() if heading else otherwise
