"""Text files of the user: what is text, and what a file that is none looks like.

A file is text if all of it is UTF-8 without NUL characters, whatever its name ends in.
"""

import re
from pathlib import Path

LONG_WORD = re.compile(r"\S{20000,}|\s{20000,}")
SNIFFED = 8192  # bytes, in which most binary files have a NUL
MARKS = (b"\xff\xfe", b"\xfe\xff")  # at the start of UTF-16, in its two orders of bytes
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"%PDF")
SIGNATURES = (*((mark, "UTF-16") for mark in MARKS),
              *zip(PACKED, ("a gzip file", "a zip archive, such as .docx", "a PDF"), strict=True))
CONTROLS = bytes({*range(32)} - set(b"\t\n\v\f\r\x1b"))


def read_text(path: Path, name: str) -> str:
    """Return the text of a file.

    Args:
        path: the file.
        name: name of the argument, for the error message.

    Raises:
        ValueError: if the file is not text, or holds a word that a tokenizer takes hours for.
    """
    data = path.read_bytes()
    if problem := problem_of(data):
        raise ValueError(f"{name}: {path} {problem}")
    return decoded(data)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; of one that begins with binary content, as a film does, the first ones only."""
    with path.open("rb") as file:
        data = file.read(SNIFFED)
        return data if b"\0" in data and is_binary(data) else data + file.read()


def decoded(data: bytes) -> str:
    """Return bytes of UTF-8 as text, with Unix line ends and without a byte-order mark."""
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def problem_of(data: bytes) -> str | None:
    """Return why the bytes of a file cannot be used as text, and what to do; None if they can."""
    if problem := encoding_problem(data):
        return problem
    longest = max((match.end() - match.start() for match in LONG_WORD.finditer(data.decode())), default=0)
    if longest:
        return (f"holds {longest} characters or spaces without a break, which a tokenizer takes hours for; give prose "
                "or code")
    return None


def encoding_problem(data: bytes) -> str | None:
    """Return why bytes are not text in UTF-8, and what to do; None if they are."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
        todo = "save its text as UTF-8" if data.startswith(PACKED) else "save it as UTF-8"
        return (f"is not UTF-8 (byte {data[at]:#x} at {at}) in line {1 + data[:at].count(10)}; it looks like "
                f"{looks_like(data)}: {todo}, or give another")
    if b"\0" in data:
        return ("holds NUL characters, as binary files and UTF-16 without its mark do; save it as UTF-8, or give "
                "another")
    if data.startswith(PACKED):
        return f"is {looks_like(data)}; save its text as UTF-8, or give another"
    return None


def looks_like(data: bytes) -> str:
    """Return what bytes that are not UTF-8 look like, in a few words."""
    for start, kind in SIGNATURES:
        if data.startswith(start):
            return kind
    if is_binary(data):
        return "a binary file"
    # ISO 8859 has control characters at 0x80 to 0x9f, Windows' code pages have letters and quotation marks there
    return "Windows-1252, or another 8-bit encoding" if any(0x80 <= byte <= 0x9f for byte in data) else \
        "Latin-1 (ISO 8859-1), or another 8-bit encoding"


def is_binary(data: bytes) -> bool:
    """Return whether bytes that are not usable as UTF-8 are no text in another encoding, as a picture or a program.

    Text in UTF-16 with its mark, or in an 8-bit encoding, is not binary: it only has to be saved again.
    """
    if data.startswith(MARKS):
        return False
    return data.startswith(PACKED) or data.translate(None, CONTROLS) != data
