"""Wrong CCA attentions: one change each in the loops, or in the dense mask."""

from torch import Tensor
from torch.nn.functional import pad

from cca_lab.mechanisms import CCA
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS, DENSE = form(CCA, "loops"), form(CCA, "attention", backend="dense")
ROWS = "cca_lab.mechanisms.cca.mechanism.CCA.row_by_row"
CORES = "cca_lab.mechanisms.cca.mechanism.cores"
MASK = "cca_lab.attention.dense.masked_matrix"

# ---------------------------------------------------------------- which tokens a row reads

COUNT, RAW, SINKS = "(i + 1 - first - s) // g", "first + g * j, i + 1", "slice(min(i + 1, first))"


def other_cores(count: str) -> tuple[tuple[str, str, str], ...]:
    """Return pieces with which a row sees another number of cores, and the same raw tokens."""
    return tuple((ROWS, f"core_{kind}[:j]", f"core_{kind}[:{count}]") for kind in
                 ("keys", "values"))


printed_window = slip("Eq. 4 and Algorithm 1 line 11 as printed: a token is read twice", LOOPS,
                      (ROWS, RAW, "first + max(g * j - 1, 0), i + 1"))
window_mod_row = slip("s + (i mod g) raw tokens, as in the public kernel: right where g divides s",
                      LOOPS, (ROWS, RAW, "max(0, i + 1 - s - (i + 1) % g), i + 1"))
# Core 0 appears at row s: counted twice if s >= g, made of future tokens if s < g.
c_rounding = slip("a division that rounds towards 0, as C does", LOOPS,
                  *other_cores("int((i - g + 1 - s) / g) + 1 if i >= s else 0"))
window_one_short = slip("at times only s - 1 tokens are raw", LOOPS,
                        (ROWS, COUNT, "(i + 2 - first - s) // g"))
future_group_pooled = slip("a core pools the group after its own", LOOPS, (
    CORES, "slice(p * g, p * g + g)", "slice(p * g + g, p * g + 2 * g)"))


def padded_on_the_left(q: Tensor, k: Tensor, v: Tensor, *, group: int, **options) -> Tensor:
    """Zeros put in front until g divides L: borders depend on L, and padding is attended to."""
    padding = -q.shape[2] % group
    q, k, v = (pad(x, (0, 0, padding, 0)) for x in (q, k, v))
    return LOOPS(q, k, v, group=group, **options)[:, :, padding:]


# ---------------------------------------------------------------- sinks

groups_from_token_zero = slip("groups begin at token 0, so sinks are counted twice", LOOPS,
                              (ROWS, "self.window, self.sinks", "self.window, 0"),
                              (ROWS, SINKS, "slice(min(i + 1, self.sinks))"))
sinks_dropped = slip("the rows behind the sinks do not read them", LOOPS,
                     (ROWS, SINKS, "slice(i + 1 if i < first else 0)"))
sinks_counted_in_the_row = slip("n(i) as without sinks: cores are seen S tokens early", LOOPS,
                                (ROWS, COUNT, "(i + 1 - s) // g"))


def evict_the_sinks(state, count: int) -> None:
    """CCAState._evict of the oldest tokens, as without sinks."""
    if count:
        state.raw_key, state.raw_value = (x[:, :, count:].clone()
                                          for x in (state.raw_key, state.raw_value))


# ---------------------------------------------------------------- how a core is made; DGA's too

JUDGE = "last = p * g + g - 1", "last = p * g"
UNSCALED = "sum(scale * (group_keys", "sum((group_keys"
SOFTMAXES = ("sum(scale * (group_keys @ query[last]) for query in queries) / len(queries)",
             "(sum(torch.softmax(scale * (group_keys @ query[last]), dim=0) for query in queries) "
             "/ len(queries)).log()")
DETACHED = "torch.softmax(logits, dim=0)", "torch.softmax(logits.detach(), dim=0)"
ROTATED = "if tables is not None:", "if False:"
AT_LAST = "p * g + g // 2", "p * g + g - 1"

first_query_judges = slip("the first token of a group weighs it, not the last", LOOPS,
                          (CORES, *JUDGE))
unnormalised_phi = slip("exp without its sum", LOOPS, (
    CORES, "torch.softmax(logits, dim=0) if", "logits.exp() if"))
unscaled_phi = slip("Eq. 2 without its 1/sqrt(D)", LOOPS, (CORES, *UNSCALED))
first_head_judges = slip("the first query head of a KV head weighs for all", LOOPS, (
    CORES, "for query in queries) / len(queries)", "for query in queries[:1])"))
mean_of_softmaxes = slip("heads' weights are averaged, not their logits", LOOPS,
                         (CORES, *SOFTMAXES))
detached_phi = slip("no gradient teaches what to keep in a core", LOOPS, (CORES, *DETACHED))
rotated_keys_pooled = slip("keys pooled as they arrive, each at its own angle", LOOPS,
                           (CORES, *ROTATED))
core_at_position_zero = slip("pooled keys are never rotated again", LOOPS,
                             (CORES, "cos[middle],", "cos[middle] ** 0,"),
                             (CORES, "sin[middle])", "0 * sin[middle])"))


def effective_unrotated(q: Tensor, k: Tensor, *, rotation=None, **options) -> Tensor:
    """An effective matrix that forgets where the core keys are."""
    return CCA(**options).effective(q, k)


# ---------------------------------------------------------------- the softmax over the row

HIDDEN = 'scores.masked_fill(~visible, float("-inf"))'
MULTIPLIED = MASK, HIDDEN, "scores * visible"

mask_multiplied = slip("a hidden column gets logit 0, not weight 0", DENSE, MULTIPLIED)
finite_mask = slip("-1e4 in place of -inf", DENSE, (MASK, HIDDEN, "scores.masked_fill(~visible, "
                                                                  "-1e4)"))
scale_outside = slip("Algorithm 1 line 12 as printed: rows sum to 1/sqrt(d)", LOOPS, (
    ROWS, "torch.softmax(scores, dim=0)", "scale * torch.softmax(scores / scale, dim=0)"))
