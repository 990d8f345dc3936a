"""A submission in a process of its own: no network, no files, no other processes.

"bubblewrap" hides the whole file system but Python and its packages; "unshare" takes the network
and other processes away, but files can be read; "none" only clears the environment and limits time
and memory. Reports say which it was.
"""

import json
import os
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cca_lab.course import wire
from cca_lab.course.tasks import Answer, GraderError, Mistake, clean

HERE = Path(__file__).parent
KINDS = ("bubblewrap", "unshare", "none")
# Bytes of address space; importing torch takes 0.6 GiB of it, 3 where it has CUDA.
MEMORY = 4 * 2**30
SCRATCH = 256 * 2**20  # bytes of files
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
               "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1", "CCA_LAB_NATIVE": "0"}
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True)
class Limits:
    """What a submission may use."""

    seconds: float = 10.0  # of one call
    total: float = 180.0  # seconds of all calls
    memory: int = MEMORY  # bytes of address space
    processes: int = 256  # and threads

    def settings(self, kind: str) -> str:
        """Return the limits, and whom to become, as `child.py` takes them."""
        limits = {"AS": self.memory, "NPROC": self.processes, "FSIZE": 64 * 2**20, "NOFILE": 256,
                  "CORE": 0, "CPU": int(self.total) + 60}
        root = kind == "bubblewrap" and os.getuid() == 0
        user = 10**6 + secrets.randbelow(10**6) if root else None
        return json.dumps({"limits": limits, "user": user})


@cache
def best() -> str:
    """Return the strictest kind that works on this machine."""
    return next(kind for kind in KINDS if kind == "none" or works(kind))


def works(kind: str) -> bool:
    """Return True if a kind of sandbox starts here."""
    if shutil.which({"bubblewrap": "bwrap"}.get(kind, kind)) is None:
        return False
    try:
        return subprocess.run([*prefix(kind, HERE), sys.executable, "-I", "-S", "-c", ""],
                              timeout=20, check=False, capture_output=True,
                              cwd="/").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def command(kind: str, limits: Limits, scratch: Path) -> list[str]:
    """Return the command that starts the child, which may write in the empty folder `scratch`."""
    if kind not in KINDS:
        raise ValueError(f"sandbox: got {kind!r}, wanted one of {', '.join(KINDS)}")
    return [*prefix(kind, scratch), sys.executable, "-I", "-S", str(HERE / "child.py"),
            limits.settings(kind), *packages()]


def prefix(kind: str, scratch: Path) -> list[str]:
    """Return what stands before the interpreter."""
    if kind == "unshare":
        return ["unshare", "--user", "--map-root-user", "--net", "--ipc", "--pid", "--fork",
                "--kill-child", "--mount-proc"]
    if kind == "none":
        return []
    words = ["bwrap", *alone(), "--die-with-parent", "--new-session", "--proc", "/proc", "--dev",
             "/dev", "--tmpfs", "/tmp"]
    for name in SYSTEM:
        if (path := Path(name)).is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            words += ["--ro-bind", name, name]
    paths = [*readable(), str(HERE / "child.py"), str(HERE / "wire.py")]
    for folder in sorted({str(above) for path in paths for above in Path(path).parents} - {"/"}):
        words += ["--perms", "0755", "--dir", folder]
    for folder in readable():
        words += ["--ro-bind", folder, folder]
    for folder in packages():
        if (Path(folder) / "cca_lab").is_dir():
            words += ["--tmpfs", f"{folder}/cca_lab"]
    for name in ("child.py", "wire.py"):  # last: the package may lie in one of the folders above
        words += ["--ro-bind", str(HERE / name), str(HERE / name)]
    if scratch != HERE:  # a folder in memory over it
        words += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", str(scratch), "--chdir",
                  str(scratch)]
    return words


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


