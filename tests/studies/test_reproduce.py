"""The re-enacted tables.

Verdicts, the ablated mechanisms, the page, and one experiment run again from its command.
"""

import json
import math
import shlex
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.files import repository, results_folder
from cca_lab.mechanisms import DGA, MECHANISMS
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.studies.evaluate import KINDS
from cca_lab.studies.reproduce import page
from cca_lab.studies.reproduce.artefact import (
    AGREES,
    DISAGREES,
    ONE_SEED,
    UNSEEN,
    Arm,
    Artefact,
    Converging,
    difference,
    ordering,
    values,
)
from cca_lab.studies.reproduce.measured import LATENCY, MEASURED, OUT_OF_REACH, rises
from cca_lab.studies.reproduce.run import Reproduce
from cca_lab.studies.reproduce.trained import TRAINED
from cca_lab.studies.reproduce.variants import VARIANTS, NoComplement, RandomFocal, registered

READ = (*MEASURED, *LATENCY)
ALL = (*TRAINED.values(), *READ, *OUT_OF_REACH)
RECORDED = Path(__file__).parent / "recorded" / "reproduce-gpt2-mini.json"


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


def test_seeds_are_paired():
    """Mutant: compares two means without pairing, and sees nothing where every seed agrees."""
    left, right = trained(1.0, 1.5, 2.0), trained(1.01, 1.516, 2.021)
    assert difference(left, right, "perplexity").verdict == "lower"
    unpaired = values(left, "perplexity").std(ddof=1) / math.sqrt(3)
    assert unpaired > 10 * abs(difference(left, right, "perplexity").value)


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


def test_what_counts_is_the_gap_to_the_control_not_the_loss():
    noise = np.random.default_rng(0).normal(0, 1.0, 20)  # batches are easy and hard, for both alike
    gap = np.array([0.5, 0.3, *[0.05] * 18])
    arms = {"a": Arm("cca", {"group": 4, "window": 8}), "b": Arm("full")}
    def study(*gaps):
        rows = {}
        for seed, gap in enumerate(gaps):
            rows[arms["a"].name(seed)] = {"curve": list(2 + noise + gap)}
            rows[arms["b"].name(seed)] = {"curve": list(2 + noise)}
        for row in rows.values():
            row |= {"perplexity_ratio": {"value": 1.0},
                    **{kind: {"all": {"value": 1.0}} for kind in KINDS}}
        return {"trials": rows, "machine": {"cpu": "x"}}

    artefact = Converging("x", "CCA", "Figure 0", "", {}, arms, ("a", "b"), "")
    found = artefact.found(study(gap, gap))
    assert found.verdict == AGREES and "100%" in list(found.numbers.values())[-1]
    slow = np.linspace(0.5, 0, 20)
    assert artefact.found(study(slow, slow)).verdict == DISAGREES
    assert artefact.found(study(gap, slow)).verdict == UNSEEN, "the seeds contradict each other"


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


@pytest.mark.parametrize("artefact", [*TRAINED.values(), *READ], ids=lambda artefact: artefact.name)
def test_the_declared_verdict_is_that_of_the_committed_results(artefact):
    found = page.found_for(artefact, results_folder())
    verdict = found.verdict if found and found.verdict != ONE_SEED else ""
    assert artefact.verdict == verdict, (
        f"declared {artefact.verdict!r}, found {verdict!r}: look into it")
    assert bool(artefact.why) == bool(verdict), "say why, for the reader"


def test_the_page_is_that_of_the_results():
    written = (repository() / page.PAGE).read_text(encoding="utf-8")
    assert written == page.page(results_folder()), "run `cca-lab readme` and commit"
    rows = [line for line in written.splitlines() if line.startswith("| ")]
    assert len([row for row in rows if not row.startswith(("| artefact", "| ---"))]) >= 25


# ---------------------------------------------------------------- the command

def test_a_recorded_run_comes_out_again(tmp_path):
    """One small run of each kind of arm, again, from the command that stands in its file."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["trials"]
    (command,) = {row["command"] for row in recorded.values()}
    words = shlex.split(command)
    words[words.index("--out") + 1] = str(tmp_path)
    ran = CliRunner().invoke(app, ["study", *words[1:]])
    assert ran.exit_code == 0, ran.output
    again = json.loads((tmp_path / RECORDED.name).read_text(encoding="utf-8"))["trials"]
    assert again.keys() == recorded.keys()
    for name, row in recorded.items():
        # settings that did not exist when it was recorded have their defaults
        defaults = asdict(FinetuneConfig())
        later = {field: defaults[field]
                 for field in defaults.keys() - row["trial"]["config"].keys()}
        recorded_trial = row["trial"] | {"config": row["trial"]["config"] | later}
        assert again[name]["trial"] == recorded_trial
        # float32 sums in another order on another CPU, over four steps of training
        assert np.abs(np.subtract(again[name]["losses"], row["losses"])).max() < 2e-3, name
    first, second = (row["losses"] for row in recorded.values())
    assert np.abs(np.subtract(first, second)).max() > 2e-3  # another setting would be noticed


def test_the_command_says_what_it_needs(tmp_path):
    with pytest.raises(ValueError, match="wanted one of cca-table7"):
        Reproduce(names=("cca-table77",)).run()
    with pytest.raises(ValueError, match="out: got none"):
        Reproduce(names=("cca-table7",), quick=True).run()
    with pytest.raises(ValueError, match="seeds"):
        Reproduce(names=("cca-table7",), seeds=0, out=tmp_path).run()
    listed = CliRunner().invoke(app, ["study", "reproduce", "--list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in TRAINED)


def test_a_seed_has_no_part_in_what_is_not_trained():
    arm = Arm("cca", {"group": 4, "window": 8}, "none")
    assert arm.name(0) == arm.name(1) and arm.trial(10, 0) == arm.trial(20, 1)
    artefact = Artefact("x", "CCA", "Table 0", "", {}, {"a": arm}, ("a",), "")
    assert artefact.found({"trials": {}, "machine": {"cpu": "x"}}) is None
    assert len(artefact.rows({arm.name(0): {}})["a"]) == 1
