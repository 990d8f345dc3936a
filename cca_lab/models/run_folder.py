"""The folder of a training run: its log, and its state, which is checked when it is read back.

`log.jsonl` holds a record of each step, `state/` the progress and what accelerate saves (trained
weights, optimizers, random states), `model/` the model as `save_pretrained` writes it.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from accelerate.utils import load
from safetensors.torch import load_file, load_model
from torch import Tensor, nn

from cca_lab.files import replacing
from cca_lab.models.checkpoints import said
from cca_lab.stored import matches, read_json, read_text

ADVICE = "start without --resume, in another folder"
PROGRESS, LOG = "progress.json", "log.jsonl"
WEIGHTS = "model.safetensors"  # as accelerate names them
WRAPPED = "module."  # before a weight's name where several processes share the model


class Progress(TypedDict):
    """How far a run is, and what a resumed run must share with it."""

    step: int
    precision: str
    run: dict[str, Any]


class Record(TypedDict):
    """A step, as far as a resumed run reads it."""

    step: int
    text_loss: NotRequired[float | None]


def read_progress(state: Path) -> Progress:
    """Return a state's `progress.json`; ValueError naming what is wrong with it."""
    path = state / PROGRESS
    progress = read_json(path, "resume", ADVICE)
    matches(progress, Progress, f"resume: {path}", ADVICE)
    if progress["step"] < 0:
        raise ValueError(f"resume: {path}: step: got {progress['step']}, wanted 0 or more; "
                         f"{ADVICE}")
    return progress


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Return the first 16 hex digits of the SHA-256 over names and values."""
    digest = hashlib.sha256()
    for name, weight in weights.items():
        digest.update(name.encode())
        values = weight.detach().cpu().contiguous().flatten()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def load_trained(model: nn.Module, state: Path, frozen: Collection[str]) -> None:
    """Load a state's weights; ValueError unless they are all of the model's but the frozen ones."""
    missing, unexpected = load_model(model, state / WEIGHTS, strict=False)
    lost = [name for name in missing if name.removeprefix(WRAPPED) not in frozen]
    if lost or unexpected:
        raise ValueError(f"its weights lack {lost}, and have {sorted(unexpected)} besides")


@contextmanager
def loading_state(state: Path) -> Iterator[None]:
    """Turn an error while a state is loaded into a ValueError that names the file which is broken.

    A state without a broken file belongs to another model.
    """
    try:
        yield
    except Exception as error:  # on a broken file a library may raise anything
        for path in sorted(state.iterdir()):
            if problem := _problem_of(path):
                raise ValueError(f"resume: {path} cannot be used ({problem}); {ADVICE}"
                                 ) from error
        raise ValueError(f"resume: {state} is the state of another model ({said(error)}); give the "
                         "model that the run began with") from error


def _problem_of(path: Path) -> str | None:
    try:
        if path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".bin":
            load(path, map_location="cpu")
    except Exception as error:
        return said(error)
    return None


def check_random_state(state: Path, process: int) -> None:
    """Raise ValueError unless the random states of a process were just restored from its file.

    accelerate goes on without them in silence, and dropout then draws other numbers.
    """
    path = state / f"random_states_{process}.pkl"
    try:
        restored = torch.equal(torch.get_rng_state(), load(path)["torch_manual_seed"])
        problem = "holds other states than those in use"
    except Exception as error:
        restored, problem = False, said(error)
    if not restored:
        raise ValueError(f"resume: {path} cannot be used ({problem}), so that the run may go on "
                         "otherwise than if it had not stopped; give --allow-different to go on "
                         "nevertheless")


@contextmanager
def writing_state(folder: Path, main: bool) -> Iterator[Path]:
    """Yield a temporary folder for a state; ValueError if a library cannot write to it.

    The main process makes it, and removes what is left of it.
    """
    temporary = folder / "state.part"
    try:
        if main:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        yield temporary
    except (OSError, ValueError):
        raise
    except Exception as error:  # on a full disk each library raises one of its own
        raise ValueError(f"out: {folder} cannot be written ({said(error)}); the checkpoint before "
                         "this one stays, make room and go on with --resume") from error
    finally:
        if main:
            shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(new: Path, folder: Path) -> None:
    """Replace a folder by `new`; at every moment one of the two exists."""
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def put_back(folder: Path) -> None:
    """Undo the first half of a `replace_folder` that was interrupted."""
    old = folder.with_name(folder.name + ".old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def append_log(folder: Path, record: dict[str, Any]) -> None:
    """Append a record to a run's `log.jsonl`; the folder is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run's `log.jsonl`, without a last line that was cut off."""
    path = Path(folder) / LOG
    lines = read_text(path, "log").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:  # a full disk, or a machine that stopped, cuts the last line
            if number < len(lines):
                raise ValueError(
                    f"log: got line {number} of {path}, which is no record; remove it") from error
            return
        matches(record, Record, f"log: line {number} of {path}", "remove it")
        yield record


def trim_log(folder: Path, step: int) -> None:
    """Remove the records after a step from the log; they will be written again."""
    kept = [record for record in read_log(folder) if record["step"] <= step]
    if (folder / LOG).is_file():
        with replacing(folder / LOG) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept),
                                 encoding="utf-8")
