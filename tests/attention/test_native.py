"""The native backend: its results against dense, its build, and what stands in for it."""

import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from cca_lab.attention import causal_intervals, interval_attention, native, native_build
from cca_lab.attention.blocked import blocked_attention
from cca_lab.attention.dense import dense_attention
from cca_lab.attention.interval_attention import _backend
from cca_lab.attention.native import native_attention
from tests import strategies
from tests.attention import bench, test_received
from tests.attention.test_blocked import LONG
from tests.attention.test_interval_attention import CASES
from tests.command import run_command
from tests.mutants import native as wrong


@pytest.fixture(scope="module")
def built():
    """Build the op, or skip where that cannot be done."""
    if lacking := native_build.missing():
        pytest.skip(f"the native op cannot be built here: it lacks {lacking}")
    native.load()


@pytest.fixture(scope="module")
def mutants(built):
    wrong.load(Path(os.environ["TORCH_EXTENSIONS_DIR"]))


@pytest.fixture
def threads():
    """Set the number of threads, and put it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


needs_build = pytest.mark.usefixtures("built")


def long_case(name: str) -> strategies.Case:
    """Several blocks of rows and tiles of columns, ragged at both ends."""
    table = LONG[name][100 if name != "late start" else 501:][:420]
    return bench.case_of(table[None, None], int(table.max()), heads=4, key_heads=2, head_dim=5)


# ---------------------------------------------------------------- against the dense rung

@needs_build
@settings(max_examples=40)
@given(case=strategies.cases(most_rows=40, most_columns=40), through_lse=st.booleans())
def test_native_equals_dense_on_any_case(case, through_lse):
    bench.check_same(native_attention, case)
    bench.check_gradients(native_attention, case, through_lse)


@needs_build
@pytest.mark.parametrize("name", LONG)
def test_native_equals_dense_on_long_tables(name):
    bench.check_same(native_attention, long_case(name))
    bench.check_gradients(native_attention, long_case(name), through_lse=True)


@needs_build
@pytest.mark.parametrize("head_dim", [1, 16, 17, 80])
def test_every_head_dim(head_dim):
    """Each width of a product: registers filled, and every kind of rest."""
    table = bench.window_table(150, 40, 12, cores=True)
    case = bench.case_of(table[None, None], int(table.max()), head_dim=head_dim,
                         scale=head_dim**-0.5)
    bench.check_same(native_attention, case)
    bench.check_gradients(native_attention, case, through_lse=True)


@needs_build
@pytest.mark.parametrize("check", [bench.check_matrix, bench.check_hidden_columns,
                                   bench.check_large_logits, bench.check_row_layouts],
                         ids=lambda check: check.__name__)
def test_native_passes_the_bench(check):
    for case in CASES.values():
        check(native_attention, case)


@needs_build
@pytest.mark.parametrize("sizes", test_received.CASES, ids=str)
def test_the_attention_that_tokens_receive(sizes, built, monkeypatch):
    monkeypatch.setattr(native, "ready", lambda x: True)
    test_received.check(sizes)
    test_received.check(sizes, torch.float32, 1e-4)


def test_single_precision_stays_within_its_rounding():
    table = bench.window_table(400, 64, 16, cores=True)
    case = bench.case_of(table[None, None], int(table.max()), heads=4, key_heads=2, head_dim=64,
                         scale=0.125)
    q, k, v = (x.float() for x in case.tensors)
    (out, lse), grads = both_passes(native_attention, q, k, v, case)
    (wanted, wanted_lse), wanted_grads = both_passes(dense_attention, q.double(), k.double(),
                                                     v.double(), case)
    # A logit is a sum of D = 64 products, whose roundings of half a unit add up as in a random
    # walk: sqrt(D) of them,
    # of the largest sum of magnitudes. exp is right within 20 units. Both move lse by as much, a
    # weight by twice that.
    unit = 2.0**-24
    largest = 0.125 * (q.abs().double() @ k.repeat_interleave(2, 1).abs().double().mT).amax().item()
    weights = 64**0.5 * unit * largest + 20 * unit
    bench.assert_close(lse.double(), wanted_lse, "lse", weights)
    bench.assert_close(out.double(), wanted, "output", 2 * weights * v.abs().amax().item())
    for name, got, want in zip("qkv", grads, wanted_grads, strict=True):
        # Relative to the largest gradient: exp, and ten roundings: do, out, v, p, do.v, delta, ds
        # and three sums.
        bench.assert_close(got.double(), want, f"gradient of {name}", 30 * unit + 1e-6)


def both_passes(attend, q, k, v, case):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out, lse = attend(*leaves, case.intervals, case.scale)
    return (out, lse), torch.autograd.grad(out.square().sum(), leaves)


@needs_build
def test_auto_compiles_without_a_word(monkeypatch):
    """Asking whether the op is built is no business of the compiler's."""
    monkeypatch.delenv(native_build.SWITCH)
    case = bench.window_case(24, 5, 3)
    attend = partial(interval_attention, intervals=case.intervals)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.compile(attend, backend="eager")(*case.tensors)
    assert torch.equal(got, attend(*case.tensors))


