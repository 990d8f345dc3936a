"""A submission in a process of its own: no network, no files, no other processes.

"bubblewrap" hides the whole file system but Python and its packages. In "none" a submission can
read and write all that the account can: it is for a student's own check, and no marks are given
there unless somebody asks for it. On Linux both refuse the system calls of `child.FORBIDDEN`.
Reports say which it was.
"""

import json
import os
import random
import secrets
import shutil
import signal
import site
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cca_lab.course import wire
from cca_lab.course.child import ARCHITECTURES
from cca_lab.course.tasks import Answer, GraderError, Mistake, clean

HERE = Path(__file__).parent
# Bytes of address space; importing torch takes 0.6 GiB of it, 3 where it has CUDA.
MEMORY = 4 * 2**30
SCRATCH = 256 * 2**20  # bytes of files in each of the folders in memory
FOLDERS = ("/tmp", "/dev/shm")  # the only ones that can be written to under bubblewrap
INODE = 1024  # bytes that the kernel keeps for a file, an empty one too
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
               "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1", "CCA_LAB_NATIVE": "0"}
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True)
class Limits:
    """What a submission may use."""

    seconds: float = 10.0  # of one call or cell
    total: float = 180.0  # seconds of all calls
    start: float = 60.0  # seconds of all cells, which are run whenever the process starts
    starts: float = 600.0  # seconds of all starts
    memory: int = MEMORY  # bytes of address space of each process
    together: int = MEMORY  # bytes that all processes use, and files in memory
    processes: int = 256  # and threads

    def settings(self, kind: str, imports: Collection[str]) -> str:
        """Return the limits, whom to become and what to import, as `child.py` takes them."""
        limits = {"AS": self.memory, "NPROC": self.processes, "FSIZE": 64 * 2**20, "NOFILE": 64,
                  "CORE": 0, "CPU": int(self.total + self.start) + 60}
        root = kind == "bubblewrap" and os.getuid() == 0
        user = 10**6 + secrets.randbelow(10**6) if root else None
        folders = FOLDERS if kind == "bubblewrap" else ()
        return json.dumps({"limits": limits, "user": user, "folders": folders,
                           "imports": list(imports)})


@cache
def best() -> str:
    """Return "bubblewrap" if it starts here, else "none"; GraderError if nobody can tell now."""
    if shutil.which("bwrap") is None or os.uname().machine not in ARCHITECTURES:
        return "none"
    try:
        tried = subprocess.run([*prefix(), sys.executable, "-I", "-S", "-c", ""], timeout=60,
                               check=False, capture_output=True, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:  # a weaker kind is no answer to that
        raise GraderError(f"the bubblewrap sandbox cannot be tried: {error}") from error
    return "none" if tried.returncode else "bubblewrap"


def required(unsafe: bool = False) -> str:
    """Return the kind of sandbox in which marks are given.

    Raises:
        ValueError: if there is no bubblewrap, unless `unsafe` accepts what that means.
    """
    if (kind := best()) != "bubblewrap" and not unsafe:
        raise ValueError(f"sandbox: got {kind}, wanted bubblewrap: without it a submission owns "
                         "this account, and can change the marks of others, read the secret inputs "
                         "and leave programs that run later; install bubblewrap (Linux), or accept "
                         "that with --unsafe")
    return kind


def command(kind: str, limits: Limits, imports: Collection[str]) -> list[str]:
    """Return the command that starts the child."""
    before = prefix() if kind == "bubblewrap" else []
    return [*before, sys.executable, "-I", "-S", str(HERE / "child.py"),
            limits.settings(kind, imports), *packages()]


def prefix() -> list[str]:
    """Return what stands before the interpreter in bubblewrap."""
    words = ["bwrap", *alone(), "--die-with-parent", "--new-session", "--proc", "/proc", "--dev",
             "/dev"]
    for folder in FOLDERS:
        words += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", folder]
    for name in SYSTEM:
        if Path(name).is_symlink():
            words += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).exists():
            words += ["--ro-bind", name, name]
    children = [str(HERE / "child.py"), str(HERE / "wire.py")]
    empty = [f"{folder}/cca_lab" for folder in packages() if (Path(folder) / "cca_lab").is_dir()]
    above = {str(up) for path in [*readable(), *children] for up in Path(path).parents}
    for folder in sorted(above - {"/", *FOLDERS}):
        words += ["--perms", "0755", "--dir", folder]
    for path in readable():
        words += ["--ro-bind", path, path]
    for path in empty:
        words += ["--tmpfs", path]
    for path in children:  # late: the package may lie in one of the folders above
        words += ["--ro-bind", path, path]
    for path in [*empty, "/dev", "/"]:  # last: now all is there
        words += ["--remount-ro", path]
    return [*words, "--chdir", FOLDERS[0]]


