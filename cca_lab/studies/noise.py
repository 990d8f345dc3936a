"""`cca-lab study noise`: DGA's Figure 3b, what noise does to the next-token distribution."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from cca_lab import models
from cca_lab.files import models_folder, new_result
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.options import Count, Natural, at_least
from cca_lab.reporting import device_name, training_progress
from cca_lab.studies.study import TextStudy, markdown, result_file
from cca_lab.tasks.mixture import Mixture

SIGMAS = (0.1, 0.3, 1.0)
CONDITIONS: dict[str, tuple[str, dict[str, Any]]] = {"full attention": ("full", {}),
                                                     "CCA": ("cca", {"group": 16, "window": 64}),
                                                     "DGA": ("dga", {"group": 16, "gamma": 0.1})}


@dataclass(frozen=True, kw_only=True)
class NoiseStudy(TextStudy):
    """Measure KL(without noise || with noise) under full attention, CCA and DGA (Figure 3b).

    Every attention, full attention included, is measured right after the swap and after finetuning.
    """

    model: str = ""
    """Folder of a model, or its name on the Hugging Face hub; by default the shipped gpt2-mini."""
    texts: Annotated[int, at_least(2)] = 8
    """Number of windows of held-out text."""
    length: Annotated[int, at_least(2)] = 256
    """Tokens per window."""
    seeds: Count = 3
    """Random draws of the noise."""
    steps: Natural = 30
    """Optimizer steps to finetune each attention; 0 for none."""
    out: Path | None = None
    """JSON file to write; by default in data/results."""

    def __post_init__(self) -> None:
        if not self.model:
            object.__setattr__(self, "model", str(models_folder() / "gpt2-mini"))

    def run(self) -> dict[str, Any]:
        """Measure every attention, before and after finetuning; print the table."""
        from cca_lab.models.evaluate import perplexity
        from cca_lab.models.finetune import Finetuner
        from cca_lab.models.pretrain import tokenize
        from cca_lab.studies.noise_on_models import divergences
        from cca_lab.studies.real_heads import texts_of

        with result_file(self.out or new_result(f"noise-{self.name}.json")) as result:
            base = models.disable_attention_dropout(self.loaded[0])
            ids = texts_of(self.held_out, self.texts, self.length).to(base.device)
            mixture = Mixture(tokenize(self.corpus.train, self.loaded[1]), (), self.length, 8, 1.0)
            config = FinetuneConfig(steps=self.steps, save_every=0, grow=0.0, precision="float32")
            result |= {"model": self.name, "texts": len(ids), "length": self.length,
                       "noise_seeds": self.seeds, "finetuning_steps": self.steps,
                       "corpus": self.about_text(), "device": device_name(), "rows": []}
            cells = list(product(CONDITIONS, sorted({0, self.steps})))
            with training_progress(f"noise, {self.name}", len(cells)) as report:
                for done, (name, taken) in enumerate(cells):
                    report(done, f"{name}, {taken} steps")
                    attention, options = CONDITIONS[name]
                    model = models.swap_attention(copy.deepcopy(base), attention, **options)
                    if taken:
                        Finetuner(model, mixture, config).run()
                    model.eval()
                    clean = perplexity(model, self.held_out, length=self.length, windows=self.texts)
                    measured = divergences(model, ids, SIGMAS, range(self.seeds))
                    result["rows"] += [
                        {"attention": name, "options": options, "steps": taken,
                         "perplexity": asdict(clean), "site": site, "sigma": sigma,
                         "kl": asdict(estimate), "seeds": each}
                        for site, by_sigma in measured.items()
                        for sigma, (estimate, each) in by_sigma.items()]
                report(len(cells), "")
        print(table(result))
        return result


def table(result: Mapping[str, Any]) -> str:
    """Return the table of the divergences by site, attention and steps."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in result["rows"]:
        kl = row["kl"]
        lines.setdefault((row["site"], row["attention"], str(row["steps"])), []).append(
            f"{kl['value']:.3g} +- {(kl['high'] - kl['low']) / 2:.1g}")
    return markdown(["noise on", "attention", "steps", *(f"sigma {sigma:g}" for sigma in SIGMAS)],
                    [[*names, *cells] for names, cells in sorted(lines.items())],
                    f"KL in nats, with half the 95 % interval; {result['model']}.")
