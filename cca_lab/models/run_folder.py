"""The folder of a training run: its log, and its state, which is checked when it is read back.

`log.jsonl` holds a record of each step, `state/` the progress and what accelerate saves (trained
weights, optimizers, random states), `model/` the model as `save_pretrained` writes it.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load_model
from torch import nn

from cca_lab.files import digest, replacing

ADVICE = "start without --resume, in another folder"
PROGRESS, LOG = "progress.json", "log.jsonl"
WEIGHTS = "model.safetensors"  # as accelerate names them
WRAPPED = "module."  # before a weight's name where several processes share the model


def load_trained(model: nn.Module, state: Path, frozen: Collection[str]) -> None:
    """Load a state's weights; ValueError unless they are all of the model's but the frozen ones."""
    missing, unexpected = load_model(model, state / WEIGHTS, strict=False)
    lost = [name for name in missing if name.removeprefix(WRAPPED) not in frozen]
    if lost or unexpected:
        raise ValueError(f"resume: {state} is the state of another model: its weights lack {lost}, "
                         f"and have {sorted(unexpected)} besides")


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
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        with suppress(ValueError) if number == len(lines) else nullcontext():
            yield json.loads(line)  # a full disk, or a machine that stopped, cuts the last line


def trim_log(folder: Path, step: int) -> None:
    """Remove the records after a step from the log; they will be written again."""
    kept = [record for record in read_log(folder) if record["step"] <= step]
    if (folder / LOG).is_file():
        with replacing(folder / LOG) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept),
                                 encoding="utf-8")
