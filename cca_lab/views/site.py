"""The site: notebooks, documents, claims, course and API as pages, built by Sphinx, all offline."""

import io
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from cca_lab.extras import need
from cca_lab.files import check_folder
from cca_lab.views.whole import whole_folder

# What of the clone goes to the same path below the site's sources, so that links between the files
# stay as they are.
SOURCES = ("docs/*/", "docs/contents.md", "docs/*.png", "notebooks/*.ipynb", "lab/README.md",
           "lab/release", "data/README.md", "data/models/*/README.md",
           "data/adapters/*/README.md", "proofs",
           "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
CONTENTS = "docs/contents.md"  # the tables of contents, below the README on the first page
API = "docs/use/api.md"
LEARN = "docs/learn/index.md"  # gets the links to the pages that stand in one file
Extra = tuple[str, Callable[[Path], Any]]


def build(root: Path, out: Path, *, extras: Mapping[str, Extra] | None = None,
          repository: str | None = None, branch: str = "main") -> str:
    """Write the site of a clone to a new or empty folder, or over an earlier site; run no notebook.

    Args:
        root: the clone.
        out: the folder.
        extras: pages of one file: by file name, a title and a function that writes to a path.
        repository: "OWNER/NAME" on GitHub, for buttons that open notebooks on Binder and Colab.
        branch: of the repository.

    Returns:
        Sphinx's warnings, such as links that lead nowhere; empty for a site that is sound.
    """
    need("sphinx", "myst_nb", "sphinx_book_theme")
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    check_folder(out)
    if out.is_dir() and any(out.iterdir()) and not (out / "searchindex.js").is_file():
        raise ValueError(f"out: {out} holds files that are no site, wanted an empty folder; "
                         "choose another one")
    warnings = io.StringIO()
    with (whole_folder(out) as made, tempfile.TemporaryDirectory() as folder, patch_docutils(),
          docutils_namespace()):
        source = Path(folder, "source")
        stage(root, source, extras or {})
        app = Sphinx(str(source), str(root / "docs"), str(made), str(Path(folder, "doctrees")),
                     "html", status=None, warning=warnings, freshenv=True,
                     confoverrides=_hosted(repository, branch) if repository else {})
        app.build(force_all=True)
        for name, (_, write) in (extras or {}).items():
            write(made / name)
    return warnings.getvalue()


def stage(root: Path, source: Path, extras: Mapping[str, Extra]) -> None:
    """Write the sources of the pages: files of the clone, and what is made from data."""
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
    (source / "index.md").write_text(f"{readme}\n{contents}", encoding="utf-8")
    (source / API).write_text(api_page(), encoding="utf-8")
    if extras:
        links = "".join(f'* <a href="../../{name}">{title}</a>\n'
                        for name, (title, _) in extras.items())
        with (source / LEARN).open("a", encoding="utf-8") as file:
            file.write(f"\n## In the browser\n\n{links}")


def api_page() -> str:
    """Return the reference of the public names, from their docstrings."""
    lines = ["# Reference", "", "Every public name with its docstring. "
             "[The public names](names.md) says what each is for.", ""]
    package = import_module("cca_lab")  # the public names stand above this room
    for name in package.__all__:
        value = getattr(package, name)
        if isinstance(value, type):
            directive = [f".. autoclass:: cca_lab.{name}", "   :members:"]
        elif callable(value):
            directive = [f".. autofunction:: cca_lab.{name}"]
        else:
            directive = [f".. py:data:: cca_lab.{name}", "", f"   Names of: {', '.join(value)}."]
        lines += ["```{eval-rst}", *directive, "```", ""]
    return "\n".join(lines)


def _hosted(repository: str, branch: str) -> dict[str, Any]:
    buttons = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab",
               "colab_url": "https://colab.research.google.com"}
    options = {"repository_url": f"https://github.com/{repository}", "repository_branch": branch,
               "use_repository_button": True, "launch_buttons": buttons}
    return {f"html_theme_options.{name}": value for name, value in options.items()}
