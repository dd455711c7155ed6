"""How far a run is kept apart from the rest of the machine.

`namespaces`: the run's supervisor is PID 1 of a PID namespace of the run, so that its death, by
whatever signal, is the kernel's death sentence for every process of the run; each node is PID 1 of
a namespace of its own below it. The same with root and, through a user namespace, without.

`plain`: processes, process groups and a subreaper; all there is on other systems and where the
kernel forbids namespaces.
"""

from __future__ import annotations

import os
from typing import Literal

from msgspec import Struct

from muster.engines.local import linux
from muster.errors import Problem

_SETTING = "MUSTER_ISOLATION"


class Isolation(Struct, frozen=True):
    """What was achieved. user: the (uid, gid) hidden behind the user namespace's root, if any."""

    level: Literal["namespaces", "plain"]
    user: tuple[int, int] | None = None
    reason: str = ""

    @property
    def namespaces(self) -> bool:
        return self.level == "namespaces"


def check_setting() -> list[Problem]:
    """What is wrong with MUSTER_ISOLATION."""
    asked = os.environ.get(_SETTING, "")
    if asked in ("", "plain", "namespaces"):
        return []
    hint = '"plain" for none; unset it for namespaces where the kernel allows them'
    return [Problem(_SETTING, f"there is no isolation {asked!r}", hint)]


def impossible() -> str:
    """Why there are no namespaces here, as far as can be told without trying."""
    if os.environ.get(_SETTING) == "plain":
        return f"{_SETTING}=plain"
    return "" if linux.AVAILABLE else "namespaces need Linux"


def enclose() -> Isolation:
    """Prepare a PID and mount namespace for the next child this process forks.

    Called in the process that is about to fork a supervisor and then exit. Raises OSError where
    the kernel gives a user namespace but no user in it: by then there is no way back.
    """
    if impossible():
        return Isolation("plain", reason=impossible())
    kinds = linux.CLONE_NEWPID | linux.CLONE_NEWNS
    user = None if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    try:
        linux.unshare(kinds | (linux.CLONE_NEWUSER if user else 0))
    except OSError as error:
        return Isolation("plain", reason=f"the kernel refuses namespaces: {error.strerror}")
    if user is not None:
        linux.map_user((0, 0), user)
    return Isolation("namespaces", user)


def settle() -> None:
    """First thing as PID 1 of the namespace: keep our mounts to ourselves, see our own processes.

    Raises OSError where /proc cannot be mounted (some containers): the run must then be plain.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    mount_proc()


def mount_proc() -> None:
    """Show the processes of our own PID namespace in /proc."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", "/proc", "proc", flags)
