"""Submissions that want to stop the class, or to carry something out: each is refused."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

from cca_lab.course import child, grading, sandbox, tasks
from cca_lab.course.sandbox import Limits, Session
from cca_lab.course.tasks import GraderError, Mistake

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such files")
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def test_a_message_that_cannot_be_written_is_short_and_plain():
    """Surrogates, codes of a terminal and a million letters, in a cell and in an answer."""
    odd = 'raise ValueError("\\ud800 \\x1b[31m" + 10**6 * "A")'
    with Session([("cell", f"def answer():\n    {odd}\n"), ("odd", odd)], Limits()) as session:
        with pytest.raises(Mistake) as raised:
            session.call("answer", ())
        for text in (str(raised.value), session.errors["odd"]):
            assert len(text) < 1000 and text.isprintable() and text.encode()


@posix
def test_files_that_cannot_be_read_stop_nobody(tmp_path):
    """A name in no encoding, 300 folders deep, a terabyte, a pipe, a link to everything."""
    work = tmp_path / "alice" / "a5_cca"
    work.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(work) + b"/\xff.txt")).touch()
    (work / Path(*"d" * 300)).mkdir(parents=True)
    with (work / "large").open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(work / "pipe")
    (tmp_path / "link").symlink_to("/")
    begun = time.monotonic()
    before = grading.digest(work)
    assert grading.digest(work) == before != grading.digest(tmp_path / "link")
    assert time.monotonic() - begun < 5
    (work / "x").write_text("changed")
    assert grading.digest(work) != before


def test_what_cannot_be_sent_is_a_mistake_and_leaves_nobody_waiting():
    """Were it not, the child would take the next call for the answer to its callback."""
    source = "def ask(f):\n    return f()\ndef twice(x):\n    return 2 * x\n"
    large = torch.zeros(2**20 + 1, dtype=torch.uint8)
    with Session([("text", f"x = {3 * 2**20 * 'x'!r}"), ("cell", source)],
                 Limits(seconds=20, total=90)) as session:
        for value, why in ((large, "1048576 numbers in tensors"), (10**5000, "4300 digits")):
            with pytest.raises(Mistake, match=f"given returned what cannot be sent: .*{why}"):
                session.call("ask", (lambda value=value: value,))
            assert session.call("twice", (2,)) == 4
        with pytest.raises(Mistake, match="the arguments of twice, with what it returned before, "
                                          "cannot be sent: more"):
            session.call("twice", (large,))
        assert session.call("twice", (2,)) == 4
        assert session.errors == {"text": "the cell cannot be sent: more than 2 MiB of text, or "
                                          "1048576 numbers in tensors"}


def broken(error):
    def call(*args, **options):
        raise error

    return call


FULL, NO_ROOM = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EAGAIN, "fork")


@posix
@pytest.mark.parametrize(("module", "name", "error"), [
    (tempfile, "TemporaryDirectory", FULL), (subprocess, "Popen", MemoryError()),
    (threading.Thread, "start", RuntimeError("can't start new thread"))],
    ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_sandbox_that_cannot_start_is_nobody_s_mistake(module, name, error, tmp_path,
                                                         monkeypatch):
    """The mutants that let the error through, or do not clean up, give 0 and leave folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, name, broken(error))
    with Session([], Limits(), "none") as session:
        with pytest.raises(GraderError, match="cannot be started"):
            session.call("answer", ())
        assert session._process is None and not list(tmp_path.iterdir())


@posix
@pytest.mark.parametrize(("program", "why"), [
    ("raise SystemExit('no rights')", "did not start\nno rights"),
    ("import socket; socket.socket(fileno=0).send(b'+')", "cannot fork")])
def test_a_process_that_ends_before_any_cell_is_nobody_s_mistake(program, why, monkeypatch):
    """The mutant that starts it again takes forty failures of ours for those of a submission."""
    monkeypatch.setattr(sandbox, "command", lambda *args: [sys.executable, "-c", program])
    with Session([], Limits(), "none") as session, pytest.raises(GraderError, match=why):
        session.call("answer", ())


@posix
def test_a_sandbox_that_cannot_be_tried_is_not_replaced_by_a_weaker_one(monkeypatch):
    """The mutant that takes the failure for "does not work" grades without a sandbox."""
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", broken(NO_ROOM))
    with pytest.raises(GraderError, match="cannot be tried: .*fork"):
        sandbox.best.__wrapped__()


