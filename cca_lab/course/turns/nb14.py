"""What the reader writes in notebook 14: the losses of a batch, and a training loop."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cca_lab.course.compare import describe, need, need_items
from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

# Rounding of a clipped gradient is about 1e-16, and AdamW divides it by 1e-8 at the most. Times a
# learning rate of 1e-2 and four steps, weights differ by less than 1e-9.
SAME = 1e-8


# 14.2: the loss of the text and of the answers
def two_losses(logits: Tensor, ids: Tensor, known: Tensor, text_rows: int, *, ahead: int = 1,
               lag: int = 0, every: bool = False, turned: bool = False, by: str = "tokens",
               words_first: bool = False) -> tuple[Tensor, ...]:
    """Return the mean loss of the text rows' marked tokens, and that of the other rows'.

    The keywords are mistakes: logits predict the token `ahead` places later, the mark is read `lag`
    places before it, all tokens count, the parts are exchanged, the mean is another one.
    """
    length, known = ids.shape[1], torch.ones_like(known) if every else known
    start, end = max(ahead, lag, 0), length + min(ahead, 0)
    given = logits[:, start - ahead : end - ahead]
    losses = F.cross_entropy(given if words_first else given.transpose(1, 2), ids[:, start:end],
                             reduction="none")
    marked = known[:, start - lag : end - lag]
    parts = []
    for rows in (slice(None, text_rows), slice(text_rows, None)):
        taken = losses[rows] * marked[rows]
        number: Any = {"tokens": marked[rows].sum(), "all": marked[rows].numel(), "nothing": 1,
                  "rows": marked[rows].sum(1)}[by]
        parts.append((taken.sum(1) / number).mean() if by == "rows" else taken.sum() / number)
    return tuple(parts[::-1] if turned else parts)


def scored(draw: Draw, rows: int, text_rows: int, tokens: int, words: int) -> tuple[Any, ...]:
    """Return logits, ids and marks, of more tokens of answers in each row."""
    known = torch.ones(rows, tokens, dtype=torch.bool)
    known[0, 1] = False
    for row in range(text_rows, rows):
        known[row] = False
        known[row, [2, 4, 3, 5][: row - text_rows + 2]] = True
    return 2 * draw.normal(rows, tokens, words), draw.integers(0, words, rows, tokens), known, \
        text_rows


# 14.3: the training loop
def loop(model: Any, optimizer: torch.optim.Optimizer, batch: Callable[[int], Any],
         rate: Callable[[int], float], steps: int, text_rows: int, *,
         wrong: str = "") -> list[tuple[float, float]]:
    """Train, with one of the mistakes or none; return each step's losses of text and answers."""
    history, used = [], rate(0)
    for step in range(steps):
        ids, known = batch(0 if wrong == "one batch" else step)
        text, answers = two_losses(model(input_ids=ids).logits, ids, known, text_rows)
        share = text_rows / len(ids)
        share = {"equal shares": 0.5, "text alone": 1.0, "answers alone": 0.0,
                 "exchanged": 1 - share}.get(wrong, share)
        if wrong == "step first":
            optimizer.step()
        if wrong != "no zero_grad":
            optimizer.zero_grad()
        loss = share * text + (1 - share) * answers
        if wrong == "labels":
            loss = two_losses(model(input_ids=ids).logits, ids, known, len(ids), every=True)[0]
        loss.backward()
        if wrong == "clip by value":
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        elif wrong != "clip late":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if wrong == "after":
            optimizer.step()
        for group in optimizer.param_groups[: 1 if wrong == "first group" else None]:
            if wrong != "fixed rate":
                group["lr"] = {"late rate": used, "next rate": rate(step + 1)}.get(wrong,
                                                                                    rate(step))
        used = rate(step)
        if wrong not in ("step first", "no backward", "after"):
            optimizer.step()
        if wrong == "too late":
            with torch.no_grad():
                text, answers = two_losses(model(input_ids=ids).logits, ids, known, text_rows)
        history.append((text.item(), answers.item()))
    return history


