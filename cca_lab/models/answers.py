"""The score of a model on prompts: what it writes after each, and how many of the wanted answers that holds.

RULER's score is the share of the references that the continuation contains, whatever their case and order. An exact
match, here, is a continuation that contains all of them: more may be written around them, within the few tokens that
`answer_room` leaves. The prompt is no part of the continuation. Where one answer is enough, containing one is both.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models.evaluate import POSITIONS, Estimate, bootstrap_mean, share_right
from cca_lab.models.inputs import check_length, check_model, check_token_ids
from cca_lab.models.plugin import attention_of
from cca_lab.settings import check_integers
from cca_lab.tasks.examples import Example, answer_room, prompt_ids
from cca_lab.tasks.prompts import AnyTask

GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}


@dataclass(frozen=True)
class Answer:
    """What a model wrote after one prompt.

    Attributes:
        continuation: the text of the generated tokens.
        share: share of the references in it, 0 to 1.
        exact: whether all of them are.
        place: place of the answer in the prompt, 0 to 1, or None.
    """

    continuation: str
    share: float
    exact: bool
    place: float | None


@dataclass(frozen=True)
class Answers:
    """What a model wrote after several prompts, and its scores.

    Attributes:
        each: one per example, in their order.
    """

    each: tuple[Answer, ...]

    @cached_property
    def share(self) -> Estimate:
        """RULER's score with a bootstrap interval over the examples."""
        return bootstrap_mean(np.array([answer.share for answer in self.each]))

    @cached_property
    def exact(self) -> Estimate:
        """The share of exact matches with Wilson's interval."""
        return share_right(np.array([answer.exact for answer in self.each]))

    def by_place(self, places: Sequence[float] = POSITIONS) -> dict[float, "Answers"]:
        """Return the answers at each place, those in between at the nearest; places without any are left out."""
        found: dict[float, list[Answer]] = {place: [] for place in places}
        for answer in self.each:
            if (own := answer.place) is not None:
                found[places[int(np.abs(np.array(places) - own).argmin())]].append(answer)
        return {place: Answers(tuple(answers)) for place, answers in found.items() if answers}

    def as_json(self) -> dict[str, Any]:
        """Return every estimate as JSON values."""
        return {"share": asdict(self.share), "exact": asdict(self.exact),
                "by_place": {str(place): {"share": asdict(found.share), "exact": asdict(found.exact)}
                             for place, found in self.by_place().items()}}


def task_examples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: AnyTask, *, length: int, each: int,
                  places: Sequence[float] = POSITIONS, seed: int = 1) -> list[Example]:
    """Return the examples by which a model is scored on a task, those of the first place first.

    Args:
        model: limits the length.
        tokenizer: the model's own.
        task: the questions.
        length: tokens of a prompt and of the room for its answer, at most.
        each: examples at each place; a task without places has as many altogether, and a file at most as many.
        places: where the answers stand, 0 to 1.
        seed: seed of the examples; use the same for models that are compared.

    Raises:
        ValueError: for a length over the model's context or too short for the task.
    """
    check_model(model)
    check_tokenizer(tokenizer)
    check_integers(1, each=each, length=length)
    check_length(model, "length", length)
    if not task.placed:
        return task.examples(tokenizer, each * len(places), length=length, seed=seed)
    return [example for place in places
            for example in task.examples(tokenizer, each, length=length, seed=seed, place=place)]


def answer_task(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: AnyTask, *, length: int, each: int,
                places: Sequence[float] = POSITIONS, seed: int = 1) -> Answers:
    """Score a model on a task; the arguments are those of `task_examples`."""
    return answer_examples(model, tokenizer, task_examples(model, tokenizer, task, length=length, each=each,
                                                           places=places, seed=seed))


def answer_examples(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example],
                    on_answer: Callable[[Answer], None] = lambda answer: None) -> Answers:
    """Score a model on examples, one after another, by greedy decoding.

    Args:
        model: a causal language model; its own mode is restored.
        tokenizer: the model's own.
        examples: one or more.
        on_answer: is called with each answer.

    Raises:
        ValueError: for no example, or one that is too long for the model.
    """
    check_model(model)
    check_tokenizer(tokenizer)
    if not examples:
        raise ValueError("examples: got none, wanted one or more")
    found = []
    for example in examples:
        text = continuation(model, tokenizer, example.prompt, answer_room(tokenizer, example))
        share = contained(text, example)
        found.append(Answer(text, share, share == 1, example.place))
        on_answer(found[-1])
    return Answers(tuple(found))


def check_tokenizer(tokenizer: Any) -> None:
    """Raise ValueError unless there is a tokenizer."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"tokenizer: got {type(tokenizer).__name__}, wanted one of transformers; save the model's "
                         "tokenizer beside it")


def contained(text: str, example: Example) -> float:
    """Return the share of an example's references in a text, whatever their case; 1 if one is there and is enough."""
    hits = [reference.casefold() in text.casefold() for reference in example.answers]
    return float(any(hits)) if example.one_is_enough else sum(hits) / len(hits)


@torch.no_grad()
def continuation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, tokens: int) -> str:
    """Return the text that a model writes after a prompt, greedily.

    It is generated with the cache of the model's present attention; where a mechanism has none, every token is computed
    from the whole text.

    Args:
        model: a causal language model; its own mode is restored.
        tokenizer: the model's own.
        prompt: a text of one token or more.
        tokens: number of tokens to write, at most.

    Raises:
        ValueError: if the prompt is empty, or does not fit the model's context or vocabulary.
    """
    check_integers(1, tokens=tokens)
    ids = torch.tensor([prompt_ids(tokenizer, prompt)], dtype=torch.long)
    if ids.numel() == 0:
        raise ValueError("prompt: is empty, wanted a text of one token or more")
    check_token_ids(model, "prompt", ids)
    check_length(model, "prompt", ids.shape[1] + tokens)
    name = attention_of(model).name
    past = {"past_key_values": CACHES[name](model)} if name in CACHES else {"use_cache": name == "full"}
    ids, training = ids.to(model.device), model.training
    try:
        model.eval()
        generator: Any = model  # its mixin's attributes are not annotated
        written = generator.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
                                     pad_token_id=_padding(model), **GREEDY, **past)
    finally:
        model.train(training)
    return str(tokenizer.decode(written[0, ids.shape[1]:], skip_special_tokens=True))


def _padding(model: PreTrainedModel) -> int:
    """Return a padding token, which one row does not need and generation asks for."""
    end = model.generation_config.eos_token_id
    return end if isinstance(end, int) else 0
