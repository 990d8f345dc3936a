"""The search of the pages, on three sections; mutants of its program must be noticed."""

import pytest

from cca_lab.site import search
from cca_lab.site.outline import Section
from tests.site.search_box import SOURCE, in_node, needs_node

PAGES = [
    ("loops.html", "01 Loops", [
        Section(1, "01-Loops", "01 Loops", "A core is a mean. " + "Filler words. " * 30 + "Sinks too."),
        Section(2, "a-b", "What a tile is", "Score by score; the scores of <b> & P_sparse.")]),
    ("ledger.html", "Ledger", [Section(3, "T1.eq19", "T1.eq19 Appendix", "core, core, core: T1.eq19 is false.")]),
]
# question, addresses in order
EXPECTED = {
    "core": ["ledger.html#T1.eq19", "loops.html#01-Loops"],  # three times, then once
    "ore": [],  # inside of a word
    "CORE mean": ["loops.html#01-Loops"],  # every word
    "T1.eq19": ["ledger.html#T1.eq19"],
    "p_sparse": ["loops.html#a-b"],
    "sparse": ["loops.html#a-b"],
    "tile": ["loops.html#a-b"],  # in a heading
    "loops": ["loops.html#01-Loops"],  # a page's title does not find every section of it
    "nothing here": [],
    " .,; ": [],
    ".*(": [],
}
MUTANTS = {
    "words begin anywhere": ("|| !LETTER.test(text[at - 1])", "|| true"),
    "any word will do": ("if (!inText && !inHeading) return 0;", "if (!inText && !inHeading) continue;"),
    "the worst first": ("other.score - one.score", "one.score - other.score"),
    "headings are not read": ("begins(heading, word, 1).length;", "0;"),
    "capitals matter": ("question.toLowerCase().match", "question.match"),
    "the title alone": ("if (!inText && !inHeading)", "if (!inText && !inHeading && !begins(title, word, 1).length)"),
}
pytestmark = needs_node


def answers(source) -> dict[str, list[str]]:
    program = f"{list(EXPECTED)}.map((one) => [one, find(siteIndex, one, 9).map((place) => place.address)])"
    return dict(in_node(source, program, search.index(PAGES)))


def test_what_is_found_and_in_which_order():
    assert answers(SOURCE) == EXPECTED


@pytest.mark.parametrize("right, wrong", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_search_is_noticed(tmp_path, right, wrong):
    source = SOURCE.read_text(encoding="utf-8")
    assert right in source
    (tmp_path / "search.js").write_text(source.replace(right, wrong), encoding="utf-8")
    assert answers(tmp_path / "search.js") != EXPECTED


def test_an_excerpt_shows_the_word_and_marks_it():
    text = PAGES[0][2][0].text
    end, start = in_node(SOURCE, f"['sinks', 'loops'].map((one) => excerpt({text!r}, '01 Loops', one))")
    assert ["Sinks", True] in end and end[0][0].startswith("… ") and len("".join(piece for piece, _ in end)) < 250
    assert start[0][0].startswith("A core is a mean."), "the heading has the word: the text is shown from its beginning"


def test_an_index_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="wanted at most 1500000"):
        search.index([("a.html", "a", [Section(1, "a", "a", "x" * search.MOST_BYTES)])])
