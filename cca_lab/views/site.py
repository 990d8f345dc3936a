"""The site: notebooks, documents, claims, course and API as pages, built by Sphinx, all offline."""

import copy
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from cca_lab.extras import need
from cca_lab.files import check_folder

# What of the clone goes to the same path below the site's sources, so that links between the files
# stay as they are.
SOURCES = ("docs/*/", "docs/contents.md", "docs/*.png", "docs/*.gif", "notebooks/*.ipynb",
           "lab/README.md",
           "lab/release", "data/README.md", "data/models/*/README.md",
           "data/adapters/*/README.md", "proofs",
           "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
CONTENTS = "docs/contents.md"  # cards and tables of contents, amid the README on the first page
BEFORE = "## Quick start"
SOLUTION = re.compile(r"### BEGIN SOLUTION.*?### END SOLUTION", re.DOTALL)
LEARN = "docs/learn/index.md"  # gets the links to the pages that stand in one file
Extra = tuple[str, Callable[[Path], Any]]


class Site:
    """The site of a clone, in a folder; Sphinx writes again only what has changed.

    Args:
        root: the clone.
        out: a new or empty folder, or that of an earlier site.
        extras: pages of one file: by file name, a title and a function that writes to a path.
        repository: "OWNER/NAME" on GitHub, for buttons that open notebooks on Binder and Colab.
        branch: of the repository.
    """

    def __init__(self, root: Path, out: Path, *, extras: Mapping[str, Extra] | None = None,
                 repository: str | None = None, branch: str = "main") -> None:
        need("sphinx", "myst_nb", "sphinx_book_theme")
        check_folder(out)
        if out.is_dir() and any(out.iterdir()) and not (out / "searchindex.js").is_file():
            raise ValueError(f"out: {out} holds files that are no site, wanted an empty folder; "
                             "choose another one")
        self.root, self.out, self.extras = root, out, extras or {}
        self._folder = tempfile.TemporaryDirectory()
        self._source = Path(self._folder.name, "source")
        self._settings = _hosted(repository, branch) if repository else {}
        stage(root, self._source, self.extras)

    def __enter__(self) -> Self:
        """Return the site."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the sources."""
        self._folder.cleanup()

    def build(self) -> str:
        """Write all pages, and return Sphinx's warnings, such as links that lead nowhere."""
        warnings = self._sphinx()
        for name, (_, write) in self.extras.items():
            write(self.out / name)
        return warnings

    def show(self, name: str, notebook: NotebookNode) -> Path:
        """Write the page of a notebook that was run, and return its path."""
        path = self._source / "notebooks" / name
        nbformat.write(shown(notebook), path)
        self._sphinx(path)
        return self.out / "notebooks" / Path(name).with_suffix(".html")

    def _sphinx(self, changed: Path | None = None) -> str:
        from sphinx.application import Sphinx
        from sphinx.util.docutils import docutils_namespace, patch_docutils

        warnings = io.StringIO()
        with patch_docutils(), docutils_namespace():
            app = Sphinx(str(self._source), str(self.root / "docs"), str(self.out),
                         str(Path(self._folder.name, "doctrees")), "html", status=None,
                         warning=warnings, freshenv=changed is None, confoverrides=self._settings)
            app.build(changed is None, [changed] if changed else ())
        return warnings.getvalue()


def stage(root: Path, source: Path, extras: Mapping[str, Extra]) -> None:
    """Write the sources of the pages."""
    for pattern in SOURCES:
        for path in root.glob(pattern):
            target = source / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target)
            else:
                shutil.copy(path, target)
    readme = (root / "README.md").read_text(encoding="utf-8")
    contents = (source / CONTENTS).read_text(encoding="utf-8")
    (source / CONTENTS).unlink()
    (source / "index.md").write_text(readme.replace(BEFORE, f"{contents}\n{BEFORE}", 1),
                                     encoding="utf-8")
    for path in (source / "notebooks").glob("*.ipynb"):
        nbformat.write(shown(nbformat.read(path, as_version=4)), path)
    if extras:
        links = "".join(f'* <a href="../../{name}">{title}</a>\n'
                        for name, (title, _) in extras.items())
        with (source / LEARN).open("a", encoding="utf-8") as file:
            file.write(f"\n## In the browser\n\n{links}")


def shown(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook as its page shows it: solutions folded, and figures described."""
    page, cells = copy.copy(notebook), []
    for cell in map(copy.deepcopy, notebook.cells):
        cells.append(cell)
        words = [output.metadata.get("image/png", {}).get("alt") for output in
                 cell.get("outputs", ()) if "image/png" in output.get("data", {})]
        if any(words):
            cell.metadata["mystnb"] = {"image": {"alt": "; ".join(filter(None, words))}}
        if SOLUTION.search(cell.source):
            solution = new_code_cell(cell.source, metadata={
                "tags": ["hide-input"], "mystnb": {"code_prompt_show": "Hints and a solution",
                                                   "code_prompt_hide": "Hints and a solution"}})
            cell.source = SOLUTION.sub("...  # your turn", cell.source)
            cells.append(solution)
    page.cells = cells
    return page


def _hosted(repository: str, branch: str) -> dict[str, Any]:
    buttons = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab",
               "colab_url": "https://colab.research.google.com"}
    options = {"repository_url": f"https://github.com/{repository}", "repository_branch": branch,
               "use_repository_button": True, "launch_buttons": buttons}
    return {f"html_theme_options.{name}": value for name, value in options.items()}