def between_nan(x):
    """The same numbers, contiguous, with NaN before and behind them in memory."""
    memory = torch.full((x.numel() + 512,), float("nan"), dtype=x.dtype)
    memory[256:-256] = x.flatten()
    return memory[256:-256].view(x.shape)


def check_reads_inside(attend, case):
    """What lies around the inputs is not read: a weight of 0 would not hide a NaN."""
    inside = strategies.Case(*map(between_nan, case.tensors), case.intervals, case.scale)
    bench.check_same(attend, inside)
    bench.check_gradients(attend, inside)


SPOILT = """
import torch
from cca_lab.attention import causal_intervals, interval_attention
for rows in (1, 20, 200):
    x = torch.randn(1, 1, rows, 8)
    for where, value in (0, -1), (0, 10**8), (1, 10**8), (1, 2**62), (1, -(2**62)), *([(1, 3)] *
    (rows > 1)):
        table = causal_intervals(rows)
        out, lse = interval_attention(x, x, x, table, backend="native", return_lse=True)
        table.numpy()[0, 0, -1, 0, where] = value  # torch does not count this write
        bounds = table.permute(4, 0, 1, 3, 2).contiguous()
        for call in (lambda: torch.ops.cca_lab.forward(x, [x], [x], [bounds], 0.5),
                     lambda: torch.ops.cca_lab.backward(out, None, x, [x], [x], out, lse, [bounds],
                                                        0.5)):
            try:
                call()
            except ValueError as error:
                assert "intervals: " in str(error) and "was the table written into" in str(error)
            else:
                raise SystemExit(f"{rows} rows, {where} = {value}: no error")
"""


@needs_build
def test_a_table_spoilt_behind_the_check_is_refused():
    """In a process of its own: native code that goes astray cannot be interrupted."""
    subprocess.run([sys.executable, "-c", SPOILT], check=True, timeout=300)


@needs_build
def test_parts_of_the_key_gradients_stay_few(threads):
    """With 15 threads and 32 heads: two sums of dk and dv for each head, not fifteen."""
    threads(15)
    x, bounds = torch.randn(1, 32, 1024, 16), causal_intervals(1024).permute(4, 0, 1, 3,
                                                                             2).contiguous()
    out, lse = torch.ops.cca_lab.forward(x, [x], [x], [bounds], 0.25)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        torch.ops.cca_lab.backward(out, None, x, [x], [x], out, lse, [bounds], 0.25)
    largest = max(event.cpu_memory_usage for event in measured.events())
    assert x.nbytes < largest <= 6 * x.nbytes, f"{largest / x.nbytes:.0f} times the keys"


@needs_build
def test_threads_share_the_work_and_leave_the_result(threads):
    """Forward the same to the bit; dk and dv, sums over the threads' blocks, but for order."""
    case = long_case("CCA")
    one = bench.case_of(case.intervals, case.k.shape[2], heads=1)
    results = {}
    for count in (1, 2, 3):
        threads(count)
        results[count] = both_passes(native_attention, *one.tensors, one)
        again = both_passes(native_attention, *one.tensors, one)
        assert all(map(torch.equal, again[1],
                       results[count][1])), "the same number of threads, another result"
    for count in (2, 3):
        assert all(map(torch.equal, results[count][0], results[1][0]))
        for name, got, wanted in zip("qkv", results[count][1], results[1][1], strict=True):
            bench.assert_close(got, wanted, f"gradient of {name} from {count} threads")


@needs_build
def test_native_saves_nothing_that_grows_with_the_square_of_the_length():
    """Only q, k, v, out and lse stay until the backward, beside the intervals."""
    saved = []
    case = bench.window_case(600, 64, 16)
    leaves = [x.requires_grad_() for x in case.tensors]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x,
                                                  lambda x: x):
        native_attention(*leaves, case.intervals, case.scale)
    assert sum(saved) == sum(x.numel() for x in leaves) + case.q.numel() + case.q[..., 0].numel()


