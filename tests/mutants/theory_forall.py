"""Slips in the lab's index arithmetic, one line each, and statements that say less than holds."""

import inspect
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from cca_lab.theory.forall.core import Theorem
from tests.mutants.slips import changed, owner_of

INDICES, INTERVALS = "cca_lab.mechanisms.indices.", "cca_lab.attention.intervals."


@dataclass(frozen=True)
class Slip:
    """A wrong line in a function, with which the proof of a theorem must fail."""

    theorem: str
    function: str  # dotted
    right: str  # a piece of its source that occurs once
    wrong: str  # what stands there instead

    @property
    def place(self) -> tuple[Any, str]:
        """The module or class that has the function, and its name there."""
        return owner_of(self.function)

    def made(self) -> Any:
        """Return the function with the slip, in the module of the right one."""
        owner, name = self.place
        function = getattr(owner, name)
        if hasattr(function, "fn"):  # a kernel
            return SimpleNamespace(fn=changed(function.fn, (self.right, self.wrong)))
        return changed(function, (self.right, self.wrong))


def weaker(theorem: Theorem, right: str, wrong: str) -> Theorem:
    """Return a theorem with another piece in the one of its statements that has this one."""
    given = [right in inspect.getsource(statement) for statement in theorem.statements]
    assert sum(given) == 1, f"{theorem.name}: {right!r} not in one statement"
    return replace(theorem, statements=[
        changed(statement, (right, wrong)) if has else statement
        for statement, has in zip(theorem.statements, given, strict=True)])


SLIPS = {
    "the printed pseudo-code's first raw token": Slip(
        "CCA's cover", f"{INDICES}cca_columns", "(raw + group * cores,",
        "(raw + max(group * cores - 1, 0),"),
    "a core for a group that is not complete": Slip(
        "CCA's cover", f"{INDICES}core_count", "// group", "// group + 1"),
    "rows counted from 1": Slip(
        "CCA's window", f"{INDICES}cca_columns", "core_count(row + 1,", "core_count(row + 2,"),
    "a window one token shorter": Slip(
        "CCA's window", f"{INDICES}core_count", "length - window)", "length - window + 1)"),
    "a chunk that forgets what was dropped": Slip(
        "CCA's cache", f"{INDICES}raw_column", " - first_raw(start, group, window)", ""),
    "raw tokens of the row before": Slip(
        "CCA's entries", f"{INDICES}first_raw", "core_count(row + 1,", "core_count(row,"),
    "one token too many": Slip(
        "CCA is full attention", f"{INDICES}cca_is_full", "length < group", "length <= group"),
    "the last row's cores instead of the next row's": Slip(
        "CCA's entries", f"{INDICES}cca_entries", "first_raw(length,", "first_raw(length - 1,"),
    "a sum that leaves out its last term": Slip(
        "CCA's pairs", f"{INDICES}cca_pairs", "a * (b + 1)", "a * b"),
    "a sink that counts as the first token of a group": Slip(
        "CCA behind sinks", f"{INDICES}behind_sinks", "tokens - sinks,", "tokens - sinks + 1,"),
    "groups that begin at token 0, so that sinks are read twice": Slip(
        "CCA behind sinks", f"{INDICES}cca_sink_columns", "behind_sinks(row + 1, sinks) - 1,",
        "row,"),
    "a sink that does not see itself": Slip(
        "CCA behind sinks", f"{INDICES}cca_sink_columns", "minimum(row + 1,", "minimum(row,"),
    "the row's own focal token left out": Slip("DGA's cover", f"{INDICES}prompt_columns",
                                               "return (0, kept),", "return (0, kept - is_focal),"),
    "a group before its last token": Slip(
        "DGA's cover", f"{INDICES}prompt_columns", "(others - (1 - is_focal))", "(others + 1)"),
    "a compression one column early": Slip(
        "LoCoCo's compressions", f"{INDICES}compresses", "columns > slots", "columns >= slots"),
    "slots that are forgotten": Slip(
        "LoCoCo's compressions", f"{INDICES}segment_step", "slots if full", "0 if full"),
    "a first compression one segment early": Slip(
        "LoCoCo's compressions", f"{INDICES}first_compression", "// segment + 1)", "// segment)"),
    "a memory of one column more": Slip(
        "LoCoCo's compressions", f"{INDICES}held_columns", "segment, slots)",
        "segment, slots + 1)"),
    "a segment that is closed one token late": Slip(
        "LoCoCo's cache", f"{INDICES}lococo_entries", "divmod(length, segment)",
        "divmod(length - 1, segment)"),
    "a peak without the slots": Slip(
        "LoCoCo's cache", f"{INDICES}lococo_peak", "slots + segment", "segment"),
    "raw tokens kept for the last row, not the next": Slip(
        "CCA's cache", f"{INDICES}cca_step", "first_raw(stop, group", "first_raw(stop + 1, group"),
    "groups that end in the chunk, without their beginning": Slip(
        "CCA's cache", f"{INDICES}cca_step", "group * groups[0] - first,", "start - first,"),
    "queries of the open group forgotten": Slip(
        "CCA's cache", f"{INDICES}cca_step", "start - group * groups[0]", "0"),
    "one core too many for a single row": Slip(
        "CCA's cache", f"{INDICES}cca_step", "core_count(stop,", "core_count(stop + 1,"),
    "raw tokens evicted twice": Slip(
        "CCA's cache", f"{INDICES}cca_step", "window) - first)", "window))"),
    "a token that is neither near nor a sink": Slip(
        "StreamingLLM's cache", f"{INDICES}sink_columns", "row + 1 - near", "row + 2 - near"),
    "dropped tokens still counted": Slip(
        "StreamingLLM's cache", f"{INDICES}sink_dropped", "sink_entries(length, sinks, recent)",
        "sink_entries(length, 0, recent)"),
    "a recent token too many": Slip("StreamingLLM's cache", f"{INDICES}sink_eviction",
                                    "stored - recent", "stored - recent - 1"),
    "entries without the sinks": Slip(
        "StreamingLLM's cache", f"{INDICES}sink_entries", "sinks + recent", "recent"),
    "a window one token longer than it says": Slip(
        "DeepSeek-V4's reads", f"{INDICES}entry_columns", "row + 1 - window", "row - window"),
    "an entry for a group that is still open": Slip(
        "DeepSeek-V4's reads", f"{INDICES}closed_groups", "row + 1", "row + group"),
    "read twice, the open group too": Slip("DeepSeek-V4's reads", f"{INDICES}read_twice",
                                           "closed_groups(row, group) * group", "(row + 1)"),
    "unread, counted from the row": Slip(
        "DeepSeek-V4's reads", f"{INDICES}unread", "row + 1 - window", "row - window"),
    "a chunk that ends after its segment": Slip(
        "LoCoCo's cache", f"{INDICES}fill", "min(left, size - filled)", "left"),
    "a segment that closes one token early": Slip(
        "LoCoCo's cache", f"{INDICES}fill", "filled + taken == size", "filled + taken >= size - 1"),
    "a memory twice as large": Slip(
        "LoCoCo's cache", f"{INDICES}compresses", "columns > slots", "columns > 2 * slots"),
    "a block that is divided early": Slip(
        "DGA's cache", f"{INDICES}fill", "filled + taken == size", "filled + taken >= size - 1"),
    "a row that does not see itself": Slip(
        "DGA's cache", f"{INTERVALS}causal_end", "row + 1", "row"),
    "no focal token among those generated": Slip(
        "DGA's cache", f"{INDICES}decode_focal", "- group", "- group - 1"),
    "m' rounded down": Slip(
        "DGA's cache", f"{INDICES}decode_span", "-(-11 * group // 10)", "11 * group // 10"),
    "the open stretch divided too": Slip(
        "DGA's cache", f"{INDICES}dga_entries", "times * divided", "(times + 1) * divided"),
    "a group that is not kept": Slip(
        "DGA's cache", f"{INDICES}divided_tokens", "// group", "// group - 1"),
}

