"""The bench: what an attention must satisfy, as functions that take an implementation.

An implementation is anything called as implementation(q, k, v, **options) -> (B, H, L, D). A check
returns nothing, or raises AssertionError with the largest error and its ratio to the wanted values.
Checks look from outside only: with V = identity any implementation shows its matrix E, where
E[i, t] is the weight of token t in row i.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from cca_lab.mechanisms import full

Implementation = Callable[..., Tensor]


# ---------------------------------------------------------------- inputs and comparisons

def inputs(length: int = 11, *, batch: int = 1, heads: int = 2, kv_heads: int = 1,
           head_dim: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random float64 q (B, H, L, D) and k, v (B, Hk, L, D)."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(batch, n, length, head_dim, generator=generator, dtype=torch.float64)
                 for n in (heads, kv_heads, kv_heads))


def assert_close(got: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-12) -> None:
    """Compare at an absolute tolerance that grows with the wanted values once they pass 1."""
    assert got.shape == wanted.shape, (
        f"{what}: shape {tuple(got.shape)}, wanted {tuple(wanted.shape)}")
    assert got.isfinite().all(), f"{what}: {int((~got.isfinite()).sum())} values are not finite"
    error = (got - wanted).abs().max().item()
    ratio = ((got - wanted).norm() / wanted.norm().clamp_min(1e-300)).item()
    bound = tolerance * max(1.0, wanted.abs().max().item())
    assert error <= bound, f"{what}: max error {error:.2e} > {bound:.0e}, ratio {ratio:.2e}"


def read_matrix(implementation: Implementation, q: Tensor, k: Tensor, options: dict) -> Tensor:
    """E (B, H, L, L) of any implementation: V = identity, D of its columns at a time."""
    length, head_dim = k.shape[-2:]
    identity = torch.eye(length, dtype=q.dtype)
    identity = torch.nn.functional.pad(identity, (0, -length % head_dim))
    parts = [implementation(q, k, columns.expand(k.shape), **options)
             for columns in identity.split(head_dim, dim=1)]
    return torch.cat(parts, dim=-1)[..., :length]


# ---------------------------------------------------------------- every mechanism

def check_same(implementation: Implementation, options: dict, reference: Implementation,
               tolerance: float = 1e-12, **sizes: int) -> None:
    """Two rungs give the same output."""
    q, k, v = inputs(**sizes)
    assert_close(implementation(q, k, v, **options), reference(q, k, v, **options), "output",
                 tolerance)


def check_full_limit(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Where the options leave nothing out, the output is full causal attention's."""
    q, k, v = inputs(**sizes)
    assert_close(implementation(q, k, v, **options), full.loops(q, k, v), "against full attention")


def check_partition_of_unity(implementation: Implementation, options: dict,
                             represented: Callable[..., Tensor] | None = None,
                             **sizes: int) -> None:
    """Each represented token counts exactly once, every other token never, and rows sum to 1.

    Without `represented` the whole past is. With q = 0 all visible columns weigh the same, so E[i,
    t] / E[i, i] counts how often row i holds token t: 1 if raw, 1/g in a core of g tokens, 0 if
    missing, 1 + 1/g if counted twice.
    """
    q, k, _ = inputs(**sizes)
    past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    for name, query in (("q = 0", torch.zeros_like(q)), ("random q", q)):
        wanted = past.expand(*q.shape[:2], -1,
                             -1) if represented is None else represented(query, k, **options)
        assert wanted.dtype == torch.bool and wanted.shape == (*q.shape[:3],
                                                               q.shape[2]), "represented: shape"
        assert not (wanted & ~past).any(), "represented: a future token"
        matrix = read_matrix(implementation, query, k, options)
        assert_close(matrix.sum(-1), torch.ones(q.shape[:3], dtype=q.dtype), f"row sums, {name}")
        leak = matrix.masked_fill(past, 0).abs().max().item()
        assert leak == 0, f"the future has weight, {name}: max error {leak:.2e}, ratio {leak:.2e}"
        assert (matrix > 0).logical_or(~wanted).all(), f"{name}: a past token has no weight"
        assert (matrix == 0).logical_or(wanted).all(), f"{name}: a token that is dropped has weight"
        if name == "q = 0":
            held = count_tokens(matrix)
            group = options.get("others", options).get("group", 1)  # of the heads beside kept ones
            in_core = torch.full_like(held, 1 / group if represented is None else 1)
            times = torch.where((held - 1).abs() < (held - in_core).abs(), torch.ones_like(held),
                                in_core)
            assert_close(held, times.masked_fill(~wanted, 0), "times a token is held")


