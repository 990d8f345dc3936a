"""What a reader must know of a mechanism to use it, test it and draw it: one `Mechanism` each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

EVERY_ROW = "every row sees its past only"
WHOLE_PROMPT = "which tokens are kept is chosen from the whole prompt; given the choice, every row sees its past only"
OWN_BLOCK = "which tokens are kept is chosen from whole blocks of rows, a row's own included; given the choice, " \
            "every row sees its past only"

RUNTIME = ("scale", "rotation", "selection", "compressor")  # keywords of `attention` that are no options


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism:
    """One way for row i to attend to its past.

    Attributes:
        name: the key in `MECHANISMS`.
        title: the name in prose.
        paper: citation and section.
        loops: the paper's algorithm row by row; the specification.
        attention: the vectorised form, (q, k, v, **options, backend=...) -> (B, H, L, D). Options are
            JSON values; the keywords in `RUNTIME` are handed over by whoever calls it.
        effective: (q, k, **options) -> E, (B, H, L, L), with attention(q, k, v) = E v. Where the values take
            part in the weights it also takes `values`, (B, Hk, L, D).
        defaults: the options used when none are given; sized for contexts of about 512 tokens.
        paper_presets: the options the paper reports results with, by where it reports them.
        causal_scope: (**options) -> which tokens may influence a row: EVERY_ROW, WHOLE_PROMPT or OWN_BLOCK.
        needs_training: whether the paper trains the model before using the mechanism.
        exact_when: exact_when(L, **options) is True only where the output equals full attention's whatever q, k
            and v are. It is "if and only if" (for two heads or more and q, k, v in no special place) but for
            "vertical_slash", "minference" with such patterns, "dga" and "lm_infinite": there it is "if", since
            what is chosen, or a position that is moved, may happen to leave nothing out or change nothing.
        rungs: the backends of `attention`. Mechanisms whose rows see no intervals have "dense" only, or a kernel
            of their own.
        represented: (q, k, **options) -> bool, (B, H, L, L): the past tokens that reach a row, raw or
            pooled; None if all of them do.
        select: (q, k, **options) -> what `attention(..., selection=)` takes to repeat a choice of tokens;
            None if nothing is chosen.
        new_module: (config, **options) -> the trainable module of one layer, passed as
            `attention(..., compressor=)`; None if there is nothing to train.
        length_matters: (**options) -> whether what a row reads depends on the length of the text, though not
            on its later tokens. Padded rows are then attended to one by one.
        training_only: whether the paper attends in full once the model is trained: swap back to "full" then.
    """

    name: str
    title: str
    paper: str
    loops: Callable[..., Tensor]
    attention: Callable[..., Tensor]
    effective: Callable[..., Tensor]
    defaults: dict[str, Any]
    paper_presets: dict[str, dict[str, Any]]
    causal_scope: Callable[..., str]
    needs_training: bool
    exact_when: Callable[..., bool]
    rungs: tuple[str, ...] = ("dense", "blocked", "triton")
    represented: Callable[..., Tensor] | None = None
    select: Callable[..., Any] | None = None
    new_module: Callable[..., nn.Module] | None = None
    length_matters: Callable[..., bool] = lambda **_: False
    training_only: bool = False


def every_row(**_: Any) -> str:
    """Return EVERY_ROW, the causal scope of a mechanism that chooses nothing from later tokens."""
    return EVERY_ROW
