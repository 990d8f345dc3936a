"""Build the site: render every page, lead its links, write pages, pictures, the pages' program and the index."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from cca_lab.files import check_folder, replacing
from cca_lab.site import content, hosted, ledger, outline, search
from cca_lab.site.plan import LEDGER, START, Entry, entries, neighbours
from cca_lab.views.page.bundle import bundle
from cca_lab.walkthrough.pages import environment, stylesheet

HERE = Path(__file__).parent
MANIFEST = "site-files.txt"  # what an earlier build wrote here, and this one may remove


@dataclass(frozen=True)
class Extra:
    """A page that is made by another part of the lab and stands in one file: it is written here, and linked.

    Attributes:
        address: its file name.
        title: its name in the navigation.
        text: what it is, for the search.
        write: writes it to a path.
    """

    address: str
    title: str
    text: str
    write: Callable[[Path], Any]


@dataclass(frozen=True)
class Built:
    """What was written.

    Attributes:
        pages: number of pages.
        bytes: size of all files.
        index_bytes: size of the search index.
    """

    pages: int
    bytes: int
    index_bytes: int


def build(root: Path, out: Path, *, extras: Sequence[Extra] = (), repository: str | None = None,
          branch: str = "main") -> Built:
    """Write the site of a clone; nothing is run, notebooks are shown as they were committed.

    Args:
        root: the clone.
        out: folder to write to: a new or an empty one, or that of an earlier build.
        extras: pages of other parts, such as that of the model.
        repository: "OWNER/NAME" on GitHub, for links that open notebooks on Binder and Colab; None for none.
        branch: of the repository.

    Raises:
        ValueError: if `out` holds other files, if there are no notebooks, or the name of the repository is none.
    """
    if repository:
        hosted.check(repository)
    earlier = _earlier(out)
    texts, pictures, copied = _contents(root, extras, repository, branch)
    names = {*texts, *pictures, *(f"files/{path}" for path in copied), *(extra.address for extra in extras)}
    _note(out, names | earlier)  # first: the next build may then go on where this one was stopped
    for name, text in texts.items():
        _write(out / name, text.encode())
    for name, picture in pictures.items():
        _write(out / name, picture)
    for path in copied:
        _write(out / "files" / path, (root / path).read_bytes())
    for extra in extras:
        extra.write(out / extra.address)
    for name in earlier - names:
        (out / name).unlink(missing_ok=True)
    _note(out, names)
    return Built(sum(name.endswith(".html") for name in names), sum((out / name).stat().st_size for name in names),
                 len(texts["search-index.js"].encode()))


def _earlier(out: Path) -> set[str]:
    """Return the files that an earlier build wrote to a folder."""
    check_folder(out)
    if (out / MANIFEST).is_file():
        listed = (out / MANIFEST).read_text(encoding="utf-8").splitlines()
        return {name for name in listed if (out / name).resolve().is_relative_to(out.resolve() / "")}
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"out: {out} holds files that are no site, wanted an empty folder; choose another one")
    return set()


def _note(out: Path, names: Iterable[str]) -> None:
    """Write down which files of the folder are the site's."""
    _write(out / MANIFEST, "".join(f"{name}\n" for name in sorted(names)).encode())


def _contents(root: Path, extras: Sequence[Extra], repository: str | None, branch: str) -> tuple[
        dict[str, str], dict[str, bytes], set[str]]:
    """Return the text files of the site by name, its pictures, and the files of the clone that go with it."""
    plan = entries(root)
    bodies = {entry: content.rendered(entry, root) for entry in plan}
    claims = _claims(root, plan, bodies)
    places = content.Places(root, bodies)
    frame = environment(HERE / "templates").get_template("site.html")
    groups = _navigation(plan, extras)
    texts: dict[str, str] = {}
    pictures: dict[str, bytes] = {}
    indexed = []
    for entry, body in bodies.items():
        body = content.with_claims(content.relinked(body, entry, places), claims)
        body, files = content.with_pictures(body, Path(entry.address).stem)
        pictures |= files
        sections = outline.sections(body)
        indexed.append((entry.address, entry.title, sections))
        before, following = neighbours(plan, entry)
        texts[entry.address] = frame.render(
            title=f"{entry.title} | cca_lab", entry=entry, body=body, groups=groups, before=before, next=following,
            contents=outline.contents(sections), version=version("cca-lab"), run=entry.is_notebook,
            work_in=entry.source.startswith("notebooks/"),
            hosted=hosted.links(entry.source, repository, branch) if repository else [],
            colab_cell=hosted.colab_cell(repository) if repository else "")
    indexed += [(one.address, one.title, [outline.Section(1, "", one.title, one.text)]) for one in extras]
    texts["search-index.js"] = search.index(indexed)
    texts["site.js"] = bundle(HERE / "js" / "site.js") + '\nmodules["site.js"].start();\n'
    texts["site.css"] = stylesheet() + (HERE / "templates" / "site.css").read_text(encoding="utf-8")
    return texts, pictures, places.copied


def _claims(root: Path, plan: Iterable[Entry], bodies: dict[Entry, str]) -> set[str]:
    """Put the ledger in the place of the table of docs/claims/ledger.md, and return the ids of the claims."""
    page = next((entry for entry in plan if entry.address == LEDGER), None)
    if page is None:
        return set()
    found = ledger.records(root)
    ids = [one["id"] for one in found]
    used: dict[str, list[Entry]] = {}
    for entry in plan:
        if entry.is_notebook:
            for one in ledger.mentioned(content.source_text(entry, root), ids):
                used.setdefault(one, []).append(entry)
    bodies[page] = ledger.body(found, content.source_text(page, root), used)
    return set(ids)


def _navigation(plan: Iterable[Entry], extras: Sequence[Extra]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the headings of the navigation, and the text and address of each link below them."""
    groups = [(group, [(entry.label, entry.address) for entry in own])
              for group, own in groupby(plan, key=lambda entry: entry.group)]
    next(links for group, links in groups if group == START).extend((one.title, one.address) for one in extras)
    return groups


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(data)
