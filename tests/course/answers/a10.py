"""a10: other right answers, and wrong ones with what they lose.

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
from tests.course.kinds import Right, Wrong

ALONE, ONCE = "each text of a padded batch gets what it gets alone", "the scores are scaled once"
MEAN = "the mean over marked tokens, each predicted one token earlier"
HALF = "half precision and kinds without a mark"
STEPS = "groups and factors of all steps"
ANSWERS, TEXT = "answers come back", "text comes back in part"
ROWS = "the rows of the base and of the swap are right"
OWN = "the row of the checkpoint is what the checkpoint loses"
SHARES = "shares follow from the rows, beside a control and a second seed"
NO_MODEL = {ANSWERS: 5, TEXT: 3, OWN: 2}
DATA_SEED = 5


def weights_of(name: str) -> dict[str, Tensor]:
    """Return the weights of a shipped model, float32."""
    file = models_folder() / name / models.WEIGHTS
    return {key: tensor.float() for key, tensor in load_file(file).items()}


def reordered(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of the same GPT-2 with the channels between its layers in another order."""
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0))
    found = {}
    for name, tensor in weights.items():
        if name.endswith(("c_attn.weight", "c_fc.weight")):
            found[name] = tensor[order].contiguous()
        elif name.endswith(("c_attn.bias", "c_fc.bias")):
            found[name] = tensor
        else:
            found[name] = tensor[..., order].contiguous()
    return found


