"""What the reader writes in notebook 14: a training loop, scores by offset, weights of tokens."""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cca_lab.course.compare import describe, need_close, need_equal, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

# Rounding of a clipped gradient is about 1e-16, and AdamW divides it by 1e-8 at the most. Times a
# learning rate of 1e-2 and four steps, weights differ by less than 1e-9.
SAME = 1e-8


# 14.2: the loss of the text and of the answers
def losses_of(logits: Tensor, ids: Tensor, known: Tensor, text_rows: int, *, ahead: int = 1,
              lag: int = 0) -> tuple[Tensor, Tensor]:
    """Return the mean loss of the text rows' marked tokens, and that of the other rows'.

    Logits predict the token `ahead` places later; the mark read is that of `lag` places before it.
    """
    length = ids.shape[1]
    start = max(ahead, lag)
    losses = F.cross_entropy(logits[:, start - ahead : length - ahead].transpose(1, 2),
                             ids[:, start:], reduction="none")
    marked = known[:, start - lag : length - lag]
    return losses[:text_rows][marked[:text_rows]].mean(), losses[text_rows:][
        marked[text_rows:]].mean()


def check_losses(answer: Answer, draw: Draw) -> None:
    """Against the loss of each token, chosen one by one."""
    for rows, text_rows, length, words in [(3, 2, 7, 50), (4, 1, 9, 90), (5, 2, 6, 70)]:
        logits = 2 * draw.normal(rows, length, words)
        ids = draw.integers(0, words, rows, length)
        known = torch.ones(rows, length, dtype=torch.bool)
        for row in range(text_rows, rows):  # more tokens of answers in each row
            known[row] = False
            known[row, [2, 4, 3, 5][: row - text_rows + 2]] = True
        powers = logits.log_softmax(-1)
        taken: list[list[Tensor]] = [[], []]
        for row in range(rows):
            for token in range(1, length):
                if known[row, token]:
                    taken[row >= text_rows].append(-powers[row, token - 1, ids[row, token]])
        wanted = [torch.stack(kind).mean() for kind in taken]
        everything = torch.ones_like(known)
        causes = {
            "a logit is compared with its own token, which the model has just read: compare it "
            "with the next one": losses_of(logits, ids, known, text_rows, ahead=0),
            "the tokens are shifted twice: a logit is compared with the token after the next":
                losses_of(logits, ids, known, text_rows, ahead=2),
            "the mark is that of the token read; that of the token to predict counts: shift "
            "`known` as well": losses_of(logits, ids, known, text_rows, lag=1),
            "all tokens of the question rows count, documents and question too: choose by `known`":
                losses_of(logits, ids, everything, text_rows),
            "the losses are added up and not divided by their number":
                [torch.stack(kind).sum() for kind in taken],
            "both kinds are exchanged: text rows come first": wanted[::-1],
        }
        with case(f"{rows} rows of {length} tokens, {text_rows} of them text"):
            got = need_items(answer(logits, ids, known, text_rows), 2,
                             "two losses: that of the text and that of the answers")
            for which in (1, 0):
                need_close(got[which], wanted[which],
                           f"the loss of the {('text', 'answers')[which]}",
                           causes={why: wrong[which] for why, wrong in causes.items()})


# 14.3: the training loop
STEP_FIRST = "the weights change between forward and backward: optimizer.step() comes after both"
MISTAKES = {
    "no zero_grad": "gradients of earlier steps are still there, and the new ones are added to "
                    "them: call optimizer.zero_grad() in every step",
    "no backward": "the weights do not change: is zero_grad called between backward and the step, "
                   "or no step at all?",
    "clip late": "the gradient is not clipped when the optimizer uses it: clip after backward and "
                 "before the step",
    "fixed rate": "the learning rate never changes: write rate(step) into the optimizer's groups",
    "late rate": "the learning rate is that of the step before: set it before optimizer.step()",
    "one batch": "every step reads the same batch: batch(step)",
    "equal shares": "text and answers count half each, whatever the rows: weigh them by the rows",
    "text alone": "the loss of the answers is returned, but not trained on",
    "answers alone": "the loss of the text is returned, but not trained on",
    "too late": "the losses are measured after the step; those before it are wanted",
}


