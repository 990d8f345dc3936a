"""Slips in the lab's index arithmetic, one line each: the proof named beside it must fail, with a counterexample."""

import importlib
import inspect
import linecache
import textwrap
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

ATTENTION, MECHANISMS = "cca_lab.attention.", "cca_lab.mechanisms."
GROUPS, SEGMENTS, DGA = f"{MECHANISMS}cca.groups.", f"{MECHANISMS}lococo.segments.", f"{MECHANISMS}dga."
READING = f"{MECHANISMS}production.deepseek_v4."


@dataclass(frozen=True)
class Slip:
    """A wrong line in a function.

    Attributes:
        theorem: the name of the theorem whose proof must fail.
        function: its dotted name.
        right, wrong: a piece of its source that occurs once, and what stands there instead.
    """

    theorem: str
    function: str
    right: str
    wrong: str

    @property
    def place(self) -> tuple[Any, str]:
        """The module or class that has the function, and its name there."""
        path, _, name = self.function.rpartition(".")
        try:
            return importlib.import_module(path), name
        except ModuleNotFoundError:
            module, _, owner = path.rpartition(".")
            return getattr(importlib.import_module(module), owner), name

    def made(self) -> Any:
        """Return the function with the slip, in the module of the right one."""
        owner, name = self.place
        function = getattr(owner, name)
        compiled = hasattr(function, "fn")  # a kernel
        function = function.fn if compiled else inspect.unwrap(function)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.right) == 1, f"{self.function}: {self.right!r} occurs {source.count(self.right)} times"
        source = source[source.index("def ") :].replace(self.right, self.wrong)
        file = f"<{self.function}, {self.wrong}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        found: dict[str, Any] = {}
        exec(compile(source, file, "exec"), function.__globals__, found)
        return SimpleNamespace(fn=found[name]) if compiled else found[name]


