"""The base class of all mechanisms: options, loops, the columns that rows see, the rest derived."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, Unpack

from torch import Tensor, nn

from cca_lab.attention.arguments import check_device, check_qkv, check_rotation, scale_of
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import columns
from cca_lab.mechanisms.columns import Columns
from cca_lab.settings import check_flags

EVERY_ROW = "every row sees its past only"
_GIVEN = "given the choice, every row sees its past only"
WHOLE_PROMPT = f"which tokens are kept is chosen from the whole prompt; {_GIVEN}"
OWN_BLOCK = ("which tokens are kept is chosen from whole blocks of rows, a row's own included; "
             f"{_GIVEN}")

ON_INTERVALS = ("dense", "blocked", "native", "triton")  # the backends of `interval_attention`


class Rest(TypedDict, total=False):
    """The keywords of `call`; all may be left out.

    Attributes:
        rotation: the RoPE tables (cos, sin), (L, D) or (B, L, D) each, with which q and k have
            already been rotated (half-rotated layout); None without rotary positions.
        selection: a choice of tokens that `select` returned, to use it again; None to choose now.
        module: a module that `new_module` made, trained or not; None if there is none.
    """

    rotation: Rotation | None
    selection: Any
    module: nn.Module | None


class Keywords(Rest, total=False):
    """The keywords of `loops`, `attention`, `effective` and `represented`.

    Attributes:
        scale: factor on the dot products; None means D**-0.5.
    """

    scale: float | None


class Call(NamedTuple):
    """The checked `Keywords` of one call; they are not options of the mechanism."""

    scale: float
    rotation: Rotation | None = None
    selection: Any = None
    module: nn.Module | None = None


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One way for row i to attend to its past: a frozen dataclass whose fields are its options.

    A subclass implements `row_by_row`, the paper's algorithm, `columns`, what the rows see, and
    `exact_when`. `attention`, `effective` and `represented` are derived from the columns. Options
    are JSON values that `__post_init__` checks; the defaults suit contexts of about 512 tokens.

    Attributes:
        backend: how attention is computed: "auto" or one of `backends`; the result is the same.

    Class attributes:
        name: the key in `MECHANISMS`.
        title: the name in prose.
        paper: citation and section.
        sizes: the options that set how much is read; `options` always returns them.
        paper_presets: options of the paper or of its code, by the place that reports them.
        needs_training: whether the paper trains the model before using the mechanism.
        training_only: whether the paper uses full attention once the model is trained.
        of_one_model: whether its options are chosen for one model, so that no default stands for
            the mechanism where all are compared.
        backends: those of `interval_attention`; or, where rows see a mask, "dense" and perhaps a
            kernel for it.
    """

    backend: str = "auto"

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    sizes: ClassVar[tuple[str, ...]] = ()
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {}
    needs_training: ClassVar[bool] = False
    training_only: ClassVar[bool] = False
    of_one_model: ClassVar[bool] = False
    backends: ClassVar[tuple[str, ...]] = ON_INTERVALS

    def __post_init__(self) -> None:
        check_flags(self)
        if self.backend not in ("auto", *self.backends):
            raise ValueError(f"backend: got {self.backend!r}, wanted 'auto' or one of "
                             f"{', '.join(self.backends)} for {self.name!r} attention")

    # ------------------------------------------------------------ implemented by a subclass

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend row by row, as the paper's algorithm does: the specification, (B, H, L, D)."""
        raise NotImplementedError

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return the columns that the rows attend to, an item for each set of queries of a row."""
        raise NotImplementedError

    def exact_when(self, length: int) -> bool:
        """Return True only if the output at this length equals full attention's for all q, k and v.

        False means that the output differs, for two heads or more and q, k, v in general position.
        Exceptions are "vertical_slash", "minference" with such patterns, "dga" and "lm_infinite":
        their choice of tokens may leave nothing out, their change of positions may have no effect;
        and "kept_heads", which may keep all.
        """
        raise NotImplementedError

    @property
    def causal_scope(self) -> str:
        """Which tokens may influence a row: EVERY_ROW, WHOLE_PROMPT or OWN_BLOCK."""
        return EVERY_ROW

    @property
    def chooses(self) -> bool:
        """Whether `select` chooses tokens with the help of later ones."""
        return type(self).select is not Mechanism.select

    @property
    def length_matters(self) -> bool:
        """Whether what a row reads depends on the length of the text."""
        return False

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Any:
        """Return the choice of tokens, for `selection`; None if none depends on later tokens."""
        return None

    def new_module(self, config: Any) -> nn.Module | None:
        """Return the trainable module of one layer, for `module`; None if nothing is trained."""
        return None

    def at_layer(self, index: int) -> Self:
        """Return the mechanism of one layer of a model, where layers differ."""
        return self

    def check_config(self, layers: int, kv_heads: int) -> None:
        """Raise ValueError if the mechanism does not fit a model of these sizes."""

    def cache_entries(self, length: int) -> int | None:
        """Return the entries (a key and a value) of a KV head's cache after `length` tokens."""
        return None

    def peak_entries(self, length: int) -> int | None:
        """Return the most entries at the end of any chunk while `length` tokens are read."""
        return self.cache_entries(length)

    @classmethod
    def sized(cls, entries: int, length: int) -> Self | None:
        """Return a mechanism whose cache grows with `entries`, for texts of `length`, or None."""
        return None

    # ------------------------------------------------------------ derived

    def loops(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Unpack[Keywords]) -> Tensor:
        """Attend row by row: `row_by_row` after a check of the arguments, those of `attention`."""
        return self.row_by_row(q, k, v, self.call(q, k, v, **keywords))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Unpack[Keywords]) -> Tensor:
        """Attend with all rows at once.

        Args:
            q: queries, (B, H, L, D).
            k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
            keywords: scale, rotation, selection, module: see `Keywords`.

        Returns:
            (B, H, L, D), in the dtype of q.

        Raises:
            ValueError: naming an argument that does not fit.
        """
        call = self.call(q, k, v, **keywords)
        return columns.attend(self.columns(q, k, v, call), call.scale, self.backend)

    def effective(self, q: Tensor, k: Tensor, v: Tensor | None = None,
                  **keywords: Unpack[Keywords]) -> Tensor:
        """Return the matrix E with attention(q, k, v) = E v: the weight of each token in each row.

        Args:
            q, k, keywords: as in `attention`.
            v: the values; needed only with a module, whose weights depend on them.

        Returns:
            (B, H, L, L) in at least float32: rows sum to 1, and later tokens have weight exactly 0.

        Raises:
            ValueError: as `attention`.
        """
        v = k if v is None else v
        call = self.call(q, k, v, **keywords)
        return columns.effective(self.columns(q, k, v, call), call.scale)

    def represented(self, q: Tensor, k: Tensor, v: Tensor | None = None,
                    **keywords: Unpack[Keywords]) -> Tensor:
        """Return which tokens each row attends to, raw or pooled: bool (B, H, L, L).

        Args as in `effective`.
        """
        v = k if v is None else v
        return columns.represented(self.columns(q, k, v, self.call(q, k, v, **keywords)))

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is one that `select` could return for q and k."""
        raise ValueError(f"selection: got {type(selection).__name__}, wanted None; {self.name!r} "
                         "attention chooses no tokens that could be given")

    def call(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
             **rest: Unpack[Rest]) -> Call:
        """Return scale and keywords; a ValueError names the argument that does not fit."""
        check_qkv(q, k, v)
        call = Call(scale_of(scale, q.shape[-1]), **rest)
        check_rotation(call.rotation, q)
        if call.selection is not None:
            check_device("selection", call.selection, q.device)
            self.check_choice(call.selection, q, k)
        trains = type(self).new_module is not Mechanism.new_module
        if call.module is not None and not (trains and callable(call.module)):
            wanted = "what `new_module` makes, or None" if trains else \
                f"None: {self.name!r} has nothing to train"
            raise ValueError(f"module: got {type(call.module).__name__}, wanted {wanted}")
        return call

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the options."""
        names = [field.name for field in fields(cls) if field.init and field.name != "backend"]
        return [*names, "backend"]

    def __str__(self) -> str:
        """Return the name and the options as a short text, such as: cca, group 8, window 64."""
        return ", ".join(
            [self.name, *(f"{option} {value}" for option, value in self.options().items())])

    def options(self) -> dict[str, Any]:
        """Return the options to record: those in `sizes`, and others that are not defaults."""
        plain = type(self)()
        values = {name: getattr(self, name) for name in self.option_names()}
        return {name: values[name] for name in (*self.sizes, *values)
                if name in self.sizes or values[name] != getattr(plain, name)}
