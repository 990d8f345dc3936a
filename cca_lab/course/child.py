"""Run the cells of a submission and answer calls, in a process that nobody trusts.

Started as a script, `python -I -S child.py SETTINGS PATH...`, with a socket as standard input. It
imports nothing of `cca_lab`; the submission finds only the names `check` and `points`, which do
nothing. Whatever code does in here, it can only send bytes: the other side compares.
"""

import contextlib
import importlib.abc
import json
import linecache
import os
import socket
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE = "cca_lab"


class Hidden(importlib.abc.MetaPathFinder):
    """Say why the package cannot be imported, wherever it is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse every module of the package."""
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"{name}: the package is not there when marks are given",
                                      name=name)


def hide_package() -> None:
    """Put two names that do nothing in place of the package."""
    package, course = types.ModuleType(PACKAGE), types.ModuleType(f"{PACKAGE}.course")
    package.__path__ = []  # type: ignore[attr-defined]
    course.check = course.points = lambda *args: None  # type: ignore[attr-defined]
    package.course = course  # type: ignore[attr-defined]
    sys.modules |= {PACKAGE: package, course.__name__: course}
    sys.meta_path.insert(0, Hidden())


def limit(limits: dict[str, int], user: int | None) -> None:
    """Become another user, if given, and set limits such as {"AS": bytes} of module `resource`."""
    import resource

    with contextlib.suppress(OSError):  # if memory runs out, the kernel ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is not None:
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            try:
                resource.setrlimit(which, (value, value))
            except (OSError, ValueError):  # macOS does not let all be set
                continue


def serve(link: socket.socket) -> None:
    """Answer one request after the other until the link ends."""
    from wire import pack, unpack  # type: ignore[import-not-found]  # beside it in the sandbox

    def send(value: Any) -> None:
        data = pack(value)
        link.sendall(struct.pack(">Q", len(data)) + data)

    def receive() -> Any:
        size = struct.unpack(">Q", exactly(link, 8))[0]
        return unpack(exactly(link, size), function=callback)

    def callback(number: int) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            send({"callback": number, "args": list(args)})
            return receive()["value"]

        return call

    scope = types.ModuleType("submission").__dict__
    sys.modules["submission"] = types.ModuleType("submission")
    while True:
        request = receive()
        try:
            if "source" in request:
                run(request["name"], request["source"], scope)
                reply: dict[str, Any] = {"value": None}
            elif request["call"] not in scope:
                reply = {"missing": request["call"]}
            else:
                reply = {"value": scope[request["call"]](*request["args"])}
                pack(reply)
        except BaseException as error:  # sys.exit of a submission ends nothing
            reply = {"raised": type(error).__name__, "text": str(error)[:500]}
            if isinstance(error, SyntaxError):
                reply["text"] = f"{error.msg} (line {error.lineno})"
        send(reply)


def run(name: str, source: str, scope: dict[str, Any]) -> None:
    """Execute a cell from a real file: Triton reads the source of kernels there."""
    path = Path.cwd() / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    linecache.checkcache(str(path))
    exec(compile(source, str(path), "exec"), scope)


def exactly(link: socket.socket, size: int) -> bytes:
    """Return this many bytes."""
    data = bytearray()
    while len(data) < size:
        chunk = link.recv(min(size - len(data), 2**20))
        if not chunk:
            os._exit(0)
        data += chunk
    return bytes(data)


if __name__ == "__main__":
    link = socket.socket(fileno=os.dup(0))
    sys.path[:0] = [str(Path(__file__).parent)]
    sys.path += sys.argv[2:]
    limit(**json.loads(sys.argv[1]))
    hide_package()
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path.cwd()))
    nowhere = os.open(os.devnull, os.O_RDWR)
    # What a submission prints is read by nobody; until here, errors are ours.
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    serve(link)
