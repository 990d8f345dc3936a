"""The corpus: deterministic, dealt by module, and closed to what is not text."""

import os
import sysconfig

import pytest

from cca_lab.tasks.corpus import Corpus, is_validation, load_corpus


def test_the_standard_library_is_a_corpus():
    corpus = load_corpus()
    assert sum(map(len, corpus.train)) > 1_000_000
    assert not set(corpus.train) & set(corpus.validation)


def test_fingerprint_sees_every_change():
    corpus = Corpus("a", ("one", "two"), ("three",))
    others = [Corpus("a", ("one", "twO"), ("three",)), Corpus("a", ("one",), ("two", "three")),
              Corpus("a", ("onet", "wo"), ("three",))]
    assert corpus.fingerprint not in {other.fingerprint for other in others}


def test_a_folder_is_dealt_by_file(tmp_path):
    names = [f"module_{index}.py" for index in range(60)]
    for name in names:
        (tmp_path / name).write_text(f"the text of {name}, " * 20)
    corpus = load_corpus(str(tmp_path))
    held_out = [name for name in names if is_validation(name)]
    assert 0 < len(held_out) < len(names)
    assert len(corpus.validation) == len(held_out)
    assert len(corpus.train) == len(names) - len(held_out)


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
PROSE = "The window keeps the last of them, and the group pools its keys. " * 20


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def names_in(folder, corpus):
    """Return the files of a folder whose text a corpus holds."""
    whole = "\n".join(corpus.train + corpus.validation)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")
            if path.is_file() and f"of {path.name} here" in whole}


def test_every_file_that_is_text_by_its_content_is_read(tmp_path):
    texts = ["README", "notes.org", "a/main.c", "tests/test_x.py", "b/c/letter", "table.csv",
             "page.html"]
    files = {name: f"{PROSE} of {name.rpartition('/')[2]} here"
             for name in (*texts, ".env", ".git/config")}
    binary = {"a.png": PICTURE, "b.so": b"\x7fELF" + b"\0" * 9000 + b" of b.so here",
              "c.txt": b"text\0text", "d.gz": b"\x1f\x8b\x08" + b"\x9c" * 20}
    corpus = load_corpus(str(write(tmp_path, {**files, **binary, "empty.txt": b""})))
    assert names_in(tmp_path, corpus) == set(texts)
    assert [line.split()[0] for line in corpus.left_out] == list(binary)


def test_text_that_cannot_be_used_is_told_and_not_read(tmp_path):
    files = {"good.txt": PROSE, "latin.txt": ("Stra\xdfe " * 9).encode("latin-1"),
             "wide.txt": PROSE.encode("utf-16"), "long.json": "x" * 30000}
    corpus = load_corpus(write(tmp_path, files))
    assert "".join(corpus.train + corpus.validation) == PROSE
    assert [line.split()[0] for line in corpus.left_out] == ["latin.txt", "long.json", "wide.txt"]
    assert "is not UTF-8 (byte 0xdf in line 1); save its text" in corpus.left_out[0]


def test_line_ends_and_a_mark_at_the_start_change_nothing(tmp_path):
    text = "".join(f"line {index}\n" for index in range(200))
    fingerprints = {load_corpus(write(tmp_path / name, {"a.txt": content})).fingerprint
                    for name, content in (("unix", text.encode()),
                                          ("windows", text.replace("\n", "\r\n").encode()),
                                          ("mark", text.encode("utf-8-sig")))}
    assert len(fingerprints) == 1


def test_a_folder_without_text_says_what_it_holds(tmp_path):
    write(tmp_path, {"a.png": PICTURE, "b.bin": b"\0" * 20, "d.txt": "short",
                     "c.txt": "Stra\xdfe".encode("latin-1")})
    with pytest.raises(ValueError) as error:
        load_corpus(tmp_path)
    for told in ("fewer than 1000 characters of text", "beside 3 that cannot be used",
                 "the first: a.png"):
        assert told in str(error.value)


@pytest.mark.parametrize("content, told", [
    (b"\n\n" + "Stra\xdfe".encode("latin-1"), "is not UTF-8 (byte 0xdf in line 3)"),
    (PROSE.encode() + b"\0", "holds NUL characters")])
def test_a_file_that_is_no_text_is_named(tmp_path, content, told):
    write(tmp_path, {"file": content})
    with pytest.raises(ValueError) as error:
        load_corpus(tmp_path / "file")
    assert told in str(error.value), error.value


def test_the_standard_library_has_its_own_rule(tmp_path, monkeypatch):
    """The shipped models were trained on files chosen by name; by content others would be."""
    others = ("f.c", "LICENSE", "test/g.py", "site-packages/h.py", "encodings/i.py",
              "config-3/j.py")
    write(tmp_path, {"a.py": "one", "b.txt": "two", ".c.md": "three", "k.py": " ",
                     "d/e.rst": "Stra\xdfe".encode("latin-1"), **dict.fromkeys(others, PROSE)})
    by_content = load_corpus(tmp_path)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    corpus = load_corpus()
    wanted = "three\none\ntwo\nStra\ufffde"
    assert "".join(corpus.train + corpus.validation) == wanted and corpus.left_out == ()
    assert "".join(by_content.train + by_content.validation) != wanted


def test_a_single_file_holds_out_its_end(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("".join(f"{index}\n" for index in range(2000)))
    corpus = load_corpus(str(path))
    assert corpus.train[0] + corpus.validation[0] == path.read_text()
    assert len(corpus.validation[0]) == pytest.approx(len(path.read_text()) / 10, rel=0.01)


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="missing"):
        load_corpus(str(tmp_path / "missing"))


def test_a_file_name_that_is_no_text_keeps_no_folder_from_being_read(tmp_path):
    """The mutant that hashes the name as UTF-8 refuses the whole folder."""
    for name in (b"a\xff.txt", b"b.txt"):
        (tmp_path / os.fsdecode(name)).write_text("word " * 3000)
    assert sum(map(len, load_corpus(tmp_path).train)) > 10_000
