"""DGA: what each row reads, from the functions in `cca_lab.mechanisms.dga`.

The choice of focal tokens is any: an unknown set, of which the lab's functions ask only how many tokens come before
a token. The columns are [focal tokens ; groups ; raw tokens], as `dga.columns` puts them together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cca_lab.mechanisms.dga import rows, selection
from cca_lab.theory.forall.core import Obligation, Symbol, Truth, demand, every, integers, least, lemma, sizes
from cca_lab.theory.forall.paths import assume, fresh
from cca_lab.theory.forall.quantify import Marks, marks
from cca_lab.theory.forall.tables import accepted
from cca_lab.theory.forall.theorem import Theorem, as_number, exactly_one, none_of, row_of, shadowed, within


def rule(choose: str, m: Any, block: Any = 71) -> selection.FocalRule:
    """Return the lab's options."""
    return selection.FocalRule(group=m, choose=choose, block=block)


def table(focal: Any, options: selection.FocalRule) -> Any:
    """Return the lab's intervals for a choice of focal tokens."""
    with shadowed(rows, int=as_number):
        return rows.intervals(focal, options)


def chosen(length: Any, m: Any) -> Marks:
    """Return an unknown choice of focal tokens that leaves whole groups."""
    focal = marks("focal", length)
    assume((length - focal.before(length)) % m == 0)
    return focal


