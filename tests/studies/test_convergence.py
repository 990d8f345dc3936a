"""Learning curves paired by seed, and their arithmetic by hand (DGA Figures 3a, 4)."""

import numpy as np
import pytest

from cca_lab.models.pretrain import tokenize
from cca_lab.studies import convergence
from tests.mutants import convergence as wrong
from tests.studies import small

TINY = convergence.Budget(steps=4, rows=2, length=32, every=2, windows=2, layers=1, width=16,
                          heads=2)


def streams():
    return [tokenize(side * 2, small.tokenizer())
            for side in (small.corpus().train, small.corpus().validation)]


def test_the_same_attention_learns_the_same():
    """CCA with a window over the whole length learns like full attention; with g = 4, s = 2 not."""
    arms = {"full": ("full", {}), "all raw": ("cca", {"group": 4, "window": 32}),
            "grouped": ("cca", {"group": 4, "window": 2})}
    told = []
    found = convergence.compare(arms, (0, 1), TINY, *streams(), small.tokenizer(),
                                lambda done, text: told.append((done, text)))
    assert {losses.shape for losses in found.values()} == {(2, 3)}
    assert np.abs(found["full"] - found["all raw"]).max() < 1e-3
    assert np.abs(found["full"] - found["grouped"]).max() > 1e-4
    assert not np.allclose(found["full"][0], found["full"][1])  # another seed
    assert told[0] == (0, "full, seed 0") and told[-1] == (6, "")


def test_paired_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t = 4.303 (2 degrees of freedom)."""
    found = convergence.paired(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert found.value == 2 and found.error == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert found.verdict == "no difference seen"


def test_pairing_sees_what_seeds_hide():
    """Seeds spread by 1, arms differ by 0.1.

    Seen when paired, not by a mutant that forgets the pairs.
    """
    reference = np.array([1.0, 2.0, 3.0, 4.0])
    arm = reference - 0.1 + np.array([0.001, -0.001, 0.002, -0.002])
    assert convergence.paired(arm, reference).verdict == "lower"
    assert convergence.paired(reference, arm).verdict == "higher"
    assert wrong.unpaired(arm, reference).verdict == "no difference seen"


def test_one_seed_shows_no_spread():
    with pytest.raises(ValueError, match="seeds: got 1, wanted 2 or more"):
        convergence.paired(np.array([1.0]), np.array([2.0]))


def test_steps_to_a_level_between_measurements():
    assert convergence.steps_to([5.0, 4.0, 2.0], 3.0, every=10) == 15
    assert convergence.steps_to([5.0, 4.0], 6.0, every=10) == 0
    assert convergence.steps_to([5.0, 4.0], 3.0, every=10) is None
