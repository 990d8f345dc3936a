"""Write the page: the program, the data and the style in one HTML file, which may not load anything else."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cca_lab.files import check_file, replacing
from cca_lab.views.page.bundle import bundle
from cca_lab.views.page.data import page_data
from cca_lab.views.page.weights import MOST_BYTES

MODULES = Path(__file__).parent / "js"
VIEW_STYLE = Path(__file__).parents[1] / "explorer" / "view.css"  # of the explorer's view, which js/look.js imports
START = 'if (typeof document === "undefined") modules["engine.js"].serve(self);\nelse modules["app.js"].start();'


def write_page(out: Path, models: Sequence[str], attention: str | None = None,
               options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write the page with some models; a file that is there is replaced.

    Args:
        out: the HTML file.
        models, attention, options: see `page_data`.

    Returns:
        "bytes" of the file, and for each model its "name" and "error", the largest error of a weight.

    Raises:
        ValueError: as `page_data`, or if the page would be larger than 8 MB.
    """
    check_file(out)
    data = page_data(models, attention, options)
    page = page_html(data)
    size = len(page.encode())
    if size > MOST_BYTES:
        raise ValueError(f"model: the page would have {size / 1e6:.1f} MB, wanted at most {MOST_BYTES / 1e6:.0f}; give "
                         "fewer models, or smaller ones")
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return {"bytes": size, "models": [{"name": own["name"], "error": one["error"]} for own, one in
                                      zip(data["models"], data["packed"]["models"], strict=True)]}


def page_html(data: dict[str, Any]) -> str:
    """Return the page as text."""
    script = f'{bundle(MODULES / "app.js", MODULES / "engine.js")}\n{START}\n'
    style = "\n".join(path.read_text(encoding="utf-8") for path in (VIEW_STYLE, MODULES / "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (f"default-src 'none'; script-src 'sha256-{digest}' 'wasm-unsafe-eval'; worker-src blob:; "
              "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'")
    attention = html.escape((MODULES / "attention.js").read_text(encoding="utf-8"))
    filled = {"POLICY": policy, "STYLE": style, "ATTENTION": attention, "SCRIPT": script,
              "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")}
    page = (MODULES / "page.html").read_text(encoding="utf-8")
    for name, text in filled.items():
        page = page.replace(f"[[{name}]]", text)
    return page
