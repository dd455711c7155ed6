"""The end of nodes that nobody drives any more, with a real sshd."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.engines.hosts import clean_up
from muster.engines.hosts.clean_up import end_nodes
from muster.engines.hosts.profile import Machine
from muster.engines.hosts.program import run_program
from muster.engines.hosts.record import Record
from muster.engines.hosts.ssh import SshSettings, socket_folder, upload
from muster.engines.remote.record import read_record, write_record
from muster.errors import EngineError
from muster.node.serve import Settings, connect
from muster.storage.home import RunDir
from support.node_servers import server_pid_if_any
from support.ssh_hosts import needs_sshd, shared_sshd


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    (tmp_path / "run").mkdir()
    return RunDir(tmp_path / "run")


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shell script that is run as ssh."""
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.touch(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    yield path


def machine(host: str = "127.0.0.1") -> Machine:
    return Machine(host, python=sys.executable)


@needs_sshd
def test_all_nodes_are_ended_and_their_folders_removed(folder: RunDir, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    for rank in range(2):
        connect(str(nodes / f"r1-{rank}"), Settings("0", "r1", rank)).close()
    assert server_pid_if_any(nodes / "r1-0") is not None
    other = connect(str(nodes / "r2-0"), Settings("0", "r2", 0))
    # the third one has never started
    machines = {rank: machine(f"127.0.0.{rank + 1}") for rank in range(3)}
    write_record(folder.hosts, Record(str(nodes), machines))
    ssh = SshSettings(socket_folder(), str(shared_sshd().config))
    end_nodes(folder, "r1", ssh)
    assert [path.name for path in nodes.iterdir()] == ["r2-0"]
    assert not folder.hosts.exists()
    write_record(folder.hosts, Record(str(nodes), {0: machine()}))
    end_nodes(folder, "r2", ssh)
    with pytest.raises(FileNotFoundError):
        os.stat(nodes / "r2-0")
    other.settimeout(60)
    while other.recv(4096):  # its hello; then the end
        pass
    other.close()
    end_nodes(folder, "r2", ssh)  # nothing is left to do


def test_what_cannot_be_confirmed(folder: RunDir, fake_ssh: Path) -> None:
    fake_ssh.write_text("#!/bin/sh\necho 'ssh: connect: No route to host' >&2; exit 255\n")
    machines = {0: machine("gpu1"), 1: machine("gpu2")}
    write_record(folder.hosts, Record("/nodes", machines))
    with pytest.raises(EngineError) as error:
        end_nodes(folder, "r1", SshSettings(Path("/s")))
    assert str(error.value) == (
        "its nodes could not be ended on every machine: gpu1: ssh: connect: No route to host; "
        "gpu2: ssh: connect: No route to host"
    )
    assert read_record(folder.hosts, Record) == Record("/nodes", machines), "to be tried again"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo muster-node upload; exec 0<&-; echo no space >&2; exit 1", "no space"),
        ("echo muster-node; echo muster-node: cannot end 7 >&2; exit 1", "cannot end 7"),
        ("exit 1", "ssh ended with exit code 1"),
        ("kill -9 $$", "ssh was ended by signal 9"),
    ],
)
def test_why_a_machine_has_not_ended_its_node(
    folder: RunDir, fake_ssh: Path, script: str, says: str
) -> None:
    fake_ssh.write_text(f"#!/bin/sh\n{script}\n")
    write_record(folder.hosts, Record("/nodes", {0: machine("gpu1")}))
    with pytest.raises(EngineError, match=f"on every machine: gpu1: {says}$"):
        end_nodes(folder, "r1", SshSettings(Path("/s")))


@pytest.mark.parametrize("script", ["exec sleep 1000", "echo muster-node; exec sleep 1000"])
def test_a_machine_that_hangs(
    folder: RunDir, fake_ssh: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_up, "_TIMEOUT", 0.2)
    fake_ssh.write_text(f"#!/bin/sh\n{script}\n")
    write_record(folder.hosts, Record("/nodes", {0: machine("gpu1")}))
    with pytest.raises(EngineError, match="gpu1: it has not answered within 0 s"):
        end_nodes(folder, "r1", SshSettings(Path("/s")))


def test_noise_before_the_program_starts(folder: RunDir, fake_ssh: Path, tmp_path: Path) -> None:
    size = len(upload())
    fake_ssh.write_text(
        f"#!/bin/sh\necho Welcome; printf 'to all: muster-node upload\\n'; exec head -c {size} "
        f"> {tmp_path}/program\n"
    )
    write_record(folder.hosts, Record("/nodes", {0: machine("gpu1")}))
    end_nodes(folder, "r1", SshSettings(Path("/s")))
    assert (tmp_path / "program").read_bytes() == upload()


def test_what_comes_with_the_greeting_is_not_lost(fake_ssh: Path) -> None:
    fake_ssh.write_text("#!/bin/sh\nprintf 'Welcome\\nmuster-node\\n{}\\n'\n")
    ssh = SshSettings(Path("/s"))
    assert run_program(ssh, machine("gpu1"), "facts", timeout=60.0) == "{}\n"


def test_nothing_to_end(folder: RunDir, fake_ssh: Path) -> None:
    fake_ssh.unlink()
    end_nodes(folder, "r1", SshSettings(Path("/s")))
    write_record(folder.hosts, Record("/nodes", {}))
    end_nodes(folder, "r1", SshSettings(Path("/s")))


def test_a_damaged_record_is_not_taken_for_an_empty_one(folder: RunDir) -> None:
    folder.hosts.write_text("{")
    with pytest.raises(EngineError, match=r"its nodes are not known: .* is damaged"):
        end_nodes(folder, "r1", SshSettings(Path("/s")))
