"""`cca-lab doctor` and the checksums it relies on: each problem is found, named, and has advice."""

import shutil

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from cca_lab import files
from cca_lab.cli import doctor
from tests.command import run_command


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A small data folder with checksums, in place of the shipped one."""
    for name, content in (("models/tiny/config.json", b"{}\r\n"), ("results/speed.json", b"[1]")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    files.write_checksums(tmp_path)
    monkeypatch.setenv("CCA_LAB_DATA", str(tmp_path))
    return tmp_path


def test_every_finding_is_a_marked_line_with_advice_where_something_is_wrong():
    findings = list(doctor.examine())
    for finding in findings:
        assert str(finding).startswith(("[ok]   ", "[warn] ", "[fail] ")), finding
        assert (finding.status == doctor.OK) or finding.advice, finding
    names = {finding.name for finding in findings}
    assert {"torch", "transformers", "pytest", "GPU", "CPU attention", "Jupyter kernel",
            "shipped data"} <= names


@pytest.mark.parametrize("status, code", [("ok", 0), ("warn", 0), ("fail", 1)])
def test_only_a_failure_fails(monkeypatch, capsys, status, code):
    monkeypatch.setattr(doctor, "examine",
                        lambda: iter([doctor.Check("thing", status, "found", "mend it")]))
    assert doctor.run() == code
    shown = capsys.readouterr().out
    assert shown.startswith(f"[{status}]") and "thing: found" in shown and "-> mend it" in shown


@pytest.mark.parametrize("requirement, pin, extra, status", [
    ("numpy>=1", "installed", "", "ok"),
    ("numpy>=1", "0.9", "", "warn"),
    ("numpy<1", "0.9", "", "fail"),
    ("no-such-package>=2", "2.0", "", "fail"),
    ("no-such-package>=2", "2.0", "models", "warn"),
])
def test_package_against_range_and_pin(requirement, pin, extra, status):
    pin = doctor.version("numpy") if pin == "installed" else pin
    found = doctor.check_package(Requirement(requirement), pin and Version(pin), extra)
    assert found.status == status, found


def test_each_package_is_named_once():
    names = [check.name for check in doctor.check_packages()]
    assert len(names) == len(set(names)) and {"torch", "transformers", "z3-solver"} <= {*names}


def test_pins_are_read_with_their_markers():
    pins = doctor.read_pins(
        "# a comment\nTorch==2.13.0\nwin_only==1.0 ; sys_platform == 'no-such-platform'\n")
    assert pins == {"torch": Version("2.13.0")}


def test_foreign_kernel_is_a_warning(monkeypatch):
    monkeypatch.setattr("jupyter_client.kernelspec.KernelSpecManager.get_kernel_spec",
                        lambda self, name: type("Spec", (), {"argv": ["/elsewhere/bin/python"]}))
    assert doctor.check_kernel().status == "warn"


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(doctor, "check_gpu", lambda: 1 / 0)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert "CPU attention" in findings
    broken = [finding for finding in findings.values() if "ZeroDivisionError" in finding.message]
    assert len(broken) == 1 and broken[0].status == "fail"


def test_intact_data_is_ok(data):
    (found,) = doctor.check_data()
    assert found.status == "ok" and "2 files" in found.message


@pytest.mark.parametrize("damage, words, status", [
    (lambda data: (data / "results/speed.json").write_bytes(b"[2]"), "changed: results/speed.json",
     "fail"),
    (lambda data: (data / "results/speed.json").unlink(), "missing: results/speed.json", "fail"),
    (lambda data: (data / "results/more.json").write_text("1"), "not listed: results/more.json",
     "warn"),
    (lambda data: (data / files.CHECKSUMS).unlink(), "is missing", "fail"),
    (lambda data: (data / files.CHECKSUMS).write_text("abc\n"), "wanted '<sha256>  <path>'",
     "fail"),
    (lambda data: shutil.rmtree(data), "is not a folder", "fail"),
], ids=["changed", "missing", "not listed", "no list", "bad list", "no folder"])
def test_each_damage_to_the_data_is_found(data, damage, words, status):
    damage(data)
    (found,) = doctor.check_data()
    assert found.status == status and words in found.message and found.advice, found


def test_checksums_command_verifies_and_writes(data):
    assert run_command(["checksums"]).exit_code == 0
    (data / "results/speed.json").write_bytes(b"[2]")
    assert run_command(["checksums"]).exit_code == 1
    assert run_command(["checksums", "--write"]).exit_code == 0
    assert run_command(["checksums"]).exit_code == 0


def test_shipped_data_is_as_recorded():
    assert files.checksum_problems(files.data_folder()) == []


def test_missing_data_folder_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("CCA_LAB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="CCA_LAB_DATA.*is not a folder; .*install"):
        files.data_folder()


def test_package_outside_a_clone_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("CCA_LAB_DATA", raising=False)
    monkeypatch.setattr(files, "__file__", str(tmp_path / "site-packages" / "cca_lab" / "files.py"))
    with pytest.raises(ValueError, match="pip install -e"):
        files.data_folder()
