"""What caches whose prefill equals decode must satisfy, by a mechanism's name and options."""

import torch
from torch import Tensor

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.caches import CACHES, MechanismCache
from cca_lab.mechanisms.caching.state import State, room_for
from cca_lab.models import swap_attention
from tests.mechanisms import bench
from tests.models.tiny import left_padded, logits, text, tiny

TOLERANCE = 1e-10  # float64; logits are of order 1
CHUNKS = ([1] * 34, [9, 1, 1, 13, 1, 9], [1, 33], [7] * 5)


def assert_equal(got: Tensor, wanted: Tensor, tolerance: float = TOLERANCE) -> None:
    error = (got - wanted).abs().max().item()
    assert error <= tolerance, f"max error {error:.3g}, {error / tolerance:.3g} times the tolerance"


def generate(model, ids: Tensor, **kwargs) -> tuple[Tensor, Tensor | None]:
    """Generate 12 tokens; return the sequences and, unless output_logits=False, the logits."""
    settings = dict(max_new_tokens=12, do_sample=False, output_logits=True,
                    return_dict_in_generate=True)
    outputs = model.generate(ids, **settings | kwargs)
    return outputs.sequences, torch.stack(outputs.logits, dim=1) if outputs.logits else None


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
    check_sizes(swap_attention(tiny(family), name, **options), CACHES[name],
                (1, 1, 1, 1, 1, 20, 1, 1, 7, 1, 25))


def check_sizes(model, cache_class: type[MechanismCache], sizes: tuple[int, ...],
                batches: tuple[int, ...] = (1, 3), **closed_form) -> list[int]:
    """As `check_bytes`, for a model and a text in these chunks; return the bytes a row."""
    taken = []
    for rows in batches:
        cache, ids, done = cache_class(model), text(sum(sizes), rows=rows), 0
        for chunk in ids.split(sizes, dim=1):
            logits(model, chunk, past_key_values=cache)
            done += chunk.shape[1]
            wanted = cache.expected_bytes(done, batch=rows, itemsize=8, **closed_form)
            assert cache.nbytes() == wanted, (f"{done} tokens: {cache.nbytes()} bytes, closed form "
                                              f"{wanted}")
            check_room(cache)
            taken.append(cache.nbytes() // rows)
    return taken


def check_room(cache: MechanismCache) -> None:
    """What is stored keeps no other memory than room, and that twice at most."""
    allocated = {}
    # a state of kept heads consists of two
    for state in (part for layer in cache.layers for whole in layer.states
                  for part in getattr(whole, "states", {"": whole}).values()):
        kept = getattr(state.buffers, "_buffers", {}).values()
        stored = {buffer.tensor.untyped_storage().data_ptr() for buffer in kept}
        for tensor in state.tensors():
            storage, most = tensor.untyped_storage(), tensor.nbytes
            if storage.data_ptr() in stored:
                entry = tensor.shape[:2].numel() * tensor.shape[3] * tensor.itemsize
                most += 2 * room_for(tensor.shape[2]) * entry
            assert storage.nbytes() <= most, (f"{tuple(tensor.shape)}: {storage.nbytes()} bytes "
                                              f"are kept, not {most}")
            allocated[storage.data_ptr()] = storage.nbytes()  # layers share rotary tables
            stored.discard(storage.data_ptr())
        assert not stored, "memory that holds nothing"
    assert cache.allocated_bytes() == sum(allocated.values())


def check_generation(family: str, name: str, **options) -> None:
    """generate() gives what recomputing gives: greedy, with beams, with left padding."""
    model, cache_class = swap_attention(tiny(family), name, **options), CACHES[name]
    for more in ({}, dict(num_beams=3, num_return_sequences=2), dict(prefill_chunk_size=5)):
        check_recomputed(model, cache_class, text(17, rows=2), **more)
    check_left_padding(model, cache_class)


def check_recomputed(model, cache_class: type[MechanismCache], ids: Tensor, **kwargs) -> None:
    """generate() with the cache gives what recomputing gives, logits too unless with beams."""
    if "num_beams" in kwargs:
        kwargs["output_logits"] = False
    tokens, scores = generate(model, ids, past_key_values=cache_class(model), **kwargs)
    kwargs.pop("prefill_chunk_size", None)
    wanted_tokens, wanted_scores = generate(model, ids, use_cache=False, **kwargs)
    assert torch.equal(tokens, wanted_tokens), kwargs
    if scores is None:
        assert len(set(map(tuple, tokens.tolist()))) == len(tokens)
    else:
        assert_equal(scores, wanted_scores)


def check_left_padding(model, cache_class: type[MechanismCache], lengths=(3, 16, 21),
                       **kwargs) -> None:
    """Prompts padded on the left generate what each generates alone."""
    prompts = [text(n, seed=n)[0] for n in lengths]
    ids, mask, _ = left_padded(prompts)
    tokens, scores = generate(model, ids, attention_mask=mask, past_key_values=cache_class(model),
                              **kwargs)
    for row, prompt in enumerate(prompts):
        alone, wanted = generate(model, prompt[None], past_key_values=cache_class(model))
        assert torch.equal(tokens[row, -12:], alone[0, -12:])
        assert_equal(scores[row], wanted[0])


SIZES = [1] * 17 + [7] + [1] * 12 + [4, 1]


def three_texts() -> list[Tensor]:
    """Texts that have 3, 9 and 21 tokens before the chunks of `SIZES`."""
    return [text(n + sum(SIZES), seed=n)[0] for n in (3, 9, 21)]


def each_alone(model, cache_class: type[MechanismCache]) -> list[Tensor]:
    """Logits of texts of three lengths, read alone."""
    return [in_chunks(model, cache_class(model), one[None], [len(one) - sum(SIZES), *SIZES])[0]
            for one in three_texts()]


def check_ragged(model, cache_class: type[MechanismCache], alone: list[Tensor]) -> list[State]:
    """Rows of 3 to 21 tokens go on as each alone; rows are chosen midway, at the end one.

    Returns the first layer's states after each chunk.
    """
    texts = three_texts()
    at = [len(one) - sum(SIZES) for one in texts]
    ids, mask, positions = left_padded([one[:start] for one, start in zip(texts, at, strict=True)])
    cache, rows, states = cache_class(model), [0, 1, 2], []
    logits(model, ids, attention_mask=mask, position_ids=positions, past_key_values=cache)
    for number, size in enumerate(SIZES):
        if number in (10, 30):
            kept = [2, 0, 0] if number == 10 else [1]
            cache.reorder_cache(torch.tensor(kept))
            rows, at, mask = [rows[row] for row in kept], [at[row] for row in kept], mask[kept]
        new, wanted = (torch.stack([x[row][start : start + size]
                                    for row, start in zip(rows, at, strict=True)])
                       for x in (texts, alone))
        mask = torch.cat([mask, torch.ones_like(new)], dim=1)
        got = logits(model, new, attention_mask=mask, past_key_values=cache,
                     position_ids=(mask.cumsum(-1) - 1)[:, -size:])
        assert_equal(got, wanted, 1e-12)
        at = [start + size for start in at]
        states += cache.layers[0].states
    return states


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
