"""Wrong native ops: one change of the C++ sources each, in float64 and in bfloat16."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from cca_lab.attention import native_build


@dataclass(frozen=True)
class Mutant:
    """`old`, which stands once in `file`, replaced by `new`; `name` is the namespace of its ops."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant("one_column_more", "block.h", "write(std::max(interval.end[i],",
           "write(std::max(interval.end[i] + 1,"),
    Mutant("starts_ignored", "block.h",
           "write(columns.begin, std::min(interval.start[i], columns.end));", ""),
    Mutant("finite_mask", "block.h", "-std::numeric_limits<T>::infinity()", "T(-1e4)"),
    Mutant("groups_never_leave", "runs.h", "interval.columns_of(groups.begin).end <= columns.begin",
           "false"),
    Mutant("a_column_between_tiles", "runs.h", "column += kTileColumns",
           "column += kTileColumns + 1"),
    Mutant("outputs_not_rescaled", "forward.h", "if (space.factors[i] == T(1)) continue;",
           "continue;"),
    Mutant("backward_unmasked", "backward.h", "hide(weights, interval, group, seen);", ""),
    Mutant("heads_interleaved", "interval_attention.cpp", "head / p.share(),",
           "head % p.key_heads,"),
    Mutant("lse_gradient_dropped", "interval_attention.cpp",
           "if (grad_lse) delta = delta - *grad_lse;", ""),
    Mutant("parts_overlap", "interval_attention.cpp", "row += parts * kBlockRows) {\n      const",
           "row += kBlockRows) {\n      const"),
    Mutant("padding_keeps_strides", "problem.h", ": x).contiguous();", ": x.contiguous());"),
    Mutant("reads_behind_the_end", "forward.h", "values.at(run.columns.begin, 0)",
           "values.at(run.columns.begin + (run.columns.end == 300), 0)"),
    Mutant("sources_swapped", "problem.h", "count, source});",
           "count, bounds.size() - 1 - source});"),
]
BF16_MUTANTS = [
    Mutant("bf16_starts_ignored", "bfloat16_forward.h",
           "begin = std::max<int64_t>(0, interval.start[i] - column)", "begin = 0"),
    Mutant("bf16_outputs_not_rescaled", "bfloat16_forward.h", "if (shrink != 1) std::transform",
           "if (false) std::transform"),
    Mutant("bf16_old_weights_stay", "bfloat16_forward.h",
           "  std::fill(weights + last, weights + width, Half(0));\n", ""),
    Mutant("bf16_last_rows_lost", "bfloat16_attention.h",
           "count = std::clamp<int64_t>(rows - row, 0, kSide)",
           "count = rows - row < kSide ? 0 : kSide"),
    Mutant("bf16_backward_unmasked", "bfloat16_backward.h",
           "lanes(rows[r].begin - j, rows[r].end - j)", "0xffff"),
    Mutant("bf16_lse_gradient_dropped", "bfloat16_attention.h",
           "if (grad_lse) delta = delta - *grad_lse;", ""),
    Mutant("bf16_parts_overlap", "bfloat16_attention.h", "row += parts * kUnit", "row += kUnit"),
    Mutant("bf16_gradients_of_the_first", "bfloat16_backward.h", "sources[interval.source]",
           "sources[0]"),
]
ROW_MUTANTS = [
    Mutant("row_readings_not_rescaled", "row.h",
           "std::transform(total, total + dim + 1, total, [=](S x) { return x * factor; });", ""),
    Mutant("row_last_column_unread", "row.h", "to = std::min(end - before, n)",
           "to = std::min(end - before, n - (n > 1))"),
    Mutant("row_bias_of_the_first_text", "row.h", "0 : b * x.bias.stride(0)", "0 : 0"),
    Mutant("row_heads_interleaved", "row.h", "key_head = (place * share + h) / rows",
           "key_head = (place * share + h) % x.key.size(1)"),
    Mutant("row_received_of_one_head", "row.h", "(*reading.total * S(share))", "*reading.total"),
    Mutant("row_parts_read_each_other", "row.h", "piece.part == owner[group]; }", "true; }"),
    Mutant("row_place_in_another_part", "row.h", "? group : p.place[group]", "? group : 0"),
    Mutant("step_entry_of_the_first_text", "step.h", "(b * all_heads + head) * size",
           "head * size"),
    Mutant("step_drops_after_the_range", "step.h", "std::min(range.second, count)",
           "std::min(range.second + 1, count)"),
    Mutant("step_least_of_all_entries", "step.h", "std::min_element(sums + range.first, sums +",
           "std::min_element(sums, sums +"),
    Mutant("pool_of_one_query", "pool.h", "h < (head + 1) * share", "h < head * share + 1"),
    Mutant("pool_not_turned_to_the_middle", "pool.h", "first + group / 2", "first"),
]
# Registers of one column and no optimisation: a mutant compiles in a second. A list is a library.
_HEAD = """#pragma GCC optimize("O0")
#include <ATen/Dispatch.h>
#define WITHOUT_PYTHON
#undef AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \\
  [&] { using scalar_t = double; __VA_ARGS__(); }()
"""
_WITHOUT_BF16 = "#undef __AVX512BF16__\n"


def load(folder: Path, mutants: list[Mutant] = MUTANTS) -> None:
    """Register the mutants' ops as torch.ops.<name>, compiled in `folder` once."""
    head = _HEAD + (_WITHOUT_BF16 if mutants is MUTANTS else "")
    digest = hashlib.sha256((native_build.library().name + head
                             + repr(mutants)).encode()).hexdigest()[:16]
    target = folder / f"mutants-{digest}.so"
    if not target.is_file():
        sources = folder / f"mutants-{digest}"
        for mutant in mutants:
            _write(mutant, sources / mutant.name)
        every = "".join(f'#include "{mutant.name}/interval_attention.cpp"\n' for mutant in mutants)
        (sources / "interval_attention.cpp").write_text(head + every, encoding="utf-8")
        native_build.build(sources, target)
    if not hasattr(getattr(torch.ops, mutants[0].name), "forward"):
        torch.ops.load_library(target)


def _write(mutant: Mutant, folder: Path) -> None:
    """Write the sources with one change, in a namespace of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in native_build.SOURCES.iterdir():
        text = path.read_text(encoding="utf-8")
        if path.name == mutant.file:
            assert text.count(
                mutant.old) == 1, f"{mutant.name}: {mutant.old!r} is not once in {path.name}"
            text = text.replace(mutant.old, mutant.new)
        text = text.replace("kMostVectors = kFewRegisters ? 2 : 4", "kMostVectors = 1")
        (folder / path.name).write_text(text.replace("cca_lab", mutant.name), encoding="utf-8")
