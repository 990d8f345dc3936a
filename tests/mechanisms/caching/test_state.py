"""GrowingBuffers: the values of copies, in place, in bounded memory, never under a reader."""

import itertools
from copy import copy

import pytest
import torch

from cca_lab.mechanisms import mechanism_of
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching import state
from cca_lab.mechanisms.caching.state import (
    Copies,
    GrowingBuffers,
    _Buffer,
    room_for,
)
from tests.mechanisms.options import OPTIONS


def new_entries(count, seed=0):
    return torch.randn(2, 3, count, 4, generator=torch.Generator().manual_seed(seed))


def follow(buffers, steps, seed=0):
    """Append and drop as (tokens, dropped from, dropped to) say; yield what is stored."""
    stored = new_entries(0)
    for number, (count, begin, end) in enumerate(steps):
        stored = buffers.append("key", stored, new_entries(count, seed + number))
        yield stored
        if end > begin:
            stored = buffers.drop("key", stored, begin, end)
            yield stored


def steps_of(seed, sinks):
    """Chunks of any size into a window of about 40 entries, its first ones kept."""
    sizes = torch.randint(1, 9, (60,), generator=torch.Generator().manual_seed(seed)).tolist()
    sizes[::10] = [1, 90, 3, 40, 200, 7]
    held, steps = 0, []
    for size in sizes:
        held += size
        extra = max(0, held - 40) // (1 + seed % 3) if held > 40 else 0
        steps.append((size, sinks, sinks + extra))
        held -= extra
    return steps


def agree(buffers, seed, sinks):
    steps = steps_of(seed, sinks)
    pairs = itertools.zip_longest(follow(buffers, steps), follow(Copies(), steps))
    return all(torch.equal(found, wanted) for found, wanted in pairs)


class NoClone(_Buffer):
    """Mutant: the first entries do not move up behind the dropped ones."""

    def drop(self, begin, end):
        self.first += end - begin
        return self.entries()


class Trusting(_Buffer):
    """Mutant: takes any tensor for its own."""

    def holds(self, x):
        return True


@pytest.mark.parametrize("sinks", [0, 1, 5])
@pytest.mark.parametrize("seed", range(2))
def test_rooms_hold_what_copies_hold(seed, sinks):
    with torch.no_grad():
        assert agree(GrowingBuffers(), seed, sinks)
    with torch.inference_mode():
        assert agree(GrowingBuffers(), seed, sinks)
    assert agree(GrowingBuffers(), seed, sinks)


@torch.no_grad()
def test_few_numbers_are_copied(monkeypatch):
    """No room is kept, and the values are those of buffers."""
    monkeypatch.setattr(state, "FEW", 10 ** 6)
    assert agree(GrowingBuffers(), 1, 5)
    stored = GrowingBuffers().append("key", new_entries(3, 3), new_entries(3, 4))
    assert stored.untyped_storage().nbytes() == stored.nbytes


def test_first_entries_left_behind_are_found(monkeypatch):
    monkeypatch.setattr("cca_lab.mechanisms.caching.state._Buffer", NoClone)
    with torch.no_grad():
        assert not agree(GrowingBuffers(), 1, 5)


def another_tensor(buffers):
    """What is stored after another tensor took the place of the one returned last."""
    stored = buffers.append("key", new_entries(0), new_entries(8, 1))
    return buffers.append("key", stored[:, :, 2:], new_entries(1, 2))


def test_a_tensor_that_is_not_the_last_one_is_copied(monkeypatch):
    with torch.no_grad():
        assert torch.equal(another_tensor(GrowingBuffers()), another_tensor(Copies()))
        monkeypatch.setattr("cca_lab.mechanisms.caching.state._Buffer", Trusting)
        assert not torch.equal(another_tensor(GrowingBuffers()), another_tensor(Copies()))


@torch.no_grad()
def test_most_tokens_move_nothing():
    buffers, moved = GrowingBuffers(), 0
    stored = buffers.append("key", new_entries(0), new_entries(1000))
    for number in range(640):
        place = stored.data_ptr()
        stored = buffers.append("key", stored, new_entries(1, number))
        moved += stored.data_ptr() != place
        stored = buffers.drop("key", stored, 0, 1)
        assert stored.untyped_storage().nbytes() <= (
            1000 + 2 * room_for(1000)) * stored[:, :, :1].numel() * 4
    assert moved <= 640 // (room_for(1000) - 1)


def test_autograd_keeps_what_it_has_read():
    """A gradient through entries that a later token would have written over."""
    buffers = GrowingBuffers()
    stored = buffers.append("key", new_entries(0), new_entries(30, 1).requires_grad_())
    loss = stored.square().sum()
    stored = buffers.drop("key", buffers.append("key", stored, new_entries(1, 2)), 4, 5)
    loss.backward()
    assert torch.equal(
        stored,
        torch.cat([new_entries(30, 1)[:, :, :4],
                   new_entries(30, 1)[:, :, 5:],
                   new_entries(1, 2)], dim=2))


def test_a_room_made_in_inference_mode_is_not_written_outside_of_it():
    buffers = GrowingBuffers()
    with torch.inference_mode():
        stored = buffers.append("key", new_entries(0), new_entries(3, 1))
    with torch.no_grad():
        assert torch.equal(
            buffers.append("key", stored, new_entries(2, 2))[:, :, 3:], new_entries(2, 2))


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CACHES))
def test_rows_chosen_from_a_state_have_rooms_of_their_own(name):
    """Two states go on beside each other, as beams do; not so two that share their buffers."""
    def step(state, seed):
        q, k, v = (torch.randn(2, heads, 5, 8, generator=torch.Generator().manual_seed(seed))
                   for heads in (4, 2, 2))
        return state.step(q, k, v, scale=0.3, rotation=None)

    def branches(choose):
        state = CACHES[name].state(mechanism_of(name, OPTIONS[name][0] | SMALL.get(name, {})))
        for seed in range(6):
            step(state, seed)
        other, outputs = choose(state), []
        for seed in range(6, 12):
            outputs += [step(state, seed), step(other, 20 + seed)]
        return torch.stack(outputs)

    rows = torch.tensor([0, 1])
    apart = branches(lambda state: state.select(rows))
    alone = branches(lambda state: with_copies(state.select(rows)))
    assert torch.equal(apart, alone)
    if name in ("streaming_llm", "lm_infinite"):
        assert not torch.equal(branches(copy),
                               alone), "a shared room writes over the sinks: the check sees nothing"


SMALL = {"streaming_llm": {"sinks": 3, "recent": 5},
         "lm_infinite": {"local": 6, "global_tokens": 3}}


def with_copies(state):
    for part in getattr(state, "states", {"": state}).values():  # those of kept heads and others
        part.buffers = Copies()
    return state
