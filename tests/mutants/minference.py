"""Wrong MInference attentions, one change each in the loops."""

from cca_lab.mechanisms.minference import AShape, BlockSparse, VerticalSlash
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

PATTERNS = "cca_lab.mechanisms.minference.patterns."
A_SHAPE, BLOCKS, SLASHES = (f"{PATTERNS}{name}.row_by_row" for name in (
    "AShape", "BlockSparse", "VerticalSlash"))
READS, SCORES = PATTERNS + "reads", PATTERNS + "scores_loops"
OF_SHAPE, OF_BLOCKS, OF_SLASHES = (form(cls, "loops") for cls in (AShape, BlockSparse,
                                                                  VerticalSlash))
LATER = SLASHES, "for t in range(i + 1) if reads", "for t in range(length) if reads"
BOTH, RANGE = "t <= i and (t in columns or near)", "first_row - o <= t < first_row + block - o"

# ---------------------------------------------------------------- vertical-slash

columns_without_causal_test = slip("early rows gather later columns", OF_SLASHES, LATER,
                                   (READS, BOTH, "t in columns or (t <= i and near)"))
bare_diagonals = slip("diagonals one token wide, as asked for, not as a kernel reads", OF_SLASHES,
                      (READS, RANGE, "i - o == t"))
first_rows_choose = slip("rows choose who have seen nothing yet", OF_SLASHES, (
    SCORES, "range(max(0, length - last), length)", "range(min(last, length))"))

# ---------------------------------------------------------------- block-sparse, A-shape

blocks_without_row_test = slip("a row reads its whole block", OF_BLOCKS, (
    BLOCKS, "for t in range(i + 1) if", "for t in range(length) if"))
short_block_filled_with_zeros = slip("the mean of a short block counts missing tokens", OF_BLOCKS,
                                     (BLOCKS, ".mean(0) @ mean_query", ".sum(0) / block @ "
                                                                       "mean_query"))
blocks_ranked_over_all = slip("later blocks take places", OF_BLOCKS,
                              (BLOCKS, "for n in range(m + 1)]",
                               "for n in range(-(-length // block))]"),
                              (BLOCKS, "sorted(range(m + 1),", "sorted(range(len(score)),"))
window_without_itself = slip("the row's own token beside the window", OF_SHAPE, (
    A_SHAPE, "i - t < self.window", "i - t <= self.window"))
