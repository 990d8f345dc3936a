"""Which packages each extra installs, and the one-line message when one is missing."""

from importlib.util import find_spec

# Names as they are imported; pyproject.toml has the versions.
EXTRAS = {"models": ("accelerate", "pandas", "peft", "safetensors", "tabulate", "tokenizers",
                     "transformers"),
          "notebooks": ("IPython", "anywidget", "ipykernel", "ipywidgets", "jinja2",
                        "jupyter_client", "jupyterlab", "latex2mathml", "matplotlib", "nbclient",
                        "nbconvert", "nbformat", "seaborn", "traitlets"),
          "course": ("nbgrader",),
          "smollm2": ("gguf",), "docs": ("docutils", "myst_nb", "sphinx", "sphinx_book_theme"),
          "proofs": ("flint", "z3")}
# Where pip's name is another than Python's.
DISTRIBUTIONS = {"flint": "python-flint", "myst_nb": "myst-nb",
                 "sphinx_book_theme": "sphinx-book-theme", "z3": "z3-solver"}
EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}


def need(*packages: str) -> None:
    """Check that packages of an extra are installed, by import names, before they are imported."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"{package}: is not installed; {install(EXTRA_OF[package])}",
                                      name=package)


def missing(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed, by the names that pip knows."""
    return [DISTRIBUTIONS.get(package, package) for package in EXTRAS[extra]
            if find_spec(package) is None]


def advice(module: str | None) -> str | None:
    """Return how to install a missing module, such as "nbformat.v4"; None if no extra has it."""
    extra = EXTRA_OF.get((module or "").partition(".")[0])
    return extra and install(extra)


def install(extra: str) -> str:
    """Return the advice to install an extra."""
    return f'run `pip install "cca-lab[{extra}]"`'
