"""A page of HTML that shows one state: it needs no program, no server and no network."""

import base64
import hashlib
import html
import json

from cca_lab.views.explorer.script import script, style
from cca_lab.views.explorer.state import State

START = ('modules["view.js"].render(document.getElementById("explorer"), '
         'JSON.parse(document.getElementById("state").textContent));')
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: light-dark(#ffffff, #14171b); }}
{style}
</style>
</head>
<body>
<div id="explorer"></div>
<script type="application/json" id="state">{state}</script>
<script>{script}</script>
</body>
</html>
"""


def page(state: State) -> str:
    """Return the page of a state; with all its rows, the query can be moved there."""
    program = f'{script("view.js")}\n{START}\n'
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode("ascii")
    data = json.dumps(state.to_json(), separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(state.attention["title"])
    return PAGE.format(digest=digest, title=title, style=style(), state=data, script=program)