def alone() -> list[str]:
    """Return what takes other processes, the network and all rights away.

    The kernel does not limit the processes of the administrator, not even in a user namespace:
    started by one, the child keeps the right to become a user that nobody is, and does so first of
    all.
    """
    if os.name == "posix" and os.getuid() == 0:
        return ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
                "--unshare-cgroup-try", "--cap-drop", "ALL", "--cap-add", "CAP_SETUID",
                "--cap-add", "CAP_SETGID"]
    return ["--unshare-all", "--cap-drop", "ALL"]


def readable() -> list[str]:
    """Return the folders of the interpreter and its packages that lie outside the system's."""
    executable = Path(sys.executable)
    folders = {sys.base_prefix, sys.base_exec_prefix, str(executable.parent),
             str(executable.resolve().parent), sysconfig.get_path("stdlib"), *packages()}
    return sorted(path for path in folders
                  if not any(Path(path).is_relative_to(top) for top in SYSTEM))


def visible(path: Path) -> bool:
    """Return True for a path below a folder of the system or of Python: submissions can read it."""
    path = path.resolve()
    masked = any(path.is_relative_to(Path(folder, "cca_lab")) for folder in packages())
    return not masked and any(path.is_relative_to(top) for top in (*SYSTEM, *readable()))


def packages() -> list[str]:
    """Return the folders of installed packages."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return [path for path in dict.fromkeys(folders) if Path(path).is_dir()]


# A submission in a process of its own, whose functions can be called from here.

STARTING = 60.0  # seconds for the interpreter and torch
STARTS = 40  # of the process; each answer may end it once
IMPORTS = ("numpy", "scipy.stats", "triton.language")  # that take long: before the process forks
QUICK = 0.2  # seconds of all cells


class Session:
    """The child, started when needed and again after it was stopped; use it in a `with` block.

    Its cells (name and source) are run first, in order; one that ends the process is left out then.
    If it is `forgetful`, a call finds a process without memory of those before: each call where the
    cells take less than `QUICK` seconds, else some, and nobody knows which.
    """

    def __init__(self, cells: list[tuple[str, str]], limits: Limits,
                 sandbox: str | None = None) -> None:
        self.cells, self.limits, self.sandbox = list(cells), limits, sandbox or best()
        self.errors: dict[str, str] = {}  # what went wrong in a cell, by its name
        self.cell_seconds: dict[str, float] = {}  # of each cell, at the last start
        self.used = self.started = self._waited = 0.0  # seconds: all calls, all starts, for a core
        self._stopped: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None  # to the process that forks
        self._link: socket.socket | None = None  # to the fork that has run the cells
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._starts = self._largest = self._killings = 0
        self.forgetful, self._forked = False, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def answer(self, name: str) -> Answer:
        """Return a function of the submission as a check calls it, with the session's `forget`."""
        def function(*args: Any) -> Any:
            return self.call(name, args)

        function.forget = self.forget  # type: ignore[attr-defined]
        return function

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Call a function of the submission; whatever goes wrong in it is a Mistake."""
        if name in self._stopped:
            raise Mistake(self._stopped[name])
        self._in_time()
        if (self.forgetful and self.started < self.limits.starts / 2
                and random.random() * sum(self.cell_seconds.values()) < QUICK):
            self.forget()
        self._start()
        functions: list[Callable[..., Any]] = []

        def number(function: Callable[..., Any]) -> int:
            functions.append(function)
            return len(functions) - 1

        request = packed({"call": name, "args": list(args)},
                         f"the arguments of {name}, with what it returned before, cannot be sent",
                         number)
        begun = self._now()
        seconds = min(self.limits.seconds, max(1.0, self.limits.total - self.used))
        try:
            reply = self._talk(request, seconds, functions, number)
        except Ended as ended:
            self.stop()
            self._stopped[name] = f"{name} {ended}"
            raise Mistake(self._stopped[name]) from None
        except Mistake:
            self.stop()  # it waits for the answer to a callback
            raise
        finally:
            self.used += self._now() - begun
        return value_of(reply, name, self.errors)

    def _start(self) -> None:
        """Start the child and run the cells; leave out one that ends it or takes too long."""
        while self._link is None:
            self._in_time()
            begun = self._now()
            if self._process is None:
                self._launch()
            if self._fork():
                self.cell_seconds = {}
                for cell in list(self.cells):
                    self._run(*cell)
                    if self._link is None:
                        break
            self.started += self._now() - begun

    def _fork(self) -> bool:
        """Let the child fork; without an answer it is stopped, and False is returned.

        Before the first fork no submission has run: what goes wrong there is a GraderError.
        """
        assert self._control is not None
        self._link, theirs = socket.socketpair()
        with theirs, suppress(OSError):
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            if self._control.recv(1):
                self._forked = True
                return True
        self.stop()
        if not self._forked:
            raise GraderError(f"the {self.sandbox} sandbox cannot fork")
        return False

    def _run(self, name: str, source: str) -> None:
        begun = self._now()
        try:
            request = packed({"name": name, "source": source}, "the cell cannot be sent")
            reply = self._talk(request, self.limits.seconds)
        except Mistake as mistake:
            return self._leave_out(name, str(mistake))
        except Ended as ended:
            self.stop()
            return self._leave_out(name, f"the cell {ended}")
        if isinstance(reply, dict) and "raised" in reply:
            self.errors[name] = f"the cell {raised(reply, 600)}"
        self.cell_seconds[name] = self._now() - begun
        if sum(self.cell_seconds.values()) > self.limits.start:
            self.stop()
            self._leave_out(max(self.cell_seconds, key=self.cell_seconds.__getitem__),
                            f"the cell was left out: {self.cell_times()}")
        return None

    def _leave_out(self, name: str, why: str) -> None:
        self.cells = [cell for cell in self.cells if cell[0] != name]
        self.errors[name] = why

    def cell_times(self) -> str:
        """Say how long the cells took at the last start, and how long they may take."""
        slow = sorted(self.cell_seconds.items(), key=lambda entry: -entry[1])[:5]
        return (f"the cells took {sum(self.cell_seconds.values()):.1f} seconds at one start, where "
                f"grading allows {self.limits.start:g} ("
                + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slow) + ")")

    def _in_time(self) -> None:
        """Raise Mistake if the submission has used all its time or started too often."""
        if self.used > self.limits.total or self._starts > STARTS:
            self.stop()
            raise Mistake(f"the submission took more than {self.limits.total:g} seconds in all, or "
                          f"ended its process more than {STARTS} times")
        if self._link is None and self.started > self.limits.starts:
            raise Mistake(f"{self._starts} starts of the submission took more than "
                          f"{self.limits.starts:g} seconds: {self.cell_times()}")

    def forget(self) -> None:
        """Let the next call find a process without memory of the calls before."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _launch(self) -> None:
        """Start the child; what goes wrong is a GraderError: no submission has run yet."""
        self._starts += 1
        self._forked = False
        try:
            self._scratch = tempfile.TemporaryDirectory(prefix="cca-lab-",
                                                        ignore_cleanup_errors=True)
            home = FOLDERS[0] if self.sandbox == "bubblewrap" else self._scratch.name
            imports = [name for name in IMPORTS
                       if any(name.partition(".")[0] in source for _, source in self.cells)]
            self._control, theirs = socket.socketpair()
            self._control.settimeout(STARTING)
            with theirs, tempfile.TemporaryFile() as said:
                self._process = subprocess.Popen(
                    command(self.sandbox, self.limits, imports), stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL, stderr=said, cwd=self._scratch.name,
                    start_new_session=True, env=ENVIRONMENT | {"HOME": home, "TMPDIR": home})
                theirs.close()
                ready = b""
                with suppress(OSError):
                    ready = self._control.recv(1)
                if not ready:
                    said.seek(0)
                    raise GraderError(f"the {self.sandbox} sandbox did not start\n"
                                      f"{said.read().decode(errors='replace')[-2000:]}")
            self._largest, self._killings = 0, killings()
            threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        except BaseException as error:
            self.stop()
            if isinstance(error, (OSError, MemoryError, RuntimeError)):  # the last, of the thread
                raise GraderError(f"the {self.sandbox} sandbox cannot be started: "
                                  f"{type(error).__name__}: {error}") from error
            raise

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Stop the clock while the child waits for a core; end it if it uses too much memory.

        The clock goes at a quarter of its speed at least, for the child may itself keep cores busy.
        """
        folders = FOLDERS if self.sandbox == "bubblewrap" else ()
        before, delays = time.monotonic(), dict[int, float]()
        while process.poll() is None:
            tree = processes(process.pid)
            self._largest = max(self._largest, memory_of(tree, folders))
            if self._largest > self.limits.together:
                end(process)
            now, delayed = time.monotonic(), {each: waiting(each) for each in tree}
            waited = max(delayed[each] - delays.get(each, delayed[each]) for each in tree)
            self._waited += min(max(waited, 0.0), 0.75 * (now - before))
            before, delays = now, delayed
            time.sleep(0.2)

    def _now(self) -> float:
        """Return the time on a clock that stands while the child waits for a core."""
        return time.monotonic() - self._waited

    def stop(self) -> None:
        """End the child and all that it started."""
        process, scratch, links = self._process, self._scratch, (self._link, self._control)
        self._process = self._scratch = self._link = self._control = None
        if process is not None:  # in a sandbox, its first process takes all others with it
            end(process)
            process.wait()
        for link in links:
            if link is not None:
                link.close()
        if scratch is not None:
            scratch.cleanup()

    def _talk(self, request: bytes, seconds: float,
              functions: list[Callable[..., Any]] | None = None,
              number: wire.Number | None = None) -> Any:
        """Send a request, answer callbacks, return the reply; after a Mistake the child waits."""
        deadline = self._now() + seconds
        try:
            self._send(request, deadline)
            while True:
                reply = self._receive(deadline)
                if not (isinstance(reply, dict) and "callback" in reply):
                    return reply
                value = {"value": answered(reply, functions or [])}
                answer = packed(value, "a function that it was given returned what cannot be sent",
                                number)
                self._send(answer, deadline)
        except TimeoutError:
            raise Ended(f"took longer than {seconds:g} seconds: does a loop never end, or run to a "
                        "number read from beside a tensor?") from None
        except (BrokenPipeError, ConnectionResetError, EOFError):
            if self._largest > self.limits.together:
                raise Ended(f"used more than {self.limits.together / 2**30:g} GiB of memory in all "
                            "its processes and files") from None
            if killings() > self._killings and self._largest < self.limits.together // 4:
                raise GraderError("this machine ran out of memory, though not by this submission: "
                                  "grade fewer at a time") from None
            raise Ended("ended the process: out of memory, an exit, or a crash?") from None
        except OSError as error:  # the link is whole, and something of ours is not
            raise GraderError(f"the link to the {self.sandbox} sandbox: {error}") from error
        except ValueError as error:
            raise Ended(f"sent what cannot be read ({error})") from None

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._link is not None
        self._link.settimeout(max(0.01, 4 * (deadline - self._now())))  # the slowest clock
        self._link.sendall(struct.pack(">Q", len(data)) + data)

    def _receive(self, deadline: float) -> Any:
        size = struct.unpack(">Q", self._read(8, deadline))[0]
        if size > wire.LIMIT:
            raise ValueError(f"{size} bytes")
        return wire.unpack(self._read(size, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._link is not None
        data = bytearray()
        while len(data) < size:
            if self._now() > deadline:
                raise TimeoutError
            self._link.settimeout(max(0.01, deadline - self._now()))
            try:
                chunk = self._link.recv(min(size - len(data), 2**20))
            except TimeoutError:  # the clock may have stood
                continue
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


class Ended(Exception):
    """Why the child had to be stopped, or stopped itself."""


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except PermissionError:
            process.kill()


def processes(leader: int) -> dict[int, int]:
    """Return the pages of memory of a process and of all that it started, the leader first."""
    parents, pages, tree = {}, {}, [leader]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            fields = path.read_bytes().rpartition(b")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            pages[int(path.parent.name)] = int(fields[21])
    for process in tree:
        tree += [child for child, parent in parents.items() if parent == process]
    return {process: pages.get(process, 0) for process in tree}


def memory_of(tree: dict[int, int], folders: tuple[str, ...]) -> int:
    """Return the bytes that the processes of `processes`, and files in their folders, use."""
    total = sum(tree.values()) * os.sysconf("SC_PAGESIZE")
    for folder in folders if len(tree) > 1 else ():
        with suppress(OSError):
            about = os.statvfs(f"/proc/{list(tree)[1]}/root{folder}")
            total += about.f_frsize * (about.f_blocks - about.f_bfree)
            total += INODE * (about.f_files - about.f_ffree)
    return total


def waiting(process: int) -> float:
    """Return the seconds that a process was ready to run and had no core, as far as Linux says."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def killings() -> int:
    """Return how many processes the kernel has killed for lack of memory."""
    with suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def packed(message: dict[str, Any], wrong: str, number: wire.Number | None = None) -> bytes:
    """Return a message as bytes; raise Mistake, beginning with `wrong`, if it cannot be sent."""
    try:
        return wire.pack(message, number=number)
    except (TypeError, ValueError) as error:
        raise Mistake(f"{wrong}: {error}") from None


