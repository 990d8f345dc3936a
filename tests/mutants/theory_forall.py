"""Slips in the lab's index arithmetic, one line each: the proof named beside it must fail."""

import importlib
import inspect
import linecache
import textwrap
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

INDICES, INTERVALS = "cca_lab.mechanisms.indices.", "cca_lab.attention.intervals."
KERNELS = "cca_lab.attention.kernels."


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
        source = source[source.index("def ") :]
        assert source.count(self.right) == 1, f"{self.function}: {self.right!r} not once"
        source = source.replace(self.right, self.wrong)
        file = f"<{self.function}, {self.wrong}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        names: dict[str, Any] = {}
        exec(compile(source, file, "exec"), function.__globals__, names)
        return SimpleNamespace(fn=names[name]) if compiled else names[name]


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
    "two cores at a time": Slip("CCA's cores", f"{INDICES}core_count", "// group", "// group * 2"),
    "a chunk that forgets what was dropped": Slip(
        "CCA's chunks", f"{INDICES}raw_column", " - first_raw(start, group, window)", ""),
    "raw tokens of the row before": Slip(
        "CCA's entries", f"{INDICES}first_raw", "core_count(row + 1,", "core_count(row,"),
    "one token too many": Slip(
        "CCA is full attention", f"{INDICES}cca_is_full", "length < group", "length <= group"),
    "the last row's cores instead of the next row's": Slip(
        "CCA's entries", f"{INDICES}cca_entries", "first_raw(length,", "first_raw(length - 1,"),
    "a sum that leaves out its last term": Slip(
        "CCA's pairs", f"{INDICES}cca_pairs", "a * (b + 1)", "a * b"),
    "a row that sees its successor": Slip("intervals of CCA are accepted", f"{INDICES}cca_columns",
                                          "raw + row + 1)", "raw + row + 2)"),
    "a sink that counts as the first token of a group": Slip(
        "CCA behind sinks", f"{INDICES}behind_sinks", "tokens - sinks,", "tokens - sinks + 1,"),
    "groups that begin at token 0, so that sinks are read twice": Slip(
        "CCA behind sinks", f"{INDICES}cca_sink_columns", "behind_sinks(row + 1, sinks) - 1,",
        "row,"),
    "a sink that does not see itself": Slip(
        "CCA behind sinks", f"{INDICES}cca_sink_columns", "minimum(row + 1,", "minimum(row,"),
    "sinks that stand where the cores are": Slip(
        "intervals of CCA behind sinks are accepted", f"{INDICES}cca_sink_columns",
        "(count, count + minimum(row + 1, sinks))", "(0, minimum(row + 1, sinks))"),
    "a check that refuses empty intervals": Slip(
        "intervals of CCA are accepted", f"{INTERVALS}is_reversed", "start > end", "start >= end"),
    "a check that refuses the last column": Slip(
        "causal intervals are accepted", f"{INTERVALS}is_outside", "end > columns",
        "end >= columns"),
    "a check that wants two columns": Slip("causal intervals are accepted", f"{INTERVALS}is_empty",
                                           "end <= start", "end <= start + 1"),
    "a check that refuses neighbours": Slip(
        "intervals of sinks are accepted", f"{INTERVALS}overlap",
        "interval[0] < other[1]) & (other[0] < interval[1])",
        "interval[0] <= other[1]) & (other[0] <= interval[1])"),
    "a check that refuses the same start": Slip(
        "intervals of CCA are accepted", f"{INTERVALS}moves_back", "after[0] < before[0]",
        "after[0] <= before[0]"),
    "rows that do not see themselves": Slip(
        "causal intervals are accepted", f"{INTERVALS}causal_end", "row + 1", "row"),
    "rows that see their successors": Slip(
        "causal intervals", f"{INTERVALS}causal_end", "row + 1", "row + 2"),
    "a sink that is counted twice": Slip(
        "intervals of sinks are accepted", f"{INDICES}sink_columns", "minimum(start, sinks)",
        "start + sinks"),
    "a token that is neither near nor a sink": Slip(
        "sinks and nearest tokens", f"{INDICES}sink_columns", "row + 1 - near", "row + 2 - near"),
    "a shift that is added after rounding": Slip(
        "intervals of LongLoRA are accepted", f"{INDICES}block_columns", "(row - shift) //",
        "row //"),
    "rounding to the next border": Slip(
        "LongLoRA's blocks", f"{INDICES}block_columns", "(row - shift) //", "(row - shift + 1) //"),
    "the first half of the heads shifted": Slip(
        "LongLoRA's blocks", f"{INDICES}head_shift", "2 * head >= heads", "2 * head < heads"),
    "the column on a border is left out": Slip(
        "rows of a column", f"{KERNELS}interval.limits_of_block", "first + 1", "first"),
    "a block's first column for its last": Slip(
        "rows of a column", f"{KERNELS}interval.limits_of_block", "minimum(first + block, columns)",
        "first + 1"),
    "the first row's start for all rows": Slip(
        "phases of the kernels", f"{KERNELS}interval_forward.span_of_rows",
        "inner_low = tl.load(BOUNDS + row_last)", "inner_low = tl.load(BOUNDS + row_first)"),
    "an interior block that is not whole": Slip(
        "phases of the kernels", f"{KERNELS}interval_forward.split_phases", ") // BLOCK",
        ") // BLOCK + 1"),
    "a tile beyond the last column": Slip("widened tiles", "cca_lab.attention.plan._widen",
                                          "min(left + columns, limit)", "left + columns"),
    "the row's own focal token left out": Slip("DGA's cover", f"{INDICES}prompt_columns",
                                               "return (0, kept),", "return (0, kept - is_focal),"),
    "a group before its last token": Slip(
        "DGA's cover", f"{INDICES}prompt_columns", "(others - (1 - is_focal))", "(others + 1)"),
    "raw tokens of two groups": Slip("DGA's intervals are accepted", f"{INDICES}prompt_columns",
                                     "(raw + group * closed,", "(raw + group * (closed + 1),"),
    "the next block, one row early": Slip("DGA's columns by blocks", f"{INDICES}blocks_columns",
                                          "row // block,", "(row + 1) // block,"),
    "the last row's block divided": Slip("DGA's columns by blocks", f"{INDICES}blocks_before",
                                         "(length - 1) // block", "length // block"),
    "a group in the row of its last token": Slip(
        "DGA's specification", "cca_lab.mechanisms.dga.mechanism.row_reads", "members[-1] < i]",
        "members[-1] <= i]"),
    "leftovers that stay in no group": Slip(
        "DGA's leftovers", f"{INDICES}focal_count", "return count + (span - count) % group",
        "return count"),
    "m' rounded down": Slip(
        "DGA's m'", f"{INDICES}decode_span", "-(-11 * group // 10)", "11 * group // 10"),
    "a stretch without its group": Slip(
        "DGA's entries", f"{INDICES}divided_tokens", "focal + (span - focal) // group", "focal"),
    "the open stretch divided too": Slip(
        "DGA's entries", f"{INDICES}dga_entries", "times * divided", "(times + 1) * divided"),
    "segments with a gap": Slip(
        "LoCoCo's segments", f"{INDICES}segment_end", "start + size", "start + size + 1"),
    "two sizes of segments": Slip(
        "LoCoCo's segments", "cca_lab.mechanisms.lococo.segments.sizes_of", "else [segment]",
        "else [segment, segment + 1]"),
    "the size before the last": Slip(
        "LoCoCo's segments", f"{INDICES}segment_size", "len(sizes) - 1)]", "len(sizes) - 1)] - 1"),
    "a compression one column early": Slip(
        "LoCoCo's compressions", f"{INDICES}compresses", "columns > slots", "columns >= slots"),
    "slots that are forgotten": Slip(
        "LoCoCo's compressions", f"{INDICES}segment_step", "slots if full", "0 if full"),
    "a first compression one segment early": Slip(
        "LoCoCo's compressions", f"{INDICES}first_compression", "// sizes[-1] + 1)",
        "// sizes[-1])"),
    "a memory of one column more": Slip(
        "LoCoCo's compressions", f"{INDICES}held_columns", "segment, slots)",
        "segment, slots + 1)"),
    "the compression in the row after its border": Slip(
        "LoCoCo's rows", f"{INDICES}has_passed", "row >= border", "row > border"),
    "slots of the next compression": Slip(
        "LoCoCo's intervals are accepted", f"{INDICES}memory_columns", "count * slots), (raw",
        "(count + 1) * slots), (raw"),
    "a segment that is closed one token late": Slip(
        "LoCoCo's entries", f"{INDICES}lococo_entries", "divmod(length, segment)",
        "divmod(length - 1, segment)"),
    "a peak without the slots": Slip("LoCoCo's entries", f"{INDICES}lococo_peak",
                                     "slots + segment", "segment"),
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
    "entries of a chunk that begin after its own tokens alone": Slip(
        "DeepSeek-V4's chunks", f"{INDICES}entry_columns", "kept + length\n", "length\n"),
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
    "a group that is not kept": Slip(
        "DGA's cache", f"{INDICES}divided_tokens", "// group", "// group - 1"),
}

