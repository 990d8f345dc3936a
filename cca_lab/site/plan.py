"""The pages of the site: which file of the clone each is made from, its address, and its place in the navigation."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cca_lab.walkthrough.pages import heading_of, title_of
from cca_lab.walkthrough.run import read

START, NOTEBOOKS, PAPERS, COURSE, REFERENCE = "Start", "Notebooks", "The papers, checked", "Course", "Reference"
LEDGER = "ledger.html"
PLACED = {"claims": (LEDGER, PAPERS), "errata": ("errata.html", PAPERS),
          "article": ("article.html", PAPERS), "ledger_review": ("ledger_review.html", PAPERS),
          "proved": ("proved.html", PAPERS), "reproduction": ("reproduction.html", PAPERS),
          "records": ("records.html", PAPERS), "course_matrix": ("course_matrix.html", COURSE)}  # of docs/
LABELS = {"index.html": "Overview", LEDGER: "Ledger of claims", "reproduction.html": "Tables and figures re-enacted",
          "records.html": "The record", "article.html": "The article",
          "ledger_review.html": "The review, answered"}  # where the title is long
# Where a link to a folder leads.
FOLDERS = {".": "index.html", "notebooks": "index.html", "docs": "index.html", "lab": "course.html",
           "lab/release": "course.html", "data": "data.html", "data/models": "data.html", "data/results": "data.html"}


@dataclass(frozen=True)
class Entry:
    """One page.

    Attributes:
        address: file name of the page; all pages lie in one folder.
        title: its first heading, without markup.
        source: the file of the clone, with "/" between folders.
        group: the heading in the navigation that it stands under.
    """

    address: str
    title: str
    source: str
    group: str

    @property
    def label(self) -> str:
        """Its name in the navigation."""
        return LABELS.get(self.address, self.title)

    @property
    def is_notebook(self) -> bool:
        """Whether it is made from a notebook."""
        return self.source.endswith(".ipynb")


def entries(root: Path) -> list[Entry]:
    """Return every page of the site, in the order of the navigation; a document that is not there has none.

    Args:
        root: the clone.

    Raises:
        ValueError: if there are no notebooks, or two files would have one address.
    """
    lessons = sorted((root / "notebooks").glob("*.ipynb"))
    if not lessons:
        raise ValueError(f"notebooks: none in {root / 'notebooks'}; run in a clone")
    released = sorted((root / "lab" / "release").glob("*/*.ipynb"), key=_in_order)
    documents = sorted((root / "docs").glob("*.md"))
    other = [path for path in documents if path.stem not in PLACED]
    cards = sorted((root / "data" / "models").glob("*/README.md"))
    named = {name: (root / "docs" / f"{name}.md", *place) for name, place in PLACED.items()}
    plan = [(root / "README.md", "index.html", START),
            *((path, f"{path.stem}.html", NOTEBOOKS) for path in lessons),
            *(one for one in named.values() if one[2] == PAPERS),
            (root / "lab" / "README.md", "course.html", COURSE),
            *((path, f"{path.stem}.html", COURSE) for path in released),
            *(one for one in named.values() if one[2] == COURSE),
            *((path, f"{path.stem}.html", REFERENCE) for path in other),
            (root / "CONTRIBUTING.md", "contributing.html", REFERENCE),
            (root / "CHANGELOG.md", "changelog.html", REFERENCE),
            (root / "data" / "README.md", "data.html", REFERENCE),
            *((path, f"model-{path.parent.name}.html", REFERENCE) for path in cards)]
    found = [Entry(address, _title(path), path.relative_to(root).as_posix(), group)
             for path, address, group in plan if path.is_file()]
    _check_different(found)
    return found


def neighbours(found: Iterable[Entry], entry: Entry) -> tuple[Entry | None, Entry | None]:
    """Return the notebook before and the notebook after one, of the same group; a document has none."""
    row = [other for other in found if other.group == entry.group and other.is_notebook]
    if entry not in row:
        return None, None
    place = row.index(entry)
    return row[place - 1] if place else None, row[place + 1] if place + 1 < len(row) else None


def _title(path: Path) -> str:
    if path.suffix == ".ipynb":
        return title_of(read(path), path.stem)
    return heading_of(path.read_text(encoding="utf-8"), path.stem)


def _in_order(path: Path) -> tuple[int, str]:
    """Return a key that sorts a2 before a10."""
    number = re.search(r"\d+", path.stem)
    return int(number.group()) if number else 0, path.stem


def _check_different(found: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in found:
        other = first.setdefault(entry.address, entry)
        if other is not entry:
            raise ValueError(f"site: {other.source} and {entry.source} would both be {entry.address}; rename one")
