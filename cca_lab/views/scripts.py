"""JavaScript in one HTML file, without a bundler: scripts share a scope, joined as they are."""

import base64
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VIEW = Path(__file__).parent / "explorer" / "js"
VIEW_FILES = [VIEW / f"{name}.js" for name in ("drawing", "words", "columns", "matrices", "view")]
VIEW_STYLE = VIEW.parent / "view.css"


def joined(paths: Iterable[Path]) -> str:
    """Return scripts one after another; each uses at once only names of those before it."""
    return "\n".join(['"use strict";', *(path.read_text(encoding="utf-8") for path in paths)])


def allowed(script: str) -> str:
    """Return what a page's Content-Security-Policy calls this script, and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"script-src 'sha256-{digest}'"


def inline_json(data: Any) -> str:
    """Return JSON values as text that cannot end the element that holds it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
