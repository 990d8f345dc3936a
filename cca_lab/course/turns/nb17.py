"""What the reader writes in notebook 17: kept heads, the entries of their cache, their training."""

from typing import Any

import torch
from torch import Tensor, nn

from cca_lab.course.compare import need_close, need_equal
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 17.4: the loops of a layer whose KV heads differ
def layers(answer: Answer, draw: Draw) -> None:
    """Layers with and without grouped queries, with none, some and all heads kept."""
    from cca_lab.mechanisms import CCA, Full, KeptHeads

    sizes = [(2, 2, 6, [1]), (4, 2, 7, [0]), (6, 3, 9, [0, 2]), (4, 2, 8, []), (4, 2, 5, [0, 1]),
             (6, 2, draw.randint(6, 10), [draw.randint(0, 1)])]
    cca, full = CCA(group=2, window=2), Full()
    for heads, kv_heads, length, kept in sizes:
        q, (k, v) = draw.normal(heads, length, 4), draw.normal(2, kv_heads, length, 4)
        batch, each = (q[None], k[None], v[None]), heads // kv_heads
        rest = [head for head in range(kv_heads) if head not in kept]
        of_kept = torch.tensor([head // each in kept for head in range(heads)])[:, None, None]
        near = cca.loops(*batch)[0]
        # head h with KV head h modulo Hk, as if the heads of a KV head did not stand together
        order = [head for kv in range(kv_heads) for head in range(kv, heads, kv_heads)]
        mixed = torch.empty_like(q)
        mixed[order] = KeptHeads.around(cca, [kept]).loops(q[None, order], *batch[1:])[0]
        causes = {
            "the kept heads and the others are exchanged":
                KeptHeads.around(cca, [rest]).loops(*batch)[0],
            "every head attends in full": full.loops(*batch)[0],
            "no head attends in full": near,
            "query head h reads KV head h % Hk; the heads of a KV head stand together: h // n":
                mixed,
            "the kept heads read later tokens too":
                torch.where(of_kept, _full(q, k, v, 0.5, later=True), near),
            "the scores of the kept heads are not divided by sqrt(D)":
                torch.where(of_kept, _full(q, k, v, 1.0), near),
            "the kept heads come first; each head has to stand at its own place": torch.cat(
                [torch.where(of_kept, full.loops(*batch)[0], near)[[
                    each * kv + n for kv in kept + rest for n in range(each)]]]),
        }
        with case(f"{heads} query heads, {kv_heads} KV heads, {length} tokens, kept {kept}"):
            need_close(answer(q, k, v, kept, _others(cca, each, length)),
                       KeptHeads.around(cca, [kept]).loops(*batch)[0], "the output", causes=causes)


def _full(q: Tensor, k: Tensor, v: Tensor, scale: float, *, later: bool = False) -> Tensor:
    each, length = len(q) // len(k), q.shape[1]
    scores = scale * (q @ k.repeat_interleave(each, 0).mT)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    weights = (scores if later else scores.masked_fill(~past, float("-inf"))).softmax(-1)
    return weights @ v.repeat_interleave(each, 0)


def _others(cca: Any, each: int, length: int) -> Answer:
    """Return the function for a head that is not kept; it says what it was given wrongly."""
    def others(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shapes = [tuple(getattr(x, "shape", ())) for x in (q, k, v)]
        if shapes != [(each, length, 4), (length, 4), (length, 4)]:
            raise Mistake(
                f"others was called with shapes {', '.join(map(str, shapes))}, wanted "
                f"{(each, length, 4)}, {(length, 4)}, {(length, 4)}: all query heads of one KV "
                "head, and its keys and values")
        output: Tensor = cca.loops(q[None], k[None, None], v[None, None])[0]
        return output

    return others


# 17.6: the entries of a cache with kept heads
def caches(answer: Answer, draw: Draw) -> None:
    """Short and long texts, against the bytes of the package's cache."""
    from cca_lab.mechanisms import CCA, KeptHeads
    from cca_lab.mechanisms.caches import CacheSizes, KeptHeadsCache

    sizes = [(40, 3, 1, 4, 8, 0), (41, 3, 2, 4, 8, 2), (43, 2, 0, 4, 6, 1), (30, 2, 2, 4, 6, 1),
             (3, 2, 1, 4, 8, 4), (10, 4, 1, 4, 8, 4), (4096, 90, 10, 16, 128, 4),
             (draw.randint(60, 90), 4, draw.randint(1, 3), draw.randint(3, 6), draw.randint(8, 12),
              draw.randint(1, 4))]
    for length, heads, kept, group, window, sinks in sizes:
        of_layer = CacheSizes(layers=1, kv_heads=heads, head_dim=1, itemsize=1)
        mechanism = KeptHeads.around(CCA(group=group, window=window, sinks=sinks),
                                     [list(range(kept))])
        # an entry is a key and a value: two bytes
        wanted = KeptHeadsCache.bytes_of(mechanism, length, of_layer) // 2
        behind = max(0, length - sinks)
        seen = max(0, (behind + 1 - window) // group)  # by row L, the next one
        raw = behind - group * seen

        def total(one: int, *, full: int = kept * length, rest: int = heads - kept) -> int:
            return full + rest * one

        right = length - behind + behind // group + raw
        causes = {
            "the other heads store nothing": total(0),
            "a head that is not kept stores everything too": heads * length,
            "one head is counted, not all of them": length + right,
            "k is the number of the other heads":
                total(right, full=(heads - kept) * length, rest=kept),
            "the sinks are forgotten": total(right - (length - behind)),
            "the groups begin at token 0; they begin behind the sinks":
                total(length - behind + length // group + length
                      - group * max(0, (length + 1 - window) // group)),
            "the raw tokens are those that the last row reads; keep those of the next row":
                total(length - behind + behind // group
                      + behind - group * max(0, (behind - window) // group)),
            "exactly s tokens stay raw; those of the open group, and of a group that row L still "
            "reads raw, are stored too": total(length - behind + behind // group
                                               + min(behind, window)),
            "a core is stored when a row reads it; a cache makes it as soon as its group closes":
                total(length - behind + seen + raw),
        }
        with case(f"{length} tokens, {kept} of {heads} heads kept, g {group}, s {window}, "
                  f"S {sinks}"):
            need_equal(answer(length, heads, kept, group, window, sinks), wanted, "the number",
                       causes={what: count for what, count in causes.items() if count != wanted})


# 17.7: the error that attention transfer makes small
class GivenAttention(nn.Module):
    """An attention layer whose output is given."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.layer_idx, self.output = 0, output

    def forward(self) -> tuple[Tensor, None]:
        """Return the output, (1, L, width)."""
        return self.output[None], None


class GivenTeacher:
    """A teacher whose only layer gave this output."""

    def __init__(self, output: Tensor) -> None:
        self.output = output

    def read(self, input_ids: Tensor) -> list[Any]:
        """Return arguments and output of the layer, as `Teacher.read`."""
        return [((), {}, self.output[None])]


def errors(answer: Answer, draw: Draw) -> None:
    """Rows with an answer inside and at the end, and one without, against the package's error."""
    from cca_lab.models.transfer import ANSWERS, row_errors, weights_of

    for length, width, tokens in [(6, 3, [3]), (8, 2, [6, 7]), (5, 4, []), (7, 3, [0, 4, 5]),
                                  (draw.randint(8, 12), 3, [draw.randint(2, 7)])]:
        out, full = draw.normal(2, length, width)
        marked = torch.zeros(length, dtype=torch.bool)
        marked[tokens] = True
        weights = weights_of(marked[None], torch.ones(1, dtype=torch.bool))
        model: Any = nn.ModuleList([GivenAttention(out)])
        teacher: Any = GivenTeacher(full)
        ids = torch.zeros(1, length, dtype=torch.int64)
        wanted = float(row_errors(model, teacher, ids, weights))
        squares, sizes = (out - full).square().sum(1), full.square().sum(1)
        causes = {
            "the answer's own tokens count more; the rows before them predict them":
                (torch.where(marked, ANSWERS, 1.0) * squares).sum() / sizes.mean(),
            "all rows count alike": squares.sum() / sizes.mean(),
            "only the rows that predict the answer count":
                (torch.where(weights[0] > 1, ANSWERS, 0.0) * squares).sum() / sizes.mean(),
            "it is divided by the sum over the tokens, not by the mean":
                (weights[0] * squares).sum() / sizes.sum(),
            "each row is divided by its own size": (weights[0] * squares / sizes).sum(),
            "it is divided by the size of the mechanism's output, not of the full one":
                (weights[0] * squares).sum() / out.square().sum(1).mean(),
            "nothing is divided": (weights[0] * squares).sum(),
            "the mean over the rows is taken, not the sum":
                (weights[0] * squares).mean() / sizes.mean(),
            "the errors are not squared": (weights[0] * squares.sqrt()).sum() / sizes.mean(),
        }
        with case(f"{length} rows, the answer at {tokens}"):
            need_equal(answer(out, full, marked), wanted, "the error", tolerance=1e-4,
                       causes={what: float(other) for what, other in causes.items()
                               if abs(float(other) - wanted) > 1e-3 * wanted})


TURNS: tuple[CourseTask, ...] = (
    CourseTask("17.4", "kept_heads", "A layer whose heads differ", 12, 3, 5, (
        Property("kept heads attend in full, the others as they are told", 1, layers),),
               shared=True),
    CourseTask("17.6", "entries", "What a cache with kept heads stores", 8, 2, 4, (
        Property("counts what every head stores", 1, caches),)),
    CourseTask("17.7", "layer_error", "What attention transfer makes small", 8, 3, 3, (
        Property("weighs the rows that predict an answer, and divides by the full output", 1,
                 errors),)),
)
