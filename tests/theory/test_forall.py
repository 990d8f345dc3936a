"""Index statements proved for all integers: every proof succeeds, and fails for each slip in the code that it runs."""

import importlib
import random
import subprocess
import sys
from collections import defaultdict
from functools import cache
from inspect import unwrap
from itertools import product
from unittest.mock import patch

import pytest
import torch

from cca_lab.attention import causal_intervals
from cca_lab.mechanisms import longlora
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.lococo import segments
from cca_lab.mechanisms.streaming import sinks
from cca_lab.theory.forall import calls, cca, report, tables
from cca_lab.theory.forall.core import Obligation, Symbol, Truth, demand, every, integers, lemma, prove, some, where
from cca_lab.theory.forall.grid import Grid, lifted
from cca_lab.theory.forall.linear import linear
from cca_lab.theory.forall.loops import Loop
from cca_lab.theory.forall.paths import assume, fresh, paths, unknown
from cca_lab.theory.forall.quantify import marks
from cca_lab.theory.forall.solving import smallest
from cca_lab.theory.forall.terms import solver, truth
from cca_lab.theory.forall.theorem import Theorem, row_of
from tests.mutants.theory_forall import SLIPS

z3 = pytest.importorskip("z3")
THEOREMS = {theorem.name: theorem for theorem in report.THEOREMS}
UNSLIPPED = set()  # functions that theorems run, without a slip of their own


def needs(theorem: Theorem) -> None:
    for function in theorem.runs:
        if ".kernels." in function:
            pytest.importorskip("triton")
        if ".caches." in function:
            pytest.importorskip("transformers")


@cache
def obligations(name: str) -> list[Obligation]:
    needs(THEOREMS[name])
    return list(THEOREMS[name].obligations())


@pytest.mark.parametrize("name", THEOREMS)
def test_a_theorem_is_proved(name):
    finding = prove(obligations(name))
    assert finding.holds, finding.evidence
    assert finding.numbers["proved"] == finding.numbers["obligations"] >= 1


@pytest.mark.parametrize("name", THEOREMS)
def test_what_a_theorem_assumes_is_possible(name):
    """A contradiction proves anything: each statement has a path whose assumptions some numbers satisfy."""
    possible = defaultdict(bool)
    for one in obligations(name):
        if not possible[one.name]:
            possible[one.name] = smallest([fact.term for fact in one.hypotheses], z3.BoolVal(False), 10) is not None
    assert all(possible.values()), [statement for statement, found in possible.items() if not found]


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_in_the_code_breaks_its_proof(name):
    slip = SLIPS[name]
    needs(THEOREMS[slip.theorem])
    assert slip.function in THEOREMS[slip.theorem].runs
    owner, attribute = slip.place
    with patch.object(owner, attribute, slip.made()):
        finding = next(finding for one in THEOREMS[slip.theorem].obligations()
                       if not (finding := prove([one])).holds)
    assert " fails at " in finding.evidence  # refuted, not given up


def test_every_function_that_a_theorem_runs_has_a_slip():
    named = {function for theorem in THEOREMS.values() for function in theorem.runs}
    assert named - {slip.function for slip in SLIPS.values()} == UNSLIPPED


def test_every_theorem_has_a_slip_or_says_that_it_runs_nothing():
    assert {slip.theorem for slip in SLIPS.values()} == {name for name, theorem in THEOREMS.items() if theorem.runs}
    assert all(theorem.restated for theorem in THEOREMS.values() if not theorem.runs)


