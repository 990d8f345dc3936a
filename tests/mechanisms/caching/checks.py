"""What caches whose prefill equals decode must satisfy, by a mechanism's name and options."""

import torch
from torch import Tensor

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.caches import CACHES, MechanismCache
from cca_lab.mechanisms.caching.state import room_for
from cca_lab.models import swap_attention
from tests.mechanisms import bench
from tests.models.tiny import left_padded, logits, text, tiny

TOLERANCE = 1e-10  # float64; logits are of order 1
CHUNKS = ([1] * 34, [34], [9, 1, 1, 13, 1, 9], [1, 33], [7] * 5)


def in_chunks(model, cache: MechanismCache, ids: Tensor, sizes: list[int]) -> Tensor:
    """Read a text through a cache, `sizes` tokens at a time; return all logits."""
    done = [logits(model, chunk, past_key_values=cache) for chunk in ids.split(sizes, dim=1)]
    assert cache.get_seq_length() == ids.shape[1]
    return torch.cat(done, dim=1)


def check_chunks(family: str, name: str, sizes: list[int] = CHUNKS[0], **options) -> None:
    """Any chunks give what one forward over the whole text gives."""
    model, ids = swap_attention(tiny(family), name, **options), text(sum(sizes), rows=2)
    got = in_chunks(model, CACHES[name](model), ids, sizes)
    bench.assert_close(got, logits(model, ids), "chunks against one forward", TOLERANCE)


def check_bytes(family: str, name: str, **options) -> None:
    """After every chunk the cache takes the bytes of the closed form."""
    model = swap_attention(tiny(family), name, **options)
    for rows in (1, 3):
        cache, ids, done = CACHES[name](model), text(60, rows=rows), 0
        for size in (1, 1, 1, 1, 1, 20, 1, 1, 7, 1, 25):
            logits(model, ids[:, done:done + size], past_key_values=cache)
            done += size
            wanted = cache.expected_bytes(done, batch=rows, itemsize=8)
            assert cache.nbytes() == wanted, (
                f"{done} tokens: {cache.nbytes()} bytes, closed form {wanted}")
            check_room(cache)


def check_room(cache: MechanismCache) -> None:
    """What is stored keeps no other memory than room, and that twice at most."""
    allocated = 0
    for state in (state for layer in cache.layers for state in layer.states):
        kept = getattr(state.buffers, "_buffers", {}).values()
        stored = {buffer.tensor.untyped_storage().data_ptr() for buffer in kept}
        for tensor in state.tensors():
            storage, entries = tensor.untyped_storage(), tensor.shape[2] if tensor.dim() == 4 else 0
            in_room = storage.data_ptr() in stored
            most = tensor.nbytes // entries * (entries + 2
                                               * room_for(entries)) if in_room else tensor.nbytes
            assert storage.nbytes() <= most, (
                f"{tuple(tensor.shape)}: {storage.nbytes()} bytes are kept, not {most}")
            allocated += storage.nbytes()
            stored.discard(storage.data_ptr())
        assert not stored, "memory that holds nothing"
    assert cache.allocated_bytes() == allocated


def check_generation(family: str, name: str, **options) -> None:
    """generate() gives what recomputing gives: greedy, with beams, with left padding."""
    model = swap_attention(tiny(family), name, **options)
    settings = dict(max_new_tokens=12, do_sample=False)
    for more in ({}, dict(num_beams=3, num_return_sequences=2), dict(prefill_chunk_size=5)):
        ids = text(17, rows=2)
        got = model.generate(ids, past_key_values=CACHES[name](model), **settings, **more)
        more.pop("prefill_chunk_size", None)
        assert torch.equal(got, model.generate(ids, use_cache=False, **settings, **more)), more
    prompts = [text(n, seed=n)[0] for n in (3, 16, 21)]
    ids, mask, _ = left_padded(prompts)
    got = model.generate(ids, attention_mask=mask, past_key_values=CACHES[name](model), **settings)
    for row, prompt in enumerate(prompts):
        alone = model.generate(prompt[None], use_cache=False, **settings)
        assert torch.equal(got[row, -12:], alone[0, -12:])


def check_state(name: str, options: dict, sizes: list[int], *, rotated: bool,
                seed: int = 0) -> None:
    """A state without a model gives what `attention` gives, for two rows chosen midway."""
    length = sum(sizes)
    q, k, v = bench.inputs(length, batch=2, heads=4, kv_heads=2, seed=seed)
    tables = bench.rope_tables(length, 4)
    if rotated:
        q, k = bench.rotate(q, *tables), bench.rotate(k, *tables)
    rotation = {"rotation": tables} if rotated else {}
    wanted = MECHANISMS[name](**options).attention(q, k, v, scale=0.7, **rotation)
    state, start = CACHES[name].state(MECHANISMS[name](**options)), 0
    for size in sizes:
        now = slice(start, start + size)
        rotation = tuple(table[None, now] for table in tables) if rotated else None
        got = state.step(q[:, :, now], k[:, :, now], v[:, :, now], scale=0.7, rotation=rotation)
        bench.assert_close(got, wanted[:, :, now], f"chunk {now}", 1e-11)
        start += size
        assert state.seen == start
        state = state.select(torch.tensor([0, 1]))
