"""An agent returns to what it was, or says that it cannot."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local import namespaces
from muster.engines.local.initial_state import InitialState
from muster.engines.local.namespaces import probe

pytestmark = pytest.mark.skipif(bool(probe()), reason="needs namespaces")


def open_descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            os.fstat(int(name))
            found.append(int(name))
    return found


def in_node(attempt: Callable[[InitialState, list[int]], None]) -> None:
    """Call it in process 1 of a PID namespace, with its state and its open descriptors."""

    def run() -> None:
        os.setsid()  # as an agent
        keep = open_descriptors()
        attempt(InitialState(), keep)

    assert probe(run, "it failed") == ""


def test_what_is_of_the_node_is_left() -> None:
    host = socket.gethostname()

    def attempt(initial: InitialState, keep: list[int]) -> None:
        kinds = namespaces.CLONE_NEWNS | namespaces.CLONE_NEWUTS | namespaces.CLONE_NEWIPC
        for _ in range(3):  # for one node after another
            namespaces.unshare(kinds)
            namespaces.mount("tmpfs", "/mnt", "tmpfs", 0)
            os.chdir("/mnt")
            socket.sethostname("node")
            log = os.open("/mnt/log", os.O_CREAT | os.O_WRONLY)
            os.dup2(log, 1)
            os.close(log)
            assert initial.restore(keep)
            assert (socket.gethostname(), os.getcwd()) == (host, "/")
            assert not os.path.ismount("/mnt")
            assert os.path.samestat(os.fstat(1), os.fstat(2))

    in_node(attempt)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root")
def test_the_root_of_a_chroot_is_kept(tmp_path: Path) -> None:
    host, inside = str(tmp_path.parent), str(tmp_path)

    def attempt(initial: InitialState, keep: list[int]) -> None:
        namespaces.bind(inside, inside)
        namespaces.mount("proc", make(f"{inside}/proc"), "proc", 0)
        os.chroot(inside)
        os.chdir("/")
        changed = InitialState()
        keep += {*open_descriptors()} - {*keep}
        for _ in range(2):
            namespaces.unshare(namespaces.CLONE_NEWNS)
            os.chdir(make("/tmp"))
            assert changed.restore(keep)
            assert not os.path.exists(host)
            assert (os.getcwd(), sorted(os.listdir())) == ("/", ["proc", "tmp"])

    in_node(attempt)


def make(folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    return folder


def test_a_descriptor_that_is_left_open_is_noticed() -> None:
    def attempt(initial: InitialState, keep: list[int]) -> None:
        descriptor = os.open("/", os.O_RDONLY)
        assert not initial.restore(keep)
        os.close(descriptor)
        assert initial.restore(keep)

    in_node(attempt)


def test_a_process_that_is_left_is_noticed() -> None:
    def attempt(initial: InitialState, keep: list[int]) -> None:
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        assert not initial.restore(keep)
        os.kill(child, signal.SIGKILL)
        assert not initial.restore(keep), "it has not been waited for"
        os.waitpid(child, 0)
        assert initial.restore(keep)

    in_node(attempt)


NUMBERS = {
    "x86_64": {"ioprio_set": 251, "sched_setattr": 314, "keyctl": 250},
    "aarch64": {"ioprio_set": 30, "sched_setattr": 274, "keyctl": 219},
}.get(os.uname().machine, {})


def system_call(**call: tuple[object, ...]) -> None:
    ((name, args),) = call.items()
    if namespaces.system_call(NUMBERS[name], *args) == -1:
        raise OSError(name)


def set_slice() -> ctypes.Array[ctypes.c_char]:
    """The attributes of this process, with another slice."""
    attributes = struct.pack(
        "IIQiIQQQII", 56, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, 5_000_000, 0, 0, 0, 0
    )
    return ctypes.create_string_buffer(attributes)


def replace_session_keyring() -> None:
    """As a program can do it to its parent."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            system_call(keyctl=(1, None))  # KEYCTL_JOIN_SESSION_KEYRING
            system_call(keyctl=(18,))  # KEYCTL_SESSION_TO_PARENT
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError("keyctl")


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300)),
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: system_call(ioprio_set=(1, 0, 3 << 13)),
        lambda: Path("/proc/self/timerslack_ns").write_text("60000"),
        lambda: Path("/proc/self/autogroup").write_text("5"),
        lambda: system_call(sched_setattr=(0, set_slice(), 0)),
        replace_session_keyring,
    ],
    ids=[
        "priority",
        "limit",
        "scheduling",
        "I/O priority",
        "timer slack",
        "autogroup",
        "slice",
        "session keyring",
    ],
)
def test_a_change_is_noticed(change: Callable[[], None]) -> None:
    reading, writing = os.pipe()

    def attempt(initial: InitialState, keep: list[int]) -> None:
        assert initial.restore(keep)
        try:
            change()
        except (OSError, KeyError):
            os.write(writing, b"-")
        else:
            assert not initial.restore(keep)

    in_node(attempt)
    os.close(writing)
    with open(reading) as file:
        if file.read():
            pytest.skip("the kernel has no such feature, or refuses it")
