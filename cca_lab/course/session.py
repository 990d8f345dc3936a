"""A submission in a process of its own, whose functions can be called from here."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cca_lab.course import wire
from cca_lab.course.sandbox import ENVIRONMENT, Limits, best, command
from cca_lab.course.tasks import Answer, GraderError, Mistake, clean

STARTING = 60.0  # seconds for the interpreter and torch
STARTS = 40  # of the process; each answer may end it once


class Session:
    """The child, started when needed and again after it was stopped; use it in a `with` block.

    Attributes:
        cells: name and source of what is run first, in order; one that ends the process is left out afterwards.
        errors: what went wrong in a cell, by its name.
        used: seconds of all calls.
    """

    def __init__(self, cells: list[tuple[str, str]], limits: Limits, sandbox: str | None = None) -> None:
        """Prepare a session; arguments as for `command`, with the best sandbox by default."""
        self.cells = list(cells)
        self.limits = limits
        self.sandbox = sandbox or best()
        self.errors: dict[str, str] = {}
        self.used = 0.0
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
        """Return a function of the submission, as a check calls it; `forget` is that of the session."""
        def function(*args: Any) -> Any:
            return self.call(name, args)

        function.forget = self.forget  # type: ignore[attr-defined]
        return function

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Call a function of the submission.

        Raises:
            Mistake: if it raises, takes too long, ends the process or returns what cannot be sent.
            NotImplementedError: if it is not written yet.
        """
        if name in self._stopped:
            raise Mistake(self._stopped[name])
        self._in_time()
        self._start()
        functions: list[Callable[..., Any]] = []

        def number(function: Callable[..., Any]) -> int:
            functions.append(function)
            return len(functions) - 1

        request = packed({"call": name, "args": list(args)},
                         f"the arguments of {name}, with what it returned before, cannot be sent", number)
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
                    request = packed({"name": cell[0], "source": cell[1]}, "the cell cannot be sent")
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
                    self.errors[cell[0]] = f"the cell raised {clean(reply['raised'], 60)}: {clean(reply.get('text'))}"

    def _in_time(self) -> None:
        """Raise Mistake if the submission has used all its time, or its process was started too often."""
        if self.used > self.limits.total or self._starts > STARTS:
            self.stop()
            raise Mistake(f"the submission took more than {self.limits.total:g} seconds in all, or ended its process "
                          f"more than {STARTS} times")

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
                command(self.sandbox, self.limits, self._scratch), stdin=theirs, stdout=subprocess.DEVNULL,
                stderr=said, cwd=self._scratch, start_new_session=True,
                env=ENVIRONMENT | {"HOME": str(self._scratch), "TMPDIR": str(self._scratch)})
            theirs.close()
            try:
                self._talk(wire.pack({"name": "start", "source": ""}), STARTING)
            except Ended as ended:
                self.stop()
                said.seek(0)
                raise GraderError(f"the {self.sandbox} sandbox {ended}\n{said.read().decode()[-2000:]}") from None

    def stop(self) -> None:
        """End the child and all that it started."""
        if self._process is not None:
            kill(self._process)
        if self._link is not None:
            self._link.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._process = self._link = self._scratch = None

    def _talk(self, request: bytes, seconds: float, functions: list[Callable[..., Any]] | None = None,
              number: wire.Number | None = None) -> Any:
        """Send a request and return the reply; answer callbacks meanwhile. After a Mistake, the child waits for one."""
        begun = time.monotonic()
        seconds = min(seconds, max(1.0, self.limits.total - self.used)) if seconds != STARTING else seconds
        try:
            self._send(request, begun + seconds)
            while True:
                reply = self._receive(begun + seconds)
                if not (isinstance(reply, dict) and "callback" in reply):
                    return reply
                value = {"value": answered(reply, functions or [])}
                answer = packed(value, "a function that it was given returned what cannot be sent", number)
                self._send(answer, begun + seconds)
        except TimeoutError:
            raise Ended(f"took longer than {seconds:g} seconds: does a loop never end, or run to a number read from "
                        "beside a tensor?") from None
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
        parts, left = [], size
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError
            self._link.settimeout(max(0.01, deadline - time.monotonic()))
            part = self._link.recv(min(left, 2**20))
            if not part:
                raise EOFError
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class Ended(Exception):
    """Why the child had to be stopped, or stopped itself."""


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group; inside a sandbox, its first process takes all others with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def packed(message: dict[str, Any], wrong: str, number: wire.Number | None = None) -> bytes:
    """Return a message as bytes; a Mistake that begins with `wrong` if it is too large, or holds what none can hold."""
    try:
        return wire.pack(message, number=number)
    except (TypeError, ValueError) as error:
        raise Mistake(f"{wrong}: {error}") from None


def answered(reply: dict[str, Any], functions: list[Callable[..., Any]]) -> Any:
    """Return what a callback of the check returns for the values that the submission gave it."""
    number, args = reply["callback"], reply.get("args")
    if not isinstance(number, int) or not 0 <= number < len(functions) or not isinstance(args, list):
        raise ValueError("a call of no function")
    try:
        return functions[number](*args)
    except Mistake:
        raise
    except Exception as error:  # values that the function of the check does not take
        raise Mistake(f"a function that it was given raised {type(error).__name__}: {clean(str(error), 200)}") from None


def value_of(reply: Any, name: str, errors: dict[str, str]) -> Any:
    """Return the value of a reply, or raise what it says."""
    if not isinstance(reply, dict):
        raise Mistake(f"{name} sent what cannot be read")
    if "missing" in reply:
        because = clean("; ".join(f"{cell}: {text}" for cell, text in errors.items()))
        raise Mistake(f"there is no function {name}" + (f" ({because})" if because else (
            ": was the cell deleted, or the function renamed?")))
    if reply.get("raised") == "NotImplementedError":
        raise NotImplementedError(name)
    if "raised" in reply:
        raise Mistake(f"{name} raised {clean(reply['raised'], 60)}: {clean(reply.get('text'), 300)}")
    return reply.get("value")
