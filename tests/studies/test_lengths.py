"""Losses by the length of the context, and statistics of heads, on a small model."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.models import attention_maps, load_pretrained, save_pretrained, swap_attention
from cca_lab.studies import lengths
from cca_lab.studies.heads import NEAR, Heads
from cca_lab.studies.lengths import Lengths, buckets, losses_of, token_losses
from tests.studies import small


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(context=600), folder / "base", small.tokenizer())
    save_pretrained(swap_attention(small.model(seed=1, context=600), "cca", group=4, window=8),
                    folder / "tuned", small.tokenizer())
    return folder


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_token_losses_are_those_of_the_model(family):
    model = small.model(family, context=600)
    ids = torch.randint(len(small.tokenizer()), (550,), generator=torch.Generator().manual_seed(0))
    losses = token_losses(model, ids)
    assert losses.shape == (549,)
    assert losses.mean() == pytest.approx(
        model(input_ids=ids[None], labels=ids[None]).loss.item(), abs=1e-5)


def test_buckets_hold_every_token_once():
    assert buckets(256) == [0, 256] and buckets(1000) == [0, 256, 512, 1000] and buckets(1024) == [
        0, 256, 512, 1024]


def test_a_bucket_is_the_mean_over_its_tokens(monkeypatch):
    """Mutant: token t stands at place t of the losses.

    The first token is not predicted, so it stands at t - 1.
    """
    monkeypatch.setattr(lengths, "token_losses",
                        lambda model, row: np.arange(1, len(row), dtype=float))
    found = losses_of(small.model(context=600), torch.zeros(2, 600, dtype=torch.long))["losses"]
    wanted = [np.mean(range(1, 256)), np.mean(range(256, 512)), np.mean(range(512, 600))]
    assert found == [pytest.approx(wanted)] * 2
    assert np.mean(np.arange(1, 600)[256:512]) != pytest.approx(wanted[1])


def test_every_mechanism_and_finetuned_models_in_one_file(home, tmp_path):
    out, settings = tmp_path / "lengths.json", dict(length=512, windows=2, entries=96,
                                                    text=str(home / "text.txt"))
    study = partial(Lengths, model=str(home / "base"), out=out, **settings)
    first = study(attention=("full", "cca")).run()
    again = study(trained=(f"tuned={home / 'tuned'}",)).run()
    assert again["rows"]["cca"] == first["rows"]["cca"]  # not measured again
    assert set(again["rows"]) == {name for name, cls in MECHANISMS.items()
                                  if not (cls.training_only or cls.of_one_model)} | {"tuned"}
    tuned = again["rows"]["tuned"]
    assert (tuned["attention"], tuned["options"]["group"], tuned["swapped"]) == ("cca", 4, False)
    assert json.loads(out.read_text()) == again and again["command"]
    with pytest.raises(ValueError, match="entries"):
        study(entries=95).run()
    named = study(attention=("full",), swapped=('sink={"name": "cca", "sinks": 1}',)).run()
    assert named["rows"]["sink"]["options"]["sinks"] == 1
    with pytest.raises(ValueError, match="'sink' with the options .*choose another name"):
        study(attention=("full",), swapped=('sink={"name": "cca", "sinks": 2}',)).run()


def test_a_trained_model_may_not_take_a_mechanisms_name(home, tmp_path):
    with pytest.raises(ValueError, match="^trained: got 'cca'.*such as cca-finetuned"):
        Lengths(model=str(home / "base"), out=tmp_path / "l.json", length=512, windows=1,
                entries=64, attention=("full", ), trained=(f"cca={home / 'tuned'}", )).run()
    assert not (tmp_path / "l.json").exists()


def test_statistics_of_heads_by_hand(home, tmp_path):
    found = Heads(model=str(home / "base"), out=tmp_path / "heads.json", texts=1, length=300,
                  text=str(home / "text.txt")).run()
    assert np.shape(found["k90"]) == (2, 2)
    model, _ = load_pretrained(home / "base")
    from cca_lab.models.pretrain import tokenize
    from cca_lab.studies.real_heads import texts_of
    from cca_lab.tasks.corpus import load_corpus

    stream = tokenize(load_corpus(str(home / "text.txt")).validation, small.tokenizer())
    rows = attention_maps(model,
                          texts_of(stream, 1, 300)[0])[..., 150:, :].double()  # (layers, H, 150, L)
    far = [rows[:, :, i, 1:150 + i + 1 - NEAR].sum(-1)
           for i in range(150)]  # the first token left out
    assert np.abs(np.array(found["sink"]) - rows[..., 0].mean(-1).numpy()).max() < 1e-4
    assert np.abs(np.array(found["far"]) - torch.stack(far).mean(0).numpy()).max() < 1e-4
