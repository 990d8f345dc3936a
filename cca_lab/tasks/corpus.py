"""Real text that every reader has: the standard library of the installed Python.

The corpus is English and code together: docstrings, comments and source. Whole
modules are assigned to *train* or *validation* by a hash of the module's name,
so a module stays on the same side from one Python version to the next.
"""

import hashlib
import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SKIPPED_FOLDERS = frozenset({
    "site-packages", "dist-packages", "__pycache__", "lib-dynload",  # not the library itself
    "test", "tests", "idle_test", "encodings",  # fixtures and code-page tables: hardly prose
})
SKIPPED_PREFIXES = ("_sysconfigdata", "config-")  # generated for one machine
VALIDATION_ONE_IN = 20
LONG_WORD = re.compile(r"\S{20000,}|\s{20000,}")
SUFFIXES = (".py", ".md", ".rst", ".txt")


@dataclass(frozen=True)
class Corpus:
    """Documents divided into two sides, and a fingerprint of both.

    Attributes:
        name: the origin of the text, for reports.
        train: the training documents, in a fixed order.
        validation: the held-out documents, in a fixed order.
    """

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 over every document of both sides."""
        digest = hashlib.sha256()
        for side in (self.train, self.validation):
            for document in side:
                digest.update(document.encode("utf-8"))
                digest.update(b"\0")
            digest.update(b"\1")
        return digest.hexdigest()[:16]


def is_validation(module: str) -> bool:
    """Return whether a module is held out: about one in `VALIDATION_ONE_IN`, by the hash of its name."""
    digest = hashlib.sha256(module.encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "big") % VALIDATION_ONE_IN == 0


def _readable_files(root: Path) -> list[Path]:
    def wanted(path: Path) -> bool:
        parts = path.relative_to(root).parts
        return (path.suffix in SUFFIXES
                and not SKIPPED_FOLDERS.intersection(parts[:-1])
                and not parts[0].startswith(SKIPPED_PREFIXES))

    files = [path for path in root.rglob("*") if path.is_file() and wanted(path)]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def _divide(name: str, documents: list[tuple[str, str]]) -> Corpus:
    """Divide (module, text) pairs into the two sides."""
    train = tuple(text for module, text in documents if not is_validation(module))
    validation = tuple(text for module, text in documents if is_validation(module))
    if not train or not validation:  # a text of one or two files: hold out its last tenth
        everything = "\n".join(text for _, text in documents)
        cut = len(everything) * 9 // 10
        train, validation = (everything[:cut],), (everything[cut:],)
    return Corpus(name, train, validation)


def _read(path: Path) -> str:
    """Return the text of a user's file.

    Raises:
        ValueError: if it is not UTF-8, or holds NUL characters or a very long word.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text: {path} is not UTF-8 (byte {error.object[error.start]:#x} at {error.start}); save it "
                         "as UTF-8, or give another") from error
    if "\0" in text:
        raise ValueError(f"text: {path} holds NUL characters, so it is no text; give another")
    longest = max((match.end() - match.start() for match in LONG_WORD.finditer(text)), default=0)
    if longest:
        raise ValueError(f"text: {path} holds {longest} characters or spaces without a break, which a tokenizer takes "
                         "hours for; give prose or code")
    return text


def _folder_documents(root: Path, read: Callable[[Path], str]) -> list[tuple[str, str]]:
    documents = []
    for path in _readable_files(root):
        text = read(path)
        if text.strip():
            documents.append((path.relative_to(root).as_posix(), text))
    return documents


def standard_library() -> Corpus:
    """Return the corpus made of the running Python's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    version = sysconfig.get_python_version()
    documents = _folder_documents(root, lambda path: path.read_text(encoding="utf-8", errors="replace"))
    return _divide(f"Python {version} standard library", documents)


def load_corpus(source: str | Path | None = None) -> Corpus:
    """Return the corpus that `source` names.

    Args:
        source: None for the standard library; a file or a folder of text; or
            `hub:NAME` or `hub:NAME:CONFIG` for a data set of the `datasets` library with
            a `text` column (needs a network and `pip install datasets`).

    Raises:
        ValueError: if the source is neither a path nor `hub:NAME`, or holds too little text, or is not UTF-8.
    """
    if source is None:
        return standard_library()
    if not isinstance(source, str | Path):
        raise ValueError(f"text: got {type(source).__name__}, wanted a path, hub:NAME for a data set, or nothing for "
                         "the standard library")
    source = str(source)
    if source.startswith("hub:"):
        return _hub_corpus(source.removeprefix("hub:"))
    path = Path(source)
    if path.is_dir():
        documents = _folder_documents(path, _read)
    elif path.is_file():
        documents = [(path.name, _read(path))]
    else:
        raise ValueError(f"text: {source!r} is no file or folder here; give a path, "
                         "hub:NAME for a data set, or nothing for the standard library")
    if sum(len(text) for _, text in documents) < 1000:
        raise ValueError(f"text: {source!r} holds fewer than 1000 characters of "
                         f"{', '.join(SUFFIXES)} text; give more")
    if not any(text.strip() for _, text in documents):
        raise ValueError(f"text: {source!r} holds nothing but white space; give another")
    return _divide(path.name, documents)


def _hub_corpus(name: str) -> Corpus:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError("text: a hub:NAME corpus needs the `datasets` library; "
                         "run `pip install datasets`") from error
    path, _, config = name.partition(":")
    rows = load_dataset(path, config or None, split="train")
    return _divide(name, [(str(index), row["text"]) for index, row in enumerate(rows)])
