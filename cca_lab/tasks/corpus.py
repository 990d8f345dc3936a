"""Text: the standard library of the installed Python, which all have, or files of one's own.

The corpus is English and code together. Whole modules are *train* or *validation* by a hash of
their name, so a module stays on its side from one Python version to the next. A file of one's own
is text if all of it is UTF-8 without NUL characters, whatever its name ends in.
"""

import hashlib
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SKIPPED_FOLDERS = frozenset({
    "site-packages", "dist-packages", "__pycache__", "lib-dynload",  # not the library itself
    "test", "tests", "idle_test", "encodings",  # fixtures and code-page tables: hardly prose
})
SKIPPED_PREFIXES = ("_sysconfigdata", "config-")  # generated for one machine
VALIDATION_ONE_IN = 20
SUFFIXES = (".py", ".md", ".rst", ".txt")  # in the standard library; users' files go by content
LEAST = 1000  # characters
LONG_WORD = re.compile(r"\S{20000,}|\s{20000,}")
SNIFFED = 8192  # bytes, in which most binary files have a NUL


@dataclass(frozen=True)
class Corpus:
    """Documents divided into two sides, and a fingerprint of both.

    Attributes:
        name: the origin of the text, for reports.
        train: the training documents, in a fixed order.
        validation: the held-out documents, in a fixed order.
        left_out: files of a folder that cannot be used as text, each with the reason.
    """

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    left_out: tuple[str, ...] = ()

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
    """Return whether a module is held out: one in `VALIDATION_ONE_IN`, by the hash of its name."""
    digest = hashlib.sha256(module.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:4], "big") % VALIDATION_ONE_IN == 0


def _divide(name: str, documents: list[tuple[str, str]], left_out: Iterable[str] = ()) -> Corpus:
    """Divide (module, text) pairs into the two sides."""
    train = tuple(text for module, text in documents if not is_validation(module))
    validation = tuple(text for module, text in documents if is_validation(module))
    if not train or not validation:  # a text of one or two files: hold out its last tenth
        everything = "\n".join(text for _, text in documents)
        cut = len(everything) * 9 // 10
        train, validation = (everything[:cut],), (everything[cut:],)
    return Corpus(name, train, validation, tuple(left_out))


def _folder_documents(root: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Read every file of a user's folder that is text by its content, but no hidden ones.

    Return the (name, text) pairs, and why other files are left out.
    """
    documents: list[tuple[str, str]] = []
    left_out = []
    for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root)
        if any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        data = _read_bytes(path)
        if problem := problem_of(data):
            left_out.append(f"{name.as_posix()} {problem}")
        elif data.strip():
            documents.append((name.as_posix(), decoded(data)))
    return documents, left_out


def standard_library() -> Corpus:
    """Return the corpus made of the running Python's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root)
        if path.suffix not in SUFFIXES or SKIPPED_FOLDERS.intersection(name.parts[:-1]) \
                or name.parts[0].startswith(SKIPPED_PREFIXES) or not path.is_file():
            continue
        if (text := path.read_text(encoding="utf-8", errors="replace")).strip():
            documents.append((name.as_posix(), text))
    return _divide(f"Python {sysconfig.get_python_version()} standard library", documents)


def load_corpus(source: str | Path | None = None) -> Corpus:
    """Return the corpus that `source` names.

    Args:
        source: None for the standard library; a file; or a folder, of which every file that is
            text by its content is read.

    Raises:
        ValueError: for another source, one that is not UTF-8, or one with too little text.
    """
    if source is None:
        return standard_library()
    path = Path(source)
    left_out: list[str] = []
    if path.is_dir():
        documents, left_out = _folder_documents(path)
    else:
        documents = [(path.name, read_text(path))]
    if sum(len(text.strip()) for _, text in documents) < LEAST:
        beside = f" (beside {len(left_out)} that cannot be used, the first: {left_out[0]})" \
            if left_out else ""
        raise ValueError(f"text: {source} holds fewer than {LEAST} characters of text{beside}; "
                         "give more")
    return _divide(path.name, documents, left_out)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: if the file is not text, or holds a word that a tokenizer takes hours for.
        OSError: if it cannot be read.
    """
    data = path.read_bytes()
    if problem := problem_of(data):
        raise ValueError(f"text: {path} {problem}")
    return decoded(data)


def _read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; of one that begins with binary content only the first ones."""
    with path.open("rb") as file:
        data = file.read(SNIFFED)
        return data if b"\0" in data else data + file.read()


def decoded(data: bytes) -> str:
    """Return bytes of UTF-8 as text, with Unix line ends and without a byte-order mark."""
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def problem_of(data: bytes) -> str | None:
    """Return why the bytes of a file cannot be used as text, and what to do; None if they can."""
    if problem := encoding_problem(data):
        return problem
    longest = max((len(match.group()) for match in LONG_WORD.finditer(data.decode())), default=0)
    if longest:
        return (f"holds {longest} characters or spaces without a break, which a tokenizer takes "
                "hours for; give prose or code")
    return None


def encoding_problem(data: bytes) -> str | None:
    """Return why bytes are not text in UTF-8, and what to do; None if they are."""
    if b"\0" in data:
        return "holds NUL characters, as binary files and UTF-16 do; save its text as UTF-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return (f"is not UTF-8 (byte {data[error.start]:#x} in line "
                f"{1 + data[:error.start].count(10)}); save its text as UTF-8")
    return None
