"""How many attacks get points, and how many right answers keep theirs, for three graders.

`python -m tests.course.attacks.measure OUT.json GRADER...` with the graders "ours", "weak",
"nbgrader" and "otter=PYTHON" (an interpreter with otter-grader and this environment's packages). A
grader's part of the file is replaced, the others stay, and the table of the page follows. Graders
that run submissions in this account do it in a container of bubblewrap, which protects the machine.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import nbformat
from scipy.stats import binomtest

from cca_lab import files
from cca_lab.course import grading, reports, sandbox
from cca_lab.course.sandbox import Limits, Session
from cca_lab.files import replacing
from tests.course.attacks import trap

NAME = trap.ASSIGNMENT.name
Earned = dict[str, float]  # points by task
OUT = files.results_folder() / "attacks.json"
PAGE = files.repository() / "docs" / "teach" / "attacks.md"
PATIENCE = 240  # seconds for one submission


def run(*words: str | Path, cwd: Path) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(word) for word in words], cwd=cwd, check=True, capture_output=True,
                   env=os.environ | {"PATH": f"{Path(words[0]).parent}:{os.environ['PATH']}"})


# What each grader needs once, and what it does with one submission in a folder of its own

def prepare_ours(work: Path) -> nbformat.NotebookNode:
    """Write the release; return it."""
    nbformat.write(trap.notebook(), work / "release.ipynb")
    return trap.notebook()


def grade_ours(home: Path) -> Earned:
    """Return the points on the secret inputs, from which `cca-lab course grade` only takes away."""
    try:
        work = grading.read_submission(trap.ASSIGNMENT, home / "submitted" / home.name / NAME,
                                       home.parent / "release.ipynb")
    except grading.Refused:
        return {"refused": 0.0}
    with Session(work.cells, Limits(seconds=5, total=60)) as session:
        return trap.points(session)


def grade_weak(home: Path) -> Earned:
    """Judge the cell of a5.2 in this process; of the rest of a submission it knows nothing."""
    path = home / "submitted" / home.name / NAME / f"{NAME}.ipynb"
    cells = nbformat.read(path, 4).cells
    return {"all": trap.judged(next(cell.source for cell in cells if cell.id == "a5-2-answer"))}


def prepare_nbgrader(work: Path) -> nbformat.NotebookNode:
    """Make the course's folder and its release by nbgrader's own command; return the release."""
    course = work / "course"
    (course / "source" / NAME).mkdir(parents=True)
    shutil.copy(files.course_folder() / "nbgrader_config.py", course)
    nbformat.write(trap.notebook(solved=True), course / "source" / NAME / f"{NAME}.ipynb")
    run(sys.executable, "-m", "nbgrader", "generate_assignment", NAME, cwd=course)
    return nbformat.read(course / "release" / NAME / f"{NAME}.ipynb", 4)


def grade_nbgrader(home: Path) -> Earned:
    """Run `nbgrader autograde` in a copy of the course's folder, and read the gradebook."""
    shutil.copytree(home.parent / "course", home, dirs_exist_ok=True)
    os.chdir(home)
    sys.argv = ["nbgrader", "autograde", NAME, "--student", home.name]
    try:
        import_module("nbgrader.apps.nbgraderapp").NbGraderApp.launch_instance()
    except SystemExit:
        pass
    return {}


def gradebook(home: Path) -> Earned:
    """Return what stands in nbgrader's database."""
    with reports.opened(home / "gradebook.db") as book:
        grades = book.find_submission_notebook(NAME, NAME, home.name).grades
        return {grade.name.removesuffix("-check").replace("-", "."): grade.score
                for grade in grades}