def loop(model: Any, optimizer: torch.optim.Optimizer, batch: Callable[[int], Any],
         rate: Callable[[int], float], steps: int, text_rows: int, *,
         mistake: str = "") -> list[tuple[float, float]]:
    """Train, with one of `MISTAKES` or none; return each step's losses of text and answers."""
    history = []
    used = rate(0)
    for step in range(steps):
        ids, known = batch(0 if mistake == "one batch" else step)
        text, answers = losses_of(model(input_ids=ids).logits, ids, known, text_rows)
        share = text_rows / len(ids)
        share = {"equal shares": 0.5, "text alone": 1.0, "answers alone": 0.0}.get(mistake, share)
        if mistake == "step first":
            optimizer.step()
        if mistake != "no zero_grad":
            optimizer.zero_grad()
        (share * text + (1 - share) * answers).backward()
        if mistake != "clip late":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            if mistake != "fixed rate":
                group["lr"] = used if mistake == "late rate" else rate(step)
        used = rate(step)
        if mistake not in ("step first", "no backward"):
            optimizer.step()
        if mistake == "too late":
            with torch.no_grad():
                text, answers = losses_of(model(input_ids=ids).logits, ids, known, text_rows)
        history.append((text.item(), answers.item()))
    return history


class _Small(nn.Module):
    """The least language model: each token predicts the next."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, input_ids: Tensor, **others: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.head(self.embedding(input_ids)))


def _run(train: Callable[..., Any], *given: Any) -> Tensor:
    """Return the losses of a loop, (steps, 2)."""
    try:
        return _pairs(train(*given), given[4])
    except RuntimeError as error:
        raise Mistake(STEP_FIRST) if "inplace" in str(error) else error from None


def _fresh(model: Any) -> tuple[Any, torch.optim.Optimizer]:
    """Return a copy, and AdamW with a rate that no step has, decaying matrices as `Finetuner`."""
    from cca_lab.models.finetune import BETAS
    from cca_lab.models.training import make_optimizers

    made = copy.deepcopy(model)
    [optimizer] = make_optimizers(made, muon=False, learning_rate=0.05, weight_decay=0.01,
                                  betas=BETAS)
    return made, optimizer


def _pairs(got: Any, steps: int) -> Tensor:
    """Return what a loop returned as (steps, 2)."""
    if not isinstance(got, (list, tuple)) or len(got) != steps:
        raise Mistake(f"the result is {describe(got)}, wanted a list of {steps} pairs, one a step")
    for pair in got:
        need_items(pair, 2, "a pair for each step: the losses of text and answers")
    return torch.tensor([[float(loss) for loss in pair] for pair in got]).double()


def check_loop(answer: Answer, draw: Draw) -> None:
    """Against the loop written out, on a model of a few weights, losses and weights."""
    with torch.random.fork_rng():
        torch.manual_seed(draw.randint(0, 999))
        start = _Small().double()
    for weight in start.parameters():
        weight.data *= 4  # gradients are long enough to be clipped
    steps, text_rows = 4, 3
    batches = []
    for _ in range(steps):
        known = torch.ones(4, 6, dtype=torch.bool)
        known[text_rows:] = torch.tensor([0, 0, 0, 1, 0, 1]).bool()
        batches.append((draw.integers(0, 7, 4, 6), known))

    def trained(train: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        model, optimizer = _fresh(start)
        losses = _run(train, model, optimizer, batches.__getitem__,
                      lambda step: 0.01 * (steps - step) / steps, steps, text_rows)
        return losses, nn.utils.parameters_to_vector(model.parameters()).detach()

    losses, weights = trained(answer)
    wrong = {why: trained(partial(loop, mistake=name)) for name, why in MISTAKES.items()}
    wanted_losses, wanted = trained(loop)
    with case("4 steps on a model of 63 weights"):
        need_close(losses, wanted_losses, "the losses", tolerance=SAME,
                   causes={why: out[0] for why, out in wrong.items()})
        need_close(weights, wanted, "the weights after the last step", tolerance=SAME,
                   causes={why: out[1] for why, out in wrong.items()})


def check_finetuner(answer: Answer, draw: Draw) -> None:
    """Against the package's `Finetuner` on a GPT-2 of random weights that attends with CCA."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from cca_lab.models.finetune import Finetuner
    from cca_lab.models.plugin import swap_attention
    from cca_lab.models.recipe import FinetuneConfig
    from cca_lab.tasks.mixture import Mixture

    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = GPT2LMHeadModel(GPT2Config(
            vocab_size=20, n_positions=32, n_embd=12, n_layer=2, n_head=3, initializer_range=0.6,
            bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).double()
    swap_attention(start, "cca", group=4, window=8)
    mixture = Mixture(draw.integers(0, 20, 200), (_Questions(),), 32, rows=4, text_share=0.75,
                      shift=5)
    config = FinetuneConfig(steps=4, learning_rate=1e-2, warmup=2, grow=0.0, precision="float32")
    theirs = copy.deepcopy(start)
    records = Finetuner(theirs, mixture, config).run()
    mine, optimizer = _fresh(start)
    mine.train()
    losses = _run(answer, mine, optimizer, mixture.batch, config.rate, config.steps,
                  mixture.text_rows)
    wanted = torch.tensor([[record["text_loss"], record["task_loss"]] for record in records])
    with case("Finetuner, 4 steps of a small GPT-2 with CCA"):
        need_close(losses, wanted.double(), "the losses", tolerance=SAME)
        got, right = (nn.utils.parameters_to_vector(model.parameters()).detach()
                      for model in (mine, theirs))
        need_close(got, right, "the weights", tolerance=SAME)


class _Questions:
    """Rows of random tokens, the last two of which are the answer."""

    name = "random"

    def interleaved_batch(self, rows: int, length: int,
                          generator: torch.Generator) -> tuple[Tensor, Tensor]:
        known = torch.zeros(rows, length, dtype=torch.bool)
        known[:, ::9] = True
        return torch.randint(20, (rows, length), generator=generator), known


# 14.4: the groups that hold a document
def check_groups(answer: Answer, draw: Draw) -> None:
    """Against asking every token of the document."""
    examples = [(6, 8, 4), (8, 8, 8), (9, 8, 8), (7, 2, 8), (0, 1, 5), (15, 1, 16)]
    examples += draw.sizes(12, (0, 60), (1, 20), (1, 16))
    for first, length, group in examples:
        wanted = sorted({token // group for token in range(first, first + length)})
        with case(f"a document of {length} tokens from token {first} on, groups of {group}"):
            got = answer(first, length, group)
            got = got.tolist() if isinstance(got, Tensor) else got
            if not isinstance(got, (list, tuple)):
                raise Mistake(f"the result is {describe(got)}, wanted the list of groups, such as "
                              f"{wanted}")
            if list(got) != wanted:
                why = _why(list(got), first, length, group)
                raise Mistake(f"the result is {list(got)}, wanted {wanted}{why}")


def _why(got: list[int], first: int, length: int, group: int) -> str:
    last = first + length - 1
    causes = {
        "the token behind the document counts too; the last one is first + length - 1":
            range(first // group, (last + 1) // group + 1),
        "the last group is left out: a document that begins inside a group can reach one group "
        "further": range(first // group, last // group),
        "only groups that lie entirely inside the document are listed":
            range(-(-first // group), (last + 1) // group),
        "these are tokens, not groups": range(first, last + 1),
    }
    return next((f": {cause}" for cause, wrong in causes.items() if got == list(wrong)), "")


# 14.6: a score that shows a lucky place
def check_by_offset(answer: Answer, draw: Draw) -> None:
    """Answers at offsets with different numbers of questions; every offset counts the same."""
    for counts in ((), (2, 2), (8, 2, 2), (3, 1, 5, 4)):
        answers = [(offset, draw.random() < (0.9 if offset == 3 else 0.4))
                   for offset, count in enumerate(counts, 3)  # no offset looks like a share
                   for _ in range(count)]
        # alone these have the shares 1 and 1/4, and every mistake gives another number
        answers += [(3, True), (3, True), (4, False), (4, True), (4, False), (4, False)]
        draw.shuffle(answers)
        hits_at = [[right for at, right in answers if at == offset]
                   for offset in range(3, 3 + max(2, len(counts)))]
        shares = [sum(hits) / len(hits) for hits in hits_at]
        total = sum(right for _, right in answers)
        with case(f"{len(answers)} answers at {len(shares)} offsets"):
            got = answer(answers)
            need_items(got, 2, "two numbers: the mean, and the share at the worst offset")
            need_equal(got[0], sum(shares) / len(shares), "the mean over the offsets",
                       tolerance=1e-6, causes={
                "all questions count the same; here all offsets do, however many questions each "
                "has": total / len(answers),
                "the right answers are added up, and divided by nothing": float(total),
                "the shares are added up, and not divided by the number of offsets": sum(shares)})
            need_equal(got[1], min(shares), "the worst share", tolerance=1e-6, causes={
                "it is the number of the worst offset, not the share that is right there":
                    3.0 + shares.index(min(shares)),
                "it is the best offset's": max(shares),
                "it is the worst question's": float(min(right for _, right in answers)),
                "it is the share that is wrong there": 1 - min(shares)})


# 14.7: how a row reads one token
def check_weight(answer: Answer, draw: Draw) -> None:
    """Every token of a row, against the matrix of what each column is made of."""
    for cores, group, raw in [(3, 4, 5), (2, 3, 4), (1, 1, 2), (0, 4, 3)]:
        row = draw.normal(cores + raw).softmax(0)
        phi = draw.normal(cores, group).softmax(1) if cores else torch.zeros(0, group).double()
        made_of = torch.zeros(cores + raw, cores * group + raw).double()
        for core in range(cores):
            made_of[core, core * group : (core + 1) * group] = phi[core]
        made_of[cores:, cores * group :] = torch.eye(raw)
        for token, weight in enumerate(row @ made_of):
            core_of, member = divmod(token, group)
            where = f"token {token}, " + (f"in core {core_of}" if core_of < cores else "raw")
            with case(f"{cores} cores of {group} tokens, {raw} raw tokens; {where}"):
                causes = _other_weights(row, phi, token, core_of, member) if cores else {}
                need_close(torch.as_tensor(answer(row, phi, token)), weight, "the weight",
                           causes=causes)


def _other_weights(row: Tensor, phi: Tensor, token: int, core_of: int,
                   member: int) -> dict[str, Tensor]:
    """Return what usual mistakes make of a token's weight."""
    cores, group = phi.shape
    if core_of >= cores:
        return {"the columns of raw tokens begin behind the cores: add the number of cores":
                    row[token - cores * group],
                "this is the first raw token's weight": row[cores]}
    return {
        "the core's weight is not divided among its members: multiply by phi": row[core_of],
        "this is phi alone; multiply it by the weight of its core": phi[core_of, member],
        "token // group is the core, token % group the place in it: they are exchanged":
            row[min(member, cores - 1)] * phi[min(member, cores - 1), min(core_of, group - 1)],
        "every core is taken to have an equal share": phi[core_of, member] / cores,
        "both factors are added; they are multiplied": row[core_of] + phi[core_of, member],
    }


TURNS: tuple[CourseTask, ...] = (
    CourseTask("14.2", "two_losses", "The loss of the text and of the answers", 8, 3, 5, (
        Property("equal to the loss of each token, chosen one by one", 1, check_losses),)),
    CourseTask("14.3", "train", "The training loop", 15, 3, 5, (
        Property("the same losses and weights as a loop written out", 1, check_loop),
        Property("the same losses and weights as the package's Finetuner", 1, check_finetuner)),
        shared=True),
    CourseTask("14.4", "groups_of", "Which groups hold a document", 5, 2, 4, (
        Property("equal to asking every token", 1, check_groups),)),
    CourseTask("14.6", "by_offset", "A score that shows a lucky place", 6, 2, 5, (
        Property("the mean over the offsets, and the worst of them", 1, check_by_offset),)),
    CourseTask("14.7", "token_weight", "How a row reads one token", 6, 2, 4, (
        Property("in a core and raw", 1, check_weight),)),
)
