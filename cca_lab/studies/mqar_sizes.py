"""The mechanisms that are compared on multi-query associative recall, each at the largest size within a budget.

The budget counts a decoder's cache at its largest while it reads a text token by token: keys and values, and what
a mechanism keeps besides them (H2O's scores, DGA's queries of an open block). A mechanism with groups has two
sizes to choose, so that several choices use up the budget:
  * CCA, mean pooling and random tokens: the smallest group that fits, and the one that leaves the largest window,
    which is about sqrt(L). Both are trained.
  * DGA, in its causal form (choose="blocks"): the block with the most focal tokens over the text. With the paper's
    form, a row's focal tokens are chosen with the help of later queries, so that later tokens would help to answer.
"""

from collections.abc import Iterator

from transformers import PreTrainedConfig

from cca_lab.mechanisms import DGA, MECHANISMS, Mechanism
from cca_lab.mechanisms.caches import CACHES, LEAST, sized
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.mechanisms.cca.mechanism import Grouped

NAMES = ("cca", "dga", "lococo", "h2o", "streaming_llm", "lm_infinite", "mean_pooling", "random_tokens")


def largest_bytes(mechanism: Mechanism, length: int, sizes: CacheSizes) -> int:
    """Return the bytes of a model's cache at its largest, while `length` tokens are read one by one."""
    if mechanism.name == "full":
        return sizes.layers * sizes.entries(length)
    cache = CACHES[mechanism.name]
    return sizes.layers * max(sizes.entries(mechanism.peak_entries(read)) + cache.extra_bytes(mechanism, read, sizes)
                              for read in range(1, length + 1))


def within(config: PreTrainedConfig, name: str, entries: int, length: int) -> list[Mechanism]:
    """Return the choices of a mechanism that are compared at a budget; none if even its smallest cache is larger.

    Args:
        config: of the model.
        name: one of `NAMES`.
        entries: the budget: keys, and as many values, for each KV head; other tensors count by their bytes.
        length: tokens of a text.

    Raises:
        ValueError: for another name.
    """
    if name not in NAMES:
        raise ValueError(f"attention: got {name!r}, wanted full or one of {', '.join(NAMES)}")
    sizes = CacheSizes.of(config)
    budget = sizes.layers * sizes.entries(entries)
    fitting = [one for one in choices(name, entries, length) if largest_bytes(one, length, sizes) <= budget]
    if not fitting:
        return []
    if issubclass(MECHANISMS[name], Grouped):
        grouped = [one for one in fitting if isinstance(one, Grouped)]
        smallest = min(grouped, key=lambda one: (one.group, -one.window))
        widest = max(grouped, key=lambda one: (one.window, -one.group))
        return [smallest] if smallest.group == widest.group else [smallest, widest]
    if name == "dga":
        return [max(fitting, key=lambda one: focal(one, length))]
    return [max(fitting, key=lambda one: largest_bytes(one, length, sizes))]


def choices(name: str, entries: int, length: int) -> Iterator[Mechanism]:
    """Yield mechanisms of a name whose caches may use up a budget, many of which exceed it."""
    if issubclass(MECHANISMS[name], Grouped):
        yield from (MECHANISMS[name](group=group, window=window)  # type: ignore[call-arg]  # of `Grouped`
                    for group in powers_of_two(entries) for window in range(1, entries + 1))
    elif name == "dga":
        yield from (DGA(group=group, gamma=kept / block, choose="blocks", block=block)
                    for group in powers_of_two(entries) for kept in range(1, entries)
                    for block in range(group + kept, entries + 1, group))
    else:
        yield from (sized(name, count, length) for count in range(LEAST, entries + 1))


def powers_of_two(most: int) -> list[int]:
    """Return 2, 4, 8, ... up to `most`."""
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]


def focal(mechanism: Mechanism, length: int) -> tuple[int, int, int]:
    """Return what DGA's choices are compared by: focal tokens of a text, fewer tokens per group, a larger block."""
    assert isinstance(mechanism, DGA)
    return length // mechanism.block * mechanism.focal_count(mechanism.block), -mechanism.group, mechanism.block