def packages() -> list[str]:
    """Return the folders of installed packages."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return [path for path in dict.fromkeys(folders) if Path(path).is_dir()]


# A submission in a process of its own, whose functions can be called from here.

STARTING = 60.0  # seconds for the interpreter and torch
STARTS = 40  # of the process; each answer may end it once


class Session:
    """The child, started when needed and again after it was stopped; use it in a `with` block.

    Its cells (name and source) are run first, in order; one that ends the process is left out then.
    """

    def __init__(self, cells: list[tuple[str, str]], limits: Limits,
                 sandbox: str | None = None) -> None:
        self.cells, self.limits, self.sandbox = list(cells), limits, sandbox or best()
        self.errors: dict[str, str] = {}  # what went wrong in a cell, by its name
        self.used = 0.0  # seconds of all calls
        self._stopped: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._scratch: Path | None = None
        self._starts = 0

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
        self._start()
        functions: list[Callable[..., Any]] = []

        def number(function: Callable[..., Any]) -> int:
            functions.append(function)
            return len(functions) - 1

        request = packed({"call": name, "args": list(args)},
                         f"the arguments of {name}, with what it returned before, cannot be sent",
                         number)
        try:
            reply = self._talk(request, self.limits.seconds, functions, number)
        except Ended as ended:
            self.stop()
            self._stopped[name] = f"{name} {ended}"
            raise Mistake(self._stopped[name]) from None
        except Mistake:
            self.stop()  # it waits for the answer to a callback
            raise
        return value_of(reply, name, self.errors)

    def _start(self) -> None:
        """Start the child and run the cells; leave out one that ends it."""
        while self._process is None:
            self._launch()
            for cell in list(self.cells):
                self._in_time()
                try:
                    request = packed({"name": cell[0], "source": cell[1]},
                                     "the cell cannot be sent")
                    reply = self._talk(request, self.limits.seconds)
                except Mistake as mistake:
                    self.errors[cell[0]] = str(mistake)
                    self.cells.remove(cell)
                    continue
                except Ended as ended:
                    self.errors[cell[0]] = f"the cell {ended}"
                    self.cells.remove(cell)
                    self.stop()
                    break
                if isinstance(reply, dict) and "raised" in reply:
                    self.errors[cell[0]] = f"the cell {raised(reply, 600)}"

    def _in_time(self) -> None:
        """Raise Mistake if the submission has used all its time or started too often."""
        if self.used > self.limits.total or self._starts > STARTS:
            self.stop()
            raise Mistake(f"the submission took more than {self.limits.total:g} seconds in all, or "
                          f"ended its process more than {STARTS} times")

    def forget(self) -> None:
        """Let the next call find a process without memory of the calls before."""
        self.stop()
        self._starts -= 1

    def _launch(self) -> None:
        self._starts += 1
        self._scratch = Path(tempfile.mkdtemp(prefix="cca-lab-"))
        self._link, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as said, theirs:
            self._process = subprocess.Popen(
                command(self.sandbox, self.limits, self._scratch), stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL, stderr=said, cwd=self._scratch, start_new_session=True,
                env=ENVIRONMENT | {"HOME": str(self._scratch), "TMPDIR": str(self._scratch)})
            theirs.close()
            try:
                self._talk(wire.pack({"name": "start", "source": ""}), STARTING)
            except Ended as ended:
                self.stop()
                said.seek(0)
                raise GraderError(f"the {self.sandbox} sandbox "
                                  f"{ended}\n{said.read().decode()[-2000:]}") from None

    def stop(self) -> None:
        """End the child and all that it started."""
        if self._process is not None:  # in a sandbox, its first process takes all others with it
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()
            self._process.wait()
        if self._link is not None:
            self._link.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._process = self._link = self._scratch = None

    def _talk(self, request: bytes, seconds: float,
              functions: list[Callable[..., Any]] | None = None,
              number: wire.Number | None = None) -> Any:
        """Send a request, answer callbacks, return the reply; after a Mistake the child waits."""
        begun = time.monotonic()
        if seconds != STARTING:
            seconds = min(seconds, max(1.0, self.limits.total - self.used))
        try:
            self._send(request, begun + seconds)
            while True:
                reply = self._receive(begun + seconds)
                if not (isinstance(reply, dict) and "callback" in reply):
                    return reply
                value = {"value": answered(reply, functions or [])}
                answer = packed(value, "a function that it was given returned what cannot be sent",
                                number)
                self._send(answer, begun + seconds)
        except TimeoutError:
            raise Ended(f"took longer than {seconds:g} seconds: does a loop never end, or run to a "
                        "number read from beside a tensor?") from None
        except (OSError, EOFError):
            raise Ended("ended the process: out of memory, an exit, or a crash?") from None
        except ValueError as error:
            raise Ended(f"sent what cannot be read ({error})") from None
        finally:
            self.used += time.monotonic() - begun

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._link is not None
        self._link.settimeout(max(0.01, deadline - time.monotonic()))
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
            if time.monotonic() > deadline:
                raise TimeoutError
            self._link.settimeout(max(0.01, deadline - time.monotonic()))
            chunk = self._link.recv(min(size - len(data), 2**20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


class Ended(Exception):
    """Why the child had to be stopped, or stopped itself."""


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
    except Mistake:
        raise
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
