"""Wrong native ops: one change of the C++ sources each, in float64 and in bfloat16 on AMX."""

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
    Mutant("first_row_decides", "runs.h", "end[rows_of(group).end - 1]",
           "end[rows_of(group).begin]"),
    Mutant("groups_never_leave", "runs.h", "interval.columns_of(groups.begin).end <= columns.begin",
           "false"), Mutant("a_column_between_tiles", "runs.h", "column += kTileColumns",
                            "column += kTileColumns + 1"),
    Mutant("outputs_not_rescaled", "forward.h", "if (space.factors[i] == T(1)) continue;",
           "continue;"),
    Mutant("totals_not_rescaled", "forward.h", "factor, total).store", "Vec<T>(1), total).store"),
    Mutant("blind_rows_are_nan", "forward.h",
           "top = Vec<T>::blendv(top, Vec<T>(0), top == nothing);", ""),
    Mutant("backward_unmasked", "backward.h", "hide(weights, interval, group, seen);", ""),
    Mutant("grad_q_not_scaled", "backward.h", "return x * scale; });\n}", "return x; });\n}"),
    Mutant("heads_interleaved", "interval_attention.cpp", "head / p.share())",
           "head % p.key_heads)"), Mutant("lse_gradient_dropped", "interval_attention.cpp",
                                          "if (grad_lse) delta = delta - *grad_lse;", ""),
    Mutant("parts_overlap", "interval_attention.cpp", "row += parts * kBlockRows",
           "row += kBlockRows"),
    Mutant("last_part_only", "interval_attention.cpp", "x.sum(0)", "x[x.size(0) - 1]"),
    Mutant("padding_keeps_strides", "problem.h", ": x).contiguous();", ": x.contiguous());"),
    Mutant("reads_behind_the_end", "forward.h", "values.at(run.columns.begin, 0)",
           "values.at(run.columns.begin + (run.columns.end == 300), 0)")]
AMX_MUTANTS = [
    Mutant("amx_one_column_more", "amx_forward.h",
           "std::min(width, interval.end[i] - column), scale *",
           "std::min(width, interval.end[i] - column + 1), scale *"),
    Mutant("amx_starts_ignored", "amx_forward.h",
           "begin = std::max<int64_t>(0, interval.start[i] - column)", "begin = 0"),
    Mutant("amx_outputs_not_rescaled", "amx_forward.h", "if (shrink != 1) std::transform",
           "if (false) std::transform"), Mutant("amx_totals_not_rescaled", "amx_forward.h",
                                                "total = total * shrink +", "total = total +"),
    Mutant("amx_columns_between_chunks", "amx_forward.h", "column += kChunk)",
           "column += kChunk + kUnit)"),
    Mutant("amx_old_weights_stay", "amx_forward.h",
           "  std::fill(weights + last, weights + width, Half(0));\n", ""),
    Mutant("amx_last_rows_lost", "amx_attention.h",
           "count = std::clamp<int64_t>(rows - row, 0, kSide)",
           "count = rows - row < kSide ? 0 : kSide"),
    Mutant("amx_heads_interleaved", "amx_attention.h",
           "b * p.key_heads + head / p.share();\n    attend",
           "b * p.key_heads + head % p.key_heads;\n    attend"),
    Mutant("amx_backward_unmasked", "amx_backward.h", "lanes(rows[r].begin - j, rows[r].end - j)",
           "0xffff"), Mutant("amx_twins_swapped", "amx_backward.h", "twins(weight[0], weight[1])",
                             "twins(weight[1], weight[0])"),
    Mutant("amx_turned_wrongly", "amx.h", "_mm512_srli_epi32(both, 16)", "both"),
    Mutant("amx_lse_gradient_dropped", "amx_attention.h",
           "if (grad_lse) delta = delta - *grad_lse;", ""),
    Mutant("amx_parts_overlap", "amx_attention.h", "row += parts * kUnit", "row += kUnit"),
    Mutant("amx_first_part_only", "amx_attention.h", "part < parts;", "part < 1;"),
    Mutant("amx_grad_k_not_scaled", "amx_attention.h", "unpacked(grad_k, p, scale)",
           "unpacked(grad_k, p, 1)")]
# Registers of one column and no optimisation: a mutant compiles in a second. A list is a library.
_HEAD = """#pragma GCC optimize("O0")
#include <ATen/Dispatch.h>
#undef AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \\
  [&] { using scalar_t = double; __VA_ARGS__(); }()
"""
_WITHOUT_AMX = "#undef __AMX_TILE__\n"


def load(folder: Path, mutants: list[Mutant] = MUTANTS) -> None:
    """Register the mutants' ops as torch.ops.<name>, compiled in `folder` once."""
    head = _HEAD + (_WITHOUT_AMX if mutants is MUTANTS else "")
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
