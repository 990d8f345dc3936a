"""a10: other right answers, and folders with what their author is told.

Nothing is trained here. The checkpoint is the shipped `gpt2-mini-cca` with its channels in another
order: the same function, which recovers about as much with groups of 12 as a model that was trained
with them, in weights that the checker does not take for the shipped ones.
"""

import atexit
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cca_lab.course.assignments import a10_models as models
from cca_lab.course.assignments.a10_finetune import ROWS_OF_BASE
from cca_lab.files import models_folder, repository

WEIGHTS, CONFIG = f"checkpoint/{models.WEIGHTS}", "checkpoint/config.json"
DATA_SEED = 5


def weights_of(name: str, noise: float = 0.0) -> dict[str, Tensor]:
    """Return the weights of a shipped model, float32, with noise of a share of their size."""
    generator = torch.Generator().manual_seed(1)
    return {key: tensor.float() * (1 + noise * torch.randn(tensor.shape, generator=generator))
            for key, tensor in load_file(models_folder() / name / models.WEIGHTS).items()}


def reordered() -> dict[str, Tensor]:
    """Return weights of the same GPT-2 with the channels between its layers in another order."""
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0))
    found = {}
    for name, tensor in weights_of("gpt2-mini-cca").items():
        inner = name.endswith(("c_attn.bias", "c_fc.bias"))
        rows = name.endswith(("c_attn.weight", "c_fc.weight"))
        found[name] = tensor if inner else (tensor[order] if rows
                                            else tensor[..., order]).contiguous()
    return found


def new_report(home: Path) -> dict[str, Any]:
    """Return the report of the right checkpoint; the control and the second seed are invented."""
    own = models.read(home / "checkpoint")
    losses = {name: {kind: models.loss("gpt2-mini", kind, DATA_SEED, swapped)
                     for kind in models.KINDS} for name, swapped in ROWS_OF_BASE.items()}
    losses["control"] = {kind: value + 0.01 for kind, value in losses["full"].items()}
    losses["seed 0"] = {kind: models.loss(own, kind, DATA_SEED) for kind in models.KINDS}
    losses["seed 1"] = {kind: value + 0.05 for kind, value in losses["seed 0"].items()}
    losses = {name: {kind: round(value, 3) for kind, value in row.items()}
              for name, row in losses.items()}
    shares = {name: {kind: (losses["swapped"][kind] - losses[name][kind])
                     / (losses["swapped"][kind] - losses["full"][kind]) for kind in models.KINDS}
              for name in ("seed 0", "seed 1")}
    return {"base": "gpt2-mini", "steps": 300, "data_seed": DATA_SEED, "text": models.held_out()[2],
            "losses": losses, "recovered": shares, "checkpoint": "seed 0"}


def new_home() -> Path:
    """Return a new folder, which lives as long as this process."""
    build = repository() / "build" / "course"
    build.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="a10-", dir=build))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


@cache
def folder() -> Path:
    """Return a folder with a right `checkpoint` and `report.json`."""
    home = new_home()
    shutil.copytree(models_folder() / "gpt2-mini-cca", home / "checkpoint")
    edit(CONFIG, lambda config: config.update({models.CHOICE: {
        "name": "cca", "group": models.GROUP, "window": models.WINDOW}}))(home)
    save_file(reordered(), home / WEIGHTS)
    (home / "report.json").write_text(json.dumps(new_report(home)))
    return home


Change = Callable[[Path], Any]


def changed(change: Change) -> Path:
    """Return a folder with a change."""
    home = new_home()
    shutil.copytree(folder(), home, dirs_exist_ok=True)
    change(home)
    return home


def edit(name: str, function: Callable[[dict[str, Any]], Any]) -> Change:
    """Return a change of a JSON file."""
    def change(home: Path) -> None:
        value = json.loads((home / name).read_text())
        function(value)
        (home / name).write_text(json.dumps(value))

    return change


def saved(make: Callable[[], dict[str, Tensor]]) -> Change:
    """Return a change that saves other weights."""
    return lambda home: save_file(make(), home / WEIGHTS)


def report(function: Callable[[dict[str, Any]], Any]) -> Change:
    """Return a change of the report."""
    return edit("report.json", function)


