"""Write the page: program, data and style in one HTML file, which may not load anything else."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cca_lab.files import check_file, replacing
from cca_lab.views.page.data import page_data
from cca_lab.views.page.weights import MOST_BYTES
from cca_lab.views.scripts import VIEW_FILES, VIEW_STYLE, allowed, inline_json, joined

FOLDER = Path(__file__).parent / "js"
OWN_FILES = [FOLDER / f"{name}.js" for name in
             ("attention", "mechanisms", "model", "engine", "text", "controls", "app")]
FILES = [*VIEW_FILES, *OWN_FILES]
START = 'if (typeof document === "undefined") serve(self);\nelse start();'  # as a worker, or a page


def write_page(out: Path, models: Sequence[str], attention: str | None = None,
               options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write the page with some models, see `page_data`; a file that is there is replaced.

    Return "bytes" of the file, and "name" and "error", the largest of a weight, of each model.
    """
    check_file(out)
    data = page_data(models, attention, options)
    page = page_html(data)
    size = len(page.encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"model: the page would have {size / 1e6:.1f} MB, wanted at most "
            f"{MOST_BYTES / 1e6:.0f}; give fewer models, or smaller ones")
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    packed_models = zip(data["models"], data["packed"]["models"], strict=True)
    return {"bytes": size, "models": [{"name": named["name"], "error": packed["error"]}
                                      for named, packed in packed_models]}


def page_html(data: dict[str, Any]) -> str:
    """Return the page as text."""
    script = f"{joined(FILES)}\n{START}\n"
    style = "\n".join(path.read_text(encoding="utf-8")
                      for path in (VIEW_STYLE, FOLDER / "page.css"))
    policy = (f"default-src 'none'; {allowed(script)}; worker-src blob:; "
              "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'")
    attention = html.escape((FOLDER / "attention.js").read_text(encoding="utf-8"))
    filled = {"POLICY": policy, "STYLE": style, "ATTENTION": attention, "SCRIPT": script,
              "DATA": inline_json(data)}
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    for name, text in filled.items():
        page = page.replace(f"[[{name}]]", text)
    return page
