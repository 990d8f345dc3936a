"""The walkthrough's pages: nbconvert's, with formulas as MathML, so that they open offline."""

import html
import os
import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

from cca_lab.views.mathml import shown
from cca_lab.views.notebook_tools import Result

# nbconvert's page without the scripts that it would load from a network.
TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block body_header %}{{ super() }}<p><a href="index.html">All notebooks</a></p>{% endblock %}
"""
RELATIVE_LINK = re.compile(r'(<a\b[^>]*?\bhref=")([^"#:]+)([^":]*")')  # a colon means a scheme
STYLE = ("body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; "
         "padding: 0 1rem } table { border-collapse: collapse } th, td { padding: .3rem .6rem; "
         "text-align: left; vertical-align: top; border-bottom: 1px solid #ccc }")


class _Renderer(IPythonRenderer):
    def inline_math(self, body: str) -> str:
        return shown(body, "inline")

    def block_math(self, body: str) -> str:
        return shown(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return shown(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


@cache
def _exporter() -> Any:
    exporter = HTMLExporter(raw_template=TEMPLATE, exclude_input_prompt=False)
    exporter.register_filter("markdown2html", lambda source: MarkdownWithMath(
        renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source))
    return exporter


def notebook_page(notebook: NotebookNode, folder: Path, out: Path, pages: Collection[str]) -> str:
    """Return an executed notebook as one HTML page that loads nothing.

    Relative links from its `folder` lead from `out`: to notebooks in `pages`, or to the files.
    """
    def relocate(match: re.Match[str]) -> str:
        before, address, after = match.groups()
        if address == "index.html":
            return match[0]
        target = Path(address)
        if target.suffix == ".ipynb" and target.stem in pages:
            return f"{before}{target.stem}.html{after}"
        return before + Path(os.path.relpath(folder / target, out)).as_posix() + after

    body, _ = _exporter().from_notebook_node(notebook)
    return RELATIVE_LINK.sub(relocate, body)


def index_page(records: Iterable[Any], headline: str) -> str:
    """Return the table of all notebooks, with every check, result and difference, as a page."""
    rows = "\n".join(map(_row, records))
    heads = "".join(f"<th>{text}</th>" for text in ("notebook", "state", "what came out"))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Walkthrough'
            f"</title><style>{STYLE}</style></head>\n<body><h1>Walkthrough</h1>\n"
            f"<p>{html.escape(headline)}</p>\n<table>\n<tr>{heads}</tr>\n{rows}\n</table>"
            "</body></html>\n")


def _row(record: Any) -> str:
    title = html.escape(record.title)
    if record.seconds:
        title = f'<a href="{record.name}.html">{title}</a>'
    shown_values = [repr(Result(**entry)) for entry in record.results]
    details = [f"{'ok' if check['passed'] else 'FAILED'}: {check['name']}"
               + (f" ({check['detail']})" if check["detail"] else "") for check in record.checks]
    details += [f"unlike the committed outputs: {text}" for text in record.differences]
    if record.failure:
        details += [record.failure.line, record.failure.traceback or record.failure.error]
    folded = (f"<details><summary>{len(record.checks)} checks</summary><pre>"
              f"{html.escape(chr(10).join(details))}</pre></details>") if details else ""
    return (f"<tr><td>{title}<br><code>{record.name}</code></td>"
            f"<td>{html.escape(record.verdict())}</td>"
            f"<td>{'<br>'.join(map(html.escape, shown_values))}{folded}</td></tr>")
