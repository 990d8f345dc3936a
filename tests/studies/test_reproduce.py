"""The re-enacted tables.

Verdicts, the ablated mechanisms, the page, and shipped files that go on.
"""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from cca_lab.files import models_folder, repository, results_folder
from cca_lab.mechanisms import DGA, MECHANISMS
from cca_lab.studies.evaluate import KINDS
from cca_lab.studies.reproduce import page
from cca_lab.studies.reproduce.artefact import (
    AGREES,
    DISAGREES,
    ONE_SEED,
    UNSEEN,
    Arm,
    Artefact,
    difference,
    ordering,
    paired,
)
from cca_lab.studies.reproduce.measured import MEASURED, OUT_OF_REACH, rises
from cca_lab.studies.reproduce.run import Reproduce
from cca_lab.studies.reproduce.trained import TRAINED
from cca_lab.studies.reproduce.variants import VARIANTS, NoComplement, RandomFocal, registered
from cca_lab.studies.sweep import Sweep
from cca_lab.studies.trials import Trials
from cca_lab.tasks.corpus import load_corpus

ALL = (*TRAINED.values(), *MEASURED, *OUT_OF_REACH)


# ---------------------------------------------------------------- verdicts

def trained(*ratios):
    """Rows of one setting, one for each seed."""
    return [{"perplexity_ratio": {"value": ratio}} for ratio in ratios]


def read(losses):
    """The row of a setting that was read, not trained."""
    return [{"perplexity_ratio": {"value": math.exp(np.mean(losses))}, "losses": list(losses)}]


CLEAR = {"a": trained(1.10, 1.11, 1.12), "b": trained(1.20, 1.21, 1.22),
         "c": trained(1.30, 1.31, 1.32)}


@pytest.mark.parametrize(("arms", "order", "verdict"), [
    (CLEAR, "abc", AGREES),
    (CLEAR, "cba", DISAGREES),
    (CLEAR, "acb", DISAGREES),  # the ends are right, two neighbours are not
    (CLEAR, "a", UNSEEN),
    # seeds differ more than settings
    ({"a": trained(1.0, 1.4, 1.2), "b": trained(1.3, 1.1, 1.3)}, "ab", UNSEEN),
    ({"a": trained(1.0), "b": trained(2.0)}, "ab", UNSEEN),  # one seed tells no spread
    # paired, window by window
    ({"a": read([1.0, 2.0, 3.0]), "b": read([1.1, 2.1, 3.11])}, "ab", AGREES),
    ({"a": read([1.0, 2.0, 3.0]), "b": read([3.0, 1.1, 2.1])}, "ab", UNSEEN)])
def test_an_order_holds_if_the_spread_lets_it(arms, order, verdict):
    assert ordering(arms, list(order), "perplexity") == verdict


