"""Run the cells of a submission and answer calls, in a process that nobody trusts.

Started as a script, `python -I -S child.py SETTINGS PATH...`, with a socket as standard input. Each
socket that arrives there is served by a fork, in which the cells run; the one before is ended, and
its files go, so that it leaves nothing to remember. The script imports nothing of `cca_lab`; the
submission finds only the names `check` and `points`, which do nothing. Whatever code does in here,
it can only send bytes: the other side compares.
"""

import contextlib
import ctypes
import errno
import gc
import importlib.abc
import json
import linecache
import os
import signal
import socket
import struct
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = "cca_lab"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # as the kernel tells a filter
# Name and numbers on x86_64 and aarch64 of system calls that no submission needs. They lead out of
# the sandbox, as keys do, which cross all namespaces; into other processes; or to memory that
# belongs to no process and is not counted. Those of times are here for /dev/null, which has one
# time for all; setsockopt for buffers of sockets, which may be large and are not counted either;
# the last three lines for what another process or call could read there: the priorities of the
# process that forks, attributes of folders, the cache of files.
FORBIDDEN = {name: (int(x86), int(arm)) for name, x86, arm in map(str.split, """
add_key 248 217, request_key 249 218, keyctl 250 219, ptrace 101 117, process_vm_readv 310 270,
process_vm_writev 311 271, process_madvise 440 440, pidfd_getfd 438 438, kcmp 312 272,
userfaultfd 323 282, perf_event_open 298 241, bpf 321 280, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, mount 165 40, umount2 166 39,
pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, open_tree 428 428,
move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
mount_setattr 442 442, name_to_handle_at 303 264, open_by_handle_at 304 265,
fanotify_init 300 262, kexec_load 246 104, kexec_file_load 320 294, init_module 175 105,
finit_module 313 273, delete_module 176 106, personality 135 92, shmget 29 194, shmat 30 196,
shmctl 31 195, shmdt 67 197, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192,
msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181,
mq_timedsend 242 182, mq_timedreceive 243 183, mq_notify 244 184, mq_getsetattr 245 185,
memfd_create 319 279, memfd_secret 447 447, utimensat 280 88, utime 132 -1, utimes 235 -1,
futimesat 261 -1, setsockopt 54 208, setpriority 141 140, ioprio_set 251 30,
sched_setparam 142 118, sched_setscheduler 144 119, sched_setattr 314 274,
sched_setaffinity 203 122, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463,
fadvise64 221 223, mincore 27 232, cachestat 451 451, preadv2 327 286
""".split(","))}
CLONE, CLONE3, PRLIMIT, SOCKETS = (56, 220), 435, (302, 261), ((41, 198), (53, 199))
NAMESPACES = 0x7E020000  # flags of clone


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


def forbid() -> None:
    """Join an empty keyring and refuse `FORBIDDEN`, for this process and all that it starts."""
    if (machine := os.uname().machine) not in ARCHITECTURES or sys.platform != "linux":
        return  # macOS has no such filter
    libc, native = ctypes.CDLL(None, use_errno=True), list(ARCHITECTURES).index(machine)
    libc.syscall(*map(ctypes.c_long, (FORBIDDEN["keyctl"][native], 1, 0)))
    program = syscall_filter(ARCHITECTURES[machine], native)
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    libc.prctl.argtypes = [ctypes.c_ulong] * 2 + [ctypes.c_char_p] + [ctypes.c_ulong] * 2
    libc.prctl(4, 0, None, 0, 0)  # a fork has no way into the memory of the process it came from
    if libc.prctl(38, 1, None, 0, 0) or libc.prctl(22, 2, head, 0, 0):  # no new rights; the filter
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")


