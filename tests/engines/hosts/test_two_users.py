"""Two people with accounts of their own on one machine: they take turns, and neither can read or
harm what the other has there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults import until
from support.ssh_hosts import Sshd, add_engine, can_use_ssh

PYTHON = "/usr/bin/python3"  # that of the tests may be in a folder that only root can enter
pytestmark = pytest.mark.skipif(
    os.getuid() != 0
    or not can_use_ssh()
    or not all(map(shutil.which, ("useradd", "userdel", "setpriv")))
    or not os.path.exists(PYTHON),
    reason="needs root, OpenSSH, useradd, setpriv and a Python for all users",
)


class Person:
    """An account on the machine, and a home of Muster elsewhere from which it is used."""

    def __init__(self, name: str, folder: Path, sshd: Sshd) -> None:
        self.name, self._muster_home = name, folder / f"muster-{name}"
        self.home = folder / name
        subprocess.run(
            ["useradd", "-m", "-d", str(self.home), "-s", "/bin/bash", "-p", "*", name], check=True
        )
        self.home.chmod(0o755)  # whoever wants to look may
        (self.home / ".bashrc").write_text(f"umask {'077' if name.endswith('a') else '022'}\n")
        add_engine(
            self._muster_home,
            sshd,
            hosts=[f"{name}@127.0.0.1"],
            python=PYTHON,
            folder="~/.local/state/muster-nodes",
            queue=str(folder / "shared" / "queue"),
        )

    @property
    def nodes(self) -> Path:
        """Where its nodes have their files."""
        return self.home / ".local/state/muster-nodes"

    def muster(self, *words: str) -> str:
        """The output of a command, which succeeds."""
        argv = [sys.executable, "-m", "muster", *words]
        env = {**os.environ, "MUSTER_HOME": str(self._muster_home)}
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, run: str, script: str) -> None:
        """Start a run on the machine."""
        words = ("run", "--engine", "hosts", "--detach", "--name", run, "--", "sh", "-c", script)
        self.muster(*words)

    def status(self) -> dict[str, Any]:
        """Of its last run."""
        status: dict[str, Any] = json.loads(self.muster("status", "last", "--json"))
        return status

    def until(self, state: str) -> None:
        """Wait for the state of its last run's node."""

        def reached() -> bool:
            return bool(self.status()["nodes"][0]["state"] == state)

        until(reached, f"{self.name}'s node is {state}", pause=0.3)

    def can(self, script: str) -> bool:
        """Whether a script of sh succeeds with the rights of this account."""
        argv = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        done = subprocess.run([*argv, "sh", "-c", script], capture_output=True, check=False)
        return done.returncode == 0

    def end(self) -> None:
        """Remove the account, with its processes and files."""
        subprocess.run(["userdel", "-f", "-r", self.name], capture_output=True, check=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that all users can enter, with one that all can write to."""
    made = Path(tempfile.mkdtemp(prefix="two-users-", dir="/tmp"))
    made.chmod(0o755)
    (made / "shared").mkdir()
    (made / "shared").chmod(0o1777)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def people(folder: Path) -> Iterator[tuple[Person, Person]]:
    sshd = Sshd(folder / "sshd", cache="")
    (folder / "sshd").chmod(0o755)
    names = [f"t{os.getpid()}{letter}" for letter in "ab"]
    made: list[Person] = []
    try:
        made += [Person(name, folder, sshd) for name in names]
        yield made[0], made[1]
    finally:
        sshd.stop()
        sshd.end_connections()
        for person in made:
            person.end()


def test_two_people_take_turns_on_a_machine(people: tuple[Person, Person], folder: Path) -> None:
    ana, eva = people
    flags, queue = [folder / "flag-a", folder / "flag-b"], folder / "shared" / "queue"
    script = "echo $(umask) $(id -un); until [ -e {flag} ]; do sleep 0.05; done"
    ana.start("first", script.format(flag=flags[0]))
    ana.until("READY")
    eva.start("second", script.format(flag=flags[1]))
    eva.until("QUEUED")
    shown = eva.muster("status", "last")
    assert "'s run first-1 has used it since" in shown, shown
    assert sorted(owner for _, owner in tickets(queue)) == [ana.name, eva.name]
    assert_protected(ana, eva, queue)

    flags[0].touch()
    ana.muster("wait", "last")
    eva.until("READY")
    assert_protected(eva, ana, queue)
    flags[1].touch()
    eva.muster("wait", "last")
    for person, mask in ((ana, "0077"), (eva, "0022")):
        assert f" {mask} {person.name}\n" in person.muster("logs", "last")
        until(lambda one=person: not list(one.nodes.glob("*-0")), "its files are removed")


def tickets(queue: Path) -> list[tuple[Path, str]]:
    """The tickets in a queue, and whose they are."""
    return [(one, one.owner()) for one in queue.iterdir() if one.name[:20].isdigit()]


def assert_protected(owner: Person, other: Person, queue: Path) -> None:
    """What one account has on the machine, another one can neither read nor harm."""
    (server,) = owner.nodes.glob("*-0")
    (log,) = server.glob("logs/**/*.out")
    until(lambda: log.stat().st_size, "the program has written")
    assert owner.can(f"cat {log}")
    scripts = [f"cat {log}", f"ls {server}", f"rm -rf {server}", f"touch {owner.nodes}/new"]
    scripts.append(f"kill -0 $(pgrep -u {owner.name} | head -1)")
    own = [path for path, whose in tickets(queue) if whose == owner.name]
    scripts += [f"echo > {ticket}" for ticket in own]
    if queue.owner() != other.name:  # who has made it may remove what is in it
        scripts += [f"mv {queue} {queue}.old", *(f"rm -f {ticket}" for ticket in own)]
    for script in scripts:
        assert not other.can(script), script
