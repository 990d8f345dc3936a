"""The text of a page: rendered, its links led to the pages of the site, its pictures in files of their own."""

import base64
import html
import posixpath
import re
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from cca_lab.site.plan import FOLDERS, LEDGER, Entry
from cca_lab.walkthrough.pages import markdown_html, notebook_html
from cca_lab.walkthrough.run import read

ID = re.compile(r'\sid="([^"]*)"')
LINK = re.compile(r'<a\b([^>]*?)\shref="([^"]*)"([^>]*)>(.*?)</a>', re.DOTALL)
CODE = re.compile(r"<code>([\w.-]+)</code>(?!</a>)")
PICTURE = re.compile(r'<img\b[^>]*?\ssrc="data:image/png;base64,([^"]*)"[^>]*>')
MOST_COPIED = 256_000  # bytes of a file beside the pages that a page links to

Address = Callable[[str, str], str | None]  # path in the clone, fragment: the address, None for no link


def rendered(entry: Entry, root: Path) -> str:
    """Return the body of a page as its source has it: links between files of the clone, pictures inside."""
    path = root / entry.source
    if entry.is_notebook:
        return notebook_html(read(path), path.parent)
    return markdown_html(path.read_text(encoding="utf-8"), path.parent)


def source_text(entry: Entry, root: Path) -> str:
    """Return what a person wrote: of a notebook its cells without outputs."""
    path = root / entry.source
    if entry.is_notebook:
        return "\n".join(cell.source for cell in read(path).cells)
    return path.read_text(encoding="utf-8")


def relinked(body: str, entry: Entry, address: Address) -> str:
    """Return a body with its links to files of the clone led to addresses of the site.

    Args:
        body: HTML.
        entry: the page that it is of.
        address: where a path of the clone is in the site.
    """
    folder = posixpath.dirname(entry.source)

    def relink(match: re.Match[str]) -> str:
        before, given, after, words = match.groups()
        parts = urlsplit(html.unescape(given))
        if parts.scheme or parts.netloc:
            return match.group()
        path = posixpath.normpath(posixpath.join(folder, unquote(parts.path))) if parts.path else entry.source
        found = address(path, unquote(parts.fragment))
        if found is None:
            return words
        if not parts.path:
            found = found.removeprefix(entry.address)
        return f'<a{before} href="{html.escape(found)}"{after}>{words}</a>'

    return LINK.sub(relink, body)


class Places:
    """Where the files of the clone are in the site.

    Args:
        root: the clone.
        bodies: the HTML of each page, by its entry.

    Attributes:
        copied: paths of the clone that pages link to, and that go beside them, under files/.
    """

    def __init__(self, root: Path, bodies: Mapping[Entry, str]) -> None:
        self.root, self.copied = root.resolve(), set[str]()
        self.address = FOLDERS | {entry.source: entry.address for entry in bodies}
        self.anchors = {entry.address: {html.unescape(one) for one in ID.findall(body)}
                        for entry, body in bodies.items()}

    def __call__(self, path: str, fragment: str) -> str | None:
        """Return the address of a file of the clone, with an anchor; None for one that is there but not in the site.

        A path that is not there is returned as it is: a broken link, which the check of links reports.
        """
        if (claim := CLAIM_PAGE.fullmatch(path)) and LEDGER in self.anchors:
            return f"{LEDGER}#{quote(claim[1])}"
        if path in self.address:
            page = self.address[path]
            return page + (f"#{quote(self._anchor(page, fragment))}" if fragment else "")
        place = self.root / path
        if not place.exists():
            return path
        if not place.is_file() or not place.resolve().is_relative_to(self.root) \
                or place.stat().st_size > MOST_COPIED:
            return None
        self.copied.add(path)
        return f"files/{quote(path)}"

    def _anchor(self, page: str, fragment: str) -> str:
        """Return the id on a page that a fragment means; GitHub writes "the-title" where Jupyter has "The-title"."""
        ids = self.anchors.get(page, set())
        if fragment in ids:
            return fragment
        return next((one for one in sorted(ids) if _slug(one) == _slug(fragment)), fragment)


CLAIM_PAGE = re.compile(r"docs/claims/(.+)\.md")  # on the site a claim is an entry of the ledger's page


def _slug(anchor: str) -> str:
    return re.sub(r"[^\w-]", "", anchor.lower())


def with_claims(body: str, ids: Set[str]) -> str:
    """Return a body in which the id of a claim, as code, is a link to its entry in the ledger."""
    return CODE.sub(lambda match: f'<a href="{LEDGER}#{match[1]}">{match[0]}</a>' if match[1] in ids else match[0],
                    body)


def with_pictures(body: str, stem: str) -> tuple[str, dict[str, bytes]]:
    """Take the pictures out of a body.

    Args:
        body: HTML with pictures inside.
        stem: beginning of the pictures' file names.

    Returns:
        The body, in which each picture is shown from its file and leads to it, to be seen larger; the files by name.
    """
    files: dict[str, bytes] = {}

    def take(match: re.Match[str]) -> str:
        content = base64.b64decode(match[1])
        name = f"figures/{stem}-{len(files) + 1}.png"
        files[name] = content
        width, height = (int.from_bytes(content[at:at + 4], "big") for at in (16, 20))  # as every PNG begins
        size = "" if " width=" in match[0] else f' width="{width}" height="{height}"'
        tag = match[0].replace(f"data:image/png;base64,{match[1]}", name)
        return f'<a class="picture" href="{name}">{tag[:-1].rstrip(" /")}{size} loading="lazy"></a>'

    return PICTURE.sub(take, body), files
