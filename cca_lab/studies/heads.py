"""`cca-lab experiments heads`: how sparse each head of a model is, in one small file to compare models by."""

from pathlib import Path

import torch

from cca_lab.attention import statistics as analysis
from cca_lab.files import check_file, new_result
from cca_lab.models import attention_maps, load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import command_line, device, machine, print_table, training_progress, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.evaluate import context_of
from cca_lab.studies.real_heads import texts_of
from cca_lab.tasks.corpus import load_corpus

SINK, NEAR = 1, 128  # first tokens that count as sinks; tokens that count as near


def heads(model_name: str, out: Path | None = None, *, texts: int = 8, length: int = 512,
          text: str | None = None) -> dict:
    """Measure every head on held-out text, over the second half of each text's rows.

    Args:
        model_name: a folder or a hub name.
        out: the JSON file; None for data/results/heads-MODEL.json.
        texts: number of texts.
        length: tokens of a text.
        text: as in `load_corpus`.

    Returns:
        What is written: by statistic, a number for each [layer][head]: "k90", "effective" (e^entropy), "sink" (weight
        of the first token), "far" (weight beyond the nearest 128 tokens, the first token left out).

    Raises:
        ValueError: if a number is out of range, or the text is too short.
    """
    quiet()
    out = check_file(out or new_result(f"heads-{Path(model_name).resolve().name}.json"))
    model, tokenizer = load_pretrained(model_name, "full")
    check_sizes(length=(length, 2 * NEAR, context_of(model)), texts=(texts, 1, 2**20))
    corpus, half = load_corpus(text), length // 2
    found: dict[str, list[torch.Tensor]] = {"k90": [], "effective": [], "sink": [], "far": []}
    ids = texts_of(tokenize(corpus.validation, tokenizer), texts, length).to(device())
    model.to(device())
    with training_progress(f"heads, {Path(model_name).name}", len(ids)) as report:
        for done, one in enumerate(ids):
            report(done, "")
            maps = attention_maps(model, one).cpu()                         # (layers, H, L, L)
            rows = analysis.summarise(maps, first_row=half)
            numbers = (rows.k90, rows.effective_tokens, maps[..., half:, :SINK].sum(-1).mean(-1),
                       analysis.mass_beyond(maps, NEAR, sinks=SINK)[..., half:].mean(-1))
            for values, new in zip(found.values(), numbers, strict=True):
                values.append(new.double())
        report(len(ids), "")
    result = {"model": Path(model_name).name, "texts": len(ids), "length": length, "command": command_line(),
              "machine": machine(), "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
              **{name: [[round(number, 4) for number in layer] for layer in torch.stack(values).mean(0).tolist()]
                 for name, values in found.items()}}
    write_json(out, result)
    show(result)
    return result


def show(result: dict) -> None:
    """Print each statistic's median over the heads, and its range."""
    rows = []
    for name in ("k90", "effective", "sink", "far"):
        values = torch.tensor(result[name]).flatten()
        rows.append([name, *(f"{number:.3g}" for number in (values.median(), values.min(), values.max()))])
    print_table(f"{result['model']}: heads on {result['texts']} texts of {result['length']} tokens",
                ["statistic", "median", "lowest", "highest"], rows)
