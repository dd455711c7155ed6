"""What an agent was before its first node, and becomes again between two nodes of different runs.

An agent is process 1 of its PID namespace, and its programs run as the same user. What they do to
the namespaces, files and mounts of their node ends when the agent leaves those. What they can do to
the agent itself from outside, such as to renice it, is compared with what it was. An agent that
differs, or has company, must end.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection

from muster.engines.local import namespaces

#: Those that a node gets for itself. The network is the machine's.
_KINDS = {
    "mnt": namespaces.CLONE_NEWNS,
    "uts": namespaces.CLONE_NEWUTS,
    "ipc": namespaces.CLONE_NEWIPC,
}
_LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]
#: Numbers of system calls that read an attribute of this process.
_SYSTEM_CALLS = {
    "x86_64": {"ioprio_get": 252, "sched_getattr": 315, "keyctl": 250},
    "aarch64": {"ioprio_get": 31, "sched_getattr": 275, "keyctl": 219},
}.get(os.uname().machine, {})
_IOPRIO_WHO_PROCESS = 1
_KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING = 0, -3
#: The last two are settings of the PID namespace.
_FILES = (
    "/proc/self/oom_score_adj",
    "/proc/self/coredump_filter",
    "/proc/self/cgroup",
    "/proc/self/timerslack_ns",
    "/proc/self/autogroup",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/memfd_noexec",
)
_OBJECTS = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")


class InitialState:
    """The state of this process. `restore` returns to it. Raises OSError."""

    def __init__(self) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        self._namespaces = {os.open(f"/proc/self/ns/{kind}", flags): kind for kind in _KINDS}
        self._root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        self._output = os.dup(2)
        self._condition = condition()

    def restore(self, keep: Collection[int]) -> bool:
        """Leave everything of the node, whose programs have ended. Returns whether nothing of it is
        left and nothing has changed; if not, this process must end.

        keep: the descriptors that are open besides the standard streams, and its own.
        """
        try:
            return _is_alone() and self._restore(keep)
        except OSError:  # such as in a container that may create namespaces but not enter them
            return False

    def _restore(self, keep: Collection[int]) -> bool:
        for descriptor, kind in self._namespaces.items():
            namespaces.setns(descriptor, _KINDS[kind])
        os.fchdir(self._root)  # setns has left the directory that chroot(2) made the root
        os.chroot(".")
        os.chdir("/")
        for standard in (1, 2):
            os.dup2(self._output, standard)
        known = {0, 1, 2, self._root, self._output, *self._namespaces, *keep}
        left = len(os.listdir("/proc/self/fd")) - 1  # without that of the listing
        return left == len(known) and condition() == self._condition


def _is_alone() -> bool:
    """Whether no other process is in the PID namespace, of which this is process 1. Also not one
    that entered it from outside: it is killed, but is waited for elsewhere."""
    try:
        os.kill(-1, 0)  # the kernel's answer: the node's /proc may be mounted over
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def contents() -> tuple[bytes, ...]:
    """The mounts and System V objects in the namespaces of this process."""
    return (_read("/proc/self/mountinfo", whole=True), *map(_read, _OBJECTS))


def condition() -> tuple[object, ...]:
    """What programs of the same user may change of another process, and its children inherit."""
    return (
        [resource.getrlimit(number) for number in _LIMITS],
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getscheduler(0),
        os.sched_getaffinity(0),
        *_by_system_calls(),
        *map(_read, _FILES),
    )


def _by_system_calls() -> tuple[object, ...]:
    """What Python and /proc do not tell. A call that the kernel or a filter refuses gives -1."""
    if not _SYSTEM_CALLS:
        return ()
    attributes = ctypes.create_string_buffer(128)  # also the slice and the utilization clamps
    return (
        namespaces.system_call(_SYSTEM_CALLS["ioprio_get"], _IOPRIO_WHO_PROCESS, 0),
        namespaces.system_call(_SYSTEM_CALLS["sched_getattr"], 0, attributes, len(attributes), 0),
        attributes.raw,
        # a child may replace it
        namespaces.system_call(
            _SYSTEM_CALLS["keyctl"], _KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING, 0
        ),
    )


def _read(path: str, *, whole: bool = False) -> bytes:
    """Its content; nothing if it cannot be read, as on another kernel. Takes half the time of a
    file object.

    whole: whether it may be larger than a page, which is what one call reads of a list.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = part = os.read(descriptor, 1 << 16)
        while whole and part:
            part = os.read(descriptor, 1 << 16)
            content += part
    except OSError:
        return b""
    else:
        return content
    finally:
        os.close(descriptor)