def check_represented(implementation: Implementation, options: dict,
                      represented: Callable[..., Tensor], **sizes: int) -> None:
    """`represented` is where the matrix that V = identity reads is positive, also with RoPE."""
    q, k, _ = inputs(**sizes)
    tables = rope_tables(*q.shape[2:])
    cases = {"q = 0": (torch.zeros_like(q), k, {}), "random q": (q, k, {}),
             "rotated": (rotate(q, *tables), rotate(k, *tables), {"rotation": tables})}
    for name, (queries, keys, rotation) in cases.items():
        got = represented(queries, keys, **options, **rotation)
        wanted = read_matrix(implementation, queries, keys, {**options, **rotation}) > 0
        assert got.dtype == torch.bool and got.shape == wanted.shape, (
            f"represented: {got.dtype} {tuple(got.shape)}")
        more, less = ((a & ~b).nonzero().tolist() for a, b in ((got, wanted), (wanted, got)))
        assert not more + less, (f"represented, {name}: (batch, head, row, token) {more[:3]} have "
                                 f"no weight, {less[:3]} are left out")


def count_tokens(matrix: Tensor) -> Tensor:
    """Turn the E of a q = 0 read-out into how often each row holds each token.

    The unit is the weight of the row's own token, always raw; for a row that drops it, the largest.
    """
    own = matrix.diagonal(dim1=-2, dim2=-1)
    return matrix / torch.where(own > 0, own, matrix.amax(-1))[..., None]


def check_causality(implementation: Implementation, options: dict, **sizes: int) -> None:
    """EVERY_ROW: whatever the tokens after t become, outputs up to t stay bit-equal."""
    for t, before, after in edits_after_each_token(implementation, options, sizes):
        error = (after - before)[:, :, : t + 1].abs().max().item()
        assert torch.equal(after[:, :, : t + 1], before[:, :, : t + 1]), (
            f"edits after token {t} reach rows up to {t}: max error {error:.2e}, "
            f"ratio {error / before.abs().max().item():.2e}")


def check_whole_prompt(implementation: Implementation, options: dict, select: Callable[..., object],
                       **sizes: int) -> None:
    """WHOLE_PROMPT: with the choice frozen, edits reach no earlier row; else they do for some t."""
    q, k, _ = inputs(**sizes)
    check_causality(partial(implementation, selection=select(q, k, **options)), options, **sizes)
    reached = [not torch.equal(after[:, :, : t + 1], before[:, :, : t + 1]) for seed in range(1, 6)
               for t, before, after in edits_after_each_token(implementation, options, sizes, seed)]
    assert any(
        reached), "declared as choosing from the whole prompt, but no edit reaches an earlier row"


def check_own_block(implementation: Implementation, options: dict, select: Callable[..., object],
                    **sizes: int) -> None:
    """OWN_BLOCK: as WHOLE_PROMPT; unfrozen edits reach only rows in edited blocks."""
    check_whole_prompt(implementation, options, select, **sizes)
    for seed in range(1, 6):
        for t, before, after in edits_after_each_token(implementation, options, sizes, seed):
            # the first row of the first edited block
            safe = (t + 1) // options["block"] * options["block"]
            assert torch.equal(after[:, :, :safe], before[:, :, :safe]), (
                f"edits after token {t} reach a row before {safe}, the first row of their block")


