"""The sections of a page: its headings with their anchors, and the text below each, for contents and search."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

SPAN = re.compile(r"</?span[^>]*>")  # colours of code: most of the tags, and none of the text
PICTURE = re.compile(r'src="data:[^"]*"')
DEEPEST = 3  # headings of lower levels belong to the text of their section
BLOCKS = {"br", "dd", "details", "div", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "li", "p", "pre", "summary", "table",
          "td", "th", "tr"}
UNSEARCHED = {"output_wrapper", "prompt", "unsearched"}  # classes of a div: what a notebook printed, lists of links


@dataclass
class Section:
    """A heading, and what stands below it up to the next one.

    Attributes:
        level: 1 to `DEEPEST`; 0 for what stands before the first heading.
        anchor: the id of the heading.
        heading: its text.
        text: the text below it, on one line.
    """

    level: int
    anchor: str
    heading: str = ""
    text: str = ""


@dataclass
class _Open:
    """The section that is being read, in pieces."""

    section: Section
    heading: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.read = [_Open(Section(0, ""))]
        self.in_heading = False
        self.skipped = 0  # divs that are open inside of one that is not searched, itself included

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and (self.skipped or UNSEARCHED & set((given.get("class") or "").split())):
            self.skipped += 1
        if self.skipped:
            return
        if re.fullmatch(rf"h[1-{DEEPEST}]", tag):
            self.read.append(_Open(Section(int(tag[1]), given.get("id") or "")))
            self.in_heading = True
        self._space(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.skipped:
            self.skipped -= tag == "div"
            return
        if re.fullmatch(rf"h[1-{DEEPEST}]", tag):
            self.in_heading = False
        self._space(tag)

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            last = self.read[-1]
            (last.heading if self.in_heading else last.text).append(data)

    def _space(self, tag: str) -> None:
        if tag in BLOCKS:
            self.handle_data(" ")


def sections(body: str) -> list[Section]:
    """Return the sections of a page's body in order; the first has no heading, and may have no text.

    Args:
        body: HTML, as `notebook_html` and `markdown_html` write it.
    """
    reader = _Reader()
    reader.feed(SPAN.sub("", PICTURE.sub("", body)))
    reader.close()
    for part in reader.read:
        part.section.heading = " ".join("".join(part.heading).split())
        part.section.text = " ".join("".join(part.text).split())
    return [part.section for part in reader.read]


def contents(found: list[Section], most: int = 40) -> list[Section]:
    """Return the headings for the contents of a page: level 2 and 3, or level 2 alone where that would be too long.

    Args:
        found: its sections.
        most: headings.
    """
    both = [one for one in found if one.level in (2, 3)]
    return both if len(both) <= most else [one for one in both if one.level == 2]
