"""Pretraining: the curriculum's batches, repeatability, and what the command leaves behind."""

import copy
import json
import math

import pytest
import torch

from cca_lab.mechanisms import CCA
from cca_lab.models import attention_of, load_pretrained, mini, swap_attention
from cca_lab.models.plugin import group_size
from cca_lab.models.pretrain import Pretrainer, Recipe, Stage, copy_batch, curriculum, token_losses
from cca_lab.models.training import MatrixMuon, block_matrices
from cca_lab.studies.pretrain import Pretrain
from tests.command import run_command
from tests.studies import small


def test_copies_repeat_with_a_period_of_their_own():
    ids, known = copy_batch(32, 32, 500, torch.Generator().manual_seed(0))
    periods = set()
    for row, marks in zip(ids, known, strict=True):
        period = int(marks.float().argmax()
                     ) - 1  # the first known token is the second of the second repetition
        assert torch.equal(row[period:], row[:-period])
        periods.add(period)
    assert len(periods) > 5 and min(periods) >= 4 and max(periods) <= 16


def test_losses_of_the_marked_tokens_equal_the_model_s_own():
    model = small.model()
    ids = torch.randint(1, 100, (3, 20))
    loss, correct = token_losses(model, ids, torch.ones_like(ids, dtype=torch.bool))
    assert loss.mean().item() == pytest.approx(model(ids, labels=ids).loss.item(), rel=1e-5)
    assert loss.shape == correct.shape == (3 * 19,)


def test_a_curriculum_of_text_alone_learns_nothing_from_questions():
    """Two trainers whose questions alone differ have the same weights after two steps."""
    class OtherQuestions(Pretrainer):
        def _task_batch(self, stage, rows):
            ids, known = super()._task_batch(stage, rows)
            return ids.flip(-1), known

    def weights(kind, stages):
        torch.manual_seed(0)
        trainer = kind(small.model(), small.tokenizer(), small.corpus(), Recipe(step_tokens=256), 0)
        list(trainer.run(stages, 512))
        return torch.cat([value.flatten() for value in trainer.model.state_dict().values()])

    text_only, [*_, mixed] = curriculum(64, 512, text_only=True), curriculum(64, 512)
    assert torch.equal(weights(Pretrainer, text_only), weights(OtherQuestions, text_only))
    assert not torch.equal(weights(Pretrainer, [mixed]), weights(OtherQuestions, [mixed]))


def new_trainer(**recipe):
    return Pretrainer(small.model(), small.tokenizer(), small.corpus(), Recipe(**recipe), 0)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
def test_a_step_of_two_sequences_has_one_of_each_kind(share):
    """Rounding would give one kind none of them, and a mean over nothing is NaN."""
    trainer = new_trainer(step_tokens=64)
    record = trainer._step(Stage("question", 64, share, 1.0), 0.0)
    assert all(math.isfinite(record[key]) for key in ("text_loss", "task_loss", "accuracy")), record
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_short_sequences_stand_anywhere_in_the_context_and_long_ones_fill_it():
    trainer = new_trainer()
    context = trainer.model.config.max_position_embeddings
    places = trainer._places(200, 16)
    assert torch.equal(places - places[:, :1], torch.arange(16).expand(200, -1))
    assert places.min() < 5 and context - 5 < places.max() < context
    assert torch.equal(trainer._places(3, context), torch.arange(context).expand(3, -1))


def test_a_sequence_s_place_reaches_the_model():
    model = small.model().eval()
    ids, known = torch.randint(1, 100, (2, 20)), torch.ones(2, 20, dtype=torch.bool)
    at_zero, moved = (token_losses(model, ids, known,
                                   torch.arange(20).expand(2, -1) + first)[0] for first in (0, 7))
    assert torch.equal(at_zero, token_losses(model, ids, known)[0])
    assert not torch.equal(at_zero, moved)


def run(seed, tokens=6000):
    model = small.model(seed=seed)
    trainer = Pretrainer(model, small.tokenizer(), small.corpus(), Recipe(step_tokens=1024), seed)
    stages = [Stage("copy", 32, 0.5, 2000), Stage("question", 64, 0.5, 1e9)]
    return [(record["stage"], record["text_loss"]) for record in trainer.run(stages, tokens)], model


def test_a_run_repeats_bit_for_bit():
    (first, model), (second, twin), (third, _) = run(0), run(0), run(1)
    assert first == second != third
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert [stage for stage, _ in first] == sorted(stage
                                                   for stage, _ in first) and first[-1][0] == 1


def with_a_tokenizer_at_hand(monkeypatch):
    """Save the command the seconds in which it trains a tokenizer."""
    monkeypatch.setattr(mini, "train_tokenizer",
                        lambda corpus, size: copy.deepcopy(small.tokenizer()))


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_the_command_writes_a_model_and_what_it_measured(tmp_path, family, monkeypatch):
    monkeypatch.setattr(mini, "TASK_REPEATS", 1)  # a tokenizer in 0.3 seconds
    text = tmp_path / "text.txt"
    text.write_text(small.corpus().train[0] * 3)
    out = tmp_path / f"{family}-small"
    found = Pretrain(family=family, out=out, tokens=2e4, context=128, vocabulary=1200, width=16,
                     layers=1, heads=2, text=str(text)).run()
    model, tokenizer = load_pretrained(out)
    assert tokenizer.decode(tokenizer.encode("the keys é\n")) == "the keys é\n"
    stored = json.loads((out / "pretraining.json").read_text())
    assert stored["results"]["perplexity"]["value"] == pytest.approx(
        found["results"]["perplexity"]["value"], rel=1e-4)
    assert stored["steps"] * 8000 < stored["tokens"] < stored["steps"] * 8400
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(ValueError, match="is there already"):
        Pretrain(family=family, out=out).run()