def edits_after_each_token(implementation: Implementation, options: dict, sizes: dict[str, int],
                           seed: int = 1) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (t, output before, output after all tokens behind t were edited)."""
    q, k, v = inputs(**sizes)
    before = implementation(q, k, v, **options)
    for t in range(q.shape[2] - 1):
        edited = [x.clone() for x in (q, k, v)]
        for x, new in zip(edited, inputs(seed=seed, **sizes), strict=True):
            x[:, :, t + 1 :] = 1e5 * new[:, :, t + 1 :]  # far beyond any finite stand-in for -inf
        yield t, before, implementation(*edited, **options)


def check_large_logits(implementation: Implementation, options: dict, **sizes: int) -> None:
    """A constant added to every logit, in one more dimension, changes nothing."""
    q, k, v = inputs(**sizes)
    wanted = implementation(q, k, v, scale=0.5, **options)
    one_more = [torch.nn.functional.pad(x, (0, 1)) for x in (q, k, v)]
    for shift in (-1e5, 1e5):
        one_more[0][..., -1], one_more[1][..., -1] = shift / 0.5, 1.0
        got = implementation(*one_more, scale=0.5, **options)[..., :-1]
        # Rounding a logit of 1e5 in float64 costs 1e5 * 1.1e-16 = 1e-11; a few of those add up.
        assert_close(got, wanted, f"logits shifted by {shift:.0e}", tolerance=1e-9)


def check_scale(implementation: Implementation, options: dict, **sizes: int) -> None:
    """`scale` multiplies every logit, those of the pooling included, as scaling q does."""
    q, k, v = inputs(**sizes)
    got = implementation(q, k, v, scale=2.5, **options)
    assert_close(got, implementation(2.5 * q, k, v, scale=1.0, **options),
                 "scale against scaled queries")


def check_heads_interchangeable(implementation: Implementation, options: dict, heads: int = 4,
                                kv_heads: int = 2, **sizes: int) -> None:
    """Permuting the query heads of a KV head permutes the outputs."""
    q, k, v = inputs(heads=heads, kv_heads=kv_heads, **sizes)
    order = torch.arange(heads).view(kv_heads, -1).flip(1).flatten()
    out = implementation(q, k, v, **options)
    assert_close(implementation(q[:, order], k, v, **options), out[:, order],
                 "permuted query heads")


def check_layouts(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Strides do not matter: token-major memory, and axes expanded with stride 0."""
    q, k, v = inputs(**{"batch": 2, "heads": 4, "kv_heads": 2, **sizes})
    token_major = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    one_key = [q[:1].expand(q.shape), k[:, :, :1].expand(k.shape), v[:, :1].expand(v.shape)]
    for name, layout in (("token-major", token_major), ("stride 0", one_key)):
        plain = implementation(*[x.contiguous() for x in layout], **options)
        assert_close(implementation(*layout, **options), plain, name)