STATES = "cca_lab.mechanisms."
# Of a cache's tensors, which follow the integers: text in chunks must not equal the whole.
TENSOR_SLIPS = {
    "values evicted otherwise than keys": Slip(
        "cca", f"{STATES}cca.cache.CCAState._evict", "self.raw_value, self.sinks, end)",
        "self.raw_value, self.sinks, end + 1)"),
    "tables of the wrong tokens": Slip(
        "cca", f"{STATES}cca.cache.CCAState._close_groups", "slice(count, None)",
        "slice(count - 1, None)"),
    "rows counted from the chunk": Slip(
        "streaming_llm", f"{STATES}streaming.cache.StreamingLLMState.step",
        "row = torch.arange(self.seen,", "row = -self.seen + torch.arange(self.seen,"),
    "a chunk that attends as a single row": Slip(
        "streaming_llm", f"{STATES}streaming.cache.StreamingLLMState._attend",
        "len(row) == 1 and ", ""),
    "a segment that attends as a single row": Slip(
        "lococo", f"{STATES}lococo.cache.LoCoCoState._attend", "if rows == 1:", "if rows:"),
    "queries of the block without the newest": Slip(
        "dga", f"{STATES}dga.cache.DGAState._read", "self.raw_query, query)",
        "self.raw_query, query[:, :, 1:])"),
}
