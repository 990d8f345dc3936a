"""How sparse every head of a model is: `cca-lab study heads`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from cca_lab import models
from cca_lab.attention import statistics
from cca_lab.files import new_result
from cca_lab.options import Count, at_least
from cca_lab.reporting import command_line, device, machine, training_progress
from cca_lab.studies.study import TextStudy, markdown, result_file

SINK, NEAR = 1, 128  # first tokens that count as sinks; tokens that count as near


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
        from cca_lab.models.evaluate import texts_of

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
