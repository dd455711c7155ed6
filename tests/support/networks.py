"""Two machines in one: network namespaces that a cable joins, for tests of firewalls."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

#: The addresses of the two, and their network.
HERE, THERE, NETWORK = "10.0.1.1", "10.0.1.2", "10.0.1.0/24"


class Machines:
    """The first (HERE) and the second (THERE), by the processes that hold their namespaces."""

    def __init__(self, first: int, second: int) -> None:
        self._pids = (first, second)

    def start(self, number: int, *argv: str, **more: Any) -> subprocess.Popen[str]:
        """A program on machine 0 or 1."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        enter = ["nsenter", f"--target={self._pids[number]}", *user, "--net"]
        return subprocess.Popen([*enter, *argv], text=True, **more)

    def run(self, number: int, *argv: str, stdin: str = "") -> str:
        """Return the output of a command that must succeed."""
        program = self.start(
            number, *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out, _ = program.communicate(stdin, timeout=240)
        assert program.returncode == 0, out
        return str(out)

    def rules(self, number: int, ruleset: str) -> None:
        """Load an nftables ruleset."""
        self.run(number, "nft", "-f", "-", stdin=ruleset)


@contextlib.contextmanager
def two_machines() -> Iterator[Machines]:
    """Skip the test if the kernel does not allow namespaces."""
    if not all(map(shutil.which, ("ip", "nft", "nsenter", "unshare"))):
        pytest.skip("ip, nft, nsenter or unshare is not installed")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(_holder([] if os.geteuid() == 0 else ["-Ur"]))
        inside = Machines(first, first)
        second = stack.enter_context(_holder_in(inside))
        machines = Machines(first, second)
        script = f"""
            ip link add cable0 type veth peer name cable1 netns {second}
            ip address add {HERE}/24 dev cable0 && ip link set cable0 up && ip link set lo up
        """
        machines.run(0, "sh", "-ec", textwrap.dedent(script))
        script = f"ip address add {THERE}/24 dev cable1; ip link set cable1 up; ip link set lo up"
        machines.run(1, "sh", "-ec", script)
        yield machines


@contextlib.contextmanager
def _holder(user: list[str]) -> Iterator[int]:
    argv = ["unshare", *user, "-n", "sh", "-c", "echo $$; exec sleep 600"]
    with _ended(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)) as program:
        yield _pid(program)


@contextlib.contextmanager
def _holder_in(machines: Machines) -> Iterator[int]:
    argv = ("unshare", "-n", "sh", "-c", "echo $$; exec sleep 600")
    with _ended(machines.start(0, *argv, stdout=subprocess.PIPE)) as program:
        yield _pid(program)


def _pid(program: subprocess.Popen[str]) -> int:
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        pytest.skip("the kernel refuses network namespaces")
    return int(line)


@contextlib.contextmanager
def _ended(program: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield program
    finally:
        program.kill()
        program.communicate()
