"""The model card of a base model, written from its pretraining record."""

from dataclasses import fields

from cca_lab.studies.pretrain_options import PretrainOptions

CARD = """\
# {name}

A small {family} that reads and retrieves, so that long-context attention can be tried on a laptop.

| | |
|---|---|
| command | `{command}` |
| size | {parameters:,} parameters: {layers} layers, width {width}, {heads} heads, vocabulary {vocabulary}, \
context {context} tokens; weights in fp16 |
| text | {corpus}, fingerprint `{fingerprint}`, dealt to train and validation by module |
| task | multi-document question answering (`cca_lab/tasks/multi_document_qa.py`) |
| training | {steps:,} steps, {tokens:.1f} million tokens, seed {seed}, {minutes:.0f} minutes on {device}, \
torch {torch} |
| optimizer | Muon for the blocks' matrices, AdamW for the rest, peak rate {rate:g}, curriculum below |

## Does it read?

Perplexity per token on the held-out modules, against interpolated Kneser-Ney n-grams trained on the same tokens.
The model is read in windows of {context} tokens that start without context; the n-grams read the whole stream.

| model | perplexity |
|---|---|
{reading}

## Does it retrieve?

Exact match by the place of the answer; 95 % interval for all positions together.
Chance is below 1 %.

| context | documents | {positions} | all |
|---|---|{dashes}---|
{retrieving}

## How it got there

| stage | reached at step | after |
|---|---|---|
{stages}

One seed. `pretraining.json` holds the loss curve and everything above.
The perplexity is of the standard library of the Python named above; another Python's differs a little.
"""


def model_card(card: dict) -> str:
    """Return the Markdown card for what `cca-lab pretrain` measured."""
    options, results = card["options"], card["results"]
    reading = [f"| **{options['out']}** | **{_estimate(results['perplexity'])}** |"]
    reading += [f"| {order}-gram | {value:.1f} |" for order, value in results["ngram_perplexity"].items()]
    lengths = list(results["exact_match"])
    positions = [key for key in results["exact_match"][lengths[0]] if key not in ("all", "by_offset")]
    retrieving = [_match_row(length, results["documents"][length], results["exact_match"][length], positions)
                  for length in lengths]
    stages = [f"| {stage['task']}, {stage['length']} tokens | {stage['step']} | {stage['seconds'] / 60:.1f} min |"
              for stage in card["stages"]]
    return CARD.format(
        name=options["out"], family={"gpt2": "GPT-2", "opt": "OPT"}[options["family"]],
        command=_command(options),
        parameters=card["parameters"], corpus=card["corpus"]["name"], fingerprint=card["corpus"]["fingerprint"],
        steps=card["steps"], tokens=card["tokens"] / 1e6, minutes=card["seconds"] / 60, device=card["device"],
        torch=card["torch"], rate=card["recipe"]["learning_rate"],
        reading="\n".join(reading), retrieving="\n".join(retrieving), stages="\n".join(stages),
        positions=" | ".join(_place(float(position)) for position in positions), dashes="---|" * len(positions),
        **{key: options[key] for key in ("layers", "width", "heads", "vocabulary", "context", "seed")})


def _command(options: dict) -> str:
    """Return the command that made a model, with the options that differ from the defaults."""
    defaults = {field.name: field.default for field in fields(PretrainOptions)}
    given = [_option(key.replace("_", "-"), value) for key, value in options.items()
             if key not in ("out", "attention_options") and value != defaults[key]]
    given += [f"--{key} {value}" if key in ("group", "window") else f"--option {key}={value}"
              for key, value in options.get("attention_options", {}).items()]
    return f"cca-lab pretrain {' '.join(given)} --out data/models/{options['out']}"


def _option(name: str, value: object) -> str:
    if value is True:
        return f"--{name}"
    return f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}"


def _place(position: float) -> str:
    return {0.0: "first", 0.5: "middle", 1.0: "last"}.get(position, f"{100 * position:.0f} %")


def _estimate(estimate: dict) -> str:
    return f"{estimate['value']:.1f} [{estimate['low']:.1f}, {estimate['high']:.1f}]"


def _match_row(length: int, documents: int, matches: dict, positions: list[str]) -> str:
    cells = [f"{100 * matches[position]['value']:.0f} %" for position in positions]
    overall = matches["all"]
    cells.append(f"{100 * overall['value']:.0f} % [{100 * overall['low']:.0f}, {100 * overall['high']:.0f}]")
    return f"| {length} | {documents} | {' | '.join(cells)} |"
