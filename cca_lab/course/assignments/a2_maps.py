"""a2: the maps that its checks draw, and what is right for them, by loops and in integers."""

import torch
from torch import Tensor

from cca_lab.course.tasks import Draw


def integer_map(draw: Draw, length: int) -> Tensor:
    """Return a causal map times its row sums: small integers (length, length), token 0 heavier than the others."""
    drawn = draw.integers(0, 10, length, length).tril()
    drawn[:, 0] += 2
    drawn.diagonal().add_(1)
    return drawn


def tied_map(draw: Draw, length: int, mass: tuple[int, int], sinks: int) -> Tensor:
    """Return such a map in which the heaviest keys of a row hold exactly the mass, where the row is long enough."""
    drawn = integer_map(draw, length)
    top, over = mass
    for row in range(sinks + over, length):
        room = row + 1 - sinks
        unit = draw.randint(1, max(1, room // (2 * (over - top))))
        light = unit * (over - top)                                    # tokens of weight 1; the others hold the mass
        heavy = draw.randint(1, min(room - light, unit * top // 2))    # of at least 2 each
        part, more = divmod(unit * top, heavy)
        values = [part + (place < more) for place in range(heavy)] + [1] * light + [0] * (room - light - heavy)
        draw.shuffle(values)
        drawn[row, sinks : row + 1] = torch.tensor(values)
    return drawn


def counted(drawn: Tensor, mass: tuple[int, int], sinks: int) -> Tensor:
    """Return the least k of each row such that its k heaviest tokens after the sinks hold the mass, in integers."""
    counts = []
    for row in drawn[:, sinks:].tolist():
        held, keys = 0, 0
        for weight in sorted(row, reverse=True):
            if mass[1] * held >= mass[0] * sum(row):
                break
            held, keys = held + weight, keys + 1
        counts.append(keys)
    return torch.tensor(counts)


def exact_map(draw: Draw, length: int, empty: bool = False) -> Tensor:
    """Return such a map with row sums of 64, so that all its sums are exact; or token 0 alone has every second row."""
    drawn = draw.integers(0, 5, length, length).tril()
    drawn.diagonal().add_(1)
    if empty:
        drawn[::2, 1:] = 0
    drawn[:, 0] += 64 - drawn.sum(dim=-1)
    return drawn


def noise(draw: Draw, maps: int, length: int) -> Tensor:
    """Return causal maps of pure noise, (maps, length, length) float64: exponential weights over their sum."""
    drawn = (draw.normal(maps, length, length) ** 2 + draw.normal(maps, length, length) ** 2).tril()
    return drawn / drawn.sum(dim=-1, keepdim=True)


def own_token_only(draw: Draw, maps: Tensor) -> Tensor:
    """Return maps in which one of the last rows reads its own token alone: it loses nothing, but could."""
    row = draw.randint(maps.shape[-1] // 2, maps.shape[-1] - 2)
    alone = maps.clone()
    alone[:, row] = 0
    alone[:, row, row] = 1
    return alone


def lost(maps: Tensor, windows: list[int], late: int = 0, every: bool = False, losing: bool = False) -> Tensor:
    """Return what rows lose on average; the options make mistakes.

    Args:
        maps, windows: as the task says.
        late: moves the border.
        every: take the mean over all rows.
        losing: take it over the rows that lose something.
    """
    length, columns = maps.shape[-1], []
    for window in windows:
        parts = [maps[:, i, : max(0, i - window + 1 + late)].sum(-1) for i in range(0 if every else window, length)]
        rows = torch.stack(parts) if parts else maps.new_zeros(1, len(maps))
        columns.append(rows.sum(0) / (rows > 0).sum(0).clamp(min=1) if losing else rows.mean(0))
    return torch.stack(columns, dim=-1)


def lifted(maps: Tensor, first: int, split: int, top: int, *, choose: slice | None = None, skip: int = 1,
           test: int | None = None, how: str = "mean of shares") -> Tensor:
    """Return the lift of each map by loops; the options make mistakes.

    Args:
        maps, first, split, top: as the task says.
        choose: other rows that choose.
        skip: the first candidate.
        test: the first row that tests.
        how: "mean of shares", "ratio of sums", or "whole row", by which the chosen tokens' weight is divided.
    """
    lifts = []
    for each in maps:
        totals = each[choose or slice(first, split), skip:first].sum(dim=0).tolist()
        chosen = sorted(range(len(totals)), key=lambda token: -totals[token])[:top]
        rows = each[split if test is None else test:, skip:first]
        held, even = rows[:, chosen].sum(dim=-1), rows.sum(dim=-1)
        share = {"mean of shares": (held / even).mean(), "ratio of sums": held.sum() / even.sum(),
                 "whole row": held.mean()}[how]
        lifts.append(share * len(totals) / top)
    return torch.stack(lifts)


def with_sink(draw: Draw, maps: Tensor, share: float | None = None) -> Tensor:
    """Return maps in which token 0 takes another share of each row (one for all rows, or each its own).

    The other tokens keep their proportions.
    """
    shares = torch.tensor([share or draw.uniform(0.2, 0.9) for _ in range(maps.shape[-1])], dtype=maps.dtype)
    rest = maps.clone()
    rest[..., 0] = 0
    rest[..., 1:, :] *= ((1 - shares[1:]) / rest[..., 1:, :].sum(dim=-1))[..., None]
    rest[..., 0] = 1 - rest.sum(dim=-1)
    return rest


def planted(maps: Tensor, tokens: list[int], factor: float) -> Tensor:
    """Return maps in which some tokens weigh more in every row."""
    more = maps.clone()
    more[..., tokens] *= factor
    return more / more.sum(dim=-1, keepdim=True)
