"""`cca-lab sparsity`: how often the rows of every head are rho-sparse, and over how many tokens their weight lies."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cca_lab.files import check_file, new_result
from cca_lab.models import load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import device, device_name, print_table, training_progress, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.evaluate import context_of
from cca_lab.studies.real_heads import LONGEST, RATES, SHORTEST, head_report, measure, texts_of
from cca_lab.tasks.corpus import load_corpus

HOW = {"tau": "root of the mean variance of a row's logits (ln weight, up to a constant), over texts and lengths",
       "tau_entropy": "root of the mean of 2 (ln L - H) over texts and lengths: the tau of a long Gaussian row"}


@dataclass(frozen=True)
class SparsityOptions:
    """The options of `cca-lab sparsity`.

    Attributes:
        model: folder or name on the hub.
        texts: number of texts; the paper uses 100.
        length: tokens per text; None for the model's context, at most 1000.
        text: the corpus; None for the standard library.
        out: JSON file; None for data/results/sparsity-<model>.json.
    """

    model: str
    texts: int = 100
    length: int | None = None
    text: str | None = None
    out: Path | None = None


def sparsity(options: SparsityOptions) -> dict:
    """Load a model with full attention, measure, print the table, write the JSON; return the measurement.

    Raises:
        ValueError: if a number is out of range, or the text is too short.
    """
    quiet()
    name = Path(options.model).resolve().name
    out = check_file(options.out or new_result(f"sparsity-{name}.json"))
    model, tokenizer = load_pretrained(options.model, "full")
    context = context_of(model)
    length = min(LONGEST, context) if options.length is None else options.length
    check_sizes(length=(length, SHORTEST, context), texts=(options.texts, 1, 2**20))
    corpus = load_corpus(options.text)
    texts = texts_of(tokenize(corpus.validation, tokenizer), options.texts, length).to(device())
    with training_progress("texts", len(texts)) as report:
        rows = measure(model.to(device()), texts, progress=report)
    layers, heads = rows.tau.shape
    result = {
        "model": name, "context": context, "length": length, "texts": len(texts), "rates": list(RATES),
        "lengths": rows.lengths.tolist(), "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
        "how": HOW, "device": device_name(),
        "heads": [head_report(rows, layer, head) for layer in range(layers) for head in range(heads)],
    }
    write_json(out, result)
    print_heads(result)
    if length < LONGEST:
        Console().print(f"The paper's curves run to L = {LONGEST}; these end at {length}.", highlight=False)
    Console().print(f"written: {out.name}", highlight=False)
    return result


def print_heads(result: dict, rho: float = 0.02) -> None:
    """Print one row per head: statistics at the last length, each tau with the L95 it predicts, the measured L95."""
    rows = []
    for head in result["heads"]:
        shares = [f"{head['p_sparse'][str(rate)][-1]:.2f}" for rate in result["rates"]]
        length = head["l95"][str(rho)]
        rows.append([f"{head['layer']}.{head['head']}", f"{head['k90'][-1]:.0f}", f"{head['effective_tokens'][-1]:.0f}",
                     *shares, f"{head['tau']:.1f}", _length(length["tau"]), f"{head['tau_entropy']:.1f}",
                     _length(length["tau_entropy"]), _length(length["measured"])])
    columns = ["head", "k90", "e^H", *(f"P {rate:g}".replace("0.", ".") for rate in result["rates"]), "tau", "L95",
               "tau_H", "L95", "seen"]
    print_table(f"{result['model']}: rows of {result['lengths'][-1]} tokens, {result['texts']} texts; "
                f"P_sparse by rate; L95 at rho = {rho:g}", columns, rows)


def _length(length: int | None) -> str:
    return "-" if length is None else f"{length:,}" if length < 1_000_000 else f"{length / 1e6:.1f} M"
