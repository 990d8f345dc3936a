"""Whether each quotation of the ledger stands in its paper, and at the place that is named."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cca_lab.theory.claim import Claim
from cca_lab.theory.ledger import one_line
from cca_lab.theory.numbers import Row

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


def read(folder: Path) -> dict[str, list[Text]]:
    """Read the papers' texts, the files of `FILES`."""
    papers: dict[str, list[Text]] = {}
    for paper, names in FILES.items():
        for name in names:
            raw = (folder / name).read_text(encoding="utf-8")
            headings = tuple((len(one_line(raw[:match.start()])), match.group(1) or match.group(2))
                             for match in HEADING.finditer(raw))
            papers.setdefault(paper, []).append(Text(one_line(raw), headings, "poster" in name))
    return papers


def problems(claim: Claim, texts: Sequence[Text]) -> Iterator[str]:
    """Say which quotes are not in the paper or not at the place, and which place has no quote."""
    named = [f"Eq. {match.group(4)}" if match.group(4) else "".join(match.groups(default=""))
             for match in NAMES.finditer(claim.place)]
    used: set[str] = set()
    for quote in claim.quote:
        stands = [(text, match.start()) for text in texts
                  for match in re.finditer(re.escape(one_line(quote)), text.words)]
        there = {name for name in named for text, start in stands
                 if _stands_at(name, text, start, quote)}
        if not stands:
            yield f"{claim.id}: not in the paper: {quote!r}"
        elif not there:
            yield f"{claim.id}: {claim.place!r} is not its place: {quote!r}"
        used |= there
    for name in named:
        if claim.quote and name not in used and not name.startswith("Table"):  # copied, not quoted
            yield f"{claim.id}: no quote stands at {name}, which its place names"


def miscopied(row: Row, texts: Sequence[Text]) -> bool:
    """Whether the numbers of a row do not stand in its paper in this order, side by side."""
    numbers = row.numbers.split()
    pattern = re.compile(r"(?<![\d.])" + r"\D{1,60}?".join(map(re.escape, numbers)) + r"(?!\d)")
    words = [MARKUP.sub(" ", text.words).replace("H 2O", "H O") for text in texts]
    return not any(map(pattern.search, words))


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