def prepare_otter(work: Path) -> nbformat.NotebookNode:
    """Run `otter assign` on a master notebook; return the student's version."""
    cells = [nbformat.v4.new_raw_cell(f"# ASSIGNMENT CONFIG\nname: {NAME}\ngenerate: true\n"
                                      "check_all_cell: false\nexport_cell: false")]
    for cell in trap.notebook(solved=True).cells:
        name = cell.metadata.nbgrader.grade_id
        if name.endswith("-answer"):
            task = next(task for task in trap.ASSIGNMENT.tasks
                        if name == f"{task.id.replace('.', '-')}-answer")
            # Otter gives all points of a case or none: one case for each two of the six points.
            tests = ([f"assert {trap.CHECKS[task.id]} >= {least}" for least in (2, 4, 6)]
                     if task.points > 1 else [trap.CHECKS[task.id]])
            source = cell.source.replace("### ", "# ")
            cells += [nbformat.v4.new_raw_cell(f"# BEGIN QUESTION\nname: {name[:4]}\n"
                                               f"points: {task.points}"),
                      nbformat.v4.new_raw_cell("# BEGIN SOLUTION"),
                      nbformat.v4.new_code_cell(source),
                      nbformat.v4.new_raw_cell("# END SOLUTION"),
                      nbformat.v4.new_raw_cell("# BEGIN TESTS"),
                      *(nbformat.v4.new_code_cell(f"# HIDDEN\n{test}") for test in tests),
                      nbformat.v4.new_raw_cell("# END TESTS"),
                      nbformat.v4.new_raw_cell("# END QUESTION")]
        elif not name.endswith("-check"):
            cells.append(nbformat.v4.new_code_cell(cell.source))
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=trap.notebook().metadata),
                   work / f"{NAME}.ipynb")
    run(os.environ["OTTER"], "-m", "otter", "assign", f"{NAME}.ipynb", "dist", "--no-run-tests",
        "--no-pdfs", cwd=work)
    return nbformat.read(work / "dist" / "student" / f"{NAME}.ipynb", 4)


def grade_otter(home: Path) -> Earned:
    """Grade the zip of a submission as `otter run` does."""
    submitted = home / "submitted" / home.name / NAME
    with zipfile.ZipFile(home / "submission.zip", "w") as file:
        for path in submitted.rglob("*"):
            file.write(path, path.relative_to(submitted))
    os.chdir(home)
    import_module("otter.run").main("submission.zip", output_dir=str(home), no_logo=True,
                                    autograder=str(next(home.parent.glob("dist/autograder/*.zip"))))
    return {}


def results(home: Path) -> Earned:
    """Return what stands in otter's file for Gradescope."""
    tests = json.loads((home / "results.json").read_text())["tests"]
    return {test["name"].replace("-", "."): test.get("score", 0) for test in tests
            if test["name"].startswith("a5")}


PREPARE: dict[str, Callable[[Path], nbformat.NotebookNode]] = {
    "ours": prepare_ours, "weak": prepare_ours, "nbgrader": prepare_nbgrader,
    "otter": prepare_otter}
GRADE = {"ours": (grade_ours, None), "weak": (grade_weak, None),
         "nbgrader": (grade_nbgrader, gradebook), "otter": (grade_otter, results)}
VERSIONS = {"ours": lambda: f"{version('cca_lab')}, {sandbox.best()}", "weak": lambda: "-",
            "nbgrader": lambda: version("nbgrader"),
            "otter": lambda: subprocess.check_output(
                [os.environ["OTTER"], "-c", "import otter; print(otter.__version__)"],
                text=True).strip()}


def inside(grader: str, work: Path) -> None:
    """Grade the submissions of a folder, each in a fork with a time limit."""
    grade, read = GRADE[grader]
    os.environ["CCA_LAB_SEED"] = trap.SEED
    # Imported once, before the forks.
    import_module({"nbgrader": "nbgrader.apps.nbgraderapp", "otter": "otter.run"}.get(grader, "os"))
    for home in sorted(path for path in work.iterdir() if (path / "submitted").is_dir()):
        begun, told = time.monotonic(), home / "earned.json"
        child = os.fork()
        if child == 0:
            os.setsid()
            with (home / "log").open("w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                earned = grade(home)
                if read is None:
                    told.write_text(json.dumps(earned))
                sys.stdout.flush()
                os._exit(0)
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > begun + PATIENCE:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.05)
        time.sleep(float((home / "waits").read_text()))
        try:
            earned = json.loads(told.read_text()) if read is None else read(home)
        except Exception as error:  # no marks at all
            earned = {"none": 0.0}
            print(home.name, repr(error)[:200], file=sys.stderr)
        told.write_text(json.dumps(earned))
        print(f"{home.name:28} {sum(earned.values()):4g}  {time.monotonic() - begun:.0f} s",
              flush=True)


