"""Wrong CCA attentions: `rows(q, k, v, **options)` is right, a mutant changes one thing."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cca_lab.mechanisms import CCA


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Pooling:
    """How a group of tokens becomes one, and a row weighs what it sees; DGA's too."""

    def judge(self, members: Sequence[int]) -> int:
        """The token whose query weighs the group."""
        return members[-1]

    def phi(self, logits: Tensor, scale: float) -> Tensor:
        """Weights (g,) from unscaled logits (heads, g)."""
        return torch.softmax(scale * logits.mean(0), dim=-1)

    def unrotate(self, keys: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated keys (g, D) before their rotation by cos, sin (g, D)."""
        return rotate(keys, cos, -sin)

    def rotate_pooled(self, key: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the pooled key (D,), given the tables (g, D) of its members' positions."""
        return rotate(key, cos[len(cos) // 2], sin[len(sin) // 2])

    def weigh(self, logits: Tensor, visible: Tensor, scale: float) -> Tensor:
        """Attention weights (N,) from unscaled logits of all columns."""
        return torch.softmax((scale * logits).masked_fill(~visible, float("-inf")), dim=-1)


class Parts(Pooling):
    """The decisions that make up CCA attention. i is a row and p a group, both counted from 0."""

    def groups(self, i: int, g: int, s: int) -> list[range]:
        """Tokens of each group that row i sees as a core; `rows` leaves out those not there."""
        return [range(p * g, p * g + g) for p in range(max(0, (i + 1 - s) // g))]

    def raw_start(self, i: int, g: int, s: int) -> int:
        """First raw token of row i."""
        return g * max(0, (i + 1 - s) // g)

    def row_behind(self, i: int, sinks: int) -> int:
        """Row i in the text behind the sinks, whose groups and raw tokens it reads."""
        return i - sinks

    def border(self, sinks: int) -> int:
        """The first token of group 0."""
        return sinks

    def kept_sinks(self, i: int, sinks: int) -> int:
        """How many sinks row i reads."""
        return min(i + 1, sinks)

    def judge_heads(self, heads: range) -> Sequence[int]:
        """The query heads of a KV head that weigh together."""
        return heads


def rows(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, scale: float | None = None,
         rotation: tuple[Tensor, Tensor] | None = None, per_query_head: bool = False,
         pooling: str = "softmax", sinks: int = 0, parts: Parts | None = None) -> Tensor:
    """CCA attention from `parts`: each row makes its own cores and masks raw tokens; no "max"."""
    parts = parts or Parts()
    batch, heads, length, head_dim = q.shape
    share, scale = heads // k.shape[1], head_dim**-0.5 if scale is None else scale
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for b in range(batch):
        for h in range(heads):
            keys, values, first = k[b, h // share], v[b, h // share], h // share * share
            judges = [h] if per_query_head else list(parts.judge_heads(range(first, first + share)))
            for i in range(length):
                core_keys, core_values = [keys[:0]], [values[:0]]
                row, border = parts.row_behind(i, sinks), parts.border(sinks)
                for group_tokens in parts.groups(row, group, window):
                    members = [border + token for token in group_tokens]
                    if members[-1] >= length:
                        continue
                    own = slice(members[0], members[-1] + 1)
                    logits = q[b, judges, parts.judge(members)] @ keys[own].T  # (heads, g)
                    phi = parts.phi(logits if pooling == "softmax" else torch.zeros_like(logits),
                                    scale)
                    core_key = phi @ keys[own]
                    if rotation is not None:
                        cos, sin = (table.expand(batch, -1, -1)[b, own] for table in rotation)
                        core_key = parts.rotate_pooled(phi @ parts.unrotate(keys[own], cos, sin),
                                                       cos, sin)
                    core_keys.append(core_key[None])
                    core_values.append((phi @ values[own])[None])
                token = torch.arange(length)
                raw = (border + parts.raw_start(row, group, window) <= token) & (token <= i)
                raw |= token < parts.kept_sinks(i, sinks)
                visible = torch.cat([torch.ones(len(core_keys) - 1, dtype=torch.bool), raw])
                weights = parts.weigh(torch.cat([*core_keys, keys]) @ q[b, h, i], visible, scale)
                out[b, h, i] = weights @ torch.cat([*core_values, values])
    return out


class Form(NamedTuple):
    """An attention made of decisions: DGA pools and weighs as CCA, so has the same mutants."""

    rows: Callable[..., Tensor]
    parts: type[Pooling]


IN_CCA = Form(rows, Parts)


# ---------------------------------------------------------------- which tokens a row reads

def printed_window(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 4 and Algorithm 1 line 11 as printed, k = i-s-((i-s) mod g): a token is read twice."""
    class Wrong(Parts):
        def raw_start(self, i, g, s):
            row = i + 1  # the paper counts rows and tokens from 1
            return max(1, row - s - (row - s) % g) - 1
    return rows(q, k, v, parts=Wrong(), **options)


def window_mod_row(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """A window of s + (i mod g) tokens, as in the public kernel; right only where g divides s."""
    class Wrong(Parts):
        def raw_start(self, i, g, s):
            row = i + 1
            return max(0, row - (s + row % g))
    return rows(q, k, v, parts=Wrong(), **options)


def c_rounding(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Core p visible iff (i-(g-1)-s) // g >= p with C's division, which rounds towards 0.

    Core 0 then appears at row s: counted twice if s >= g, made of future tokens if s < g.
    """
    class Wrong(Parts):
        def groups(self, i, g, s):
            # int() truncates towards zero, as C does
            newest = int((i - (g - 1) - s) / g) if i >= s else -1
            return [range(p * g, p * g + g) for p in range(newest + 1)]
    return rows(q, k, v, parts=Wrong(), **options)


def core_one_row_early(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The core appears one row before its tokens leave the window."""
    class Wrong(Parts):
        def groups(self, i, g, s):
            return super().groups(i + 1, g, s)
    return rows(q, k, v, parts=Wrong(), **options)


def window_one_short(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """floor((i + 2 - s) / g) for cores and raw tokens: at times only s - 1 are raw."""
    class Wrong(Parts):
        def groups(self, i, g, s):
            return super().groups(i + 1, g, s)

        def raw_start(self, i, g, s):
            return super().raw_start(i + 1, g, s)
    return rows(q, k, v, parts=Wrong(), **options)


def core_one_row_late(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """floor((i - s) / g) with i counted from 0, where the paper counts from 1."""
    class Wrong(Parts):
        def groups(self, i, g, s):
            return super().groups(i - 1, g, s)

        def raw_start(self, i, g, s):
            return super().raw_start(i - 1, g, s)
    return rows(q, k, v, parts=Wrong(), **options)


def future_group_pooled(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Groups counted from 1 and tokens from 0: core p pools the group after its own."""
    class Wrong(Parts):
        def groups(self, i, g, s):
            return [range(m.start + g, m.stop + g) for m in super().groups(i, g, s)]
    return rows(q, k, v, parts=Wrong(), **options)


def incomplete_group_pooled(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Exactly s raw tokens: all older ones are pooled, the last group before it is complete."""
    class Wrong(Parts):
        def groups(self, i, g, s):
            older = max(0, i + 1 - s)
            return [range(t, min(t + g, older)) for t in range(0, older, g)]

        def raw_start(self, i, g, s):
            return max(0, i + 1 - s)
    return rows(q, k, v, parts=Wrong(), **options)


def padded_on_the_left(q: Tensor, k: Tensor, v: Tensor, *, group: int, **options) -> Tensor:
    """Zeros put in front until g divides L: borders depend on L, and padding is attended to."""
    padding = -q.shape[2] % group
    q, k, v = (torch.nn.functional.pad(x, (0, 0, padding, 0)) for x in (q, k, v))
    return rows(q, k, v, group=group, **options)[:, :, padding:]


# ---------------------------------------------------------------- sinks

def groups_from_token_zero(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Sinks beside groups that begin at token 0, as without them: sinks are counted twice."""
    class Wrong(Parts):
        def row_behind(self, i, sinks):
            return i

        def border(self, sinks):
            return 0
    return rows(q, k, v, parts=Wrong(), **options)


def sinks_dropped(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Groups begin behind the sinks, which the rows behind them do not read."""
    class Wrong(Parts):
        def kept_sinks(self, i, sinks):
            return i + 1 if i < sinks else 0
    return rows(q, k, v, parts=Wrong(), **options)


def sinks_counted_in_the_row(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """n(i) as without sinks, of groups behind them: cores are seen S tokens early."""
    class Wrong(Parts):
        def row_behind(self, i, sinks):
            return i
    return rows(q, k, v, parts=Wrong(), **options)


def evict_the_sinks(state, count: int) -> None:
    """CCAState._evict of the oldest tokens, as without sinks: killed by test_chunks_with_sinks."""
    if count:
        state.raw_key, state.raw_value = (x[:, :, count:].clone()
                                          for x in (state.raw_key, state.raw_value))


# ---------------------------------------------------------------- how a core is made

def first_query_judges(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """The first token of the group weighs it, not the last."""
    class Wrong(form.parts):
        def judge(self, members):
            return members[0]
    return form.rows(q, k, v, parts=Wrong(), **options)


def unnormalised_phi(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """exp without its sum: pooling projected keys no longer equals projecting pooled tokens."""
    class Wrong(Parts):
        def phi(self, logits, scale):
            return torch.exp(scale * logits.mean(0))
    return rows(q, k, v, parts=Wrong(), **options)


def unscaled_phi(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """Eq. 2 without its 1/sqrt(D)."""
    class Wrong(form.parts):
        def phi(self, logits, scale):
            return super().phi(logits, 1.0)
    return form.rows(q, k, v, parts=Wrong(), **options)


def first_head_judges(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Grouped queries: the first query head of a KV head weighs for all of them."""
    class Wrong(Parts):
        def judge_heads(self, heads):
            return heads[:1]
    return rows(q, k, v, parts=Wrong(), **options)


def mean_of_softmaxes(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """Grouped queries: the heads' weights are averaged, where the lab averages their logits."""
    class Wrong(form.parts):
        def phi(self, logits, scale):
            return torch.softmax(scale * logits, dim=-1).mean(0)
    return form.rows(q, k, v, parts=Wrong(), **options)


def detached_phi(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """Weights taken out of the graph: no gradient teaches what to keep in a core."""
    class Wrong(form.parts):
        def phi(self, logits, scale):
            return super().phi(logits, scale).detach()
    return form.rows(q, k, v, parts=Wrong(), **options)


def rotated_keys_pooled(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """Keys pooled as they arrive, each at its own angle: they partly cancel."""
    class Wrong(form.parts):
        def unrotate(self, keys, cos, sin):
            return keys

        def rotate_pooled(self, key, cos, sin):
            return key
    return form.rows(q, k, v, parts=Wrong(), **options)


def core_at_last_position(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """The core stands where its judge stands, not in the middle of its group."""
    class Wrong(form.parts):
        def rotate_pooled(self, key, cos, sin):
            return rotate(key, cos[-1], sin[-1])
    return form.rows(q, k, v, parts=Wrong(), **options)


def core_at_position_zero(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Keys un-rotated before pooling and never rotated again: all cores stand at position 0."""
    class Wrong(Parts):
        def rotate_pooled(self, key, cos, sin):
            return key
    return rows(q, k, v, parts=Wrong(), **options)


def effective_unrotated(q: Tensor, k: Tensor, *, rotation=None, **options) -> Tensor:
    """An effective matrix that forgets where the core keys are."""
    return CCA(**options).effective(q, k)


# ---------------------------------------------------------------- the softmax over the row

def mask_multiplied(q: Tensor, k: Tensor, v: Tensor, form=IN_CCA, **options) -> Tensor:
    """Logits times the mask: a hidden column gets logit 0, not weight 0."""
    class Wrong(form.parts):
        def weigh(self, logits, visible, scale):
            return torch.softmax(scale * logits * visible, dim=-1)
    return form.rows(q, k, v, parts=Wrong(), **options)


def finite_mask(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """-1e4 in place of -inf: a logit below it loses to the hidden columns."""
    class Wrong(Parts):
        def weigh(self, logits, visible, scale):
            return torch.softmax((scale * logits).masked_fill(~visible, -1e4), dim=-1)
    return rows(q, k, v, parts=Wrong(), **options)


def finite_mask_added(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """-1e4 added to hidden logits: a future key with a logit above it shows through."""
    class Wrong(Parts):
        def weigh(self, logits, visible, scale):
            return torch.softmax(scale * logits - 1e4 * ~visible, dim=-1)
    return rows(q, k, v, parts=Wrong(), **options)


def scale_outside(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Algorithm 1 line 12 as printed: softmax(...) / sqrt(d), so that rows sum to 1/sqrt(d)."""
    class Wrong(Parts):
        def weigh(self, logits, visible, scale):
            return scale * super().weigh(logits, visible, 1.0)
    return rows(q, k, v, parts=Wrong(), **options)
