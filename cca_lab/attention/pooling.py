"""Pooling groups of keys and values into core tokens (CCA-Attention, eq. 2 and 3; DGA, eq. 14)."""

from typing import Any, Literal, overload

import torch
from torch import Tensor

from cca_lab.attention import native
from cca_lab.attention.arguments import check_qkv, check_rotation, check_tensors, scale_of
from cca_lab.attention.dense import accumulation_dtype, product
from cca_lab.attention.fused import KERNEL_DTYPES, fused, needs_gradient, require_triton
from cca_lab.attention.rotary import Rotation, rotate
from cca_lab.settings import check_bools, check_integers

WEIGHTS = ("softmax", "mean", "max")
BACKENDS = ("auto", "torch", "triton")


@overload
def pool_groups(q: Tensor, k: Tensor, v: Tensor, group: int, *, count: int | None = ...,
                weights: str = ..., per_query_head: bool = ..., scale: float | None = ...,
                rotation: Rotation | None = ..., return_phi: Literal[False] = ...,
                backend: str = ...) -> tuple[Tensor, Tensor]:    ...
@overload
def pool_groups(q: Tensor, k: Tensor, v: Tensor, group: int, *, count: int | None = ...,
                weights: str = ..., per_query_head: bool = ..., scale: float | None = ...,
                rotation: Rotation | None = ..., return_phi: Literal[True],
                backend: str = ...) -> tuple[Tensor, Tensor, Tensor | None]:
    ...


def pool_groups(
    q: Tensor, k: Tensor, v: Tensor, group: int, *, count: int | None = None,
    weights: str = "softmax", per_query_head: bool = False, scale: float | None = None,
    rotation: Rotation | None = None, return_phi: bool = False, backend: str = "auto",
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]:
    """Pool the first `count` complete groups of g tokens into a core key and core value each.

        phi_p = softmax over the members t of group p of scale * q_last . k_t
        core_p = sum_t phi_pt x_t

    where q_last is the query of the group's last token (CCA, Eq. 2) and x is k or v. The weights
    sum to 1, so pooling keys and values equals projecting the pooled inputs of Eq. 3. With grouped
    queries, the logits are averaged over the query heads of a KV head.

    Args:
        q: queries (B, H, L, D), as they enter attention (rotated, where positions are rotary).
        k, v: keys and values (B, Hk, L, D), H a multiple of Hk.
        group: tokens per group, g.
        count: number of groups pooled, M; L // g by default. Later tokens are not pooled.
        weights: "softmax" as above; "mean" (phi = 1/g) or "max" (the largest member, feature by
            feature), the alternatives of the paper's Table 7.
        per_query_head: make a core for each query head (as the authors' code does).
        scale: factor on the logits; D ** -0.5 by default.
        rotation: rotary tables (cos, sin), (L, D) or (B, L, D), half-rotated layout, with which q
            and k were rotated. Each key is re-rotated to the middle position p * g + g // 2 of its
            group (Appendix B.2) before it is pooled; the logits use k as it is given.
        return_phi: also return phi.
        backend: "torch", "triton" (one fused kernel; softmax weights, one core per KV head, no
            phi), or "auto": for such a call the kernel on a GPU, and without gradients the C++ op
            on a CPU.

    Returns:
        core_k, core_v: (B, Hk, M, D), or (B, H, M, D) per query head, in k's and v's dtype. With
        `return_phi`, also phi (B, Hk or H, M, g), in at least float32, or None for "max".

    Raises:
        ValueError: naming an argument that does not fit; for "triton" also if it cannot run here.

    Differs from the paper: it does not mention heads; one weight vector per KV head is the lab's
    default.
    """
    check_qkv(q, k, v, empty=True)
    check_bools(per_query_head=per_query_head, return_phi=return_phi)
    check_rotation(rotation, q)
    core_k, core_v, phi = pool_checked(
        q, k, v, group, count=count, weights=weights, per_query_head=per_query_head,
        scale=scale_of(scale, k.shape[-1]), rotation=rotation, return_phi=return_phi,
        backend=backend)
    return (core_k, core_v, phi) if return_phi else (core_k, core_v)


