"""The proofs in Coq: they compile, assume nothing, and do not survive a wrong statement."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cca_lab import files

PROOFS = files.repository() / "proofs"
SOURCES = sorted(PROOFS.glob("*.v"))
UNPROVED = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|Hypothes[ie]s|"
    r"Unset Guard Checking|bypass_check)\b")

# File, a piece of its text, how often it stands there, and what makes the statement wrong.
MUTANTS = {
    "Theorem 1 turned round": (
        "theorem1.v", "    <= probability P (fun w => rho_sparse", 1,
        "    >= probability P (fun w => rho_sparse"),
    "Theorem 1 with rho x for L rho x": (
        "theorem1.v", "(fun w => L%:R * rho * x < total (X w))\n", 1,
        "(fun w => rho * x < total (X w))\n"),
    "Theorem 1 with P(S < L rho x)": (
        "theorem1.v", "(fun w => L%:R * rho * x < total (X w))\n", 1,
        "(fun w => total (X w) < L%:R * rho * x)\n"),
    "Theorem 3 turned round": (
        "theorem3.v", "  high' / low' <= high / low.", 2, "  high / low <= high' / low'."),
    "Theorem 3 with lambda / m^2": (
        "theorem3.v", "between (low / m%:R) (high / m%:R)", 1,
        "between (low / m%:R ^+ 2) (high / m%:R ^+ 2)"),
    "Theorem 3 for sums, not means": (
        "theorem3.v", "(if group j == g then m%:R^-1 else 0)", 1,
        "(if group j == g then 1 else 0)"),
    "Theorem 3 for groups of any size": (
        "theorem3.v", "#|[pred j | group j == g]| = m)", 2, "(#|[pred j | group j == g]| <= m)%N)"),
    "Theorem 3 for a singular H": (
        "theorem3.v", "group j == g]| = m) -> 0 < low ->\n", 1, "group j == g]| = m) ->\n"),
}


def compiled(source: Path):
    return subprocess.run(["coqc", "-q", "-w", "none", source.name], cwd=source.parent,
                          capture_output=True, text=True)


@pytest.fixture(scope="module")
def coq(tmp_path_factory) -> None:
    """Skip what needs Coq and its library where one is missing."""
    if shutil.which("coqc") is None:
        pytest.skip("coqc is not installed; proofs/README.md says how to get it")
    probe = tmp_path_factory.mktemp("probe") / "probe.v"
    probe.write_text("From mathcomp Require Import all_ssreflect all_algebra.\n")
    if compiled(probe).returncode:
        pytest.skip("Coq's library mathcomp (ssreflect, algebra) is not installed; "
                    "proofs/README.md says how to get it")


def make(folder: Path, build: Path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return subprocess.run(["make", "-C", folder, f"BUILD={build}"], capture_output=True, text=True)


def theorems() -> list[str]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in SOURCES}
    return [f"{stem}.{name}" for stem, text in texts.items()
            for name in re.findall(r"^Theorem ([\w']+)", text, re.MULTILINE)]


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_is_taken_for_granted(path):
    assert not UNPROVED.search(path.read_text(encoding="utf-8"))


def test_the_committed_list_has_every_theorem_and_no_assumption():
    lines = (PROOFS / "assumptions.txt").read_text(encoding="utf-8").splitlines()
    assert lines[::2] == [f"{name}:" for name in theorems()]
    assert set(lines[1::2]) == {"Closed under the global context"}
    assert {"theorem1.two_term_bound", "theorem3.hessian_condition"} <= set(theorems())


def test_the_readme_shows_the_statements_that_are_proved():
    readme = (PROOFS / "README.md").read_text(encoding="utf-8")
    sources = one_line(" ".join(path.read_text(encoding="utf-8") for path in SOURCES))
    shown = re.findall(r"^```coq\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for statement in shown:
        assert one_line(statement) + " Proof." in sources
    for name in theorems():
        short = name.partition(".")[2]
        assert f"`{short}`" in readme or f"Theorem {short} " in readme


@pytest.mark.nightly
def test_the_proofs_compile_and_assume_nothing(coq, tmp_path):
    run = make(PROOFS, tmp_path / "build")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "none assumes an axiom" in run.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_statement_does_not_compile(mutant, coq, tmp_path):
    name, old, times, new = MUTANTS[mutant]
    text = (PROOFS / name).read_text(encoding="utf-8")
    assert text.count(old) == times
    source = tmp_path / name
    source.write_text(text.replace(old, new), encoding="utf-8")
    run = compiled(source)
    assert run.returncode != 0 and "Error:" in run.stderr
    lines = source.read_text(encoding="utf-8").splitlines()
    lines = lines[:int(re.search(r"line (\d+)", run.stderr)[1])]
    begun = "\n".join(lines[:-1]).rpartition("Qed.")[2] + lines[-1]
    assert "Proof." in begun, f"the statement is not understood: {run.stderr}"