def prompt_cover() -> Iterable[Obligation]:
    """choose="prompt": every token of the past is read once, no other is, and one group is open at most."""
    length, m, i, t = integers("L m i t")

    def statement() -> Mapping[str, Truth]:
        focal = chosen(length, m)
        seen, closed, raw = row_of(table(focal, rule("prompt", m)), i)
        kept = focal.before(length)
        first_raw = kept + (length - kept) // m
        others = t - focal.before(t)  # the place of token t among the others, if it is one of them
        marked = focal.at(0, 0, t)
        ways = [marked & within(focal.before(t), seen), ~marked & within(kept + others // m, closed),
                ~marked & within(first_raw + others, raw)]
        return {"past": (t <= i).implies(exactly_one(ways)), "future": (t > i).implies(none_of(ways)),
                "one open group": (raw[1] - raw[0] <= m) & ((raw[0] - first_raw) % m == 0)}

    return demand("DGA's cover", [*sizes(L=length, m=m), 0 <= i, i < length, 0 <= t, t < length], statement)


def _blocks(length: Symbol, m: Symbol, share: Symbol, groups: Symbol) -> list[Truth]:
    """Return the hypotheses on blocks of `share` focal tokens and `groups` groups of m tokens."""
    return [*sizes(L=length, m=m, B=share + m * groups), *sizes(0, focal=share, groups=groups)]


def blocks_columns() -> Iterable[Obligation]:
    """choose="blocks": a row sees the columns of the blocks before its own, and its own block up to itself."""
    length, m, share, groups, i = integers("L m focal groups i")
    block = share + m * groups
    count = (length - 1) // block
    known = [*_blocks(length, m, share, groups), 0 <= i, i < length]

    def statement() -> Mapping[str, Truth]:
        focal = marks("focal", length)
        assume(focal.before(length) == share * count)
        total = focal.before(length)
        lemma((count * block - total) // m == groups * count)
        if count >= 1:
            lemma(total // count == share, (block - total // count) // m == groups)
        seen, closed, raw = row_of(table(focal, rule("blocks", m, block)), i)
        before, kept, pooled = i // block, share * count, groups * count
        return {"focal": (seen[0] == 0) & (seen[1] == share * before),
                "groups": (closed[0] == kept) & (closed[1] == kept + groups * before),
                "raw": (raw[0] == kept + pooled + block * before) & (raw[1] == kept + pooled + i + 1)}

    return demand("DGA's columns by blocks", known, statement)


def blocks_cover() -> Iterable[Obligation]:
    """choose="blocks": in these columns a row reads each token of its past once, and no other."""
    length, m, share, groups, i, t, rank = integers("L m focal groups i t rank")
    block = share + m * groups
    before, own, count = i // block, t // block, (length - 1) // block
    known = [*_blocks(length, m, share, groups), 0 <= i, i < length, 0 <= t, t < length, 0 <= rank]
    raw = within(t, (block * before, i + 1))
    reads = {"focal token": (rank < share, share * own + rank, share * before),
             "grouped token": (rank < groups, groups * own + rank, groups * before)}

    def read(exists: Truth, column: Symbol, end: Symbol) -> Truth:
        ways = [column < end, raw]
        return (exists & (own < count)).implies(
            (t <= i).implies(exactly_one(ways)) & (t > i).implies(none_of(ways)))

    goals = {name: read(*one) for name, one in reads.items()} | {
        "token of the last block": (own >= count).implies(raw.iff(t <= i))}
    return [Obligation(f"DGA's cover by blocks: {name}", known, goal) for name, goal in goals.items()]


def check_prompt() -> Iterable[Obligation]:
    """The lab's check accepts the intervals of choose="prompt"."""
    length, m = integers("L m")

    def build() -> tuple[Any, Symbol]:
        focal = chosen(length, m)
        kept = focal.before(length)
        return table(focal, rule("prompt", m)), kept + (length - kept) // m + length - kept

    return accepted("DGA's intervals", sizes(L=length, m=m), build)


def specification() -> Iterable[Obligation]:
    """choose="prompt": the intervals show a row what `row_reads`, the algorithm, lists."""
    length, m, i, t, first, last = integers("L m i t first last")
    known = [*sizes(L=length, m=m), 0 <= i, i < length, 0 <= first, first <= t, t <= last, last < length]

    def statement() -> Mapping[str, Truth]:
        focal, options = chosen(length, m), rule("prompt", m)
        seen, closed, raw = row_of(table(focal, options), i)
        kept = focal.before(length)
        group = (t - focal.before(t)) // m
        member = every(*(~focal.at(0, 0, x) for x in (first, t, last)), first - focal.before(first) == m * group,
                       last - focal.before(last) == m * group + m - 1)
        listed, groups, members = rows.row_reads(i, [t], [[first, t, last]], options)
        column = kept + (length - kept) // m + t - focal.before(t)
        reads = some_is(members, t)
        return {"focal": focal.at(0, 0, t).implies(within(focal.before(t), seen).iff(bool(listed))),
                "group": member.implies(within(kept + group, closed).iff(bool(groups))),
                "raw": member.implies(within(column, raw).iff(reads))}

    return demand("DGA's specification", known, statement)


def some_is(tokens: list[Any], t: Symbol) -> Truth:
    """Return whether a list of tokens holds t."""
    return ~none_of([token == t for token in tokens])


def leftovers() -> Iterable[Obligation]:
    """The number of focal tokens leaves whole groups, and is at most m - 1 more than share and floor ask for."""
    span, m, floor = integers("span m floor")

    def statement() -> Truth:
        share = fresh("share")
        assume(0 <= share, share <= span)
        options = selection.FocalRule(group=m, floor=floor)
        with shadowed(selection, floor_of_share=lambda part, count: share):
            focal = as_number(options.focal_count(span))
        wanted = (share >= floor).implies(focal - share < m) & ((share < floor) & (floor <= span)).implies(
            focal - floor < m)
        return every((span - focal) % m == 0, focal <= span, share <= focal, wanted, (floor <= focal) | (focal == span))

    return demand("DGA's leftovers", [*sizes(span=span, m=m), *sizes(0, floor=floor)], statement)


def generated() -> Iterable[Obligation]:
    """m' is the smallest integer that is 1.1 m or more, so there is at least one focal token in m' tokens."""
    (m,) = integers("m")

    def statement() -> Truth:
        span = rows.decode_span(m)
        return every(10 * span >= 11 * m, 10 * (span - 1) < 11 * m, span >= m + 1)

    return demand("DGA's m'", sizes(m=m), statement)


def entries() -> Iterable[Obligation]:
    """The closed form of a decoder's entries: of the complete blocks, or of the prompt and the stretches after it."""
    times, opened, m, block, prompt = integers("times open m B prompt")
    known = [*sizes(m=m, B=block), *sizes(0, times=times, open=opened, prompt=prompt)]

    def statement() -> Mapping[str, Truth]:
        share, span = fresh("share"), rows.decode_span(m)
        assume(0 <= share, share <= block, share <= prompt, opened < least(block, span))
        with shadowed(selection, floor_of_share=lambda part, count: share):
            options = rule("blocks", m, block)
            kept, raw = rows.cache_tokens(times * block + opened, options)
            focal = options.focal_count(block)
            generated = rows.cache_tokens(prompt + times * span + opened, rule("prompt", m),
                                          prompt=prompt)
            chosen_focal = options.focal_count(prompt)
        return {"blocks": (kept == times * (focal + (block - focal) // m)) & (raw == opened),
                "prompt": (generated[1] == opened)
                & (generated[0] == chosen_focal + (prompt - chosen_focal) // m + times * (span - m + 1))}

    return demand("DGA's entries", known, statement)


_TABLE = ("cca_lab.mechanisms.dga.rows.intervals",)
_PLACES = "the columns [focal ; groups ; raw], and a token's place among the focal or the other ones, as in `divide`"
THEOREMS = (
    Theorem("DGA's cover", "for any choice of focal tokens that leaves whole groups, each row reads each token of its "
            "past once and no later one, and at most one group is open", _TABLE, prompt_cover, _PLACES),
    Theorem("DGA's intervals are accepted", "the lab's check never refuses those of choose='prompt'",
            ("cca_lab.attention.intervals._check_rows", *_TABLE), check_prompt, _PLACES),
    Theorem("DGA's columns by blocks", "a row sees the focal tokens and groups of the blocks before its own, then its "
            "own block up to itself", (*_TABLE, "cca_lab.mechanisms.dga.selection.FocalRule.spans"), blocks_columns,
            "every block has the same number of focal tokens, which `check_selection` enforces"),
    Theorem("DGA's cover by blocks", "in these columns a row reads each token of its past once, and no later one", (),
            blocks_cover, "all of it: the columns are those of the theorem before, the places as in `divide`"),
    Theorem("DGA's specification", "the intervals show a row what `row_reads` lists",
            (*_TABLE, "cca_lab.mechanisms.dga.rows.row_reads"), specification,
            "`row_reads` filters lists; it runs on one focal token and on three members of one group"),
    Theorem("DGA's leftovers", "the number of focal tokens leaves whole groups, is at least what share and floor ask "
            "for, and at most m - 1 more", ("cca_lab.mechanisms.dga.selection.FocalRule.focal_count",), leftovers,
            "floor(gamma L) is any number from 0 to L: floats are not symbolic"),
    Theorem("DGA's m'", "the smallest integer that is 1.1 m or more, and so m + 1 or more",
            ("cca_lab.mechanisms.dga.rows.decode_span",), generated),
    Theorem("DGA's entries", "the closed form counts the divided blocks, or stretches after the prompt, and raw tokens",
            ("cca_lab.mechanisms.dga.rows.cache_tokens", "cca_lab.mechanisms.dga.selection.FocalRule.focal_count",
             "cca_lab.mechanisms.dga.rows.decode_span"), entries, "floor(gamma L), as above"),
)
