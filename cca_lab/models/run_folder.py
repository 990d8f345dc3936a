"""The folder of a training run: its log, and its state, which is checked when it is read back.

`log.jsonl` holds a record of each step, `state/` the progress and what accelerate saves (trained
weights, optimizers, random states), `model/` the model as `save_pretrained` writes it.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_model
from torch import nn

from cca_lab.files import digest, replacing
from cca_lab.stored import read_json, read_text

ADVICE = "start without --resume, in another folder"
PROGRESS, LOG = "progress.json", "log.jsonl"
WEIGHTS = "model.safetensors"  # as accelerate names them
WRAPPED = "module."  # before a weight's name where several processes share the model


def read_progress(state: Path) -> dict[str, Any]:
    """Return a state's `progress.json`; ValueError for one of another form.

    It holds the "step", the "precision", what a resumed "run" must share, and the digests of the
    state's other "files".
    """
    path = state / PROGRESS
    progress = read_json(path, "resume", ADVICE)
    if not isinstance(progress, dict) or progress.keys() != {"step", "precision", "run", "files"}:
        raise ValueError(f"resume: {path} is not as a run writes it; {ADVICE}")
    return progress


def load_trained(model: nn.Module, state: Path, frozen: Collection[str]) -> None:
    """Load a state's weights; ValueError unless they are all of the model's but the frozen ones."""
    missing, unexpected = load_model(model, state / WEIGHTS, strict=False)
    lost = [name for name in missing if name.removeprefix(WRAPPED) not in frozen]
    if lost or unexpected:
        raise ValueError(f"its weights lack {lost}, and have {sorted(unexpected)} besides")


def digests(state: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a state but its progress, by name."""
    return {path.name: digest(path) for path in sorted(state.iterdir()) if path.name != PROGRESS}


def check_state(state: Path, files: Mapping[str, str]) -> None:
    """Raise ValueError naming a file of a state that is not as it was written.

    accelerate would go on without the random states in silence, and dropout draw other numbers.
    """
    for name, written in files.items():
        if not (state / name).is_file() or digest(state / name) != written:
            raise ValueError(f"resume: {state / name} is missing, or not as it was written; "
                             f"{ADVICE}")


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
        yield record


def trim_log(folder: Path, step: int) -> None:
    """Remove the records after a step from the log; they will be written again."""
    kept = [record for record in read_log(folder) if record["step"] <= step]
    if (folder / LOG).is_file():
        with replacing(folder / LOG) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept),
                                 encoding="utf-8")
