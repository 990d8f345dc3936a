"""StaticCache: any chunks are one forward, and a compiled model decodes in graphs made once."""

import copy

import pytest
import torch
from transformers import CompileConfig

from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.static import StaticLayer
from cca_lab.mechanisms.cca.static_cache import CCALayer
from cca_lab.mechanisms.static_cache import LAYERS, StaticCache
from cca_lab.mechanisms.streaming.static_cache import StreamingLLMLayer
from cca_lab.models import swap_attention
from tests.mechanisms.caching.checks import assert_equal, generate
from tests.models.tiny import left_padded, logits, text, tiny
from tests.mutants.slips import changed

BOUND = 1e-12
LENGTH = 40
CCA = ("cca", dict(group=4, window=7))
STREAMING = ("streaming_llm", dict(sinks=2, recent=5, positions="cache"))
INFINITE = ("lm_infinite", dict(local=5, global_tokens=3, limit=9))
CASES = [CCA, ("cca", dict(group=4, window=6, sinks=2, proportional=True)),
         ("cca", dict(group=3, window=1, per_query_head=True)), ("cca", dict(group=1, window=4)),
         ("cca", dict(group=16, window=3, pooling="max")),
         ("mean_pooling", dict(group=4, window=5)), STREAMING,
         ("streaming_llm", dict(sinks=3, recent=0)), ("streaming_llm", dict(sinks=0, recent=5)),
         INFINITE, ("lm_infinite", dict(local=5, global_tokens=0))]
# a prompt of one token; one shorter than a window, and chunks behind it; one of many groups
CHUNKS = ([1] * LENGTH, [6, 1, 1, 13, 1, 18], [30, *[1] * 10])


def swapped(case, family: str = "llama", **changes):
    name, options = case
    return swap_attention(tiny(family, **changes), name, **options)


def read(model, cache, ids: torch.Tensor, sizes, step=None) -> torch.Tensor:
    """Read a text in chunks, those behind the first by `step`; return all logits."""
    first, *others = ids.split(sizes, dim=1)
    step = model if step is None else step
    return torch.cat([logits(model, first, past_key_values=cache), *(
        logits(step, chunk, past_key_values=cache) for chunk in others)], dim=1)


def check_chunks(case, family: str = "llama") -> None:
    model, ids = swapped(case, family), text(LENGTH, rows=2)
    wanted = logits(model, ids)
    for sizes in CHUNKS:
        assert_equal(read(model, StaticCache(model, LENGTH), ids, sizes), wanted, BOUND)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_chunks_equal_one_forward(case):
    check_chunks(case)


@pytest.mark.parametrize("case", [CASES[1], INFINITE], ids=str)
def test_chunks_with_learned_positions(case):
    check_chunks(case, "gpt2")


@pytest.mark.parametrize(("case", "owner", "name", "right", "wrong"), [
    (CCA, CCALayer, "plan", "self.sinks + behind % self.ring",
     "self.sinks + (behind + 1) % self.ring"),
    (CCA, CCALayer, "plan", "core < cores",
     "core < cca_columns(behind + 1, 0, group, self.mechanism.window)[0][1]"),  # a step early
    (CCA, CCALayer, "plan", "(behind % group)[None]", "((behind + 1) % group)[None]"),
    (CCA, CCALayer, "load", "self.sinks + tokens % self.ring",
     "self.sinks + (tokens + 1) % self.ring"),
    (STREAMING, StreamingLLMLayer, "plan", "row % self.near", "(row + 1) % self.near"),
    (STREAMING, StreamingLLMLayer, "plan", "row <= (self.limit or 0)",
     "row < (self.limit or 0)"),
    (INFINITE, StreamingLLMLayer, "plan", ">= first", "> first"),
    (INFINITE, StreamingLLMLayer, "step", "if self.at_start else key", "if False else key"),
], ids=str)
def test_chunks_kill(case, owner, name, right, wrong, monkeypatch):
    monkeypatch.setattr(owner, name, changed(getattr(owner, name), (right, wrong)))
    with pytest.raises(AssertionError, match="max error"):
        check_chunks(case)


# ---- compiled