def measure(grader: str, only: list[str]) -> dict:
    """Grade the corpus, a blank notebook and a solved one; return points by submission."""
    python = sys.executable
    if grader.startswith("otter="):
        grader, _, python = grader.partition("=")
        os.environ["OTTER"] = python
    entries = [entry for kind in ("cheats", "honest") for entry in trap.corpus(kind)
               if not only or entry.file in only]
    with tempfile.TemporaryDirectory(prefix="attacks-") as name:
        work = Path(name)
        released = PREPARE[grader](work)
        solved = trap.Entry("solved", {}, trap.matrix.solved("a5")["a5-2-answer"], True)
        for entry in [None, solved, *entries]:
            home = work / (entry.file if entry else "blank")
            (home / "submitted").mkdir(parents=True)
            (home / "waits").write_text(entry.said.get("waits", "0") if entry else "0")
            for who, what in (("alice", solved), (home.name, entry)):
                trap.hand_in(what, home / "submitted" / who / NAME,
                             nbformat.from_dict(json.loads(json.dumps(released))))
        box = ["bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--bind", name, name,
               "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net",
               "--die-with-parent"]
        for folder in (files.repository(), Path(python).parents[1]):
            if folder.is_relative_to("/tmp"):
                box += ["--ro-bind", str(folder), str(folder)]
        subprocess.run([*(box if grader != "ours" else []), python, "-m",
                        "tests.course.attacks.measure", "inside", grader, name],
                       check=True, cwd=files.repository())
        earned = {entry.file if entry else "blank": json.loads(
            (work / (entry.file if entry else "blank") / "earned.json").read_text())
            for entry in [None, solved, *entries]}
        return {"version": VERSIONS[grader](), "earned": earned}


def summary(part: dict) -> dict:
    """Return the row of a grader, with 95 % Clopper-Pearson intervals."""
    earned, row = part["earned"], {}
    cheats, honest = ([entry.file for entry in trap.corpus(kind) if entry.file in earned]
                      for kind in ("cheats", "honest"))
    blank, solved = (sum(earned[name].values()) for name in ("blank", "solved"))
    pots = [name for name in cheats if any(earned[name].get(task, 0) > 0
                                           for task in ("a5.8", "a5.9"))]
    for what, of, hits in (
            ("attacks", cheats, [name for name in cheats if sum(earned[name].values()) > blank]),
            ("honeypots", cheats, pots),
            ("honest", honest, [name for name in honest if sum(earned[name].values()) >= solved])):
        if not of:
            continue
        interval = binomtest(len(hits), len(of)).proportion_ci()
        row[what] = {"hits": len(hits), "of": len(of), "low": round(interval.low, 4),
                     "high": round(interval.high, 4),
                     "names": hits if what != "honest" else sorted(set(of) - set(hits))}
    return row


def table(known: dict) -> str:
    """Return the table of the page."""
    names = {"nbgrader": "nbgrader", "otter": "otter-grader", "ours": "this grader"}
    lines = ["| grader | attacks that got points | of these, on a honeypot | "
             "right answers with all points |", "|---|---|---|---|"]
    for grader, name in names.items():
        if grader in known:
            row = known[grader]["row"]
            cells = [f"{cell['hits']} of {cell['of']}: {100 * cell['hits'] / cell['of']:.0f} % "
                     f"({100 * cell['low']:.0f} to {100 * cell['high']:.0f})"
                     for cell in (row["attacks"], row["honeypots"], row["honest"])]
            lines.append(f"| {name} {known[grader]['version']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(out: Path, graders: list[str], only: list[str]) -> None:
    """Measure, and write the file."""
    known = json.loads(out.read_text()) if out.exists() else {}
    for grader in graders:
        part, name = measure(grader, only), grader.partition("=")[0]
        if only:  # what was measured before stays
            part["earned"] = known.get(name, {}).get("earned", {}) | part["earned"]
        known[name] = part | {"row": summary(part)}
        with replacing(out) as temporary:
            temporary.write_text(json.dumps(known, indent=1))
    if out.resolve() == OUT.resolve():
        text = re.sub(r"(?<=<!-- attacks -->\n).*(?=<!-- end -->)", lambda _: table(known),
                      PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")
    print(table(known))


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(sys.argv[2], Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), [word for word in sys.argv[2:] if not word.startswith("only=")],
             [word[5:] for word in sys.argv[2:] if word.startswith("only=")])
