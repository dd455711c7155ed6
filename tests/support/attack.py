"""A program of one owner that tries to reach another owner's run, and the server. Prints what it
could do that it must not, one line each. Standard library only.

Its argument: JSON with `paths` (files and folders of others), `words` (that must not be seen),
`addresses` and `ports`, `abstract` (names of abstract sockets), `pids` (on the machine), `shared`
(names of POSIX shared memory), `key` (of System V shared memory), and `outside`: whether it runs
outside all nodes, where it sees the processes of the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

given: dict[str, Any] = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)


def done(what: str) -> None:
    print("REACHED", what, flush=True)


def attempt(what: str, action: Callable[..., object], *args: object) -> None:
    with contextlib.suppress(OSError, ValueError):
        if action(*args) is not False:
            done(f"{what} {args}")


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def append(path: str) -> None:
    with open(path, "ab"):
        pass


def hard_link(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink("hard-link")
    os.link(path, "hard-link")
    read("hard-link")


def soft_link(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink("soft-link")
    os.symlink(path, "soft-link")
    read("soft-link")


def attack_files() -> None:
    for path in given["paths"]:
        if os.path.isdir(path):
            attempt("list", os.listdir, path)
            attempt("create", append, f"{path}/planted")
        for action in (read, append, hard_link, soft_link):
            attempt(action.__name__, action, path)
        attempt("rename", os.rename, path, f"{path}.moved")
        attempt("chmod", os.chmod, path, 0o777)
        attempt("chown", os.chown, path, os.getuid(), os.getgid())


def attack_processes() -> None:
    for name in filter(str.isdigit, os.listdir("/proc")):
        for what in ("environ", "cmdline", "maps"):
            content = b""
            with contextlib.suppress(OSError):
                content = Path(f"/proc/{name}/{what}").read_bytes()
            for word in given["words"]:
                if name != str(os.getpid()) and word.encode() in content:
                    done(f"{word} in /proc/{name}/{what}")
    for what in ("environ", "mem", "ns/mnt", "ns/net", "ns/ipc"):
        attempt(what, read, f"/proc/1/{what}")
    attempt("files", os.listdir, "/proc/1/fd")
    attempt("trace", traced, 1)
    for pid in given["pids"] if given["outside"] else ():
        attempt("environ", read, f"/proc/{pid}/environ")
        attempt("files", os.listdir, f"/proc/{pid}/fd")
        attempt("signal", os.kill, pid, 0)
        attempt("trace", traced, pid)


def traced(pid: int) -> bool:
    attach = 16
    return bool(libc.ptrace(attach, pid, None, None) == 0)


def attack_network() -> None:
    for address in given["addresses"]:
        for port in given["ports"]:
            attempt("connect", connect, address, port)
    for name in given["abstract"]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            attempt("abstract", connect_abstract, name, kind)


def connect(address: str, port: int) -> bool:
    """Whether a server of somebody else answers: a proxy on the way may accept any connection."""
    with socket.create_connection((address, port), timeout=1) as sock:
        answer = sock.recv(100)
        return any(word.encode() in answer for word in given["words"])


def connect_abstract(name: str, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(f"\0{name}")


def attack_memory() -> None:
    for name in given["shared"]:
        attempt("shared memory", read, f"/dev/shm/{name}")
    if libc.shmget(given["key"], 1, 0) >= 0:
        done("System V shared memory")


def attack_rights() -> None:
    attempt("setuid", os.setuid, 0)
    attempt("setgid", os.setgid, 0)
    attempt("setgroups", os.setgroups, [0])
    attempt("chroot", os.chroot, "/")
    attempt("mknod", os.mknod, "device", 0o600 | 0o060000, os.makedev(8, 0))
    attempt("sethostname", socket.sethostname, "other")
    attempt("mount", mounted)
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("CapInh", "CapPrm", "CapEff", "CapAmb") and int(value, 16):
            done(line)
        if not given["outside"] and (name, value.strip()) in (("NoNewPrivs", "0"), ("CapBnd", "1")):
            done(line)


def mounted() -> bool:
    return bool(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0)


for part in (attack_files, attack_processes, attack_network, attack_memory, attack_rights):
    part()
print("DONE", flush=True)
