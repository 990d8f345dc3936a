"""A clone of three notebooks and a few documents, from which a site is built in a moment."""

import base64
import json
import struct
import zlib
from pathlib import Path

import nbformat
from nbformat.v4 import new_output

from tests import small_notebooks

CLAIMS = [{"id": name, "paper": paper, "place": "Eq. 1", "quote": ["a < b"], "reading": f"a < b, as {name} says",
           "formula": False, "verdict": verdict, "weight": None, "root": None, "evidence": "a = 2, b = 1",
           "error": None, "hypothesis": None, "models": {}, "sides": {}, "repair": "", "repaired": None,
           "corrected": "", "machine": None, "strength": "counterexample", "proof": ""}
          for name, paper, verdict in (("P1", "CCA", "holds"), ("T1.eq19", "DGA", "false as printed"))]
DOCUMENTS = {
    "README.md": "# The lab\n\n[first](notebooks/00_first.ipynb#a-part) [folder](notebooks) "
                 "[adapters](lab/adapters.py) [tests](tests) [away](https://example.org/x)\n\n"
                 "## One\n\ntext\n\n## One\n\nagain",
    "docs/claims/ledger.md": "# The claims\n\nJudged.\n\n| id |\n| --- |\n| `T1.eq19` |\n",
    "docs/claims/errata.md": "# Errata\n\n### Eq. 19 (`T1.eq19`)\n\nSee the [ledger](claims.md#T1.eq19), "
                            "`P2` is no claim.",
    "docs/own_page.md": "# A page of its own",
    "lab/README.md": "# The classroom\n\n[a2](release/a2_two/a2_two.ipynb)",
    "lab/adapters.py": "answer = None\n",
    "tests/nothing.txt": "",
    "data/results/claims.json": json.dumps(CLAIMS),
}


def picture(width: int, height: int) -> bytes:
    """Return a grey PNG."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def write(root: Path) -> Path:
    """Write the clone, and return its root."""
    for name, text in DOCUMENTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    first = small_notebooks.write(root / "notebooks", "00_first", "# 00 First $x_i$\n\n## A part\n\nCore tokens, "
                                  "see [second](01_second.ipynb).", "verify('T1.eq19')", "print('hidden output')")
    notebook = nbformat.read(first, 4)
    data = {"image/png": base64.b64encode(picture(30, 20)).decode(), "text/plain": "<Figure>"}
    notebook.cells[1].outputs = [new_output("display_data", data=data, metadata={"image/png": {"alt": "two < three"}}),
                                 new_output("display_data", data=data)]
    notebook.cells[2].outputs = [new_output("stream", name="stdout", text="printed_only\n")]
    nbformat.write(notebook, first)
    small_notebooks.write(root / "notebooks", "01_second", "# 01 Second\n\nBack to [errata](../docs/errata.md).", "1")
    for name in ("a10_ten", "a2_two"):
        small_notebooks.write(root / "lab" / "release" / name, name,
                              f"# {name}\n\n[00](../../../notebooks/00_first.ipynb)")
    return root