def counting(backend: str):
    """Return a backend that counts graphs; with this import the compiler is loaded."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()
    return CompileCounterWithBackend(backend)


def check_graphs(case) -> None:
    """Groups close, the ring turns, another text comes: the record of ids and the step stay."""
    model, graphs = swapped(case), counting("aot_eager")
    step, cache = torch.compile(model, backend=graphs, fullgraph=True), StaticCache(model, LENGTH)
    assert cache.is_compileable
    for seed in range(2):
        ids = text(LENGTH, rows=2, seed=seed)
        got = read(model, cache, ids, [13 - seed, *[1] * (27 + seed)], step)
        assert_equal(got, logits(model, ids), BOUND)
        assert got.argmax(-1).equal(logits(model, ids, past_key_values=CACHES[case[0]](model)
                                           ).argmax(-1))
        assert graphs.frame_count == 2
        assert cache.layers[0].ids.equal(ids)
        with pytest.raises(Exception, match="out of (range|bounds)"):
            logits(step, ids[:, :1], past_key_values=cache)
        cache.reset()
    torch.compiler.reset()


@pytest.mark.parametrize("case", [CASES[1], STREAMING, INFINITE], ids=str)
def test_a_compiled_model_decodes_in_graphs_made_once(case):
    check_graphs(case)


@pytest.mark.nightly
def test_inductor_gives_the_same_tokens():
    model, ids = swapped(CASES[1], num_hidden_layers=1), text(LENGTH, rows=2)
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    got = read(model, StaticCache(model, LENGTH), ids, [13, *[1] * 27], step)
    wanted = logits(model, ids)
    assert_equal(got, wanted, 1e-5)  # norms and positions of a Llama are in float32
    assert got.argmax(-1).equal(wanted.argmax(-1))
    torch.compiler.reset()


# ---- generate


@pytest.mark.parametrize("more", [{}, dict(num_beams=3, num_return_sequences=2),
                                  dict(prefill_chunk_size=5)], ids=str)
def test_generate_makes_one(more):
    for family in ("qwen2", "opt"):
        model, ids = swapped(CCA, family), text(17, rows=2)
        more["output_logits"] = False
        wanted, _ = generate(model, ids, **more)
        assert generate(model, ids, cache_implementation="static", **more)[0].equal(wanted)


def test_generate_compiles_the_step():
    model, graphs = swapped(CCA, "qwen2"), counting("eager")
    compiled = CompileConfig(fullgraph=True, mode=None,
                             backend=lambda *given: graphs(*given))  # a config is copied
    compiled._compile_all_devices = True  # transformers compiles on a GPU only
    for seed in range(2):
        ids = text(17, rows=2, seed=seed)
        tokens, _ = generate(model, ids, cache_implementation="static", compile_config=compiled)
        assert tokens.equal(generate(model, ids)[0])
        assert graphs.frame_count == 2
    torch.compiler.reset()


def test_a_conversation_goes_on():
    model, ids = swapped(CCA), text(10)
    cache = StaticCache(model, LENGTH)
    written, _ = generate(model, ids, past_key_values=cache)
    turn = torch.cat([written, text(7, seed=1)], dim=1)
    tokens, _ = generate(model, turn, past_key_values=copy.deepcopy(cache), max_new_tokens=5)
    assert tokens.equal(generate(model, turn, max_new_tokens=5)[0])
    with pytest.raises(ValueError, match="does not begin"):
        generate(model, turn + 1 - 2 * (turn == 60), past_key_values=cache)


# ---- reset, refusals, size


def check_reset() -> None:
    model, cache = swapped(CCA), StaticCache(swapped(CCA).config, LENGTH)
    for length in (LENGTH, 9):  # the second text leaves most of the ring unwritten
        ids = text(length, rows=2, seed=length)
        assert_equal(read(model, cache, ids, [5, *[1] * (length - 5)]), logits(model, ids), BOUND)
        place = cache.layers[0].key.data_ptr()
        cache.reset()
    assert cache.layers[0].key.data_ptr() == place


def test_reset_leaves_nothing_and_keeps_the_buffers():
    check_reset()


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), [
    (StaticLayer, "reset", "self.progress.held = False", "pass"),
    (CCALayer, "plan", ">= first", ">= first - self.ring"),  # rows of the text before
], ids=str)
def test_reset_kills_a_stale_row(owner, name, right, wrong, monkeypatch):
    function = changed(getattr(owner, name), ("super()", "super(StaticLayer, self)"), (
        right, wrong)) if name == "reset" else changed(getattr(owner, name), (right, wrong))
    monkeypatch.setattr(owner, name, function)
    with pytest.raises((AssertionError, ValueError), match="max error|room for"):
        check_reset()


def test_a_step_that_was_interrupted_is_repeated_and_a_chunk_refused(monkeypatch):
    model, ids = swapped(CCA), text(20)
    cache, wanted = StaticCache(model, LENGTH), logits(model, ids)
    read(model, cache, ids[:, :18], [12, *[1] * 6])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cache.layers[1], "step", lambda *args: exec("raise KeyboardInterrupt"))
        logits(model, ids[:, 18:19], past_key_values=cache)
    assert_equal(logits(model, ids[:, 18:19], past_key_values=cache), wanted[:, 18:19], BOUND)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cache.layers[1], "step", lambda *args: exec("raise KeyboardInterrupt"))
        logits(model, ids[:, :3], past_key_values=cache)
    with pytest.raises(ValueError, match="was interrupted"):
        logits(model, ids[:, 19:], past_key_values=cache)


def test_what_has_no_static_form_is_refused():
    for name in CACHES.keys() - LAYERS.keys() - {"kept_heads"}:
        with pytest.raises(ValueError, match=f"got one with '{name}' attention"):
            StaticCache(swapped((name, {})), LENGTH)
    model = swapped(CCA)
    ids, mask, _ = left_padded([text(5)[0], text(9)[0]])
    with pytest.raises(ValueError, match="got padding"):
        generate(model, ids, attention_mask=mask, cache_implementation="static")
    cache = StaticCache(model, 12)
    logits(model, ids[:, :8], past_key_values=cache)
    with pytest.raises(ValueError, match="got padding behind the prompt"):
        logits(model, ids[:, 8:], past_key_values=cache, attention_mask=mask)
    with pytest.raises(ValueError, match="got 'offloaded_static', wanted 'static'"):
        generate(model, ids, cache_implementation="offloaded_static")
    cache = StaticCache(model, 12)
    with pytest.raises(ValueError, match="room for 12 tokens, got 13"):
        logits(model, text(13), past_key_values=cache)
    logits(model, text(12), past_key_values=cache)
    with pytest.raises(ValueError, match="room for 12 tokens, got 13"):
        logits(model, text(1), past_key_values=cache)
    with pytest.raises(ValueError, match="keeps its rows"):
        cache.batch_repeat_interleave(2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_are_those_of_the_buffers(case):
    model = swapped(case)
    cache = StaticCache(model, LENGTH)
    logits(model, text(9, rows=2), past_key_values=cache)
    assert cache.nbytes() == cache.expected_bytes(9, batch=2, itemsize=8)