def test_paired_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t = 4.303 (2 degrees of freedom)."""
    found = paired(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert found.value == 2 and found.error == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert found.verdict == "no difference seen"


def test_pairing_sees_what_seeds_hide():
    """Seeds spread by 1, arms differ by 0.1: seen when paired."""
    reference = np.array([1.0, 2.0, 3.0, 4.0])
    arm = reference - 0.1 + np.array([0.001, -0.001, 0.002, -0.002])
    assert paired(arm, reference).verdict == "lower"
    assert paired(reference, arm).verdict == "higher"


def test_one_seed_shows_no_spread():
    with pytest.raises(ValueError, match="seeds: got 1, wanted 2 or more"):
        paired(np.array([1.0]), np.array([2.0]))


def test_questions_are_paired_by_bits():
    def row(hits):
        bits = np.packbits(np.array(hits, dtype=bool)).tobytes().hex()
        kind = {"all": {"value": float(np.mean(hits)), "samples": len(hits)}, "hits": bits}
        return [{"exact_match": kind, "varied_match": kind}]

    hits = [True] * 9 + [False] * 2
    more = [True] * 11
    assert difference(row(more), row(hits), "answers").value == pytest.approx(-2 / 11)
    assert difference(row(hits), row(hits), "answers").verdict == "no difference seen"
    unknown = [{kind: {"all": {"value": 1.0, "samples": 3}}
                for kind in ("exact_match", "varied_match")}]
    assert difference(unknown, row(hits), "answers") is None


def test_a_slope():
    assert rises([1, 2, 3]) and not rises([1, 3, 3]) and not rises([2, 1])


def test_one_seed_concludes_nothing():
    """Mutant.

    `ordering` alone, which pairs the windows of two single trainings and sees a difference.
    """
    arms = {"a": Arm("cca", {"group": 4, "window": 8}), "b": Arm("cca", {"group": 2, "window": 8})}
    levels = zip(arms.values(), (1, 2), strict=True)
    rows = {arm.name(0): read([level, level + 1, level + 2.01 * level])[0] for arm, level in levels}
    for row in rows.values():
        row |= {kind: {"all": {"value": 1.0}} for kind in KINDS}
    artefact = Artefact("x", "CCA", "Table 0", "", {}, arms, ("a", "b"), "")
    assert artefact.found({"trials": rows, "machine": {"cpu": "x"}}).verdict == ONE_SEED
    assert ordering(artefact.rows(rows), ("a", "b"), "perplexity") == AGREES


# ---------------------------------------------------------------- the ablated mechanisms

def qkv(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 4, length, 8, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, 2, length, 8, generator=generator, dtype=torch.float64) for _ in "kv")
    return q, k, v


@pytest.mark.parametrize("length", [1, 2, 7, 33])
def test_random_focal_tokens_change_the_choice_only(length):
    q, k, v = qkv(length)
    random, dga = RandomFocal(group=4, gamma=0.3), DGA(group=4, gamma=0.3)
    focal = random.select(q, k)
    assert focal.sum(-1).unique().tolist() == dga.select(q, k).sum(-1).unique().tolist()
    assert torch.equal(random.attention(q, k, v), dga.attention(q, k, v, selection=focal))
    changed = random.select(*(x + 1 for x in (q, k)))
    assert torch.equal(focal, changed)  # the text has no part in it


def without_complement(q, k, v, focal, group, scale):
    """One head of DGA in which a row sees focal tokens, closed groups and itself.

    (L, D) each, focal (L,).
    """
    others = [t for t in range(len(q)) if not focal[t]]
    groups = [others[first : first + group] for first in range(0, len(others), group)]
    out = torch.zeros_like(q)
    for i in range(len(q)):
        keys, entries = [], []
        for t in range(i + 1):
            if focal[t] or t == i:
                keys.append(k[t])
                entries.append(v[t])
        for members in groups:
            if members[-1] < i:
                weights = torch.softmax(scale * (k[members] @ q[members[-1]]), dim=0)
                keys.append(weights @ k[members])
                entries.append(weights @ v[members])
        out[i] = torch.softmax(scale * (torch.stack(keys) @ q[i]), dim=0) @ torch.stack(entries)
    return out


@pytest.mark.parametrize("length", [1, 5, 21])
def test_without_complementary_tokens_a_row_sees_itself_and_closed_groups(length):
    q, k, v = qkv(length)
    q = q[:, ::2]  # one query head for each KV head, so that one query pools a group
    variant = NoComplement(group=4, gamma=0.3)
    focal, scale = variant.select(q, k), 8**-0.5
    got = variant.attention(q, k, v)
    for b in range(2):
        for h in range(2):
            want = without_complement(q[b, h], k[b, h], v[b, h], focal[b, h], 4, scale)
            assert (got[b, h] - want).abs().max() < 1e-12
    if length == 21:  # mutant: DGA as it is
        assert (got - DGA(group=4, gamma=0.3).attention(q, k, v)).abs().max() > 1e-3


def test_variants_are_listed_only_while_trials_run():
    with registered():
        assert set(VARIANTS) <= set(MECHANISMS)
    assert not set(VARIANTS) & set(MECHANISMS)


# ---------------------------------------------------------------- the artefacts and their page

def test_artefacts_are_named_once_and_their_orders_name_arms():
    assert len({artefact.name for artefact in ALL}) == len(ALL) >= 25
    for artefact in TRAINED.values():
        assert set(artefact.order) <= set(artefact.arms), artefact.name
        assert len(set(artefact.order)) == len(artefact.order) >= 2, artefact.name


def test_trials_of_one_file_never_differ_under_one_name():
    seen: dict[tuple, object] = {}
    for artefact in TRAINED.values():
        for name, trial in artefact.trials(0).items():
            assert seen.setdefault((artefact.file, name), trial) == trial, (artefact.name, name)


def test_declared_verdicts_are_those_of_the_committed_results():
    for artefact in (*TRAINED.values(), *MEASURED):
        found = page.found_for(artefact, results_folder())
        verdict = found.verdict if found and found.verdict != ONE_SEED else ""
        assert artefact.verdict == verdict, (
            f"{artefact.name}: declared {artefact.verdict!r}, found {verdict!r}: look into it")
        assert bool(artefact.why) == bool(verdict), "say why, for the reader"


def test_the_page_is_that_of_the_results():
    written = (repository() / page.PAGE).read_text(encoding="utf-8")
    assert written == page.page(results_folder()), "run `cca-lab readme` and commit"
    rows = [line for line in written.splitlines() if line.startswith("| ")]
    assert len([row for row in rows if not row.startswith(("| artefact", "| ---"))]) >= 25


# ---------------------------------------------------------------- the command

@pytest.mark.parametrize("study, file", [
    (lambda out: Reproduce(names=("cca-table7",), out=out.parent), "recovery-gpt2-mini.json"),
    (lambda out: Sweep(model=str(models_folder() / "gpt2-mini"), out=out),
     "sweep-gpt2-mini.json")], ids=["reproduce", "sweep"])
def test_what_is_shipped_is_read_and_not_measured_again(tmp_path, study, file):
    """Shipped rows lack the settings that are younger than they: these are the defaults."""
    shutil.copy(results_folder() / file, tmp_path)
    shipped = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    if shipped["corpus"]["fingerprint"] != load_corpus().fingerprint:
        pytest.skip("another Python's standard library is another text")
    study(tmp_path / file).run()
    assert (tmp_path / file).read_bytes() == (results_folder() / file).read_bytes()


def test_the_command_trains_seed_by_seed_and_says_what_it_needs(tmp_path, capsys, monkeypatch):
    with pytest.raises(ValueError, match="wanted one of cca-table7"):
        Reproduce(names=("cca-table77",)).run()
    with pytest.raises(ValueError, match="out: got none"):
        Reproduce(names=("cca-table7",), quick=True).run()
    Reproduce(list=True).run()
    listed = capsys.readouterr().out
    assert "cca-table7" in listed and "dga-table5" in listed
    monkeypatch.setattr("cca_lab.studies.reproduce.run.QUICK", (2, 0))
    monkeypatch.setattr(Trials, "measure", lambda self, trial, title: {
        kind: {"all": {"value": 1.0, "samples": 1}} for kind in KINDS} | {
        "perplexity": {"value": 2.0}, "perplexity_ratio": {"value": 1.0}})
    Reproduce(names=("dga-table5",), quick=True, out=tmp_path).run()
    assert "dga-table5: focal tokens" in capsys.readouterr().out
    written = json.loads((tmp_path / TRAINED["dga-table5"].file).read_text())["trials"]
    assert len(written) == 2 and all(row["trial"]["config"]["steps"] == 30
                                     for row in written.values())


def test_a_seed_has_no_part_in_what_is_not_trained():
    arm = Arm("cca", {"group": 4, "window": 8}, "none")
    assert arm.name(0) == arm.name(1) and arm.trial(10, 0) == arm.trial(20, 1)
    artefact = Artefact("x", "CCA", "Table 0", "", {}, {"a": arm}, ("a",), "")
    assert artefact.found({"trials": {}, "machine": {"cpu": "x"}}) is None
    assert len(artefact.rows({arm.name(0): {}})["a"]) == 1
