"""The command that starts `child.py` with as little as the system allows: no network, no files, no other processes.

"bubblewrap" hides the whole file system but Python and its packages; "unshare" takes the network and other processes
away, but files can be read; "none" only clears the environment and limits time and memory. Reports say which it was.
"""

import json
import os
import secrets
import shutil
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
KINDS = ("bubblewrap", "unshare", "none")
MEMORY = 4 * 2**30  # bytes of address space; importing torch takes 0.6 GiB of it, 3 where it has CUDA
SCRATCH = 256 * 2**20  # bytes of files
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Attributes:
        seconds: of one call.
        total: seconds of all calls of one submission.
        memory: bytes of address space.
        processes: threads and processes together.
    """

    seconds: float = 10.0
    total: float = 180.0
    memory: int = MEMORY
    processes: int = 256

    def settings(self, kind: str) -> str:
        """Return the limits, and whom to become, as `child.py` takes them."""
        limits = {"AS": self.memory, "NPROC": self.processes, "FSIZE": 64 * 2**20, "NOFILE": 256, "CORE": 0,
                  "CPU": int(self.total) + 60}
        root = kind == "bubblewrap" and os.getuid() == 0
        return json.dumps({"limits": limits, "user": 10**6 + secrets.randbelow(10**6) if root else None})


@cache
def best() -> str:
    """Return the strictest kind that works on this machine."""
    return next(kind for kind in KINDS if kind == "none" or works(kind))


def works(kind: str) -> bool:
    """Return True if a kind of sandbox starts here."""
    if shutil.which({"bubblewrap": "bwrap"}.get(kind, kind)) is None:
        return False
    try:
        return subprocess.run([*prefix(kind, HERE), sys.executable, "-I", "-S", "-c", ""], timeout=20, check=False,
                              capture_output=True, cwd="/").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def command(kind: str, limits: Limits, scratch: Path) -> list[str]:
    """Return the command that starts the child.

    Args:
        kind: of sandbox, one of `KINDS`.
        limits: for the child.
        scratch: an empty folder in which it may write; bubblewrap puts one in memory over it.

    Raises:
        ValueError: for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"sandbox: got {kind!r}, wanted one of {', '.join(KINDS)}")
    return [*prefix(kind, scratch), sys.executable, "-I", "-S", str(HERE / "child.py"), limits.settings(kind),
            *packages()]


def prefix(kind: str, scratch: Path) -> list[str]:
    """Return what stands before the interpreter."""
    if kind == "unshare":
        return ["unshare", "--user", "--map-root-user", "--net", "--ipc", "--pid", "--fork", "--kill-child",
                "--mount-proc"]
    if kind == "none":
        return []
    words = ["bwrap", *alone(), "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
             "/tmp"]
    for name in SYSTEM:
        if (path := Path(name)).is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            words += ["--ro-bind", name, name]
    places = [*readable(), str(HERE / "child.py"), str(HERE / "wire.py")]
    for folder in sorted({str(above) for place in places for above in Path(place).parents} - {"/"}):
        words += ["--perms", "0755", "--dir", folder]
    for place in readable():
        words += ["--ro-bind", place, place]
    for folder in packages():
        if (Path(folder) / "cca_lab").is_dir():
            words += ["--tmpfs", f"{folder}/cca_lab"]
    for name in ("child.py", "wire.py"):  # last: the package may lie in one of the folders above
        words += ["--ro-bind", str(HERE / name), str(HERE / name)]
    if scratch != HERE:
        words += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", str(scratch), "--chdir", str(scratch)]
    return words


def alone() -> list[str]:
    """Return what takes other processes, the network and all rights away.

    The kernel does not limit the processes of the administrator, not even in a user namespace: started by one, the
    child keeps the right to become a user that nobody is, and does so first of all.
    """
    if os.name == "posix" and os.getuid() == 0:
        return ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
                "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return ["--unshare-all", "--cap-drop", "ALL"]


def readable() -> list[str]:
    """Return the folders of the interpreter and its packages that lie outside the system's."""
    executable = Path(sys.executable)
    found = {sys.base_prefix, sys.base_exec_prefix, str(executable.parent), str(executable.resolve().parent),
             sysconfig.get_path("stdlib"), *packages()}
    return sorted(place for place in found if not any(Path(place).is_relative_to(top) for top in SYSTEM))


def packages() -> list[str]:
    """Return the folders of installed packages."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return [place for place in dict.fromkeys(found) if Path(place).is_dir()]
