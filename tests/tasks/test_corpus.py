"""The corpus: deterministic, dealt by module, and closed to what is not text."""

import pytest

from cca_lab.tasks.corpus import Corpus, is_validation, load_corpus


def test_standard_library_is_the_same_each_time():
    first, second = load_corpus(), load_corpus()
    assert first.fingerprint == second.fingerprint
    assert sum(map(len, first.train)) > 1_000_000
    assert not set(first.train) & set(first.validation)


def test_fingerprint_sees_every_change():
    corpus = Corpus("a", ("one", "two"), ("three",))
    others = [Corpus("a", ("one", "twO"), ("three",)), Corpus("a", ("one",), ("two", "three")),
              Corpus("a", ("onet", "wo"), ("three",))]
    assert corpus.fingerprint not in {other.fingerprint for other in others}


def test_a_folder_is_dealt_by_file(tmp_path):
    names = [f"module_{index}.py" for index in range(60)]
    for name in [*names, "test/fixture.py", "picture.png"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"the text of {name}, " * 20)
    corpus = load_corpus(str(tmp_path))
    held_out = [name for name in names if is_validation(name)]
    assert 0 < len(held_out) < len(names)
    assert len(corpus.validation) == len(held_out)
    assert len(corpus.train) == len(names) - len(held_out)
    assert not any("fixture" in text or "picture" in text for text in corpus.train + corpus.validation)


def test_a_single_file_holds_out_its_end(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("".join(f"{index}\n" for index in range(2000)))
    corpus = load_corpus(str(path))
    assert corpus.train[0] + corpus.validation[0] == path.read_text()
    assert len(corpus.validation[0]) == pytest.approx(len(path.read_text()) / 10, rel=0.01)


@pytest.mark.parametrize("make, message", [
    (lambda folder: str(folder / "missing"), "no file or folder"),
    (lambda folder: str(folder), "fewer than 1000"),
])
def test_a_wrong_source_is_named(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        load_corpus(make(tmp_path))