SLIPS = {
    "the printed pseudo-code's first raw token": Slip(
        "CCA's cover", f"{GROUPS}intervals", "raw + group * n]", "raw + (group * n - 1).clamp(min=0)]"),
    "a core for a group that is not complete": Slip(
        "CCA's cover", f"{GROUPS}cores_of_rows", 'group, rounding_mode="floor")', 'group, rounding_mode="floor") + 1'),
    "rows counted from 1": Slip(
        "CCA's window", f"{GROUPS}visible_cores", "torch.arange(length, device", "torch.arange(1, length + 1, device"),
    "a window one token shorter": Slip(
        "CCA's window", f"{GROUPS}core_count", "length - window)", "length - window + 1)"),
    "two cores at a time": Slip(
        "CCA's cores", f"{GROUPS}cores_of_rows", 'group, rounding_mode="floor")', 'group, rounding_mode="floor") * 2'),
    "a chunk that forgets what was dropped": Slip(
        "CCA's chunks", f"{GROUPS}chunk_intervals", "int(n[-1]) - group * int(n[0])", "int(n[-1])"),
    "one token too many": Slip(
        "CCA is full attention", f"{MECHANISMS}grouped.Grouped.exact_when", "length < self", "length <= self"),
    "the last row's cores instead of the next row's": Slip(
        "CCA's entries", f"{GROUPS}cache_tokens", "core_count(length + 1,", "core_count(length,"),
    "a sum that leaves out its last term": Slip(
        "CCA's pairs", f"{GROUPS}pairs", "a * (b + 1)", "a * b"),
    "a row that sees its successor": Slip(
        "intervals of CCA are accepted", f"{GROUPS}intervals", "torch.arange(1, length + 1,",
        "torch.arange(2, length + 2,"),
    "a check that refuses empty intervals": Slip(
        "intervals of CCA are accepted", f"{ATTENTION}intervals._check_rows", "starts > ends", "starts >= ends"),
    "rows that do not see themselves": Slip(
        "causal intervals are accepted", f"{ATTENTION}intervals.causal_intervals",
        "torch.arange(columns - length + 1, columns + 1,", "torch.arange(columns - length, columns,"),
    "rows that see their successors": Slip(
        "causal intervals", f"{ATTENTION}intervals.causal_intervals",
        "torch.arange(columns - length + 1, columns + 1,", "torch.arange(columns - length + 2, columns + 2,"),
    "a sink that is counted twice": Slip(
        "intervals of sinks are accepted", f"{MECHANISMS}streaming.sinks.intervals", "start.clamp_max(sinks)",
        "start + sinks"),
    "a token that is neither near nor a sink": Slip(
        "sinks and nearest tokens", f"{MECHANISMS}streaming.sinks.intervals", "rows + 1 - near", "rows + 2 - near"),
    "a shift that is added after rounding": Slip(
        "intervals of LongLoRA are accepted", f"{MECHANISMS}longlora.intervals", "row - shift, group", "row, group"),
    "rounding to the next border": Slip(
        "LongLoRA's blocks", f"{MECHANISMS}longlora.intervals", "row - shift, group", "row - shift + 1, group"),
    "the column on a border is left out": Slip(
        "rows of a column", f"{ATTENTION}kernels.interval.rows_of_columns", "right=True", "right=False"),
    "the first row's start for all rows": Slip(
        "phases of the kernels", f"{ATTENTION}kernels.interval_forward.span_of_rows",
        "inner_low = tl.load(BOUNDS + row_last)", "inner_low = tl.load(BOUNDS + row_first)"),
    "an interior block that is not whole": Slip(
        "phases of the kernels", f"{ATTENTION}kernels.interval_forward.split_phases", ") // BLOCK", ") // BLOCK + 1"),
    "a tile beyond the last column": Slip(
        "widened tiles", f"{ATTENTION}plan._widen", "min(left + columns, limit)", "left + columns"),
    "the row's own focal token left out": Slip(
        "DGA's cover", f"{DGA}rows.intervals", "kept = focal.cumsum(-1) ", "kept = focal.cumsum(-1) - focal.long() "),
    "a group before its last token": Slip(
        "DGA's cover", f"{DGA}rows.intervals", "(others - (~focal).long())", "(others + 1)"),
    "raw tokens of two groups": Slip(
        "DGA's intervals are accepted", f"{DGA}rows.intervals", "raw + rule.group * closed]",
        "raw + rule.group * (closed + 1)]"),
    "the next block, one row early": Slip(
        "DGA's columns by blocks", f"{DGA}rows.intervals", "(row // span)", "((row + 1) // span)"),
    "the last row's block divided": Slip(
        "DGA's columns by blocks", f"{DGA}selection.FocalRule.spans", "(length - 1) // self.block",
        "length // self.block"),
    "a group in the row of its last token": Slip(
        "DGA's specification", f"{DGA}rows.row_reads", "members[-1] < i]", "members[-1] <= i]"),
    "leftovers that stay in no group": Slip(
        "DGA's leftovers", f"{DGA}selection.FocalRule.focal_count", "return count + (span - count) % self.group",
        "return count"),
    "m' rounded down": Slip(
        "DGA's m'", f"{DGA}rows.decode_span", "-(-11 * group // 10)", "11 * group // 10"),
    "a stretch without its group": Slip(
        "DGA's entries", f"{DGA}rows.cache_tokens", "- rule.group + 1)", "- rule.group)"),
    "segments with a gap": Slip(
        "LoCoCo's segments", f"{SEGMENTS}segments", "start = stop", "start = stop + 1"),
    "two sizes of segments": Slip(
        "LoCoCo's segments", f"{SEGMENTS}sizes_of", "else [segment]", "else [segment, segment + 1]"),
    "a compression one column early": Slip(
        "LoCoCo's compressions", f"{SEGMENTS}compressions", "columns > settings.slots", "columns >= settings.slots"),
    "a period without its first segment": Slip(
        "LoCoCo's compressions", f"{SEGMENTS}held_columns", "(buffer // segment + 1)", "max(1, buffer // segment)"),
    "the compression in the row after its border": Slip(
        "LoCoCo's rows", f"{SEGMENTS}intervals", ">= borders)", "> borders)"),
    "slots of the next compression": Slip(
        "LoCoCo's intervals are accepted", f"{SEGMENTS}intervals", "torch.stack([n * settings.slots,",
        "torch.stack([(n + 1) * settings.slots,"),
    "a lazy cache that compresses": Slip(
        "LoCoCo's entries", f"{SEGMENTS}cache_tokens", "held_columns(count - 1, segment, slots, buffer) + segment",
        "held_columns(count - 1, segment, slots, buffer)"),
    "a peak without the slots": Slip(
        "LoCoCo's entries", f"{SEGMENTS}peak_tokens", "max(fill, slots + buffer", "max(fill, buffer"),
    "raw tokens kept for the last row, not the next": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState.step", "core_count(stop + 1,", "core_count(stop + 2,"),
    "groups that end in the chunk, without their beginning": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState._close_groups", "start // self.group * self.group,", "start,"),
    "tables of the wrong tokens": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState._close_groups", "slice(end - begin, None)",
        "slice(end - start, None)"),
    "one core too many for a single row": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState._attend", "core_count(stop, ", "core_count(stop + 1, "),
    "raw tokens evicted twice": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState._evict", "self.first = first", "self.first = first - 1"),
    "values evicted otherwise than keys": Slip(
        "CCA's cache", f"{MECHANISMS}cca.cache.CCAState._evict", "self.raw_value, 0, first - self.first)",
        "self.raw_value, 0, first - self.first + 1)"),
    "rows counted from the chunk": Slip(
        "StreamingLLM's cache", f"{MECHANISMS}streaming.cache.StreamingLLMState.step",
        "torch.arange(self.seen, self.seen + ",
        "torch.arange(0, "),
    "dropped tokens still counted": Slip(
        "StreamingLLM's cache", f"{MECHANISMS}streaming.cache.StreamingLLMState._attend",
        "max(0, self.seen - self.sinks - self.recent)", "max(0, self.seen - self.recent)"),
    "a recent token too many": Slip(
        "StreamingLLM's cache", f"{MECHANISMS}streaming.cache.StreamingLLMState._evict",
        "self.key.shape[2] - self.recent",
        "self.key.shape[2] - self.recent - 1"),
    "a chunk that attends as a single row": Slip(
        "StreamingLLM's cache", f"{MECHANISMS}streaming.cache.StreamingLLMState._attend", "len(row) == 1 and ", ""),
    "a segment that attends as a single row": Slip(
        "LoCoCo's cache", f"{MECHANISMS}lococo.cache.LoCoCoState._attend", "if rows == 1:", "if rows:"),
    "a window one token longer than it says": Slip(
        "DeepSeek-V4's reads", f"{READING}intervals", "(row + 1 - window)", "(row - window)"),
    "an entry for a group that is still open": Slip(
        "DeepSeek-V4's reads", f"{READING}closed_groups", "row + 1, group", "row + group, group"),
    "read twice, the open group too": Slip(
        "DeepSeek-V4's reads", f"{READING}read_twice", "(row + 1) // group * group", "(row + 1)"),
    "unread, counted from the row": Slip(
        "DeepSeek-V4's reads", f"{READING}unread", "row + 1 - window", "row - window"),
    "entries of a chunk that begin after its own tokens alone": Slip(
        "DeepSeek-V4's chunks", f"{READING}intervals", "full_like(row, kept + length)",
        "full_like(row, length)"),
    "a chunk that ends after its segment": Slip(
        "LoCoCo's cache", f"{MECHANISMS}lococo.cache.LoCoCoState.step", "start + self.segment - self.open)",
        "start + self.segment - self.open - 1 + (self.open == self.segment - 1))"),
    "a segment that closes one token early": Slip(
        "LoCoCo's cache", f"{MECHANISMS}lococo.cache.LoCoCoState._read", "if self.open == self.segment:",
        "if self.open >= self.segment - 1:"),
    "lazy, and compressed nevertheless": Slip(
        "LoCoCo's cache", f"{MECHANISMS}lococo.cache.LoCoCoState._close", 'when == "eager":', 'when == "lazy":'),
    "M + b columns are too many": Slip(
        "LoCoCo's cache", f"{MECHANISMS}lococo.cache.LoCoCoState._compress_if_full", "self.key.shape[2] <= ",
        "self.key.shape[2] < "),
    "a block that is divided early": Slip(
        "DGA's cache", f"{MECHANISMS}dga.cache.DGAState.step", "if self.raw_key.shape[2] == size:",
        "if self.raw_key.shape[2] >= size - 1:"),
    "a row that does not see itself": Slip(
        "DGA's cache", f"{MECHANISMS}dga.cache.DGAState._read", "causal_intervals(query.shape[2], keys.shape[2])",
        "causal_intervals(query.shape[2], keys.shape[2]) - 1"),
    "queries of the block without the newest": Slip(
        "DGA's cache", f"{MECHANISMS}dga.cache.DGAState._read", "self.raw_query, query)",
        "self.raw_query, query[:, :, 1:])"),
    "no focal token among those generated": Slip(
        "DGA's cache", f"{MECHANISMS}dga.cache.DGAState._divide", "queries.shape[2] - self.mechanism.group)",
        "queries.shape[2] - self.mechanism.group - 1)"),
    "a group that is not kept": Slip(
        "DGA's cache", f"{MECHANISMS}dga.cache.DGAState._keep", "// rule.group", "// rule.group - 1"),
}