@pytest.mark.parametrize(("error", "wanted", "killings", "largest"), [
    (BrokenPipeError(), sandbox.Ended, 0, 0), (EOFError(), sandbox.Ended, 0, 0),
    (EOFError(), GraderError, 1, 0), (EOFError(), sandbox.Ended, 1, sandbox.MEMORY // 2),
    (OSError(errno.ENOBUFS, "No buffer space available"), GraderError, 0, 0), (FULL, GraderError,
                                                                              0, 0)], ids=str)
def test_a_link_that_the_child_broke_is_told_from_one_that_we_broke(error, wanted, killings,
                                                                    largest, monkeypatch):
    """The mutants: any OSError is the child's; the kernel's killing of a small one is its own."""
    session = Session([], Limits(), "none")
    session._largest = largest
    monkeypatch.setattr(sandbox, "killings", lambda: killings)
    monkeypatch.setattr(session, "_send", broken(error))
    with pytest.raises(wanted):
        session._talk(b"", 1.0)


def test_errors_of_this_machine_in_a_check_are_no_mistakes():
    """The mutant that catches any exception of a check gives 0 for a full disk of ours."""
    def check(answer, draw):
        answer()

    def marks(answer, files=False):
        task = tasks.CourseTask("a5.2", "f", "F", 1, 1, (tasks.Property("p", 1, check),), 0,
                                files)
        return list(tasks.marks_of(task, answer))

    answer = Session([], Limits(), "none").answer("f")
    for error in (FULL, MemoryError(), FileNotFoundError(errno.ENOENT, "our own data")):
        function = broken(error)
        assert marks(function)[0].error is error  # in a cell, the answer's own
        function.forget = answer.forget
        with pytest.raises(GraderError, match=type(error).__name__):
            marks(function)
    with pytest.raises(GraderError):
        marks(broken(FULL), files=True)
    assert marks(broken(IsADirectoryError(errno.EISDIR, "model")), files=True)[0].earned == 0
    reply = {"callback": 0, "args": []}
    with pytest.raises(GraderError):
        sandbox.answered(reply, [broken(FULL)])
    with pytest.raises(Mistake):
        sandbox.answered(reply, [broken(ValueError())])


MARK = f"{10**6 + os.getpid()}.25"  # seconds that a process sleeps, by which it is known
CHANNELS = f'''
import ctypes, dataclasses, errno, mmap, os, pickle, socket, subprocess, sys
from pathlib import Path
libc, FORBIDDEN = ctypes.CDLL(None, use_errno=True), {child.FORBIDDEN!r}
ARM = os.uname().machine == "aarch64"
PLACES = ["/", "/dev", "/dev/shm", "/tmp", "/var/tmp", "/run", str(Path.cwd()), os.environ["HOME"],
          *sys.path, *(path + "/cca_lab" for path in sys.path)]
display("a notebook has this function")

@dataclasses.dataclass
class Pair:
    left: int

def pickled(): return pickle.loads(pickle.dumps(Pair(3))).left

def number(*args):
    ctypes.set_errno(0)
    libc.syscall(*map(ctypes.c_long, args))
    return errno.errorcode.get(ctypes.get_errno(), "")

def refused():
    return {{name: number(numbers[ARM], -1, -1, -1, -1, -1) for name, numbers in FORBIDDEN.items()
            if numbers[ARM] >= 0}}

def more():
    told = {{"clone": number((56, 220)[ARM], 0x10000000 | 17, 0, 0, 0, 0),
            "clone3": number(435, 0, 0), "x32": number(0x40000000 + 39)}}
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_VSOCK):
        try:
            socket.socket(family, socket.SOCK_STREAM).close()
        except OSError as error:
            told[family.name] = errno.errorcode[error.errno]
    return told

def foreign():  # mov eax, 20; int 0x80; ret: getpid of a program of 32 bits
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return function()

def mounts():
    told = {{}}
    for line in open("/proc/self/mounts"):
        _, place, kind, options = line.split()[:4]
        if kind == "tmpfs" and "ro" not in options.split(","):
            about = os.statvfs(place)
            told[place] = about.f_blocks * about.f_frsize
    return told

def empty_files():
    for number in range(2000):
        Path(f"/tmp/{{number}}").touch()

def leave():
    global KEPT
    for place in PLACES:
        try:
            Path(place, "cca-lab-left").write_text("left")
        except OSError:
            pass
    KEPT = socket.socket(socket.AF_UNIX)
    KEPT.bind("\\0cca-lab-left")
    KEPT.listen()
    if os.fork() == 0:
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "{MARK}"])
        os._exit(0)
    os.wait()
    import time; time.sleep(0.5)
    try:
        os.utime("/dev/null")
        return "the time of /dev/null was changed"
    except OSError:
        return ""

def find():
    found = []
    try:
        socket.socket(socket.AF_UNIX).connect("\\0cca-lab-left")
        found.append("a socket")
    except OSError:
        pass
    found += sorted({{place for place in PLACES if Path(place, "cca-lab-left").exists()}})
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if b"{MARK}" in path.read_bytes():
            found.append("a process")
    return found
'''


def processes_left() -> int:
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += MARK.encode() in path.read_bytes()
        except OSError:  # it ended
            continue
    return count


@strict
def test_nothing_passes_from_one_submission_to_another():
    """Each way, with a control: what is left is found by who left it, and by nobody else.

    Mutants: no filter (keys, System V memory and queues, networks and sockets of virtual machines,
    /dev/null's time), a folder of ours that can be written to, no namespace for sockets or
    processes.
    """
    with Session([("cell", CHANNELS)], Limits(seconds=60)) as first, \
            Session([("cell", CHANNELS)], Limits(seconds=60)) as second:
        assert first.call("pickled", ()) == 3 and first.errors == {}
        assert first.call("leave", ()) == ""
        assert first.call("find", ()) == ["a socket", "/dev/shm", "/tmp", "a process"]
        assert second.call("find", ()) == []
        assert {name: error for name, error in second.call("refused", ()).items()
                if error != "EPERM"} == {}
        assert second.call("more", ()) == {
            "clone": "EPERM", "clone3": "ENOSYS", "x32": "ENOSYS",
            **dict.fromkeys(("AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK"), "EAFNOSUPPORT")}
        assert second.call("mounts", ()) == dict.fromkeys(sandbox.FOLDERS, sandbox.SCRATCH)
        second.call("empty_files", ())
        with_files, without = (sandbox.memory_of(sandbox.processes(second._process.pid), folders)
                               for folders in (sandbox.FOLDERS, ()))
        assert with_files - without > 1500 * sandbox.INODE, "files without bytes are not counted"
        if os.uname().machine == "x86_64":
            try:  # the kernel may know no programs of 32 bits
                assert second.call("foreign", ()) == -errno.ENOSYS
            except Mistake as mistake:
                assert "ended the process" in str(mistake)
        assert processes_left() == 1
    for _ in range(600):  # the kernel ends them one after the other
        time.sleep(0.1 * bool(processes_left()))
    assert processes_left() == 0


@pytest.mark.nightly
@strict
def test_the_memory_of_a_submission_is_limited_as_a_whole():
    """Five processes of 200 MiB, below each one's limit.

    The mutant without the watch waits until the call's time is over.
    """
    source = '''
import os, time
def hoard():
    for _ in range(5):
        if os.fork() == 0:
            kept = bytearray(200 * 2**20)
            time.sleep(100)
    time.sleep(100)
def good():
    return 1
'''
    with Session([("cell", source)], Limits(seconds=50, together=900 * 2**20)) as session:
        with pytest.raises(Mistake, match="hoard used more than 0.87.* GiB of memory in all"):
            session.call("hoard", ())
        assert session.call("good", ()) == 1


@pytest.mark.nightly
def test_slow_cells_cost_no_time_of_the_calls_and_are_named():
    """The mutant that takes cells from the calls' time has none left for the third call."""
    slow = [(f"slow-{number}", f"import time\ntime.sleep({seconds})\n")
            for number, seconds in enumerate((0.8, 1.0, 0.9))]
    good = ("good", "def good():\n    return 1\n")
    with Session([*slow, good], Limits(seconds=2, total=1.0, start=2.0, starts=60)) as session:
        for _ in range(3):
            assert session.call("good", ()) == 1
            session.forget()
        assert list(session.errors) == ["slow-1"]
        assert "at one start, where grading allows 2 (slow-1 1." in session.errors["slow-1"]
        assert set(session.cell_seconds) == {"slow-0", "slow-2", "good"} and session.used < 0.5
        session.limits = Limits(starts=1)
        with pytest.raises(Mistake, match="starts .* took more than 1 seconds: the cells took 1"):
            session.call("good", ())


def test_what_a_folder_held_at_the_start_stays(tmp_path):
    """A clone may lie below /tmp, which is emptied before each fork."""
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "module.py").touch()
    kept = set(child.below(tmp_path))
    (tmp_path / "clone" / "left").touch()
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "clone")
    child.empty(tmp_path, kept)
    assert set(child.below(tmp_path)) == kept