@pytest.mark.parametrize("theorem", report.THEOREMS, ids=lambda theorem: theorem.name)
def test_a_theorem_runs_the_functions_that_it_names(theorem):
    needs(theorem)
    missing = {code_of(function) for function in theorem.runs}
    loops = {code.co_name: code for code in missing}  # a loop that is cut out is compiled under its function's name

    def note(frame, event, argument):
        if event == "call":
            missing.discard(frame.f_code)
            missing.discard(loops.get(frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        any(not missing for _ in theorem.obligations())  # as far as is needed
    finally:
        sys.setprofile(before)
    assert not missing


def code_of(function):
    """The code of a function by its dotted name, under its decorators."""
    path, _, name = function.rpartition(".")
    try:
        owner = importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, kind = path.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    found = getattr(owner, name)
    return unwrap(getattr(found, "fn", found)).__code__


# ------------------------------------------------------------ symbols stand for what torch computes


def equals(symbolic, real):
    """Whether a symbolic tensor of this run has the shape and the entries of a real one."""
    shape = every(*(truth(length == size) for length, size in zip(symbolic.shape, real.shape, strict=True)))
    return shape & every(*(symbolic.at(*index) == int(real[index]) for index in product(*map(range, real.shape))))


SMALL = [dict(zip(("L", "g", "s"), sizes, strict=True)) for sizes in ((1, 1, 1), (7, 2, 3), (6, 3, 1), (5, 4, 9))]


@pytest.mark.parametrize("sizes", SMALL, ids=str)
def test_symbolic_tensors_have_the_entries_of_real_ones(sizes):
    length, g, s = integers("L g s")
    real = tuple(sizes.values())
    start = sizes["L"] // 2
    pairs = {
        "cca": (lambda: cca.table(length, g, s), groups.intervals(*real)),
        "chunk": (lambda: cca.chunk_table(start, length, g, s), groups.chunk_intervals(start, *real)),
        "causal": (lambda: tables.causal_table(g, length + g), causal_intervals(real[1], real[0] + real[1])),
        "sinks": (lambda: tables.sink_table(0, length, g, s), sinks.intervals(torch.arange(real[0]), *real[1:])),
        "blocks": (lambda: tables.longlora_table(length, g, s), longlora.intervals(*real))}
    known = [symbol == value for symbol, value in zip((length, g, s), real, strict=True)]
    for name, (table, wanted) in pairs.items():
        finding = prove(demand(name, known, lambda table=table, wanted=wanted: equals(table(), wanted)))
        assert finding.holds, f"{name}: {finding.evidence}"


def test_the_tables_of_a_choice_have_the_entries_of_real_ones():
    from cca_lab.mechanisms.dga import rows
    from cca_lab.theory.forall import dga, lococo

    focal = torch.tensor([0, 1, 1, 0, 0, 0, 1]).bool()
    settings = segments.Settings(slots=2, segment=2, buffer=1)
    borders = [step.border for step in segments.compressions(11, settings)]
    length, m = integers("L m")

    def chosen():
        symbolic = marks("focal", length)
        assume(*(symbolic.before(t + 1) == int(count) for t, count in enumerate(focal.cumsum(0))))
        return equals(dga.table(symbolic, dga.rule("prompt", m)),
                      rows.intervals(focal[None, None], dga.rule("prompt", 2)))

    def compressed():
        table, at = lococo.table(length, m)
        assume(at.shape[0] == len(borders), *(unknown("border", k) == border for k, border in enumerate(borders)))
        return equals(table, segments.intervals(11, settings))

    assert prove(demand("DGA", [length == 7, m == 2], chosen)).holds
    finding = prove(demand("LoCoCo", [length == 11, m == 2], compressed))
    assert len(borders) == 4 and finding.holds, finding.evidence


def entries(grid):
    """The entries of a grid without variables, as a tensor."""
    plain = [solver().simplify(grid.at(*index).term) for index in product(*map(range, map(int, grid.shape)))]
    return torch.tensor([term.as_long() if solver().is_int_value(term) else int(solver().is_true(term))
                         for term in plain]).view(*map(int, grid.shape))


X, Y = torch.arange(24).view(2, 3, 4) % 7 - 3, torch.arange(4) - 1
FUNCTIONS = {
    "arithmetic": (lambda x, y: (x * 2 + y - 3) // 2 % 5, [X, Y]),
    "from the right": (lambda x, y: 3 - x + 2 * y, [X, Y]),
    "comparisons": (lambda x, y: ((x < y) | (x >= 2)) & ~(y == 1), [X, Y]),
    "truths as numbers": (lambda x, y: 2 * (x > y) + (y <= 0).long(), [X, Y]),
    "clamp": (lambda x: x.clamp(min=-1).clamp(-2, 2).clamp_min(0).clamp_max(1), [X]),
    "div": (lambda x: x.div(3, rounding_mode="floor"), [X]),
    "indexing": (lambda x: x[None, 1:, ..., -1][:, :, 0:2], [X]),
    "slices beyond the end": (lambda x: x[:, 1:9, -3:-1], [X]),
    "empty slices": (lambda x: x[:, 2:1], [X]),
    "gather": (lambda x, y: x.flatten()[y.abs()] if isinstance(x, torch.Tensor) else FLAT[y * y - y * y + ABS],
               [X, Y]),
    "unbind": (lambda x: x.unbind(dim=1)[2].unsqueeze(-1).unsqueeze(0), [X]),
    "expand": (lambda x, y: y[None, None, :].expand_as(x) + y[:, None].expand(-1, 4)[0], [X, Y]),
    "any and all": (lambda x: (x > 0).any(dim=-1) & (x > -3).all(dim=1)[:, :3], [X]),
    "stack": (lambda x: torch.stack([x, x + 1], dim=-1), [X]),
    "stack in front": (lambda x: torch.stack([x[0], x[1], x[0]]), [X]),
    "cat": (lambda x: torch.cat([x, x[:, :1] + 9, x], dim=1), [X]),
    "pad": (lambda x: torch.nn.functional.pad(x, (0, 0, 2, 1)), [X]),
    "likes": (lambda x: torch.zeros_like(x) + torch.full_like(x, 4), [X]),
    "extremes": (lambda x, y: torch.maximum(x, torch.minimum(y, -y)), [X, Y]),
    "torch.div": (lambda x: torch.div(x, 3, rounding_mode="floor"), [X]),
}
FLAT, ABS = lifted(X.flatten()), lifted(Y.abs())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_symbolic_operations_compute_what_torch_does(name):
    function, arguments = FUNCTIONS[name]
    wanted = function(*arguments)
    ((_, found),) = paths(lambda: run(function, arguments), [])
    assert torch.equal(found, wanted.long())


def run(function, arguments):
    with calls.symbolic_torch():
        return entries(function(*map(lifted, arguments)))


def test_counting_and_sorting_in():
    length, i = integers("L i")

    def statement():
        ascending = Grid((length,), lambda k: unknown("a", k))
        assume(*(unknown("a", k) == value for k, value in enumerate((1, 4, 4, 6))))
        places = torch.searchsorted(ascending, lifted(torch.tensor([0, 4, 9])), right=True)
        return every((Grid((length,), lambda k: unknown("a", k)) <= 4).sum(dim=0).at() == 3,
                     *(places.at(k) == n for k, n in enumerate((0, 3, 4))))

    assert prove(demand("count", [length == 4], statement)).holds
    with pytest.raises(NotImplementedError, match="not known to come first"):
        list(demand("count", [length == 4], lambda: (Grid((length,), lambda k: k) >= i).sum(dim=0).at() == 1))


def test_an_existing_entry_is_found_and_a_missing_one_excluded():
    (length,) = integers("L")

    def ways(least):
        def statement():
            row = torch.arange(length) >= least
            return every(row.at(row.nonzero()[0].at(0))) if row.any() else every()

        return list(demand("some", [length >= 1], statement))

    assert len(ways(0)) == 2 and prove(ways(0)).holds  # a witness, or nothing is known of the others
    assert len(ways(length)) == 1


def test_torch_without_symbols_is_torch():
    with calls.symbolic_torch():
        assert isinstance(torch.arange(3), torch.Tensor)
        with pytest.raises(NotImplementedError, match=r"torch\.sort"):
            torch.sort(lifted(X))
    with pytest.raises(TypeError, match="a symbol"):
        torch.arange(integers("L")[0])


# ------------------------------------------------------------ the solver's side


def test_linear_statements_follow_from_the_given_ones():
    """Whatever numbers satisfy a statement satisfy its linear form: else something false would be proved."""
    numbers = random.Random(0)
    x, y, z, d = z3.Ints("x y z d")
    values = [{**{one: numbers.randint(-4, 4) for one in (x, y, z)}, d: numbers.randint(1, 4)} for _ in range(40)]
    terms = [x * y, x * y * z, x * x * y, (x * d + y) / d, (x * y + z) % d, (x * y - x * z) / 2, x * (y / d) * d,
             (2 * x * y + z) / (d + 1), (x * x + x) / 2]
    for case in values:
        facts = [term == z3.simplify(z3.substitute(term, *((v, z3.IntVal(n)) for v, n in case.items())))
                 for term in terms]
        found = z3.Solver()
        found.add(*linear([*facts, *(v == n for v, n in case.items())]))
        assert found.check() == z3.sat, case


def test_division_is_pythons_for_positive_divisors():
    x, d = integers("x d")
    for value, divisor in product(range(-5, 6), range(1, 4)):
        known = [x == value, d == divisor]
        assert prove([Obligation("division", known, (x // d == value // divisor) & (x % d == value % divisor))]).holds
        assert prove([Obligation("constant", known[:1], every(x // divisor == value // divisor,
                                                              divmod(x, divisor)[1] == value % divisor))]).holds


def test_a_divisor_has_to_be_positive():
    x, d = integers("x d")
    with pytest.raises(ValueError, match="divides by d"):
        prove([Obligation("quotient", [], x // d * d <= x)])
    with pytest.raises(ZeroDivisionError, match="1 or more"):
        x // 0
    refused = prove(demand("quotient", [], lambda: x // d * d <= x))
    assert not refused.holds and "refused" in refused.evidence
    assert prove([Obligation("quotient", [d >= 1], x // d * d <= x)]).holds


def test_the_counterexample_is_the_smallest():
    from cca_lab.theory.reachability.indices import printed_cover, reads

    finding = report.papers.read_once(printed_cover)
    found = {name: finding.numbers[name] for name in "igst"}
    wrong = [(i + g + s + t, g, i, s, t) for i, g, s, t in product(range(1, 6), repeat=4)
             if t <= i and reads(printed_cover, i, g, s, t) != 1]
    assert not finding.holds
    assert (sum(found.values()), *(found[name] for name in "gist")) == min(wrong)
    assert finding == report.papers.read_once(printed_cover)  # the same words again


def test_a_statement_that_no_small_number_refutes_is_undecided():
    x, y = integers("x y")
    finding = prove([Obligation("Fermat", [x >= 1, y >= 1], x * x * x + y * y * y != 4104 * 4104 * 4104)], seconds=0.2)
    assert not finding.holds and finding.evidence.startswith("undecided: Fermat")


def test_lemmas_are_proved_before_they_are_used():
    x, y = integers("x y")
    assert prove(demand("sum", [x >= 1, y >= 1], lambda: lemma(x * y >= x) or x * y + 1 > x)).holds
    wrong = prove([Obligation("sum", [x >= 1], x >= 2, lemmas=[x >= 3])])
    assert wrong.evidence.startswith("'sum (a lemma of it)' fails at x = 1;")
    with pytest.raises(ValueError, match="got none"):
        prove([])


def test_branches_are_followed_both_ways():
    (x,) = integers("x")
    assert prove(demand("absolute", [], lambda: max(x, -x) >= 0)).numbers["obligations"] == 2
    assert prove(demand("known", [x >= 1], lambda: max(x, 0) == x)).numbers["obligations"] == 1

    def endless():
        n = x
        while n > 0:
            n = n - 1
        return every()

    with pytest.raises(RuntimeError, match="prove one pass"):
        list(demand("loop", [x >= 0], endless))
    with pytest.raises(TypeError, match="outside of"):
        bool(x > 0)


def test_symbols_are_numbers_of_one_kind():
    (x,) = integers("x")
    assert prove([Obligation("truths", [], ((x > 0) + (x <= 0) == 1) & (abs(x) >= x) & (where(x > 0, x, -x) >= 0)
                             & ((x > 0) * x >= 0) & some(x > 0, x <= 0))]).holds
    with pytest.raises(TypeError, match="integers only"):
        where(x > 0, 0.5, 1)
    with pytest.raises(ValueError, match="x_1, wanted one"):
        integers("x_1")
    with pytest.raises(TypeError, match="no single number"):
        range(x)
    assert isinstance(x, Symbol) and isinstance(x > 0, Truth) and range(Symbol(z3.IntVal(3))) == range(3)


def test_a_loop_run_pass_by_pass_is_the_function():
    loop = Loop(segments.segments)
    state = loop.before(11, [4, 3])
    while loop.goes_on(**state):
        state = loop.once(**state)
    assert state["cuts"] == segments.segments(11, [4, 3])
    with pytest.raises(ValueError, match="one plain loop"):
        Loop(segments.cache_tokens)


def test_new_names_are_the_same_in_every_run():
    def statement():
        fresh("a")
        return fresh("b") != 0

    assert prove(demand("b", [], statement)).evidence == prove(demand("b", [], statement)).evidence


def test_the_report_has_what_a_page_needs():
    some_theorems = tuple(THEOREMS[name] for name in ("CCA's cover", "DGA's cover by blocks"))
    with patch.object(report, "THEOREMS", some_theorems):
        rows = list(report.rows())
    assert [row.name for row in rows[:2]] == ["CCA's cover", "DGA's cover by blocks"]
    assert all(row.says and row.seconds > 0 and (row.runs or row.restated) for row in rows)
    assert [row.finding.holds for row in rows] == [True, True, False, False]
    assert "fails at g = 1, i = 2, s = 1, t = 1" in rows[2].finding.evidence


def test_row_of_reads_a_head():
    table = lifted(torch.arange(12).view(1, 2, 3, 1, 2))
    ((start, end),) = row_of(table, 2, head=1)
    assert prove([Obligation("entries", [], (start == 10) & (end == 11))]).holds


def test_without_the_solver_the_extra_is_named():
    code = ("import sys; sys.modules['z3'] = None\n"
            "from cca_lab.theory.forall.core import integers\nfrom cca_lab.theory.forall import report\n"
            "try:\n    integers('x')\nexcept ModuleNotFoundError as error:\n    print(error)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "z3: is not installed; run `pip install 'cca-lab[proofs]'`\n"