def answered(reply: dict[str, Any], functions: list[Callable[..., Any]]) -> Any:
    """Return what a callback of the check returns for the values that the submission gave it."""
    number, args = reply["callback"], reply.get("args")
    if not (isinstance(number, int) and 0 <= number < len(functions) and isinstance(args, list)):
        raise ValueError("a call of no function")
    try:
        return functions[number](*args)
    except (Mistake, GraderError):
        raise
    except (OSError, MemoryError) as error:  # that function reads no files of the submission
        raise GraderError(f"a function of the check: {type(error).__name__}: {error}") from error
    except Exception as error:  # values that the function of the check does not take
        raise Mistake(f"a function that it was given raised {type(error).__name__}: "
                      f"{clean(str(error), 200)}") from None


def value_of(reply: Any, name: str, errors: dict[str, str]) -> Any:
    """Return the value of a reply, or raise what it says."""
    if not isinstance(reply, dict):
        raise Mistake(f"{name} sent what cannot be read")
    if "missing" in reply:
        because = clean("; ".join(f"{cell}: {text}" for cell, text in errors.items()))
        more = f" ({because})" if because else ": was the cell deleted, or the function renamed?"
        raise Mistake(f"there is no function {name}{more}")
    if reply.get("raised") == "NotImplementedError":
        raise NotImplementedError(name)
    if "raised" in reply:
        raise Mistake(f"{name} {raised(reply, 300)}")
    return reply.get("value")


def raised(reply: dict[str, Any], most: int) -> str:
    """Return which exception a reply tells of, with at most so many letters of its text."""
    return f"raised {clean(reply['raised'], 60)}: {clean(reply.get('text'), most)}"
