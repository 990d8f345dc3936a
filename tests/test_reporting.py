"""Results and figures appear whole or not at all."""

import json
import stat

import pytest

from cca_lab import reporting


def test_json_is_written_aside_and_renamed(tmp_path):
    file = tmp_path / "x.json"
    reporting.write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        reporting.write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1} and list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_figure_is_written_aside_and_renamed(tmp_path):
    class Broken:
        def savefig(self, *args, **kwargs):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        reporting.write_figure(tmp_path / "x.png", Broken())
    assert not (tmp_path / "x.png").exists()