def noisy(weights: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return weights with noise of a share of their size."""
    generator = torch.Generator().manual_seed(1)
    return {name: tensor * (1 + share * torch.randn(tensor.shape, generator=generator))
            for name, tensor in weights.items()}


def new_report() -> dict[str, Any]:
    """Return the report of the right checkpoint; the control and the second seed are invented."""
    own = models.read(folder("plain") / "checkpoint")
    losses = {name: {kind: models.loss("gpt2-mini", kind, DATA_SEED, swapped)
                     for kind in models.KINDS} for name, swapped in ROWS_OF_BASE.items()}
    losses["control"] = {"text": losses["full"]["text"] - 0.01, "answers":
                             losses["full"]["answers"] + 0.001}
    losses["seed 0"] = {kind: models.loss(own, kind, DATA_SEED) for kind in models.KINDS}
    losses["seed 1"] = {kind: value + 0.05 for kind, value in losses["seed 0"].items()}
    losses = {name: {kind: round(value, 3) for kind, value in row.items()}
              for name, row in losses.items()}
    shares = {name: {kind: (losses["swapped"][kind] - losses[name][kind])
                     / (losses["swapped"][kind] - losses["full"][kind]) for kind in models.KINDS}
              for name in ("seed 0", "seed 1")}
    return {"base": "gpt2-mini", "steps": 300, "data_seed": DATA_SEED, "text": models.held_out()[2],
            "losses": losses, "recovered": shares, "checkpoint": "seed 0"}


# What is done to the folder of a right answer, by name.
CHANGES: dict[str, Callable[[Path], None]] = {}
SOURCES: dict[str, Callable[[], dict[str, Tensor]]] = {
    "untrained": lambda: weights_of("gpt2-mini"),
    "hardly trained": lambda: noisy(weights_of("gpt2-mini"), 1e-6),
    "shipped": lambda: weights_of("gpt2-mini-cca"),
    "shipped with noise": lambda: noisy(weights_of("gpt2-mini-cca"), 1e-4),
    "in half precision": lambda: {name: tensor.half() for name, tensor
                                  in reordered(weights_of("gpt2-mini-cca")).items()},
    "of OPT": lambda: weights_of("opt-mini"),
    "with a number that is none": lambda:
        weights_of("gpt2-mini-cca") | {"transformer.ln_f.bias": torch.full(
(128,), math.nan)},
    "with another shape": lambda:
        weights_of("gpt2-mini-cca") | {"transformer.wpe.weight": torch.zeros(1024, 128)},
}


@cache
def folder(what: str = "right") -> Path:
    """Return a folder with `checkpoint` and `report.json`, changed as `what` says.

    "plain" has no report.
    """
    build = repository() / "build" / "course"
    build.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="a10-", dir=build))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shutil.copytree(models_folder() / "gpt2-mini-cca", home / "checkpoint")
    config = json.loads((home / "checkpoint" / "config.json").read_text())
    config[models.CHOICE] = {"name": "cca", "group": models.GROUP, "window": models.WINDOW}
    (home / "checkpoint" / "config.json").write_text(json.dumps(config))
    new = SOURCES.get(what, lambda: reordered(weights_of("gpt2-mini-cca")))()
    save_file(new, home / "checkpoint" / models.WEIGHTS)
    if what != "plain":
        (home / "report.json").write_text(json.dumps(new_report()))
    CHANGES.get(what, lambda home: None)(home)
    return home


def change(what: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Register a change of a folder under a name."""
    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        CHANGES[what] = function
        return function

    return register


def edit(path: Path, function: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file."""
    value = json.loads(path.read_text())
    function(value)
    path.write_text(json.dumps(value))


@change("a pickle")
def _pickle(home: Path) -> None:
    torch.save(load_file(home / "checkpoint" / models.WEIGHTS),
               home / "checkpoint" / "pytorch_model.bin")
    (home / "checkpoint" / models.WEIGHTS).unlink()


@change("a link")
def _link(home: Path) -> None:
    (home / "checkpoint" / models.WEIGHTS).unlink()
    (home / "checkpoint" / models.WEIGHTS).symlink_to(models_folder() / "gpt2-mini-cca"
                                                      / models.WEIGHTS)


@change("cut off")
def _cut(home: Path) -> None:
    path = home / "checkpoint" / models.WEIGHTS
    path.write_bytes(path.read_bytes()[:-1000])


@change("too large")
def _large(home: Path) -> None:
    with (home / "checkpoint" / models.WEIGHTS).open("ab") as file:
        file.truncate(2**30)


@change("groups of 8")
def _groups(home: Path) -> None:
    edit(home / "checkpoint" / "config.json",
         lambda config: config[models.CHOICE].update(group=8, window=64))


@change("cut report")
def _cut_report(home: Path) -> None:
    (home / "report.json").write_text((home / "report.json").read_text()[:-1])


REPORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NaN": lambda report: report["losses"]["control"].update(text=math.nan),
    "percent": lambda report: [row.update({kind: 100 * share for kind, share in row.items()})
                               for row in report["recovered"].values()],
    "no second seed": lambda report: report["losses"].pop("seed 1"),
    "one seed twice": lambda report:
        (report["losses"].update({"seed 1": report["losses"]["seed 0"]}),
         report["recovered"].update({"seed 1": report["recovered"]["seed 0"]})),
    "another seed's rows": lambda report: report.update(data_seed=DATA_SEED + 1),
    "the other model": lambda report: report.update(checkpoint="seed 1"),
    "control with CCA": lambda report:
        report["losses"]["control"].update(report["losses"]["swapped"], text=2.7),
    "another text": lambda report: report.update(text="another"),
    "no steps": lambda report: report.pop("steps"),
    "the swap's row as full": lambda report:
        report["losses"].update(full=report["losses"]["swapped"]),
    "long numbers": lambda report:
        report["losses"]["seed 0"].update(text=report["losses"]["seed 0"]["text"] + 1e-9)
    or report.update(steps=300.0),
}
for _name, _function in REPORTS.items():
    CHANGES[_name] = lambda home, function=_function: edit(home / "report.json", function)


def files(what: str) -> str:
    """Return a cell that says in which folder the files are."""
    return f"from tests.course.answers.a10 import folder\nFOLDER = folder({what!r})\n"


RIGHT = [
    Right("loops, and a checkpoint in half precision", {
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
            one = attend(query[b, :, start:stop] * scale, key[b, heads, start:stop],
                         value[b, heads, start:stop], 1.0)
            for h in range(query.shape[1]):
                out[b, start:stop, h] = one[h]
    return out
''',
        "a10.2": '''
def mean_losses(logits, input_ids, known, text_rows):
    sums = {"text": [], "answers": []}
    for row in range(len(input_ids)):
        logs = torch.log_softmax(logits[row].float(), dim=-1)
        for t in range(1, input_ids.shape[1]):
            if known[row, t]:
                sums["text" if row < text_rows
                     else "answers"].append(-logs[t - 1, input_ids[row, t]].item())
    return {kind: sum(found) / len(found) if found else 0 for kind, found in sums.items()}
''',
        "a10.4": files("in half precision")}),
    Right("a report with long numbers, a schedule with numpy", {
        "a10.3": '''
import numpy

def schedule(steps, last, warmup):
    sizes = [2**p for p in range(1, 30) if 2**p < last] + [last]
    m = len(sizes) - 1
    begins = [j * 3 * steps // (5 * m) for j in range(m)] + [3 * steps // 5] if m else [0]
    at = numpy.searchsorted(begins, numpy.arange(steps), side="right") - 1
    return [[sizes[j], min(1, (s - begins[j] + 1) / warmup) * (steps - s) / steps]
            for s, j in enumerate(at)]
''',
        "a10.4": files("long numbers")}),
]

WRONG = [
    Wrong("groups begin at the padding", "a10.1", "at = real[row]",
          "at = torch.ones(length, dtype=torch.bool)", {ALONE: 2}, "groups begin at the padding"),
    Wrong("a scale of 0 is taken for none", "a10.1", "dim**-0.5 if scaling is None else scaling",
          "scaling or dim**-0.5", {ONCE: 1}, "whatever the model"),
    Wrong("padding behind reaches attend", "a10.1",
          "out[row, :, at] = attend(query[row][:, at], key[row][:, at], value[row][:, at], scale)",
          "to = at.int().cummax(0).values.bool(); out[row, :, to] = attend(query[row][:, to], "
          "key[row][:, to], value[row][:, to], scale); out[row, :, ~at] = "
          "0", {ALONE: 2}, "no padding may reach it"),
    Wrong("1 / sqrt(D) twice", "a10.1", "attend(query[row][:, at],",
          "attend(query[row][:, at] * dim**-0.5,", {ONCE: 1}, "on top of it"),
    Wrong("heads and tokens are not exchanged", "a10.1", "return out.transpose(1, 2)", "return out",
          {ALONE: 2, ONCE: 1}, "has shape"),
    Wrong("key heads are tiled", "a10.1",
          "key.repeat_interleave(copies, dim=1), value.repeat_interleave(copies, dim=1)",
          "key.repeat(1, copies, 1, 1), value.repeat(1, copies, 1, 1)", {ALONE: 2},
          "different key heads"),
    Wrong("the logits at the token itself", "a10.2", "-logits[:, :-1].double()",
          "-logits[:, 1:].double()", {MEAN: 1, HALF: 1}, "not those before it"),
    Wrong("all tokens count", "a10.2", "marked = known[:, 1:]", "marked = known[:, 1:] | True",
          {MEAN: 1, HALF: 1}, "marked or not"),
    Wrong("every row counts the same", "a10.2", "own = losses[rows][marked[rows]]",
          "own = (losses[rows] * marked[rows]).sum(1) / marked[rows].sum(1).clamp(min=1)",
          {MEAN: 1, HALF: 1}, "however many marks"),
    Wrong("sums in half precision", "a10.2", "logits[:, :-1].double()", "logits[:, :-1]", {HALF: 1},
          "bfloat16"),
    Wrong("a kind without marks", "a10.2", "own.mean().item() if len(own) else 0.0",
          "own.mean().item()", {HALF: 1}, "finite"),
    Wrong("no warm-up at a new size", "a10.3", "(step - begin + 1) / warmup", "(step + 1) / warmup",
          {STEPS: 1}),
    Wrong("nothing was trained", "a10.4", "", files("untrained"), NO_MODEL, "nothing was trained"),
    Wrong("nothing but noise was trained", "a10.4", "", files("hardly trained"), NO_MODEL,
          "earn all points"),
    Wrong("the shipped model", "a10.4", "", files("shipped"), NO_MODEL, "which the package ships"),
    Wrong("the shipped model with noise", "a10.4", "", files("shipped with noise"), NO_MODEL,
          "or nearly"),
    Wrong("weights of the other family", "a10.4", "", files("of OPT"), NO_MODEL, "another model"),
    Wrong("weights that are not finite", "a10.4", "", files("with a number that is none"), NO_MODEL,
          "not finite"),
    Wrong("weights of another shape", "a10.4", "", files("with another shape"), NO_MODEL,
          "(1024, 128)"),
    Wrong("a pickle", "a10.4", "", files("a pickle"), NO_MODEL, "pickles"),
    Wrong("a link to the shipped model", "a10.4", "", files("a link"), NO_MODEL, "link"),
    Wrong("a file that is cut off", "a10.4", "", files("cut off"), NO_MODEL, "cannot be read"),
    Wrong("a file of a gigabyte", "a10.4", "", files("too large"), NO_MODEL, "more than"),
    Wrong("trained with groups of 8", "a10.4", "", files("groups of 8"), NO_MODEL, "'group': 8"),
    Wrong("a report that is cut off", "a10.5", "", files("cut report"),
          {ROWS: 2, OWN: 2, SHARES: 2}, "is no JSON"),
    Wrong("a loss that is no number", "a10.5", "", files("NaN"), {ROWS: 2, OWN: 2, SHARES: 2},
          "NaN"),
    Wrong("one seed only", "a10.5", "", files("no second seed"), {SHARES: 2}, "'seed 1', 'text'"),
    Wrong("another text", "a10.5", "", files("another text"), {ROWS: 2, OWN: 2, SHARES: 2},
          "the text differs"),
    Wrong("no steps", "a10.5", "", files("no steps"), {SHARES: 2}, "'steps' is missing"),
    Wrong("the row of the swap as full", "a10.5", "", files("the swap's row as full"),
          {ROWS: 2, SHARES: 2}, "in place"),
    Wrong("one seed twice", "a10.5", "", files("one seed twice"), {SHARES: 2}, "are the same"),
    Wrong("shares in percent", "a10.5", "", files("percent"), {SHARES: 2}, "not in percent"),
    Wrong("rows of another seed", "a10.5", "", files("another seed's rows"),
          {ROWS: 2, OWN: 2, SHARES: 2}, "another seed's"),
    Wrong("the row of another model", "a10.5", "", files("the other model"), {OWN: 2},
          "another model's row"),
    Wrong("a control that attends with CCA", "a10.5", "", files("control with CCA"), {SHARES: 2},
          "the control loses"),
]