def pool_checked(q: Tensor, k: Tensor, v: Tensor, group: int, *, scale: float,
                 rotation: Rotation | None = None, count: int | None = None,
                 weights: str = "softmax", per_query_head: bool = False, return_phi: bool = False,
                 backend: str = "auto") -> tuple[Tensor, Tensor, Tensor | None]:
    """Return core_k, core_v and phi of `pool_groups`, for tensors that a caller has checked.

    Phi is None for a maximum, and where the kernel runs, which keeps none.
    """
    count = _check(k.shape[2], group, count, weights, backend)
    fits = _kernel_pools(weights, per_query_head, count, return_phi) and k.dtype in KERNEL_DTYPES
    if backend == "triton" or (backend == "auto" and fits and fused(k)):
        return *_fused(q, k, v, group, count, scale, rotation, fits), None
    if (backend == "auto" and _kernel_pools(weights, per_query_head, count, return_phi)
            and not needs_gradient(q, k, v) and native.reads_rows(k)):
        return *native.pool(q, k, v, group, count, scale, rotation), None
    complete = k.shape[2] // group
    # Matrix products read the groups of a whole tensor as a view; those of a slice would be copied.
    pooled = complete if complete * group == k.shape[2] and 2 * count >= complete else count
    cores_per_kv_head = q.shape[1] // k.shape[1] if per_query_head else 1
    if weights == "max":
        phi, cores = None, tuple(
            x.amax(dim=3).repeat_interleave(cores_per_kv_head, dim=1)
            for x in (_turn_to_middle(_groups(k, group, pooled), rotation),
                      _groups(v, group, pooled)))
    else:
        # Autograd goes back through what was made last first: values, keys, then queries have
        # their gradients added, and no two of these wait in memory at once.
        last = _last_queries(q, k, group, pooled)
        phi, core_k = _pooled_keys(last, _groups(k, group, pooled), weights, per_query_head, scale,
                                   rotation)
        core_v = product(phi, _groups(v, group, pooled).to(phi.dtype))
        cores = tuple(x.transpose(2, 3).flatten(1, 2).to(k.dtype)  # (B, Hk * r, M, D)
                      for x in (core_k, core_v))
        phi = phi.transpose(2, 3).flatten(1, 2)[:, :, :count]  # (B, Hk * r, M, g)
    core_k, core_v = (core[:, :, :count] for core in cores)
    return core_k, core_v, phi


def pooling_backend(attention: str, *, weights: str = "softmax", per_query_head: bool = False,
                    count: int = 1, return_phi: bool = False) -> str:
    """Return the backend of `pool_groups` that goes with one of `interval_attention`.

    That is "auto" for "auto"; "triton" for "triton" if the kernel supports the call with the given
    arguments; else "torch".
    """
    if attention == "triton" and _kernel_pools(weights, per_query_head, count, return_phi):
        return "triton"
    return "auto" if attention == "auto" else "torch"


def pooling_matrix(phi: Tensor, length: int) -> Tensor:
    """Return the rows of the pooling matrix P that `pool_groups` applies: core p = sum_t P_pt x_t.

    Args:
        phi: weights (..., M, g) of M consecutive groups from token 0.
        length: number of tokens L, at least M * g.

    Returns:
        P (..., M, L): row p has phi_p in the columns of group p and 0 elsewhere.

    Raises:
        ValueError: if the groups do not fit into `length`.
    """
    check_tensors(phi=phi)
    groups, group = phi.shape[-2:]
    if groups * group > length:
        raise ValueError(f"phi: got {groups} groups of {group} tokens, wanted them to fit into "
                         f"{length}; give the length of the text")
    blocks = torch.diag_embed(phi.transpose(-1, -2), dim1=-3, dim2=-2)  # (..., M, M, g)
    return torch.nn.functional.pad(blocks.flatten(-2), (0, length - groups * group))


def _groups(x: Tensor, group: int, count: int) -> Tensor:
    """(B, H, L, D) -> (B, H, count, group, D), a view."""
    return x[:, :, : count * group].unflatten(2, (count, group))


def _last_queries(q: Tensor, k: Tensor, group: int, count: int) -> Tensor:
    """Return the last queries of the groups by KV head, (B, Hk, M, H / Hk, D), as sums are."""
    last = q[:, :, group - 1 : count * group : group].to(accumulation_dtype(k.dtype))
    return last.unflatten(1, (k.shape[1], -1)).transpose(2, 3)


def _pooled_keys(last: Tensor, keys: Tensor, weights: str, per_query_head: bool, scale: float,
                 rotation: Rotation | None) -> tuple[Tensor, Tensor]:
    """Return phi (B, Hk, M, r, g) and the core keys (B, Hk, M, r, D), in the dtype of `last`.

    Here keys are (B, Hk, M, g, D), and r is the queries per KV head, or 1 with shared weights.
    """
    if not per_query_head:
        # the mean of the logits is the logit of the mean query
        last = last.mean(dim=3, keepdim=True)
    if weights == "mean":
        phi = torch.full_like(last[..., :1], 1.0 / keys.shape[3]).expand(
            *last.shape[:4], keys.shape[3])
    elif rotation is not None and not needs_gradient(last, keys):
        phi = (product(last, keys.to(last.dtype).mT) * scale).softmax(dim=-1)
    else:
        phi, core = _SoftmaxPooling.apply(last, keys.to(last.dtype), scale)
        if rotation is None:
            return phi, core
    return phi, product(phi, _turn_to_middle(keys, rotation).to(last.dtype))


