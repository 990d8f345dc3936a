"""Links to services that open a notebook of a public clone in the browser; the site itself needs none of them."""

import re
from urllib.parse import quote


def links(source: str, repository: str, branch: str) -> list[tuple[str, str]]:
    """Return the name and the address of each place that opens a notebook.

    Args:
        source: path of the notebook in the clone.
        repository: "OWNER/NAME" on GitHub.
        branch: of the repository.
    """
    at, path = f"{repository}/blob/{quote(branch)}", quote(source)
    return [("Binder", f"https://mybinder.org/v2/gh/{repository}/{quote(branch, safe='')}"
                       f"?urlpath={quote(f'lab/tree/{source}', safe='')}"),
            ("Colab", f"https://colab.research.google.com/github/{at}/{path}"),
            ("its source", f"https://github.com/{at}/{path}")]


def colab_cell(repository: str) -> str:
    """Return the first cell that a notebook needs on Colab, where a session has nothing of the lab."""
    return f"!git clone --depth 1 https://github.com/{repository} lab && bash lab/binder/colab.sh"


def check(repository: str) -> None:
    """Raise ValueError for a name that is no repository's on GitHub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, flags=re.ASCII):
        raise ValueError(f"repository: got {repository!r}, wanted OWNER/NAME, as in the address of the clone on GitHub")
