"""How sparse every head of a model is: `cca-lab study heads` and `cca-lab study sparsity`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from cca_lab import models
from cca_lab.attention import statistics
from cca_lab.files import new_result
from cca_lab.options import Count, at_least
from cca_lab.reporting import command_line, device, device_name, machine, training_progress
from cca_lab.studies.study import TextStudy, markdown, result_file

SINK, NEAR = 1, 128  # first tokens that count as sinks; tokens that count as near
HOW = {
    "tau": "root of the mean variance of a row's logits (ln weight, up to a constant), over texts "
           "and lengths",
    "tau_entropy": "root of the mean of 2 (ln L - H) over texts and lengths: the tau of a long "
                   "Gaussian row"}


@dataclass(frozen=True, kw_only=True)
class Heads(TextStudy):
    """Measure every head on held-out text, over the second half of each text's rows.

    [layer][head] of "k90", "effective" (e^entropy), "sink" (weight of the first token) and "far"
    (weight beyond the nearest 128 tokens, the first token left out).
    """

    texts: Count = 8
    """Number of held-out texts."""
    length: Annotated[int, at_least(2 * NEAR)] = 512
    """Tokens per text."""
    out: Path | None = None
    """JSON file to write; by default in data/results."""

    def run(self) -> dict[str, Any]:
        """Measure each text; print the statistics of the means."""
        from cca_lab.studies.real_heads import texts_of

        with result_file(self.out or new_result(f"heads-{self.name}.json")) as result:
            model, half = self.loaded[0], self.length // 2
            sums: dict[str, list[torch.Tensor]] = {}
            texts = texts_of(self.held_out, self.texts, self.length).to(device())
            with training_progress(f"heads, {self.name}", len(texts)) as report:
                for done, ids in enumerate(texts):
                    report(done, "")
                    maps = models.attention_maps(model, ids).cpu()  # (layers, H, L, L)
                    rows = statistics.summarise(maps, first_row=half)
                    far = statistics.mass_beyond(maps, NEAR, sinks=SINK)
                    for name, numbers in {"k90": rows.k90, "effective": rows.effective_tokens,
                                          "sink": maps[..., half:, :SINK].sum(-1).mean(-1),
                                          "far": far[..., half:].mean(-1)}.items():
                        sums.setdefault(name, []).append(numbers.double())
                report(len(texts), "")
            result |= {"model": self.name, "texts": len(texts), "length": self.length,
                       "command": command_line(), "machine": machine(),
                       "corpus": self.about_text(),
                       **{name: [[round(number, 4) for number in layer]
                                 for layer in torch.stack(values).mean(0).tolist()]
                          for name, values in sums.items()}}
        print(table(result))
        return result


def table(result: Mapping[str, Any]) -> str:
    """Return the table of each statistic's median over the heads, and its range."""
    rows = []
    for name in ("k90", "effective", "sink", "far"):
        values = torch.tensor(result[name]).flatten()
        rows.append([name, *(f"{number:.3g}"
                             for number in (values.median(), values.min(), values.max()))])
    return markdown(["statistic", "median", "lowest", "highest"], rows,
                    "{model}: heads on {texts} texts of {length} tokens.".format_map(result))


@dataclass(frozen=True, kw_only=True)
class Sparsity(TextStudy):
    """Measure how often the rows of every head are rho-sparse, and how wide they are."""

    texts: Count = 100
    """Number of held-out texts."""
    length: Annotated[int, at_least(101)] | None = None
    """Tokens per text; by default the model's context, at most 1000."""
    out: Path | None = None
    """JSON file to write; by default in data/results."""

    def run(self) -> dict[str, Any]:
        """Measure the rows of every head; print a row for each."""
        from cca_lab.studies.real_heads import LONGEST, RATES, head_report, measure, texts_of

        out = self.out or new_result(f"sparsity-{self.name}.json")
        with result_file(out) as result:
            length = min(LONGEST, self.context) if self.length is None else self.length
            texts = texts_of(self.held_out, self.texts, length).to(device())
            with training_progress("texts", len(texts)) as report:
                rows = measure(self.loaded[0], texts, progress=report)
            layers, heads = rows.tau.shape
            result |= {"model": self.name, "context": self.context, "length": length,
                       "texts": len(texts), "rates": list(RATES), "lengths": rows.lengths.tolist(),
                       "corpus": self.about_text(), "how": HOW, "device": device_name(),
                       "heads": [head_report(rows, layer, head) for layer in range(layers)
                                 for head in range(heads)]}
        print(sparsity_table(result))
        print(f"written: {out.name}")
        return result


def sparsity_table(result: Mapping[str, Any], rho: float = 0.02) -> str:
    """Return a row per head: statistics at the last length, taus with their L95, and L95."""
    rows = []
    for head in result["heads"]:
        shares = [f"{head['p_sparse'][str(rate)][-1]:.2f}" for rate in result["rates"]]
        length = head["l95"][str(rho)]
        rows.append([f"{head['layer']}.{head['head']}", f"{head['k90'][-1]:.0f}",
                     f"{head['effective_tokens'][-1]:.0f}", *shares, f"{head['tau']:.1f}",
                     _length(length["tau"]), f"{head['tau_entropy']:.1f}",
                     _length(length["tau_entropy"]), _length(length["measured"])])
    return markdown(
        ["head", "k90", "e^H", *(f"P {rate:g}".replace("0.", ".") for rate in result["rates"]),
         "tau", "L95 by tau", "tau_H", "L95 by tau_H", "L95 seen"], rows,
        f"{result['model']}: rows of {result['lengths'][-1]} tokens, {result['texts']} texts; "
        f"P_sparse by rate; L95 at rho = {rho:g}. The paper's curves run to L = 1000.")


def _length(length: int | None) -> str:
    if length is None:
        return "-"
    return f"{length:,}" if length < 1_000_000 else f"{length / 1e6:.1f} M"