def test_the_command_trains_with_cca_from_the_first_step(tmp_path, monkeypatch):
    """The saved model's groups have the size asked for, not that of the stage it reached."""
    with_a_tokenizer_at_hand(monkeypatch)
    (tmp_path / "text.txt").write_text(small.corpus().train[0] * 3)
    words = ["--out", tmp_path / "model", "--tokens", 2e4, "--context", 128, "--vocabulary", 1200,
             "--width", 16, "--layers", 1, "--heads", 2, "--text", tmp_path / "text.txt",
             "--attention", "cca", "--group", 4, "--window", 8, "--text-only"]
    done = run_command(["pretrain", *map(str, words)])
    assert done.exit_code == 0, done.output
    assert attention_of(load_pretrained(tmp_path / "model")[0]) == CCA(group=4, window=8)
    stored = json.loads((tmp_path / "model" / "pretraining.json").read_text())
    assert stored["options"]["attention"] == "cca" and [
        stage["task"] for stage in stored["stages"]
    ] == ["interleaved"]
    assert stored["options"]["attention_options"] == {"group": 4, "window": 8}


def with_groups(size):
    """A trainer whose steps train nothing, and the group size that each step sees."""
    model, seen = swap_attention(small.model(), "cca", group=size, window=8), []
    trainer = Pretrainer(model, small.tokenizer(), small.corpus(), Recipe(), 0)

    def step(stage, spent):
        seen.append(attention_of(model).group)
        trainer.tokens += 10
        return {"accuracy": 1.0}

    trainer._step = step
    return trainer, model, seen


@pytest.mark.parametrize("size, wanted", [(8, [1, 2, 4, 8]), (16, [2, 4, 8, 16]), (2, [1, 1, 1, 2]),
                                          (6, [1, 1, 3, 6])])
def test_groups_are_halved_for_each_stage_that_is_still_to_come(size, wanted):
    """Between the steps, as what is saved, the model has its own."""
    trainer, model, seen = with_groups(size)
    for _ in trainer.run([Stage("copy", 32, 0.5, 10) for _ in wanted], 40):
        assert attention_of(model).group == size
    assert seen == wanted


def test_a_step_that_fails_leaves_the_group_as_it_was():
    trainer, model, _ = with_groups(8)

    def fail(stage, spent):
        raise RuntimeError(f"with groups of {attention_of(model).group}")

    trainer._step = fail
    with pytest.raises(RuntimeError, match="with groups of 4"):
        next(trainer.run([Stage("copy", 32, 0.5, 10)] * 2, 20))
    assert attention_of(model).group == 8


def test_a_group_size_for_now_is_what_the_model_attends_with():
    ids = torch.randint(1, 100, (1, 40))
    outputs = {}
    for size in (2, 8):
        model = swap_attention(small.model(), "cca", group=size, window=8).eval()
        outputs[size] = model(ids).logits
    with group_size(model, lambda own: own // 4):
        assert torch.equal(model(ids).logits, outputs[2])
    assert torch.equal(model(ids).logits, outputs[8]) and not torch.equal(outputs[2], outputs[8])


@pytest.mark.parametrize("attention", [None, "full", "streaming_llm"])
def test_a_model_without_groups_stays_as_it_is(attention):
    model = small.model() if attention is None else swap_attention(small.model(), attention)
    before = copy.deepcopy(vars(model.config))
    with group_size(model, lambda own: pytest.fail("there is no group to change")):
        assert vars(model.config) == before
    assert vars(model.config) == before


QUESTION = Stage("question", 64, 0.5, 1.0)


def test_a_step_that_asks_nothing_trains_on_its_text():
    """A mean over no answer is NaN, and so would be every weight after it."""
    trainer = new_trainer(step_tokens=128)
    drawn = trainer._task_batch
    trainer._task_batch = lambda stage, rows: (drawn(stage, rows)[0],
                                               torch.zeros(rows, stage.length, dtype=torch.bool))
    record = trainer._step(QUESTION, 0.0)
    assert record["task_loss"] == record["accuracy"] == 0 and math.isfinite(record["text_loss"])
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_the_fused_projections_of_gpt2_are_three_matrices_to_the_optimizer():
    """The mutant, Muon over the fused matrix, takes another step."""
    options = dict(lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    model = small.model()
    fused = model.transformer.h[0].attn.c_attn.weight
    pieces = [torch.nn.Parameter(piece.clone()) for piece in fused.detach().chunk(3, dim=1)]
    whole = torch.nn.Parameter(fused.detach().clone())
    optimizers = MatrixMuon(model, **options), torch.optim.Muon(pieces,
                                                                **options), torch.optim.Muon(
                                                                    [whole], **options)
    for _ in range(3):
        for _, matrix in block_matrices(model):
            matrix.grad = torch.randn_like(matrix)
        whole.grad = fused.grad.clone()
        for piece, gradient in zip(pieces, fused.grad.chunk(3, dim=1), strict=True):
            piece.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(fused, torch.cat(pieces, dim=1), atol=1e-4)
    assert not torch.allclose(fused, whole, atol=1e-2)
