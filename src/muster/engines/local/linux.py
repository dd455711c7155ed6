"""The few Linux system calls Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
import sys

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
    """Leave the namespaces in `flags` for new ones (PID: for children only)."""
    _call("unshare", "unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """Enter a namespace (PID: for children only)."""
    _call("setns", "setns", descriptor, kind)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    text = [None if s is None else os.fsencode(s) for s in (source, target, kind, data)]
    _call("mount", target, text[0], text[1], text[2], ctypes.c_ulong(flags), text[3])


def unmount(target: str) -> None:
    """Detach a mount; its users keep it until they let go."""
    _call("umount2", target, os.fsencode(target), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """Make `new`, a mount, the root of our mount namespace, and what was it appear at `old`."""
    if _libc is None or os.uname().machine not in _SYS_PIVOT_ROOT:
        raise OSError(38, "pivot_root needs Linux on x86-64 or ARM64", new)
    number = ctypes.c_long(_SYS_PIVOT_ROOT[os.uname().machine])
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), new)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show `source` at `target`, with all that is mounted below it."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        # in a user namespace, what the file system below insists on has to be said again
        kept = os.statvfs(target).f_flag
        again = kept & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
        again |= MS_RELATIME if kept & _ST_RELATIME else 0
        mount(source, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | again)


def die_with_parent() -> None:
    """Have the kernel kill us when the thread that forked us ends."""
    _call("prctl", "prctl", _PR_SET_PDEATHSIG, 9, 0, 0, 0)


def map_user(inside: tuple[int, int], outside: tuple[int, int]) -> None:
    """Right after unshare(CLONE_NEWUSER): make the outside (uid, gid) the inside one."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside[0]} {outside[0]} 1"),
        ("gid_map", f"{inside[1]} {outside[1]} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
