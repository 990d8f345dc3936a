"""The index that the pages search: every section's text, in a script, because a page from a file may fetch nothing."""

import json
from collections.abc import Iterable, Sequence

from cca_lab.site.outline import Section

NAME = "siteIndex"
MOST_BYTES = 1_500_000


def index(pages: Iterable[tuple[str, str, Sequence[Section]]]) -> str:
    """Return the index as a script that sets `globalThis.siteIndex`.

    Args:
        pages: for each page its address, its title and its sections.

    Raises:
        ValueError: if it is larger than 1.5 MB, which a phone would wait for.
    """
    places, texts = [], []
    for number, (address, title, found) in enumerate(pages):
        places.append([address, title])
        texts += [[number, one.anchor, one.heading, one.text] for one in found if one.heading or one.text]
    content = json.dumps({"pages": places, "sections": texts}, ensure_ascii=False, separators=(",", ":"))
    script = f"globalThis.{NAME} = {content};\n"
    size = len(script.encode())
    if size > MOST_BYTES:
        raise ValueError(f"search index: got {size} bytes, wanted at most {MOST_BYTES}; leave documents out of it")
    return script
