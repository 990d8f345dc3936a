"""The explorer's doors: a model that reads a text, or tensors of hand size."""

from typing import Any

from torch import Tensor

from cca_lab.views.explorer.explorer import Explorer
from cca_lab.views.explorer.inputs import Tensors

TEXT = '''def average(numbers):
    """Return the arithmetic mean of a list of numbers."""
    if not numbers:
        raise ValueError("average of an empty list")
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)


def spread(numbers):
    """Return the mean distance of the numbers from their average."""
    middle = average(numbers)
    distances = [abs(number - middle) for number in numbers]
    return average(distances)
'''


def explore(model: Any = "gpt2-mini", text: str | Tensor = TEXT, *, attention: str | None = None,
            layer: int = 0, head: int = 0, query: int | None = None, everywhere: bool = False, tokenizer: Any = None,
            **options: Any) -> Explorer:
    """Show what the heads of a model read of a text under any mechanism.

    Args:
        model: a shipped model's name, a folder, or a model of transformers (then `tokenizer` reads the text).
        text: a text, or token ids (L,).
        attention: the mechanism's name; by default that of a model that was swapped, with its options, else "cca".
        layer, head, query, everywhere: as in `Explorer`.
        tokenizer: of a model that is given as an object.
        options: of the mechanism, such as group=8, window=16.

    Returns:
        An `Explorer`: the last value of a cell shows it.

    Raises:
        ValueError: as `Explorer`, or for a model or text that cannot be read.
    """
    from cca_lab.models import attention_of
    from cca_lab.views.explorer.library import Library

    library = Library(model, tokenizer)
    source = library.open(None, text)
    own = attention_of(source.model)
    if attention is None and own.name != "full":
        attention, options = own.name, {**own.options(), **options}
    return Explorer(source, attention or "cca", options, layer=layer, head=head, query=query,
                    everywhere=everywhere, library=library)


def explore_tensors(q: Tensor, k: Tensor, v: Tensor | None = None, *, words: Any = (), scale: float | None = None,
                    attention: str = "cca", head: int = 0, query: int | None = None, **options: Any) -> Explorer:
    """Show what given queries read of given keys, such as an example of hand size.

    Args:
        q: (1, H, L, D), or (L, D) for one head.
        k, v: (1, Hk, L, D), or (L, D); v is k by default, since no weight depends on the values.
        words: (L,) texts of the tokens.
        scale: factor on the dot products; None means D**-0.5.
        attention, head, query, options: as in `explore`.

    Raises:
        ValueError: as `Explorer`, or if shapes do not fit together.
    """
    def four(x: Any) -> Any:
        return x[None, None] if isinstance(x, Tensor) and x.dim() == 2 else x

    source = Tensors(four(q), four(k), four(v), tuple(words), scale)
    return Explorer(source, attention, options, head=head, query=query)
