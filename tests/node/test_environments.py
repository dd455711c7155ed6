"""Environments with the packages that a job requires, as node servers have them installed."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from muster.node.environments import Environments
from muster.node.installation import CannotInstall, ensure
from muster.node.messages import (
    Ended,
    Environment,
    HostFacts,
    Installing,
    Joined,
    Launch,
    Launched,
    Ready,
    Start,
    Started,
)
from muster.node.processes import state_of
from support.faults import until
from support.node_servers import Supervisor, kill, server_pid
from support.wheels import slow_package, wheel

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


def wanted(*lines: str | Path, link: Path = Path("/no/link")) -> Environment:
    return Environment([str(line) for line in lines], sys.executable, str(link))


def test_what_cannot_be_run_is_no_python(tmp_path: Path) -> None:
    missing = Environment(["six"], str(tmp_path / "python"), "/no/link")
    with pytest.raises(CannotInstall, match=rf"^cannot run {tmp_path}/python: "):
        ensure(str(tmp_path), missing, {}, print)


@pytest.mark.slow
def test_the_same_file_name_with_another_content_is_another_environment(tmp_path: Path) -> None:
    place, lines = tmp_path / "environments", list[str]()
    package = wheel(tmp_path, "demo", "1.0", "")
    first = ensure(str(place), wanted(package), OFFLINE, lines.append)
    assert lines[0] == "muster: installing 1 requirement with pip, once for this machine"
    del lines[:]
    assert ensure(str(place), wanted(package), OFFLINE, lines.append) == first
    assert lines == []
    wheel(tmp_path, "demo", "1.0", "changed = True")
    assert ensure(str(place), wanted(package), OFFLINE, lines.append) != first


def test_one_that_is_gone_cannot_be_used(tmp_path: Path) -> None:
    one = Environments(str(tmp_path))
    assert not one.use("0" * 16, str(tmp_path / "link"))
    assert not (tmp_path / "link").is_symlink()
    assert one.held == []


def test_one_whose_link_cannot_be_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "about").touch()
    one = Environments(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        one.use("key", str(tmp_path / "missing" / "link"))
    assert one.held == []
    assert one.use("key", str(tmp_path / "link"))
    assert len(one.held) == 1


def launch_of(
    supervisor: Supervisor, incarnation: int, python: str, code: str, environment: Environment
) -> Launch:
    """The launch of a program that needs an environment."""
    made = supervisor.launch(incarnation, python, "-c", code)
    message = made.launch._replace(env={**made.launch.env, **OFFLINE})
    return made._replace(launch=message, environment=environment)


def test_a_killed_server_leaves_no_installation(tmp_path: Path) -> None:
    """The server that takes over ends it, and installs the environment when it is launched."""
    started, go = tmp_path / "started", tmp_path / "go"
    package = slow_package(tmp_path, "slow", started, go)
    folder = tmp_path / "server"
    environment = wanted(package, link=folder / "environment")
    one = Supervisor(folder).greet()
    one.expect(HostFacts)
    one.send(launch_of(one, 0, sys.executable, "", environment))
    one.expect(Launched)
    one.expect(Installing)
    until(lambda: started.exists() and started.read_text().isdigit(), "the build has started")
    pid = int(started.read_text())
    kill(server_pid(folder))
    one.disconnect()
    other = Supervisor(folder, turn=2).greet()
    try:
        assert state_of(pid) in ("", "Z")
        other.expect(HostFacts)
        other.expect(Launched)
        assert other.expect(Ended).report.reason == "node_lost"
        go.touch()
        code = f"import slow, sys; sys.exit(sys.prefix != {environment.link!r})"
        other.send(launch_of(other, 1, f"{environment.link}/bin/python", code, environment))
        for kind in (Launched, Installing, Joined):
            other.expect(kind)
        other.send(Start(1))
        for kind in (Started, Ready):
            other.expect(kind)
        assert other.expect(Ended).report.exit_code == 0
        # the environment stays in place while the server runs
        (about,) = (folder / "environments").glob("*/about")
        assert os.readlink(environment.link) == f"{about.parent}/env"
        with open(f"{about.parent}.lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        kill(server_pid(folder))
        other.disconnect()