def syscall_filter(architecture: int, native: int) -> bytes:
    """Return the instructions of the filter: what is refused raises OSError in Python."""
    load, equal, least, some, give, allow = 0x20, 0x15, 0x35, 0x45, 0x06, (6, 0, 0, 0x7FFF0000)

    def refuse(number: int) -> tuple[int, ...]:
        return give, 0, 0, 0x50000 + number

    lines = [(load, 0, 0, 4), (equal, 1, 0, architecture), refuse(errno.ENOSYS),
             (load, 0, 0, 0), (least, 0, 1, 0x40000000), refuse(errno.ENOSYS)]  # no x32
    for numbers in FORBIDDEN.values():
        if numbers[native] >= 0:
            lines += [(equal, 0, 1, numbers[native]), refuse(errno.EPERM)]
    # A filter cannot see the flags of clone3; without it, libc takes clone.
    lines += [(equal, 0, 1, CLONE3), refuse(errno.ENOSYS)]
    lines += [(equal, 0, 4, CLONE[native]), (load, 0, 0, 16), (some, 0, 1, NAMESPACES),
              refuse(errno.EPERM), allow]
    lines += [(equal, 0, 4, PRLIMIT[native]), (load, 0, 0, 16), (equal, 1, 0, 0),  # its own only
              refuse(errno.EPERM), allow]
    for numbers in SOCKETS:  # others, such as of virtual machines, have no namespace
        lines += [(equal, 0, 4, numbers[native]), (load, 0, 0, 16), (equal, 0, 1, socket.AF_UNIX),
                  allow, refuse(errno.EAFNOSUPPORT)]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, allow])


def start_forks(control: socket.socket, folders: list[str]) -> None:
    """Serve each socket that `control` brings by a fork, after the fork before has ended.

    With `folders` this is a sandbox of its own: all other processes end, and the folders' files go.
    Whatever goes wrong ends this process, and the other side starts a new one.
    """
    child = 0
    kept = {entry for folder in folders for entry in below(Path(folder))}  # a clone may lie there
    while True:
        word, links, *_ = socket.recv_fds(control, 1, 1)
        if not word:
            return
        if child:
            os.kill(-1 if folders else child, signal.SIGKILL)
            os.waitpid(child, 0)
        while folders and len(list(Path("/proc").glob("[0-9]*"))) > 2:
            time.sleep(0.001)  # the sandbox and this process stay
        for folder in folders:
            empty(Path(folder), kept)
        child = os.fork()
        if child == 0:
            control.close()
            serve(socket.socket(fileno=links[0]))
        os.close(links[0])
        control.send(b"+")


def below(folder: Path) -> Iterator[Path]:
    """Yield all that lies below a folder, the inner first, without what is mounted there."""
    for entry in folder.iterdir():
        if entry.lstat().st_dev == folder.stat().st_dev:
            if entry.is_dir() and not entry.is_symlink():
                yield from below(entry)
            yield entry


def empty(folder: Path, kept: set[Path]) -> None:
    """Remove all that lies below a folder but what is kept, and rights that were changed."""
    for entry in list(below(folder)):
        if entry in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            entry.rmdir()
        else:
            entry.unlink()
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o1777)


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

    sys.modules["submission"] = module = types.ModuleType("submission")  # pickle looks there
    scope = module.__dict__
    scope["display"] = lambda *args, **options: None  # as in a notebook
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
    control, settings = socket.socket(fileno=os.dup(0)), json.loads(sys.argv[1])
    sys.path[:0] = [str(Path(__file__).parent)]
    sys.path += sys.argv[2:]
    limit(settings["limits"], settings["user"])
    forbid()
    hide_package()
    import torch

    torch.set_num_threads(1)
    for name in ("wire", *settings["imports"]):  # once, and not in each fork
        with contextlib.suppress(ImportError):
            __import__(name)
    sys.path.insert(0, str(Path.cwd()))
    nowhere = os.open(os.devnull, os.O_RDWR)
    # What a submission prints is read by nobody; until here, errors are ours.
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    gc.freeze()  # else each fork's collector copies all memory
    control.send(b"+")
    start_forks(control, settings["folders"])