@needs_build
def test_nan_stays_in_its_row():
    case = bench.window_case(24, 5, 3)
    for dtype in native.DTYPES:
        q, k, v = (x.to(dtype) for x in case.tensors)
        q[:, :, 20, 0] = float("nan")
        out, lse = native_attention(q, k, v, case.intervals, case.scale)
        assert out[:, :, 20].isnan().all() and lse[:, :, 20].isnan().all()
        assert out[:, :, :20].isfinite().all() and out[:, :, 21:].isfinite().all()


# ---------------------------------------------------------------- mutants

WINDOW = bench.window_case(60, 8, 4, heads=4, key_heads=2)
GROUPED = bench.case_of(causal_intervals(4, 9), 9, heads=4, key_heads=2)
LONG_WINDOW = bench.case_of(LONG["sliding window"][None, None][:, :, :420], 420)
CAUSAL = bench.case_of(causal_intervals(300), 300)
through_lse = partial(bench.check_gradients, through_lse=True)


def check_halves(attend, case):
    """Columns in two tensors, whose heads lie apart."""
    bench.check_same(bench.in_halves(attend), case)


def two_threads(attend, case):
    """Gradients with dk and dv in two parts, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        bench.check_gradients(attend, case)
    finally:
        torch.set_num_threads(before)


# nothing is padded, so nothing copied
FULL_WIDTH = bench.case_of(causal_intervals(300), 300, heads=1, head_dim=16)
ONE_HEAD = bench.case_of(causal_intervals(150), 150, heads=1)
KILLS = [  # (mutant, the check that kills it, the case, what the check says)
    ("one_column_more", bench.check_hidden_columns, WINDOW, "edits of column"),
    ("starts_ignored", bench.check_matrix, WINDOW, "declared support"),
    ("finite_mask", bench.check_large_logits, WINDOW, "output: max error"),
    ("groups_never_leave", bench.check_same, LONG_WINDOW, "max error"),
    ("a_column_between_tiles", bench.check_same, CAUSAL, "max error"),
    ("outputs_not_rescaled", bench.check_same, WINDOW, "output: max error"),
    ("backward_unmasked", bench.check_gradients, WINDOW, "gradient of q"),
    ("heads_interleaved", bench.check_same, GROUPED, "output: max error"),
    ("lse_gradient_dropped", through_lse, WINDOW, "gradient of q"),
    ("parts_overlap", two_threads, ONE_HEAD, "gradient of q"),
    ("padding_keeps_strides", bench.check_row_layouts, WINDOW, "max error"),
    ("reads_behind_the_end", check_reads_inside, FULL_WIDTH, "not finite"),
    ("sources_swapped", check_halves, CAUSAL, "output: max error"),
]


@pytest.mark.nightly  # builds as many ops
@pytest.mark.parametrize(("mutant", "check", "case", "message"), KILLS,
                         ids=[row[0] for row in KILLS])
def test_mutants_die_and_the_real_code_lives(mutants, mutant, check, case, message):
    check(native_attention, case)
    with mock.patch.object(torch.ops, "cca_lab", getattr(torch.ops, mutant)), \
         pytest.raises(AssertionError, match=message):
        check(native_attention, case)


# ---------------------------------------------------------------- the choice, and the build

X = torch.zeros(1, 1, 100, 4)


@needs_build
def test_auto_takes_the_native_op_once_it_is_built(monkeypatch):
    assert _backend("auto", X) is blocked_attention  # the suite sets the switch
    monkeypatch.delenv(native_build.SWITCH)
    assert _backend("auto", X) is native_attention and _backend("auto",
                                                                X.double()) is native_attention
    assert _backend("auto", X.bfloat16()) is (native_attention if native.bfloat16_units()
                                              else blocked_attention)
    assert _backend("auto", X.half()) is blocked_attention
    assert _backend("auto", X[:, :, :1]) is dense_attention


@pytest.fixture(autouse=True)
def not_taken(monkeypatch):
    """Let "auto" look at the switch anew in each test."""
    monkeypatch.setattr(native, "_taken", False)


@pytest.fixture
def nothing_built(monkeypatch, tmp_path):
    """As in a process that has not loaded the op, on a machine that has not built it."""
    monkeypatch.delenv(native_build.SWITCH)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(native, "_registered", lambda: False)
    for remembered in (native._loads, native._built_for_auto):
        remembered.cache_clear()
    yield tmp_path
    for remembered in (native._loads, native._built_for_auto):
        remembered.cache_clear()


def test_auto_tries_one_build_where_a_compiler_is_and_says_so(nothing_built, monkeypatch, capfd):
    """A failing build is one line and blocked attention; nothing tries a second time."""
    tried = []
    monkeypatch.setattr(native_build, "missing", lambda: None)
    monkeypatch.setattr(native_build, "_compile", lambda *given: tried.append(given) or refuse())
    for _ in range(2):
        assert _backend("auto", X) is blocked_attention
        native._built_for_auto.cache_clear()
    said = capfd.readouterr().err.splitlines()
    assert len(tried) == 1 and len(said) == 2, said
    assert "compiles once" in said[0] and "=0 prevents it" in said[
        0] and "the compiler fails" in said[1]


def refuse():
    raise ValueError("native: the compiler fails: no;\nfix it")


@pytest.mark.parametrize("why", ["switched off", "a folder that cannot be written"])
def test_auto_compiles_nothing_where_it_may_not_or_cannot(nothing_built, monkeypatch, capfd, why):
    """Silent when switched off; a folder that refuses is one line."""
    monkeypatch.setattr(native_build, "missing", lambda: None)
    monkeypatch.setattr(native_build, "_compile", mock.Mock(side_effect=AssertionError("a build")))
    if why == "switched off":
        monkeypatch.setenv(native_build.SWITCH, "0")
    else:
        (nothing_built / "file").touch()
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(nothing_built / "file"))
    assert _backend("auto", X) is blocked_attention
    said = capfd.readouterr().err.splitlines()
    assert len(said) == (why.startswith("a folder")) and not list(nothing_built.glob("cca_lab*"))


def test_auto_does_without_a_library_that_cannot_be_loaded(nothing_built):
    native_build.library().write_bytes(b"not a library")
    assert _backend("auto", X) is blocked_attention
    with pytest.raises(ValueError, match="native: .*cannot be loaded.*delete it"):
        interval_attention(X, X, X, causal_intervals(100), backend="native")


@pytest.mark.parametrize("x", [X.half(), X.to("meta")], ids=["float16", "meta"])
def test_tensors_it_does_not_serve_are_refused(x):
    with pytest.raises(ValueError,
                       match='"native" for torch.* wanted float32 or float64 on the CPU; .*"auto"'):
        native_attention(x, x, x, causal_intervals(100), 1.0)


@pytest.mark.skipif(native_build.missing() is not None, reason="no compiler to fail")
def test_a_build_that_fails_says_why_and_leaves_nothing(nothing_built, tmp_path_factory):
    sources = tmp_path_factory.mktemp("sources")
    (sources / "interval_attention.cpp").write_text("#error broken on purpose\n")
    stale = nothing_built / "building-long-ago"
    stale.mkdir()
    os.utime(stale, (0, 0))
    with pytest.raises(ValueError, match="the compiler fails.*broken on purpose"):
        native_build.build(sources)
    assert not list(nothing_built.iterdir())


def test_the_library_changes_its_name_with_what_it_depends_on(monkeypatch, tmp_path):
    names = {native_build.library().name}
    for owner, name, value in (
            (torch, "__version__", "0.0"), (native_build, "_processor", lambda: "another"),
            (native_build, "SOURCES", tmp_path), (native_build, "_flags", lambda: ["-O0"])):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            native_build._digest.cache_clear()
            names.add(native_build.library().name)
    native_build._digest.cache_clear()
    assert len(names) == 5


@needs_build
def test_a_new_process_loads_the_library_without_a_compiler():
    """What users meet the second time: no build, and "auto" takes the op."""
    program = ("import os, shutil, torch\n"
               "from cca_lab.attention import causal_intervals, interval_attention, native\n"
               "from cca_lab.attention import native_build\n"
               "x, table = torch.randn(1, 2, 50, 8), causal_intervals(50)\n"
               "assert native.ready(x)\n"
               "one, other = (interval_attention(x, x, x, table, backend=b)\n"
               "              for b in ('auto', 'native'))\nassert torch.equal(one, other)\n"
               # another process that built at the same time has put its library in the place
               "path = str(native_build.library())\nshutil.copy(path, path + '.new')\n"
               "os.replace(path + '.new', path)\nnative.row(x[:, :, :1], [x], [x], 1.0)\n")
    environment = {**os.environ, native_build.SWITCH: "", "CXX": "no-such-compiler"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@needs_build
def test_the_command_says_where_the_op_is(monkeypatch):
    run = run_command(["native"])
    assert run.exit_code == 0 and str(native_build.library()) in run.output and "=0" in run.output
    monkeypatch.delenv(native_build.SWITCH)
    assert "takes it on the CPU" in run_command(["native"]).output
