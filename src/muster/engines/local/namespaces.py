"""Isolation of a run by Linux namespaces, and the system calls that this takes.

Level `namespaces`: the run's supervisor is PID 1 of a PID namespace. When it ends, for any
reason, the kernel kills every process of the run. Each node is PID 1 of a nested namespace. Works
as root and, in a user namespace, as any user.

Level `plain`: process groups and a subreaper, on other systems and where the kernel refuses
namespaces.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from muster import unix_account
from muster.errors import Problem

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_RELATIME = 0x200000
_ST_RELATIME = 0x1000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}  # the C library has no name for it

AVAILABLE = sys.platform.startswith("linux")
_libc = ctypes.CDLL(None, use_errno=True) if AVAILABLE else None


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


def _call(name: str, what: str, *args: object) -> None:
    if _libc is None:
        raise OSError(38, f"{name} needs Linux", what)
    _check(getattr(_libc, name)(*args), what)


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the kinds in `flags` (PID: its future children)."""
    _call("unshare", "unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """Enter an existing namespace (PID: this process's future children do)."""
    _call("setns", "setns", descriptor, kind)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system; see mount(2)."""
    text = [None if s is None else os.fsencode(s) for s in (source, target, kind, data)]
    _call("mount", target, text[0], text[1], text[2], ctypes.c_ulong(flags), text[3])


def mount_tmpfs(target: str, mode: str) -> None:
    """Mount an empty file system in memory, which belongs to whom this thread acts as."""
    account = unix_account.current()
    owner = "" if account is None else f",uid={account.uid},gid={account.gid}"
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}{owner}")


def unmount(target: str) -> None:
    """Detach a mount. Processes that use it keep access until they close it."""
    _call("umount2", target, os.fsencode(target), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """Make `new`, a mount, the root of this mount namespace; the previous root appears at `old`."""
    if _libc is None or os.uname().machine not in _SYS_PIVOT_ROOT:
        raise OSError(38, "pivot_root needs Linux on x86-64 or ARM64", new)
    number = ctypes.c_long(_SYS_PIVOT_ROOT[os.uname().machine])
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), new)


def system_call(number: int, *args: object) -> int:
    """Make a system call that the C library has no name for. Returns its result, -1 if it fails."""
    return -1 if _libc is None else int(_libc.syscall(ctypes.c_long(number), *args))


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Mount `source` at `target`, including the mounts below it."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        # in a user namespace, a remount must repeat the flags of the file system
        flags = os.statvfs(target).f_flag
        repeated = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
        repeated |= MS_RELATIME if flags & _ST_RELATIME else 0
        mount(source, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | repeated)


def die_with_parent(number: int = 9) -> None:
    """Have the kernel kill this process, or signal it, when the thread that forked it ends."""
    _call("prctl", "prctl", _PR_SET_PDEATHSIG, number, 0, 0, 0)


def map_user(inside: tuple[int, int], outside: tuple[int, int]) -> None:
    """Map the (uid, gid) `outside` to `inside`. Call it right after unshare(CLONE_NEWUSER)."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside[0]} {outside[0]} 1"),
        ("gid_map", f"{inside[1]} {outside[1]} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


_SETTING = "MUSTER_ISOLATION"


class Isolation(Struct, frozen=True):
    """The isolation that a run has."""

    level: Literal["namespaces", "plain"]
    #: The (uid, gid) of the submitter, if root of a user namespace stands for them.
    user: tuple[int, int] | None = None
    #: Why the level is `plain`.
    reason: str = ""

    @property
    def namespaces(self) -> bool:
        """Whether the run has namespaces."""
        return self.level == "namespaces"


def check_setting() -> list[Problem]:
    """Problems with the value of MUSTER_ISOLATION."""
    value = os.environ.get(_SETTING, "")
    if value in ("", "plain", "namespaces"):
        return []
    hint = '"plain" for none; unset it for namespaces where the kernel allows them'
    return [Problem(_SETTING, f"unknown isolation {value!r}", hint)]


def unavailable_reason() -> str:
    """Why runs have no namespaces here, as far as is known without trying; "" if they may."""
    if os.environ.get(_SETTING) == "plain":
        return f"{_SETTING}=plain"
    return "" if AVAILABLE else "namespaces need Linux"


def create_namespaces() -> Isolation:
    """Create a PID and a mount namespace for the next child that this process forks.

    Called in a process that forks a supervisor and then only waits for it. Returns the level
    `plain` if the kernel refuses. Raises OSError if the kernel creates a user namespace and refuses
    to map a user: the process cannot leave that namespace.
    """
    if unavailable_reason():
        return Isolation("plain", reason=unavailable_reason())
    kinds = CLONE_NEWPID | CLONE_NEWNS
    user = None if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    try:
        unshare(kinds | (CLONE_NEWUSER if user else 0))
    except OSError as error:
        return Isolation("plain", reason=f"the kernel refuses namespaces: {error.strerror}")
    if user is not None:
        map_user((0, 0), user)
    return Isolation("namespaces", user)


def set_up_mounts() -> None:
    """Make mounts private to the namespace, and mount its /proc. Called first by its PID 1.

    Raises OSError where /proc cannot be mounted (some containers): the run must then be plain.
    """
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount_proc()


def mount_proc() -> None:
    """Mount /proc with the processes of this PID namespace."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", "/proc", "proc", flags)


#: What `probe` returns if its child was killed.
CRASHED = "the attempt to make namespaces was killed"


def probe(
    attempt: Callable[[], None] = lambda: None, failure: str = "/proc cannot be mounted"
) -> str:
    """Why `attempt` fails in namespaces as a supervisor has them; "" if it works.

    failure: the reason to return when the namespaces can be created and `attempt` raises. Runs in
    child processes: nothing changes for this one.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            theirs.send(_try_in_namespaces(attempt, failure).encode() or b"\0")
        finally:
            os._exit(0)
    theirs.close()
    answer = ours.recv(4096)
    os.waitpid(pid, 0)
    ours.close()
    return answer.decode().strip("\0") if answer else CRASHED


def _try_in_namespaces(attempt: Callable[[], None], failure: str) -> str:
    found = create_namespaces()
    if not found.namespaces:
        return found.reason
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            set_up_mounts()
            attempt()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return CRASHED if os.WIFSIGNALED(status) else failure if status else ""


def advice() -> str:
    """How to get namespaces on this machine, where they do not work."""
    if unavailable_reason():
        return f"unset {_SETTING}" if AVAILABLE else "namespaces need Linux"
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0 (as root)"
    if os.path.exists("/proc/sys/kernel/unprivileged_userns_clone"):
        return "sysctl kernel.unprivileged_userns_clone=1 (as root)"
    return "in a container, allow user namespaces or run it with --privileged"