def check_batch(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Sequences of a batch do not touch each other."""
    q, k, v = inputs(**{"batch": 3, **sizes})
    alone = [implementation(q[b : b + 1], k[b : b + 1], v[b : b + 1],
                            **options) for b in range(len(q))]
    assert_close(implementation(q, k, v, **options), torch.cat(alone),
                 "batch against single sequences")


def check_right_padding(implementation: Implementation, options: dict, padding: int = 5,
                        length: int = 11, **sizes: int) -> None:
    """Tokens added at the end leave the rows before them as they were."""
    q, k, v = inputs(length + padding, **sizes)
    alone = implementation(*(x[:, :, :length] for x in (q, k, v)), **options)
    assert_close(implementation(q, k, v, **options)[:, :, :length], alone, "padded on the right")


def check_effective(implementation: Implementation, options: dict, effective: Callable[..., Tensor],
                    **sizes: int) -> None:
    """`effective` is the matrix that V = identity reads; the output is that matrix times V."""
    q, k, v = inputs(**sizes)
    matrix = effective(q, k, **options)
    assert_close(matrix, read_matrix(implementation, q, k, options),
                 "effective against V = identity")
    values = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    assert_close(matrix @ values, implementation(q, k, v, **options), "effective times V")


def check_same_gradients(implementation: Implementation, options: dict, reference: Implementation,
                         **sizes: int) -> None:
    """Two rungs give the same gradients of q, k and v."""
    q, k, v = inputs(**sizes)
    wanted_by = torch.randn(q.shape, generator=torch.Generator().manual_seed(2), dtype=q.dtype)
    gradients = []
    for function in (implementation, reference):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        gradients.append(torch.autograd.grad((function(*leaves, **options) * wanted_by).sum(),
                                             leaves))
    for name, got, wanted in zip("qkv", *gradients, strict=True):
        assert_close(got, wanted, f"gradient of {name}")


def check_gradients(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Gradients equal central differences (torch.autograd.gradcheck, float64)."""
    leaves = [x.requires_grad_() for x in inputs(**{"length": 6, "head_dim": 2, **sizes})]
    assert torch.autograd.gradcheck(lambda q, k, v: implementation(q, k, v, **options), leaves)


# ---------------------------------------------------------------- mechanisms that pool groups as
# CCA does

def check_window(implementation: Implementation, options: dict, **sizes: int) -> None:
    """The s nearest tokens are raw, and at most s + g - 1: cores are neither early nor late.

    As long as no core stands between, the sinks are raw tokens without a gap too.
    """
    q, k, _ = inputs(**sizes)
    group, window, sinks = options["group"], options["window"], options.get("sinks", 0)
    held = count_tokens(read_matrix(implementation, torch.zeros_like(q), k, options))
    for i in range(q.shape[2]):
        raw = ((held[..., i, :] - 1).abs() < 1e-9).flip(-1)          # nearest first
        nearest = raw[..., q.shape[2] - 1 - i :].cumprod(-1).sum(-1)  # raw tokens without a gap
        none_older = i + 1 < sinks + window + group
        low, high = min(window, i + 1), i + 1 if none_older else window + group - 1
        assert ((low <= nearest) & (nearest <= high)).all(), (
            f"row {i} has {nearest.unique().tolist()} raw tokens, wanted {low} to {high}")


def check_pooling_weights(implementation: Implementation, options: dict, heads: int = 4,
                          kv_heads: int = 2, **sizes: int) -> None:
    """The weights inside a core are Eq. 2: softmax of the judge's logits, mean over its heads."""
    q, k, _ = inputs(heads=heads, kv_heads=kv_heads, **sizes)
    keys = k.repeat_interleave(heads // kv_heads, dim=1)
    for row, p, core in visible_cores_of(read_matrix(implementation, q, k, options), options):
        members = members_of(p, options)
        judge = members.stop - 1
        logits = torch.einsum("bhd,bhtd->bht", q[:, :, judge],
                              keys[:, :, members]) * q.shape[-1] ** -0.5
        if not options.get("per_query_head"):
            shared = logits.unflatten(1, (kv_heads, -1)).mean(2, keepdim=True)
            logits = shared.expand(-1, -1, heads // kv_heads, -1).flatten(1, 2)
        phi = core / core.sum(-1, keepdim=True)
        assert_close(phi, logits.softmax(-1), f"phi of group {p} as row {row} sees it", 1e-10)


def visible_cores_of(matrix: Tensor, options: dict):
    """Yield (row, group, weights of its tokens (B, H, g)) for each visible core."""
    group, window, sinks = options["group"], options["window"], options.get("sinks", 0)
    for i in range(matrix.shape[-1]):
        for p in range(max(0, i + 1 - sinks - window) // group):
            yield i, p, matrix[..., i, members_of(p, options)]


def members_of(p: int, options: dict) -> slice:
    """The tokens of group p, counted from the first one behind the sinks."""
    first = options.get("sinks", 0) + p * options["group"]
    return slice(first, first + options["group"])


def check_judge(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Besides row t, the query of token t matters only if t ends its group."""
    q, k, v = inputs(**sizes)
    group, window, length = options["group"], options["window"], q.shape[2]
    sinks = options.get("sinks", 0)
    before = implementation(q, k, v, **options)
    for t in range(length):
        edited = q.clone()
        edited[:, :, t] = -3 * q[:, :, t]
        changed = (implementation(edited, k, v, **options) - before).abs().amax((0, 1, 3)) > 0
        is_judge = t >= sinks and (t - sinks) % group == group - 1 and group > 1
        wanted = [i == t or (is_judge and i + 1 - window >= t + 1) for i in range(length)]
        changed[t] = True  # the first row is its own only key, whatever its query
        assert changed.tolist() == wanted, (f"the query of token {t} moves rows "
                                            f"{changed.nonzero().flatten().tolist()}, wanted "
                                            f"{[i for i, w in enumerate(wanted) if w]}")


def rope_tables(length: int, head_dim: int, offset: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin (L, D) of positions offset .. offset + L - 1, half-rotated layout, base 100."""
    frequency = 100.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = (offset + torch.arange(length, dtype=torch.float64))[:, None] * frequency  # (L, D/2)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE by complex numbers: dimensions j and j + D/2 are real and imaginary part."""
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos[..., :half],
                                                                         sin[..., :half])
    return torch.cat([turned.real, turned.imag], dim=-1)


def check_rope_middle(implementation: Implementation, options: dict, **sizes: int) -> None:
    """A core key is the pooled un-rotated keys, rotated at its group's middle (Appendix B.2).

    The matrix shows both sides: phi inside a core, and the core's logit against the row's own.
    """
    q0, k0, _ = inputs(**sizes)
    scale = q0.shape[-1] ** -0.5
    tables = cos, sin = rope_tables(*q0.shape[-2:])
    q, k = rotate(q0, cos, sin), rotate(k0, cos, sin)
    matrix = read_matrix(implementation, q, k, {**options, "rotation": tables})
    repeat = q.shape[1] // k.shape[1]
    k0, k = k0.repeat_interleave(repeat, 1), k.repeat_interleave(repeat, 1)
    for i, p, core in visible_cores_of(matrix, options):
        phi = core / core.sum(-1, keepdim=True)                               # (B, H, g)
        members = members_of(p, options)
        pooled = (phi[..., None] * k0[:, :, members]).sum(2)                  # (B, H, D)
        middle = members.start + options["group"] // 2
        key = rotate(pooled, cos[middle], sin[middle])
        got = (core.sum(-1) / matrix[..., i, i]).log()
        wanted = scale * (q[:, :, i] * (key - k[:, :, i])).sum(-1)
        assert_close(got, wanted, f"logit of core {p} in row {i}", 1e-10)


def check_rope_translation(implementation: Implementation, options: dict, **sizes: int) -> None:
    """Only distances count: all positions moved by the same number, the same output."""
    q, k, v = inputs(**sizes)
    outputs = []
    for offset in (0, 7):
        tables = rope_tables(*q.shape[-2:], offset)
        outputs.append(implementation(rotate(q, *tables), rotate(k, *tables), v, **options,
                                      rotation=tables))
    assert_close(outputs[1], outputs[0], "positions moved by 7", 1e-11)


def check_rope_tables(implementation: Implementation, options: dict,
                      reference: Implementation) -> None:
    """Tables (1, L, D), and (B, L, D) with other positions and a factor, as some models have."""
    q, k, v = inputs(10, batch=2, heads=4, kv_heads=2)
    here, there = rope_tables(10, 4), [1.3 * table for table in rope_tables(10, 4, offset=3)]
    for shape, rows in (("1LD", (here,)), ("BLD", (here, there))):
        cos, sin = tables = [torch.stack(pair) for pair in zip(*rows, strict=True)]
        turned = [rotate(x, cos[:, None], sin[:, None]) for x in (q, k)]
        wanted = [reference(*(x[b : b + 1] for x in (*turned, v)), **options,
                            rotation=rows[b % len(rows)]) for b in range(2)]
        assert_close(implementation(*turned, v, **options, rotation=tuple(tables)),
                     torch.cat(wanted), shape, 1e-11)


def check_rope_distances(implementation: Implementation, options: dict,
                         distance: Callable[[int, int], int], **sizes: int) -> None:
    """Each token of row i is at the distance wanted, by logits against the row's own token."""
    q0, k0, _ = inputs(**sizes)
    length, head_dim = q0.shape[2:]
    tables = rope_tables(length, head_dim)
    matrix = read_matrix(implementation, rotate(q0, *tables), rotate(k0, *tables),
                         {**options, "rotation": tables})
    k0 = k0.repeat_interleave(q0.shape[1] // k0.shape[1], 1)
    for i in range(length):
        for t in range(i):
            if (matrix[..., i, t] == 0).all():
                continue
            far = rotate(k0[:, :, t], *(table[0] for table in rope_tables(1, head_dim,
                                                                          -distance(i, t))))
            got = (matrix[..., i, t] / matrix[..., i, i]).log()
            wanted = head_dim**-0.5 * (q0[:, :, i] * (far - k0[:, :, i])).sum(-1)
            assert_close(got, wanted, f"token {t} seen from row {i} at distance {distance(i, t)}",
                         1e-10)


def moved(selection, device):
    """A choice of tokens, as `select` returns it, on another device."""
    if isinstance(selection, list):
        return [moved(each, device) for each in selection]
    if isinstance(selection, tuple):
        return type(selection)(*(moved(each, device) for each in selection))
    return selection if selection is None else selection.to(device)
