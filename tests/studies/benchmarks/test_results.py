"""What the benchmarks share: result files, choices, sections."""

import json

import pytest

from cca_lab.studies import study
from cca_lab.studies.benchmarks import results


def test_a_result_is_written_when_all_is_measured(tmp_path):
    with study.result_file(tmp_path / "a.json") as result:
        result["rows"] = [1.5]
        assert not (tmp_path / "a.json").exists()
    assert json.loads((tmp_path / "a.json").read_text()) == {"rows": [1.5]}
    with pytest.raises(KeyError), study.result_file(tmp_path / "b.json") as result:
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_name_that_is_not_there_is_refused():
    assert results.chosen("cache", (), {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert results.chosen("cache", ("b",), {"a": 1, "b": 2}) == {"b": 2}
    with pytest.raises(ValueError, match="cache: got 'c', wanted one of a, b"):
        results.chosen("cache", ("c",), {"a": 1, "b": 2})


def test_a_case_that_fails_is_a_row_and_the_next_is_run():
    saved = []
    section = results.Section(lambda: saved.append(len(section.found["rows"])))
    section.attempt("first", lambda: 1 / 0)
    section.attempt("second", lambda: section.add(number=2))
    assert section.found["rows"] == [{"case": "first", "error": "ZeroDivisionError: division by "
                                                                "zero"}, {"number": 2}]
    assert saved == [1, 2]
