"""Whether each quotation of the ledger stands in its paper, and at the place that is named."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cca_lab.stored import read_text
from cca_lab.theory.claim import Claim

FILES = {"CCA": ("cca.txt", "cca-poster.txt"), "DGA": ("dga.txt",), "LoCoCo": ("lococo.txt",)}
MARKUP = re.compile(r"<[^>]+>|[*\\$|_]")
NEAR = 4000  # characters from a label, such as "Theorem 1", within which a quote belongs to it
HEADING = re.compile(
    r"^(?:#+\s*)?\**((?:[1-9A-I])(?:\.\d+)*)\.\**\s+\**[A-Z].{0,90}$"
    r"|^(?:#+\s*)?\**(Abstract|Impact Statement|References|APPENDIX)\**\s*$", re.MULTILINE)
NAMES = re.compile(
    r"(?:Section|Appendix) ([1-9A-I](?:\.\d+)*)|(Abstract|Impact Statement|Poster)"
    r"|((?:Theorem|Lemma|Remark|Proposition|Problem|Definition|Table|Figure|Algorithm) \d+)"
    r"|Eqs?\. (\d+)")


@dataclass(frozen=True)
class Text:
    """A paper's text on one line, with the places of its headings; a poster has no sections."""

    words: str
    headings: tuple[tuple[int, str], ...]  # offset, number or title
    poster: bool


def one_line(text: str) -> str:
    """Return a text with its white space collapsed."""
    return " ".join(text.split())


def read(folder: Path) -> dict[str, list[Text]]:
    """Read the papers' texts, the files of `FILES`; ValueError if one is missing."""
    missing = [name for names in FILES.values() for name in names if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"papers: {folder} has no {', '.join(missing)}; put the papers' texts "
                         f"there under these names")
    papers: dict[str, list[Text]] = {}
    for paper, names in FILES.items():
        for name in names:
            raw = read_text(folder / name, "papers")
            headings = tuple((len(one_line(raw[:match.start()])), match.group(1) or match.group(2))
                             for match in HEADING.finditer(raw))
            text = Text(one_line(raw), headings, "poster" in name)
            papers.setdefault(paper, []).append(text)
    return papers


def problems(claim: Claim, texts: Sequence[Text]) -> Iterator[str]:
    """Say which quotes are not in the paper or not at the place, and which place has no quote."""
    named = [f"Eq. {match.group(4)}" if match.group(4) else "".join(match.groups(default=""))
             for match in NAMES.finditer(claim.place)]
    used: set[str] = set()
    for quote in claim.quotes:
        stands = [(text, match.start()) for text in texts
                  for match in re.finditer(re.escape(one_line(quote)), text.words)]
        if not stands:
            yield f"{claim.id}: not in the paper: {quote!r}"
        elif there := {name for name in named for text, start in stands
                       if _stands_at(name, text, start, quote)}:
            used |= there
        else:
            text, start = stands[0]
            yield (f"{claim.id}: {claim.place!r} is not its place; it stands in "
                   f"{_sections(text, start)}: {quote!r}")
    for name in named:
        if claim.quotes and name not in used and not name.startswith("Table"):  # copied, not quoted
            yield f"{claim.id}: no quote stands at {name}, which its place names"


def miscopied(tables: Mapping[str, Any], texts: Mapping[str, Sequence[Text]]) -> Iterator[str]:
    """Say which rows of numbers, by paper, do not stand in its text in this order, side by side."""
    for paper, rows in tables.items():
        words = [MARKUP.sub(" ", text.words).replace("H 2O", "H O") for text in texts[paper]]
        for place, numbers in _rows(rows):
            row = re.compile(r"(?<![\d.])" + r"\D{1,60}?".join(map(re.escape, numbers)) + r"(?!\d)")
            if not any(map(row.search, words)):
                yield f"{paper}, {place}: not in the paper: {', '.join(numbers)}"


def _rows(node: Any, place: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of numbers in tables: texts, and tables of single numbers."""
    if not isinstance(node, dict):
        yield place, str(node).split()
    elif all(len(str(value).split()) == 1 for value in node.values()):
        yield place, [str(value) for value in node.values()]
    else:
        for name, value in node.items():
            if name != "printed":  # formulas over numbers of many places
                yield from _rows(value, f"{place} {name}".strip())


def fingerprint(claim: Claim) -> str:
    """Return a digest of a claim's quotes and place: those that were found in the papers."""
    return digest("\n".join((claim.paper, claim.place, *map(one_line, claim.quotes))))


def digest(text: str) -> str:
    """Return the beginning of a text's hash."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sections(text: Text, start: int) -> list[str]:
    """Return the sections that hold an offset, such as ["4", "4.2"]."""
    if text.poster:
        return ["Poster"]
    before = [name for offset, name in text.headings if offset <= start]
    number = before[-1] if before else ""
    if not re.match(r"[1-9A-I](\.|$)", number):
        return [number]
    return [number[:end] for end in range(1, len(number) + 1)
            if end == len(number) or number[end] == "."]


def _stands_at(name: str, text: Text, start: int, quote: str) -> bool:
    """Whether a quote at an offset belongs to a section, or lies near a label or equation."""
    if re.fullmatch(r"[1-9A-I](\.\d+)*|Abstract|Impact Statement|Poster", name):
        return name in _sections(text, start)
    around = text.words[max(0, start - NEAR):start + len(quote) + NEAR]
    if name.startswith("Eq. "):
        return any(mark in around for mark in (f"({name[4:]})", f"tag{{{name[4:]}}}"))
    return re.search(rf"{name}\b", around) is not None
