"""The record table: who counts, and in which order."""

import pytest

from cca_lab.files import repository, results_folder
from cca_lab.studies import record


def rows(name, answers, seconds, ratio=1.1, seeds=3):
    def one(share):
        kinds = {kind: {"all": {"value": share}} for kind in record.KINDS}
        return {**kinds, "perplexity_ratio": {"value": ratio}, "cpu_seconds": seconds,
                "command": f"cca-lab record {name}", "machine": {"cpu": "a CPU", "threads": 1}}

    return {f"{name}, seed {seed}": one(answers[seed]) for seed in range(seeds)}


@pytest.mark.parametrize(("answers", "ratio", "seeds", "counts"), [
    ([0.99, 0.98, 0.99], 1.1, 3, "yes"),
    ([0.99, 0.97, 1.00], 1.1, 3, "no"),   # the mean would do; a seed does not
    ([0.99, 0.99, 0.99], 1.3, 3, "no"),   # the text was unlearnt
    ([0.99, 0.99, 0.99], 1.1, 2, "no")])  # a seed is missing
def test_who_counts(answers, ratio, seeds, counts):
    (line,) = record.table({"trials": rows("a", answers, 100, ratio, seeds)})
    assert line[record.COLUMNS.index("counts")] == counts


def test_those_that_count_stand_first_by_their_time():
    good = [0.99] * 3
    trials = {**rows("slow", good, 300), **rows("cheat", [0.5] * 3, 1), **rows("fast", good, 200)}
    assert [line[0] for line in record.table({"trials": trials})] == ["fast", "slow", "cheat"]


def test_the_group_is_fixed(tmp_path):
    with pytest.raises(ValueError, match="group: is 16 by the rules"):
        record.Record(recipe="x", option=("group=2",), out=tmp_path / "records.json").run()


def test_the_page_is_that_of_the_results():
    written = (repository() / record.PAGE).read_text(encoding="utf-8")
    assert written == record.page(results_folder()), "run `cca-lab readme` and commit"
