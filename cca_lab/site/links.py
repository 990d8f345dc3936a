"""The check of a site: links lead to pages and anchors that are there, and nothing is loaded from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SPAN = re.compile(r"</?span[^>]*>")  # colours of code, most of the tags: they link to nothing
LOADING = {"audio": "src", "embed": "src", "iframe": "src", "image": "href", "img": "src", "input": "src",
           "link": "href", "object": "data", "script": "src", "source": "src", "track": "src", "use": "href",
           "video": "src"}
IN_STYLE = re.compile(r"url\(([^)]*)\)|@import\s+([^;\s]+)")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(SPAN.sub("", text))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADING.get(tag) in given:
            self.loads.append(given[LOADING[tag]])
        if "srcset" in given:
            self.loads += [one.split()[0] for one in given["srcset"].split(",")]
        if "style" in given:
            self.loads += in_style(given["style"])


def in_style(css: str) -> list[str]:
    """Return the addresses that a style sheet loads."""
    return [(one or other).strip("\"'") for one, other in IN_STYLE.findall(css)]


def problems(folder: Path) -> list[str]:
    """Return in words what is wrong with the pages of a folder; an empty list for a site that is sound.

    Args:
        folder: the site. A page without its style sheet is of another part of the lab: it is checked as a target only.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    pages = {name: _Page(text) for name, text in texts.items() if 'href="site.css"' in text}
    found = [f"{name}: the id {one!r} stands twice" for name, page in pages.items()
             for one in sorted({one for one in page.ids if page.ids.count(one) > 1})]
    for name, page in pages.items():
        for address in page.links:
            found += [f"{name}: {why}" for why in _broken(address, name, pages, folder)]
        for address in page.loads:
            found += [f"{name}: {why}" for why in _outside(address, folder)]
    for path in sorted(folder.glob("*.css")):
        for address in in_style(path.read_text(encoding="utf-8")):
            found += [f"{path.name}: {why}" for why in _outside(address, folder)]
    return found


def _broken(address: str, name: str, pages: dict[str, _Page], folder: Path) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https", "mailto"):
        return
    if parts.scheme or parts.netloc or address.startswith("/"):
        yield f"links to {address}, which is no relative address"
        return
    target, fragment = unquote(parts.path) or name, unquote(parts.fragment)
    if not (folder / target).is_file() or not (folder / target).resolve().is_relative_to(folder.resolve()):
        yield f"links to {address}, which is not there"
    elif fragment and target in pages and fragment not in pages[target].ids:
        yield f"links to {address}, but {target} has no such anchor"


def _outside(address: str, folder: Path) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return
    if parts.scheme or parts.netloc or not (folder / unquote(parts.path)).is_file():
        yield f"loads {address}, which is not in the site"
