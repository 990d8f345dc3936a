"""Wrong interval attentions and poolings: one slip each in the package's source."""

A = "cca_lab.attention."
MASK, BLIND, JOIN = A + "plan.TileBatch.mask", A + "plan.TileBatch.blind_rows", A + "plan._join"
MERGE, ADD, LSE, PROBLEMS = (f"{A}blocked.{name}" for name in (
    "_merge", "_add_columns", "_append_lse_gradient", "_problems"))
BACK, POOLED, TURN = A + "tiles.FlashTile.backward", A + "pooling._pooled_keys", A + "pooling._turn"
WEIGHED = "out.lerp_(part_out.to(out.dtype), weight.unsqueeze(-1))"
SIDE = "grad, q, k, v, out = map"

BLOCKED = {  # name: pieces (function, a piece of its source, what stands there instead)
    # masks
    "finite_mask": [(MASK, 'float("-inf")', "-1e4")],
    "one_column_more": [(MASK, "column >= ends", "column > ends")],
    "starts_ignored": [(MASK, "if starts.any():", "if False:")],
    # merging
    "outputs_added": [(MERGE, WEIGHED, "out.add_(part_out)")],
    "later_part_not_rescaled": [(MERGE, WEIGHED,
                                 "out.mul_(1 - weight.unsqueeze(-1)).add_(part_out)")],
    "lse_not_updated": [(MERGE, "torch.logaddexp(lse, part_lse)",
                         'torch.where(part_lse == float("-inf"), lse, part_lse)')],
    "blind_rows_kept": [(BLIND, "masked.to(device) if masked.any() else None", "None")],
    # backward and heads: each part with its own statistics for those of the whole row
    "local_statistics": [(BACK, SIDE, "out, lse = self.forward(q, k, v, mask, causal, scale)\n"
                                      f"    {SIDE}")],
    "local_output": [(BACK, SIDE, "out, _ = self.forward(q, k, v, mask, causal, scale)\n"
                                  f"    {SIDE}")],
    "one_query_head_counts": [(ADD, "terms.sum(dim=1)", "terms[:, 0]")],
    "overlaps_overwritten": [(ADD, "disjoint.add_(", "disjoint.copy_(")],
    "lse_gradient_dropped": [(LSE, "grad_lse.unsqueeze(-1)", "0 * grad_lse.unsqueeze(-1)")],
    "heads_interleaved": [(PROBLEMS, "head // queries_per_key",
                           "head % max(1, heads // queries_per_key)")],
    # planning
    "joined_at_any_step": [(JOIN, "(batch.count == 1 or step == batch.step)", "True")],
    "joined_whatever_the_edges": [(JOIN, "not _same(", "None in (")],
}
CLOSED_INTERVALS = A + "dense.visible_mask", "column < ends", "column <= ends"
POOLING = {
    "first_query_judges": [(A + "pooling._last_queries", "group - 1 :", "0 :")],
    "weights_averaged": [(POOLED, "if not per_query_head:", "if False:"),
                         (POOLED, "return phi, core",
                          "return phi.mean(3, keepdim=True), core.mean(3, keepdim=True)")],
    "scale_forgotten": [(POOLED, "last.dtype), scale)", "last.dtype), 1.0)")],
    "turned_to_first": [(TURN, "group // 2 : group // 2 + 1", "0:1")],
    "keys_left_turned": [(A + "pooling._turn_to_middle", "if rotation is None:", "if True:")],
    "conjugated": [(TURN, "norm = cos.square() + sin.square()", "norm = 1.0")],
}