class Small(nn.Module):
    """The least language model: each token predicts the next."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, input_ids: Tensor, **others: Any) -> SimpleNamespace:
        """Return the logits, and with labels the loss of all tokens, as models do."""
        logits = self.head(self.embedding(input_ids))
        everything = torch.ones_like(input_ids, dtype=torch.bool)
        loss = two_losses(logits, input_ids, everything, len(input_ids))[0]
        return SimpleNamespace(logits=logits, loss=loss if "labels" in others else None)


def small_model(draw: Draw, steps: int, text_rows: int) -> tuple[Any, ...]:
    """Return a model whose gradients are clipped, and AdamW with a rate that no step has."""
    from cca_lab.models.finetune import BETAS
    from cca_lab.models.training import make_optimizers

    with torch.random.fork_rng():
        torch.manual_seed(draw.randint(0, 999))
        model: Any = Small().double()
    for weight in model.parameters():
        weight.data *= 4
    [optimizer] = make_optimizers(model, muon=False, learning_rate=0.05, weight_decay=0.01,
                                  betas=BETAS)
    known = torch.ones(text_rows + 1, 6, dtype=torch.bool)
    known[text_rows:] = torch.tensor([0, 0, 0, 1, 0, 1]).bool()
    batches = [(draw.integers(0, 7, text_rows + 1, 6), known) for _ in range(steps)]
    return (model, optimizer, batches.__getitem__, lambda step: 0.01 * (steps - step) / steps,
            steps, text_rows)


def trained(train: Answer) -> Answer:
    """Return a loop as a function that returns its losses, (steps, 2), and the weights."""
    def run(model: Any, *given: Any) -> tuple[Tensor, Tensor]:
        try:
            got, steps = train(model, *given), given[3]
        except RuntimeError as error:
            if "inplace" in str(error):
                raise Mistake("the weights change between forward and backward: optimizer.step() "
                              "comes after both") from error
            raise
        if not isinstance(got, (list, tuple)) or len(got) != steps:
            raise Mistake(f"the result is {describe(got)}, wanted a list of {steps} pairs, one a "
                          "step")
        for pair in got:
            need_items(pair, 2, "a pair for each step: the losses of text and answers")
        return (torch.tensor([[float(loss) for loss in pair] for pair in got]).double(),
                nn.utils.parameters_to_vector(model.parameters()).detach())

    return run


def as_finetuner(answer: Answer, draw: Draw) -> None:
    """Against the package's `Finetuner` on a GPT-2 of random weights that attends with CCA."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from cca_lab.models.finetune import BETAS, Finetuner
    from cca_lab.models.plugin import swap_attention
    from cca_lab.models.recipe import FinetuneConfig
    from cca_lab.models.training import make_optimizers
    from cca_lab.tasks.mixture import Mixture

    with torch.random.fork_rng():
        torch.manual_seed(0)
        mine = GPT2LMHeadModel(GPT2Config(
            vocab_size=20, n_positions=32, n_embd=12, n_layer=2, n_head=3, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).double()
    swap_attention(mine, "cca", group=4, window=8)
    theirs = copy.deepcopy(mine)
    mixture = Mixture(draw.integers(0, 20, 200), (Questions(),), 32, rows=4, text_share=0.75,
                      shift=5)
    config = FinetuneConfig(steps=4, learning_rate=1e-2, warmup=2, grow=0.0, precision="float32")
    records = Finetuner(theirs, mixture, config).run()
    [optimizer] = make_optimizers(mine, muon=False, learning_rate=0.05, weight_decay=0.01,
                                  betas=BETAS)
    got = answer(mine.train(), optimizer, mixture.batch, config.rate, config.steps,
                 mixture.text_rows)
    losses = [[record["text_loss"], record["task_loss"]] for record in records]
    with case("Finetuner, 4 steps of a small GPT-2 with CCA"):
        need(got, (torch.tensor(losses).double(),
                   nn.utils.parameters_to_vector(theirs.parameters()).detach()),
             ("the losses", "the weights"), tolerance=SAME)


class Questions:
    """Rows of random tokens, the last two of which are the answer."""

    name = "random"

    def interleaved_batch(self, rows: int, length: int,
                          generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens, and which of them are to be predicted."""
        known = torch.zeros(rows, length, dtype=torch.bool)
        known[:, ::9] = True
        return torch.randint(20, (rows, length), generator=generator), known


TURNS: tuple[CourseTask, ...] = (
    CourseTask("14.2", "two_losses", "The loss of the text and of the answers", 8, 3, (
        equals("equal to the loss of each token, chosen one by one", two_losses,
               examples(scored, (3, 2, 7, 50), (4, 1, 9, 90), (5, 2, 6, 70)),
               "the loss of the text", "the loss of the answers", wrong=mistakes(two_losses, {
            "a logit is compared with its own token, which the model has just read: compare it "
            "with the next one": {"ahead": 0},
            "the tokens are shifted twice: a logit is compared with the token after the next":
                {"ahead": 2},
            "the shift goes the wrong way: a logit is compared with the token before":
                {"ahead": -1},
            "the mark is that of the token read; that of the token to predict counts: shift "
            "`known` as well": {"lag": 1},
            "all tokens of the question rows count, documents and question too: choose by `known`":
                {"every": True},
            "the losses are added up and not divided by their number": {"by": "nothing"},
            "the losses are divided by the number of all tokens, marked or not": {"by": "all"},
            "each row has a mean of its own, and these are averaged; all marked tokens count the "
            "same": {"by": "rows"},
            "both kinds are exchanged: text rows come first": {"turned": True},
            "F.cross_entropy gets (rows, L, words), and wants the words second: (rows, words, L)":
                {"words_first": True}})),)),
    CourseTask("14.3", "train", "The training loop", 15, 3, (
        equals("the same losses and weights as a loop written out", trained(loop),
               examples(small_model, (4, 3)), "the losses", "the weights after the last step",
               tolerance=SAME, wrong=mistakes(loop, {
            "gradients of earlier steps are still there, and the new ones are added to them: call "
            "optimizer.zero_grad() in every step": {"wrong": "no zero_grad"},
            "the weights do not change: zero_grad is called between backward and the step, or "
            "there is no step at all": {"wrong": "no backward"},
            "the gradient is not clipped when the optimizer uses it: clip after backward and "
            "before the step": {"wrong": "clip late"},
            "each entry of the gradient is clipped by itself; clip the norm of all of it":
                {"wrong": "clip by value"},
            "the learning rate never changes: write rate(step) into the optimizer's groups":
                {"wrong": "fixed rate"},
            "the learning rate is that of the step before: set it before optimizer.step()":
                {"wrong": "late rate"},
            "the learning rate is set after optimizer.step(), so that the first step has the "
            "optimizer's own": {"wrong": "after"},
            "the learning rate is that of the next step: rate(step), counted from 0":
                {"wrong": "next rate"},
            "the learning rate is written into the first of the optimizer's groups only":
                {"wrong": "first group"},
            "every step reads the same batch: batch(step)": {"wrong": "one batch"},
            "text and answers count half each, whatever the rows: weigh them by the rows":
                {"wrong": "equal shares"},
            "the shares of text and answers are exchanged": {"wrong": "exchanged"},
            "the loss is the model's own, by labels=ids, which counts every token":
                {"wrong": "labels"},
            "the loss of the answers is returned, but not trained on": {"wrong": "text alone"},
            "the loss of the text is returned, but not trained on": {"wrong": "answers alone"},
            "the losses are measured after the step; those before it are wanted":
                {"wrong": "too late"},
            "optimizer.step() comes after both": {"wrong": "step first"}})),
        Property("the same losses and weights as the package's Finetuner", 1, as_finetuner)),
               shared=True, drive=trained),
)