# theorem, what it says, and what it could say instead and still be true
WEAKER = [
    ("CCA's window", "cores.most_raw(g, s)", "s + g"),
    ("CCA's window", "some(s <= raw, i + 1 <= raw)", "some(s - 1 <= raw, i + 1 <= raw)"),
    ("CCA's window", "g * n + s <= i + 1", "g * n + s <= i + 2"),
    ("CCA's entries", "cores.most_kept(g, s)", "s + g"),
    ("CCA's entries", "0 <= raw", "0 <= raw + 1"),
    ("CCA's pairs", "2 * g * pairs <= most", "2 * g * pairs <= most + 1"),
    ("CCA's cache", "step.earlier < g", "step.earlier <= g"),
    ("CCA's cache", "n <= step.cores", "n <= step.cores + 1"),
    ("DGA's cover", "raw[1] - raw[0] <= m", "raw[1] - raw[0] <= m + 1"),
    ("LoCoCo's compressions", "held <= M", "~(held > M + 1)"),
    ("LoCoCo's cache", "columns <= indices", "columns <= 1 + indices"),
    ("StreamingLLM's cache", "dropped >= 0", "dropped >= -1"),
]
# theorem, what it assumes, and what it could assume besides
NARROWER = [
    ("CCA's cover", "positive(L, g, s)", "positive(L, g, s, s - g + 1)"),
    ("CCA's entries", "positive(L, g, s)", "positive(L, g, s, g - s)"),
    ("LoCoCo's cache", "positive(left, M, B)", "positive(left, M, B, M - B)"),
]

# label of docs/claims/proved.md, a piece of its formula, and a wrong one in its place
FORMULAS = [
    ("proved-cores", "+ 1", "+ 2"), ("proved-entries", "s + g - 2", "s + g"),
    ("proved-stretch", r"\lceil 11 m / 10 \rceil", "m + 1"), ("proved-slots", "n B", "n"),
    ("proved-twice", "w - r", "w - r + 1"),
]
