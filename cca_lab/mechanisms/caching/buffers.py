"""How a state's tensors grow and shrink by a few tokens without a copy of the others: buffers with room at the end.

`Copies` says what is meant, and makes new tensors for it. `Rooms` returns the same values: a view of a buffer, behind
which the next entries are written. A buffer has room for a sixteenth of what it holds, at least 16 entries; when the
room is used up, what is still needed moves to a new one, so that a token costs about 16 copied entries however many
are stored.
"""

import torch
from torch import Tensor

LEAST, SHARE = 16, 16  # room for that many entries, or for one in so many of those stored


def room_for(entries: int) -> int:
    """Return the room, in entries, that a new buffer has behind so many."""
    return max(LEAST, entries // SHARE)


class Copies:
    """Stored entries (B, H, n, D) that are copied whenever they change: the specification of `Rooms`."""

    def append(self, name: str, past: Tensor, new: Tensor) -> Tensor:
        """Return the entries of `past`, then those of `new`; `name` is that of the state's tensor."""
        return torch.cat([past, new], dim=-2)

    def drop(self, name: str, entries: Tensor, begin: int, end: int) -> Tensor:
        """Return the entries without those from `begin` to before `end`."""
        return torch.cat([entries[:, :, :begin], entries[:, :, end:]], dim=-2)

    def forget(self, *names: str) -> None:
        """Free what is kept for the named tensors, which are made anew."""



class Rooms(Copies):
    """Stored entries in buffers with room, one for each tensor of a state.

    What a call returns is valid until the next `drop` of the same name, which may write over entries that it drops: a
    `Rooms` belongs to one state. Where gradients are recorded entries are copied, because autograd keeps what
    attention has read; and so are those of a tensor that is not the one returned last.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, _Buffer] = {}

    def append(self, name: str, past: Tensor, new: Tensor) -> Tensor:
        """Return the entries of `past`, then those of `new`, as a view of a buffer."""
        if torch.is_grad_enabled():
            return super().append(name, past, new)
        buffer, count = self._buffers.get(name), new.shape[2]
        if buffer is None or not buffer.holds(past) or buffer.free() < count:
            buffer = self._buffers[name] = _Buffer(past, count + room_for(past.shape[2] + count))
        return buffer.append(new)

    def drop(self, name: str, entries: Tensor, begin: int, end: int) -> Tensor:
        """Return the entries without those from `begin` to before `end`, as a view of a buffer of fitting size."""
        if torch.is_grad_enabled():
            return super().drop(name, entries, begin, end)
        buffer, left = self._buffers.get(name), entries.shape[2] - (end - begin)
        if buffer is None or not buffer.holds(entries) or buffer.capacity - left > 2 * room_for(left):
            buffer = self._buffers[name] = _Buffer(entries[:, :, :begin], left - begin + room_for(left))
            return buffer.append(entries[:, :, end:])
        return buffer.drop(begin, end)

    def forget(self, *names: str) -> None:
        """Free the buffers of the named tensors, which are made anew."""
        for name in names:
            self._buffers.pop(name, None)



class _Buffer:
    """Entries in the columns `first` .. `last` - 1 of a tensor (B, H, capacity, D)."""

    def __init__(self, past: Tensor, more: int) -> None:
        batch, heads, self.last, head_dim = past.shape
        self.first, self.capacity = 0, self.last + more
        self.tensor = past.new_empty((batch, heads, self.capacity, head_dim))
        self.tensor[:, :, : self.last] = past

    def entries(self) -> Tensor:
        return self.tensor[:, :, self.first : self.last]

    def free(self) -> int:
        return self.capacity - self.last

    def holds(self, x: Tensor) -> bool:
        """Return whether x is `entries()`, and may be written to here."""
        own = self.entries()
        return (x.data_ptr() == own.data_ptr() and x.shape == own.shape and x.stride() == own.stride()
                and x.numel() > 0 and self.tensor.is_inference() == torch.is_inference_mode_enabled())

    def append(self, new: Tensor) -> Tensor:
        first, self.last = self.last, self.last + new.shape[2]
        self.tensor[:, :, first : self.last] = new
        return self.entries()

    def drop(self, begin: int, end: int) -> Tensor:
        kept = self.tensor[:, :, self.first : self.first + begin].clone()  # moves up to the entries after `end`
        self.first += end - begin
        self.tensor[:, :, self.first : self.first + begin] = kept
        return self.entries()