class _SoftmaxPooling(torch.autograd.Function):
    """phi = softmax(scale * q_last K^T) and phi K of each group, with one gradient of K.

    Autograd would make two tensors as large as K, one for each use, and a third for their sum.
    """

    @staticmethod
    def forward(ctx: Any, last: Tensor, keys: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        phi = (product(last, keys.mT) * scale).softmax(dim=-1)  # (B, Hk, M, r, g)
        ctx.save_for_backward(last, keys, phi)
        ctx.scale = scale
        return phi, product(phi, keys)

    @staticmethod
    def backward(ctx: Any, grad_phi: Tensor, grad_core: Tensor) -> tuple[Tensor, Tensor, None]:
        last, keys, phi = ctx.saved_tensors
        grad_phi = grad_phi + product(grad_core, keys.mT)
        slopes = ctx.scale * phi * (grad_phi - (grad_phi * phi).sum(dim=-1, keepdim=True))
        grad_keys = product(torch.cat([phi, slopes], dim=3).mT, torch.cat([grad_core, last], dim=3))
        return product(slopes, keys), grad_keys, None


def _kernel_pools(weights: str, per_query_head: bool, count: int, return_phi: bool) -> bool:
    """Return whether the pooling kernel supports such a call."""
    return weights == "softmax" and not per_query_head and count > 0 and not return_phi


def _fused(q: Tensor, k: Tensor, v: Tensor, group: int, count: int, scale: float,
           rotation: Rotation | None, fits: bool) -> tuple[Tensor, Tensor]:
    """The Triton backend, imported when it is first used: triton exists for Linux only."""
    if not fits:
        raise ValueError(
            'backend: got "triton", wanted "auto" here: the kernel has softmax weights, one core '
            'per '
            "KV head, at least one group and no float64, and returns no phi")
    require_triton()
    from cca_lab.attention.kernels.pooling import triton_pool_groups

    turn = None
    if rotation is not None:
        cos, sin = (x[:, 0].flatten(1, 2)
                    for x in _turn(rotation, count, group, k.device, torch.float32))
        turn = cos, sin
    return triton_pool_groups(q, k, v, group, count, scale, turn)


def _turn(rotation: Rotation, count: int, group: int, device: torch.device,
          dtype: torch.dtype) -> Rotation:
    """Return cos and sin of the angle from each token to its group's middle, (1 or B, 1, M, g, D).

    With e = cos + i sin, that is e_mid / e_t; dividing keeps it exact for scaled tables.
    """
    cos, sin = (_position_groups(table.to(device, dtype), count, group) for table in rotation)
    mid_cos, mid_sin = (x[..., group // 2 : group // 2 + 1, :] for x in (cos, sin))
    norm = cos.square() + sin.square()
    return (mid_cos * cos + mid_sin * sin) / norm, (mid_sin * cos - mid_cos * sin) / norm


def _turn_to_middle(keys: Tensor, rotation: Rotation | None) -> Tensor:
    """Re-rotate keys (B, Hk, M, g, D) from their own position, if any, to their group's middle."""
    if rotation is None:
        return keys
    count, group = keys.shape[2:4]
    dtype = accumulation_dtype(keys.dtype)
    turn_cos, turn_sin = _turn(rotation, count, group, keys.device, dtype)
    return rotate(keys.to(dtype), turn_cos, turn_sin).to(keys.dtype)


def _position_groups(table: Tensor, count: int, group: int) -> Tensor:
    """(L, D) or (B, L, D) -> (1 or B, 1, count, group, D)."""
    table = table if table.dim() == 3 else table[None]
    return table[:, None, : count * group].unflatten(2, (count, group))


def _check(length: int, group: int, count: int | None, weights: str, backend: str) -> int:
    """Return the number of groups; a ValueError names the first argument that does not fit."""
    check_integers(1, group=group)
    if backend not in BACKENDS:
        raise ValueError(
            f"backend: got {backend!r}, wanted one of {', '.join(map(repr, BACKENDS))}")
    if weights not in WEIGHTS:
        raise ValueError(f"weights: got {weights!r}, wanted one of {', '.join(map(repr, WEIGHTS))}")
    complete = length // group
    if count is not None:
        check_integers(0, count=count)
    if count is not None and count > complete:
        raise ValueError(f"count: got {count}, wanted at most {complete}, the complete groups of "
                         f"{group} in {length} tokens")
    return complete if count is None else count