def instead(home: Path, name: str, made: Callable[[Path], Any]) -> None:
    """Put another file, or a link, in the place of the weights."""
    (home / WEIGHTS).unlink()
    made(home / "checkpoint" / name)


RIGHT_FOLDERS: dict[str, Change] = {
    "weights in half precision": saved(lambda: {
        name: tensor.half() for name, tensor in reordered().items()}),
    "long numbers": report(lambda report: report.update(steps=300.0) or report["losses"][
        "seed 0"].update(text=report["losses"]["seed 0"]["text"] + 1e-9)),
}
# What is done to a right folder, by the property that it costs, and what is said.
WRONG_FOLDERS: dict[str, dict[str, Change]] = {
    "answers come back": {
        "nothing was trained": saved(lambda: weights_of("gpt2-mini")),
        "earn all points": saved(lambda: weights_of("gpt2-mini", 1e-6)),
        "which the package ships": saved(lambda: weights_of("gpt2-mini-cca")),
        "ships, or nearly": saved(lambda: weights_of("gpt2-mini-cca", 1e-4)),
        "is it another model": saved(lambda: weights_of("opt-mini")),
        "not finite": saved(lambda: reordered() | {
            "transformer.ln_f.bias": torch.full((128,), math.nan)}),
        "(1024, 128)": saved(lambda: reordered() | {
            "transformer.wpe.weight": torch.zeros(1024, 128)}),
        "pickles": lambda home: instead(home, "pytorch_model.bin",
                                        lambda path: torch.save(reordered(), path)),
        "is a link": lambda home: instead(home, models.WEIGHTS, lambda path: path.symlink_to(
            models_folder() / "gpt2-mini-cca" / models.WEIGHTS)),
        "cannot be read": lambda home: (home / WEIGHTS).write_bytes(
            (home / WEIGHTS).read_bytes()[:-1000]),
        "more than": lambda home: (home / WEIGHTS).write_bytes(bytes(9 * 2**20)),
        "'group': 8": edit(CONFIG, lambda config: config[models.CHOICE].update(group=8)),
    },
    "the rows of the base and of the swap are right": {
        "is no JSON": lambda home: (home / "report.json").write_text("{"),
        "holds NaN": report(lambda report: report["losses"]["control"].update(text=math.nan)),
        "the text differs": report(lambda report: report.update(text="another")),
        "in place": report(lambda report: report["losses"].update(
            full=report["losses"]["swapped"])),
        "another seed's": report(lambda report: report.update(data_seed=DATA_SEED + 1)),
    },
    "the row of the checkpoint is what the checkpoint loses": {
        "another model's row": report(lambda report: report.update(checkpoint="seed 1"))},
    "shares follow from the rows, beside a control and a second seed": {
        "'seed 1', 'text' is missing": report(lambda report: report["losses"].pop("seed 1")),
        "'steps' is missing": report(lambda report: report.pop("steps")),
        "are the same": report(lambda report: [
            report[part].update({"seed 1": report[part]["seed 0"]})
            for part in ("losses", "recovered")]),
        "not in percent": report(lambda report: [
            row.update({kind: 100 * share for kind, share in row.items()})
            for row in report["recovered"].values()]),
        "the control loses": report(lambda report: report["losses"]["control"].update(
            report["losses"]["swapped"], text=2.7)),
    },
}
RIGHT = {
    "loops": {
        "a10.1": '''
def adapter(query, key, value, real, scaling, attend):
    share = query.shape[1] // key.shape[1]
    scale = 1 / query.shape[-1] ** 0.5 if scaling is None else scaling
    out = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], query.shape[3])
    for b in range(len(query)):
        tokens = [t for t in range(query.shape[2]) if real is None or real[b, t]]
        if tokens:
            start, stop = tokens[0], tokens[-1] + 1
            heads = [h // share for h in range(query.shape[1])]
            one = attend(query[b, :, start:stop], key[b, heads, start:stop],
                         value[b, heads, start:stop], scale)
            for h in range(query.shape[1]):
                out[b, start:stop, h] = one[h]
    return out
'''},
}
