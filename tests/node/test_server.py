"""A node server with real processes, and supervisors that come and go."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node import control_groups
from muster.node.leftovers import VARIABLE
from muster.node.messages import (
    Code,
    Ended,
    ExitReport,
    FindFolders,
    FoldersFound,
    HostFacts,
    Joined,
    Kill,
    Launch,
    Launched,
    Leave,
    Message,
    Mount,
    Outputs,
    Ready,
    Release,
    Signal,
    Start,
    Started,
    Stop,
    WriteFiles,
)
from muster.node.processes import children, state_of
from muster.node.server import _failure
from muster.node.transfer import open_source, send
from support.faults import until
from support.node_servers import Supervisor, kill, server_pid, server_pid_if_any


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a node server, which ends after the test."""
    path = tmp_path / ("long" * 30) / "server"
    yield path
    if (path / "lock").exists():
        try:
            pid = server_pid(path)
        except AssertionError:
            return
        os.kill(pid, signal.SIGTERM)
        until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


Connect = Callable[..., Supervisor]


@pytest.fixture
def connect(folder: Path) -> Iterator[Connect]:
    """Connects supervisors to the server; `greet=False` leaves that to the test."""
    made: list[Supervisor] = []

    def make(*, greet: bool = True, **settings: Any) -> Supervisor:
        made.append(Supervisor(folder, **settings))
        return made[-1].greet() if greet else made[-1]

    yield make
    for one in made:
        one.disconnect()


class Clock:
    """That of a server which `program` runs: a test advances it, so that nothing is due before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        script = f"""
import sys
from pathlib import Path
from muster.node import __main__, clock, server
real, ahead = clock.now, Path({str(path)!r})
clock.now = lambda: real() + (float(ahead.read_text() or 0) if ahead.exists() else 0.0)
server._LONGEST_WAIT = server._LOOK_EVERY = 50
sys.exit(__main__.main(sys.argv[1:]))
"""
        self.program = (sys.executable, "-c", script)

    def advance(self, seconds: float) -> None:
        self._path.write_text(str(seconds))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "ahead")


@pytest.fixture
def supervisor(connect: Connect) -> Supervisor:
    made = connect()
    made.expect(HostFacts)
    return made


def report_of(supervisor: Supervisor) -> tuple[int | None, str, str]:
    report = supervisor.expect(Ended).report
    return report.exit_code, report.reason, report.message


def run(supervisor: Supervisor, incarnation: int, *argv: str, **more: object) -> None:
    """Start a program, which then runs."""
    supervisor.start(incarnation, *argv, **more)
    assert supervisor.expect(Started).incarnation == incarnation
    assert supervisor.expect(Ready).incarnation == incarnation


def written(path: Path) -> str:
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return path.read_text().strip()


def agent(folder: Path) -> int:
    (pid,) = children(server_pid(folder))
    return pid


def ended(*pids: str) -> bool:
    return all(state_of(int(pid)) in ("", "Z") for pid in pids)


def test_from_the_first_contact_to_the_end(folder: Path, connect: Connect) -> None:
    supervisor = connect()
    facts = supervisor.expect(HostFacts)
    assert facts.folder == str(folder)
    assert facts.cpus > 0 and facts.memory > 1 << 20 and facts.time > 1e9
    run(supervisor, 0, "sh", "-c", f"pwd; echo ${VARIABLE}; exit 3")
    assert report_of(supervisor) == (3, "exit", "")
    assert (folder / "logs/0.out").read_text() == f"{folder}/node/work\n{folder}\n"
    pid = server_pid(folder)
    supervisor.send(Leave())
    until(lambda: state_of(pid) in ("", "Z"), "the server has left")
    supervisor.disconnect()
    assert not folder.exists()


def test_nobody_else_can_connect(folder: Path, supervisor: Supervisor) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "socket").stat().st_mode & 0o777 == 0o600


# --- contact is lost


def test_the_conversation_goes_on_over_another_connection(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    run(supervisor, 0, "sh", "-c", f"until [ -e {folder}/go ]; do sleep 0.01; done; exit 4")
    supervisor.disconnect()
    (folder / "go").touch()
    until(lambda: "ended" in (folder / "journal").read_text(), "the program has ended")
    again = connect(**supervisor.conversation)
    assert report_of(again)[0] == 4


def test_what_was_not_received_is_sent_again(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    run(supervisor, 0, "sh", "-c", "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done")
    assert written(folder / "logs/0.out") == "up"
    supervisor.disconnect()
    supervisor.link.send(Signal(0, signal.SIGUSR1))
    again = connect(**supervisor.conversation)
    assert report_of(again)[0] == 9


def test_another_supervisor_is_told_what_has_happened(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    run(supervisor, 2, "sleep", "1000")
    supervisor.disconnect()
    for turn in (2, 3):
        other = connect(turn=turn)
        other.expect(HostFacts)
        told: list[type[Message]] = [Launched, Joined, Started, Ready]
        assert [other.expect(kind).incarnation for kind in told] == [2, 2, 2, 2]  # type: ignore[union-attr]
        other.disconnect()
    last = connect(turn=4)
    for kind in (HostFacts, *told):
        last.expect(kind)
    last.send(Kill(2))
    assert report_of(last)[0] == 137


def test_a_supervisor_that_was_replaced_is_refused(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    new = connect(turn=2)
    new.expect(HostFacts)
    with pytest.raises(ConnectionError, match="the other end has closed the connection"):
        supervisor.expect(Ended)
    assert connect().refusal() == "another supervisor has taken over the run"


def test_a_supervisor_of_another_run_is_refused(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    other = connect(greet=False, run_id="r2")
    with pytest.raises(Exception, match="the agent belongs to run r1, the supervisor to r2"):
        other.greet()
    supervisor.send(Stop(0))  # it is still talked to


def test_programs_go_on_while_a_new_supervisor_takes_its_time(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    run(supervisor, 0, "sh", "-c", "echo $$; exec sleep 1000")
    pid = written(folder / "logs/0.out")
    kill(supervisor.bridge.pid)
    supervisor.disconnect()
    new = connect(turn=2)
    for kind in (HostFacts, Launched, Joined, Started, Ready):
        new.expect(kind)
    assert not ended(pid)


# --- incarnations


def test_an_incarnation_is_launched_once(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 1, "sh", "-c", "echo x; sleep 1000")
    assert written(folder / "logs/0.out") == "x"
    supervisor.send(supervisor.launch(1, "true"), supervisor.launch(0, "true"))
    supervisor.send(supervisor.launch(2, "true"), Start(1), Kill(1))
    assert supervisor.expect(Ended).incarnation == 1
    assert (folder / "logs/0.out").read_text() == "x\n"


def test_a_new_node_has_nothing_of_the_one_before(folder: Path, supervisor: Supervisor) -> None:
    for number in range(2):
        run(supervisor, number, "sh", "-c", "ls; touch left")
        assert report_of(supervisor)[0] == 0
    assert (folder / "logs/0.out").read_text() == ""


def test_a_kept_node_restarts_in_place(folder: Path, supervisor: Supervisor) -> None:
    program = ("sh", "-c", "ls; touch left; exit 5")
    run(supervisor, 0, *program, keep=True)
    first = supervisor.expect(Ended)
    assert first.kept
    before = agent(folder)
    supervisor.send(supervisor.launch(1, *program, keep=True))
    supervisor.expect(Launched)
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert supervisor.expect(Ended).kept
    assert written(folder / "logs/0.out") == "left"
    assert agent(folder) == before
    supervisor.send(Release())
    run(supervisor, 2, *program)
    assert report_of(supervisor)[0] == 5
    assert written(folder / "logs/0.out") == "left"  # of the one before


def test_a_restart_of_any_size(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    large = {f"V{number}": "x" * 100_000 for number in range(12)}
    supervisor.send(supervisor.launch(1, "true", keep=True, env=large))
    supervisor.expect(Launched)
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert report_of(supervisor)[0] == 0


def test_a_kept_node_whose_agent_was_killed_is_replaced(
    folder: Path, supervisor: Supervisor
) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    kill(agent(folder))
    run(supervisor, 1, "true", keep=True)  # it joins as a new one
    assert supervisor.expect(Ended).kept


@pytest.mark.parametrize("request_of", [Stop, Kill])
def test_a_launch_that_waits_for_the_former_node_can_be_ended(
    folder: Path, supervisor: Supervisor, request_of: type[Stop | Kill]
) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    kept = agent(folder)
    os.kill(kept, signal.SIGSTOP)  # it does not end when it is given up
    supervisor.send(Release(), supervisor.launch(1, "true"), request_of(0), request_of(1))
    assert supervisor.expect(Launched).incarnation == 1
    assert report_of(supervisor) == (143, "exit", "")
    os.kill(kept, signal.SIGCONT)
    run(supervisor, 2, "true")


def test_a_node_that_cannot_be_set_up(folder: Path, supervisor: Supervisor) -> None:
    launch = supervisor.launch(0, "true")
    supervisor.send(launch._replace(folders=["/proc/no/such"]))
    supervisor.expect(Launched)
    code, reason, message = report_of(supervisor)
    assert (code, reason) == (None, "not_started")
    assert "/proc/no" in message


def test_files_are_for_their_owner_only(folder: Path, supervisor: Supervisor) -> None:
    launch = supervisor.launch(0, "cat", f"{folder}/node/work/roster")
    path = f"{folder}/node/work/roster"
    supervisor.send(launch._replace(files={path: "first\n"}))
    supervisor.expect(Launched)
    supervisor.expect(Joined)
    supervisor.send(WriteFiles({path: "second\n", "/proc/no/such": ""}), Start(0))
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert report_of(supervisor)[0] == 0
    assert (folder / "logs/0.out").read_text() == "second\n"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert "/proc/no/such.part cannot be written" in (folder / "server.log").read_text()


# --- code


def packed(tmp_path: Path, **files: str) -> bytes:
    """An archive with these files."""
    folder = tmp_path / "code"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    stream = io.BytesIO()
    descriptor = open_source(str(folder))
    try:
        send(descriptor, "code", stream, pytest.fail)
    finally:
        os.close(descriptor)
    return stream.getvalue()


def with_code(supervisor: Supervisor, incarnation: int, archive: bytes, *argv: str) -> Launch:
    launch = supervisor.launch(incarnation, *argv)
    work = f"{supervisor.folder}/node/work"
    code = Code(hashlib.sha256(archive).hexdigest(), work)
    return launch._replace(code=code, folders=[f"{supervisor.folder}/logs"])


def test_code_is_sent_once(folder: Path, supervisor: Supervisor, tmp_path: Path) -> None:
    large = os.urandom(3 << 20).hex()
    archive = packed(tmp_path, main="echo from the code", large=large)
    for incarnation in range(2):
        supervisor.send(with_code(supervisor, incarnation, archive, "sh", "main"))
        supervisor.expect(Launched)
        if incarnation == 0:
            asked = supervisor.send_code(archive)
            assert asked == {"kind": "code", "sha256": hashlib.sha256(archive).hexdigest()}
        supervisor.expect(Joined)
        supervisor.send(Start(incarnation))
        supervisor.expect(Started)
        supervisor.expect(Ready)
        assert report_of(supervisor)[0] == 0
    assert (folder / "logs/0.out").read_text() == "from the code\n" * 2
    assert (folder / "node/work/large").read_text() == large


def test_code_is_sent_again_after_an_invalid_frame(
    supervisor: Supervisor, connect: Connect, tmp_path: Path
) -> None:
    """Also if the supervisor does not close the connection: the server does."""
    archive = packed(tmp_path, main="")
    supervisor.send(with_code(supervisor, 0, archive, "true"))
    supervisor.expect(Launched)
    supervisor.until(lambda: bool(supervisor.streams.opened()))
    supervisor.connection._add_frame(99, b"")
    assert supervisor.refusal() == "a frame of unknown kind 99"
    again = connect(**supervisor.conversation)
    again.send_code(archive)
    again.expect(Joined)


def test_code_that_cannot_be_had(supervisor: Supervisor, tmp_path: Path) -> None:
    archive = packed(tmp_path, main="")
    supervisor.send(with_code(supervisor, 0, archive, "true"))
    supervisor.expect(Launched)
    supervisor.send_code(archive + b"more")
    why = "the code: the archive is not the one that was announced"
    assert report_of(supervisor) == (None, "not_started", why)
    supervisor.send(with_code(supervisor, 1, archive, "true"))
    supervisor.expect(Launched)
    supervisor.until(lambda: refused(supervisor, "it was deleted"))
    assert report_of(supervisor) == (None, "not_started", "the code: it was deleted")
    launch = with_code(supervisor, 2, archive, "true")
    assert launch.code is not None
    supervisor.send(launch._replace(code=launch.code._replace(sha256="../../etc")))
    supervisor.expect(Launched)
    why = "the code: not a SHA-256: '../../etc'"
    assert report_of(supervisor) == (None, "not_started", why)


def refused(supervisor: Supervisor, why: str) -> bool:
    found = supervisor.streams.opened()
    for stream in found:
        stream.cancel(why)
    return bool(found)


def test_code_that_is_no_archive(supervisor: Supervisor) -> None:
    supervisor.send(with_code(supervisor, 0, b"not a tar file", "true"))
    supervisor.expect(Launched)
    supervisor.send_code(b"not a tar file")
    code, reason, message = report_of(supervisor)
    assert (code, reason) == (None, "not_started")
    assert "The transfer was interrupted" in message


def test_code_is_asked_for_again_after_contact_was_lost(
    folder: Path, connect: Connect, supervisor: Supervisor, tmp_path: Path
) -> None:
    archive = packed(tmp_path, main="exit 4")
    supervisor.send(with_code(supervisor, 0, archive, "sh", "main"))
    supervisor.expect(Launched)
    supervisor.until(lambda: bool(supervisor.streams.opened()))
    supervisor.disconnect()
    new = connect(turn=2)
    new.expect(HostFacts)
    new.expect(Launched)
    new.send_code(archive)
    new.expect(Joined)
    new.send(Start(0))
    new.expect(Started)
    new.expect(Ready)
    assert report_of(new)[0] == 4
    assert [path.name for path in (folder / "code").iterdir()] == [
        hashlib.sha256(archive).hexdigest()
    ]


# --- mounts


def test_directories_are_found_on_request(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.send(FindFolders([str(tmp_path), str(tmp_path / "no")]))
    assert supervisor.expect(FoldersFound).paths == [str(tmp_path)]


def test_each_archive_of_a_launch_is_asked_for(
    folder: Path, supervisor: Supervisor, tmp_path: Path
) -> None:
    code, data = packed(tmp_path, main="exit 0"), packed(tmp_path / "data", given="given\n")
    digests = [hashlib.sha256(archive).hexdigest() for archive in (code, data)]
    work, copy = folder / "node/work", folder / "node/mnt/0/data"
    for incarnation in range(2):
        launch = with_code(supervisor, incarnation, code, "sh", "main")
        mount = Mount(str(copy), 0o700, digests[1], str(work / "main.in"))
        supervisor.send(launch._replace(mounts=[mount]))
        supervisor.expect(Launched)
        for archive, digest in zip((code, data), digests, strict=True):
            if not incarnation:
                assert supervisor.send_code(archive)["sha256"] == digest
        supervisor.expect(Joined)
        assert (copy / "given").read_text() == "given\n"
        assert (work / "main.in").resolve() == copy.resolve()
        (copy / "given").write_text("of the node before")
        supervisor.send(Start(incarnation))
        supervisor.expect(Started)
        supervisor.expect(Ready)
        assert report_of(supervisor)[0] == 0
    supervisor.send(with_code(supervisor, 2, code, "sh", "main"))
    supervisor.expect(Launched)
    supervisor.expect(Joined)
    assert [path.name for path in (folder / "code").iterdir()] == digests[:1], "it is not needed"


def test_a_mounted_directory_that_cannot_be_had(folder: Path, supervisor: Supervisor) -> None:
    mount = Mount(f"{folder}/node/data", 0o700, "ab" * 32)
    supervisor.send(supervisor.launch(0, "true")._replace(mounts=[mount]))
    supervisor.expect(Launched)
    supervisor.until(lambda: refused(supervisor, "it was deleted"))
    why = f"the mounted directory {folder}/node/data: it was deleted"
    assert report_of(supervisor) == (None, "not_started", why)


# --- outputs


def with_outputs(folder: Path, launch: Launch, archive: bytes) -> Launch:
    digest = hashlib.sha256(archive).hexdigest()
    return launch._replace(outputs=Outputs(f"{folder}/run/outputs", {"": digest}))


SHOW = ("sh", "-c", "ls -R {folder}/run/outputs; ls; touch left; exit 5")


def show(folder: Path) -> tuple[str, ...]:
    return tuple(word.replace("{folder}", str(folder)) for word in SHOW)


def test_a_kept_node_gets_outputs_in_place(
    folder: Path, supervisor: Supervisor, tmp_path: Path
) -> None:
    run(supervisor, 0, *show(folder), keep=True)
    assert supervisor.expect(Ended).kept
    before = agent(folder)
    archive = packed(tmp_path, shared="x")
    launch = supervisor.launch(1, *show(folder), keep=True)
    supervisor.send(with_outputs(folder, launch, archive))
    supervisor.expect(Launched)
    supervisor.send_code(archive)
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert supervisor.expect(Ended).kept
    assert agent(folder) == before
    assert (folder / "run/outputs/code/shared").exists()
    assert "left" in (folder / "logs/0.out").read_text()
    assert list((folder / "code").glob("*")) == [], "it is not kept"


@pytest.mark.parametrize("request_of", [Stop, Kill])
def test_a_kept_node_that_waits_for_outputs_can_be_ended(
    folder: Path, supervisor: Supervisor, request_of: type[Stop | Kill], tmp_path: Path
) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    before = agent(folder)
    launch = with_outputs(folder, supervisor.launch(1, "true", keep=True), packed(tmp_path))
    supervisor.send(launch, request_of(1))
    supervisor.expect(Launched)
    found = supervisor.expect(Ended)
    assert (found.report.exit_code, found.kept) == (143, True)
    supervisor.send(supervisor.launch(2, "true", keep=True))
    supervisor.expect(Launched)
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert report_of(supervisor)[0] == 0
    assert agent(folder) == before


def test_a_kept_node_whose_agent_is_killed_while_it_waits_for_outputs(
    folder: Path, supervisor: Supervisor, tmp_path: Path
) -> None:
    run(supervisor, 0, *show(folder), keep=True)
    assert supervisor.expect(Ended).kept
    archive = packed(tmp_path, shared="x")
    launch = supervisor.launch(1, *show(folder), keep=True)
    supervisor.send(with_outputs(folder, launch, archive))
    supervisor.expect(Launched)
    supervisor.until(lambda: bool(supervisor.streams.opened()))
    kill(agent(folder))
    supervisor.send_code(archive)
    supervisor.expect(Joined)  # as a new one
    supervisor.send(Start(1))
    supervisor.expect(Started)
    supervisor.expect(Ready)
    assert report_of(supervisor)[0] == 5
    assert (folder / "run/outputs/code/shared").exists()
    assert "left" not in (folder / "logs/0.out").read_text()


def test_a_server_that_is_terminated_while_a_kept_node_waits_for_outputs(
    folder: Path, supervisor: Supervisor, tmp_path: Path
) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    pid = server_pid(folder)
    supervisor.send(with_outputs(folder, supervisor.launch(1, "true", keep=True), packed(tmp_path)))
    supervisor.expect(Launched)
    os.kill(pid, signal.SIGTERM)
    assert report_of(supervisor) == (None, "node_lost", "its node server was ended")
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


@pytest.mark.parametrize("how", ["stop", "kill", "leave", "isolation"])
def test_a_node_that_waits_for_its_code_can_be_ended(
    folder: Path, connect: Connect, clock: Clock, tmp_path: Path, how: str
) -> None:
    supervisor = connect(isolation=1000.0, program=clock.program)
    supervisor.expect(HostFacts)
    archive = packed(tmp_path, main="")
    supervisor.send(with_code(supervisor, 0, archive, "true"))
    supervisor.expect(Launched)
    supervisor.until(lambda: bool(supervisor.streams.opened()))
    if how == "isolation":
        supervisor.disconnect()
        clock.advance(1001.0)
        until(lambda: "ended" in (folder / "journal").read_text(), "the node has ended")
        supervisor = after_its_end(folder, connect)
        why = "it had no contact with a supervisor for 1000 s"
        assert report_of(supervisor) == (None, "node_lost", why)
    elif how == "leave":
        supervisor.send(Leave())
        assert report_of(supervisor) == (None, "node_lost", "the run has left the node")
    else:
        supervisor.send(Stop(0) if how == "stop" else Kill(0))
        assert report_of(supervisor) == (143, "exit", "")
    assert not any((folder / "code").glob("*"))


@pytest.mark.parametrize("files", [{"/tmp/a\0b": ""}, {"{folder}/logs/x": "\ud800"}])
def test_files_that_cannot_be(folder: Path, supervisor: Supervisor, files: dict[str, str]) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    files = {path.format(folder=folder): content for path, content in files.items()}
    supervisor.send(WriteFiles(files))
    supervisor.send(supervisor.launch(1, "true", keep=True)._replace(files=files))
    supervisor.expect(Launched)
    assert report_of(supervisor)[:2] == (None, "not_started")
    supervisor.send(Release(), supervisor.launch(2, "true")._replace(files=files))
    supervisor.expect(Launched)
    assert report_of(supervisor)[:2] == (None, "not_started")


# --- processes are killed

DETACHED = "setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000"


def test_a_killed_agent_leaves_no_process(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "sh", "-c", DETACHED)
    pid = written(folder / "logs/0.out")
    kill(agent(folder))
    code, reason, message = report_of(supervisor)
    assert (code, reason, message) == (None, "node_lost", "its agent was killed by SIGKILL")
    assert ended(pid)
    run(supervisor, 1, "true")


@pytest.mark.parametrize("both", [False, True])
def test_a_killed_server_leaves_no_process(
    folder: Path, connect: Connect, supervisor: Supervisor, *, both: bool
) -> None:
    run(supervisor, 0, "sh", "-c", DETACHED)
    pid, victims = written(folder / "logs/0.out"), [server_pid(folder)]
    if both:
        victims.append(agent(folder))
        for victim in victims:
            os.kill(victim, signal.SIGSTOP)  # neither sees the other end
    for victim in victims:
        kill(victim)
    supervisor.disconnect()
    new = connect()
    assert ended(pid)
    for kind in (HostFacts, Launched, Joined, Started, Ready):
        new.expect(kind)
    assert report_of(new)[1:] == (
        "node_lost",
        "its node server was killed, or its host was restarted",
    )
    run(new, 1, "true")


# --- control groups


needs_groups = pytest.mark.skipif(
    len(control_groups.usable_limits()) < 2, reason="control groups are not writable here"
)
#: What a node may use.
AMOUNTS = {"cpus": 0.5, "memory": 128 << 20, "required": ["cpu", "memory"]}
GROW = [sys.executable, "-c", "bytearray(1 << 28)"]


def groups_of(folder: Path) -> list[Path]:
    """The control groups of the node of a server."""
    recorded = (folder / "groups").read_text().splitlines()
    return [Path(path) for path in recorded if Path(path).exists()]


@needs_groups
def test_a_node_has_its_share_of_the_machine(folder: Path, connect: Connect) -> None:
    one = connect(amounts=AMOUNTS)
    facts = one.expect(HostFacts)
    assert (facts.cpus, facts.memory) == (1, 128 << 20)
    run(one, 0, "sleep", "1000")
    groups, pids = groups_of(folder), {str(agent(folder)), left_by_a_command(one)}
    assert all(pids < set((group / "cgroup.procs").read_text().split()) for group in groups)
    parents = {one.parent for one in control_groups.hierarchies().values()}
    assert {str(group.parent) for group in groups} == parents
    one.send(Leave())
    until(lambda: not any(map(Path.exists, groups)), "they are removed")


@needs_groups
def test_who_runs_out_of_memory(connect: Connect) -> None:
    """Only an incarnation of which a process was killed at the limit."""
    one = connect(amounts=AMOUNTS)
    one.expect(HostFacts)
    for incarnation, program in enumerate((GROW, ["sh", "-c", "kill -9 $$"], GROW)):
        run(one, incarnation, *program)
        reason = "out_of_memory" if program is GROW else "exit"
        assert report_of(one)[:2] == (137, reason)


@needs_groups
def test_an_agent_that_is_killed_at_the_memory_limit(folder: Path, connect: Connect) -> None:
    one = connect(amounts=AMOUNTS)
    one.expect(HostFacts)
    run(one, 0, "sh", "-c", f'until [ -e {folder}/go ]; do sleep 0.01; done; exec "$@"', "", *GROW)
    # of the processes that use the memory, the kernel takes the one that it is told to
    Path(f"/proc/{agent(folder)}/oom_score_adj").write_text("1000")
    (folder / "go").touch()
    code, reason, message = report_of(one)
    assert (code, reason, message) == (None, "out_of_memory", "its agent was killed by SIGKILL")


@needs_groups
def test_a_process_that_hides_from_a_new_server(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    """It has cleared its environment, and neither the server nor the agent can end it."""
    run(supervisor, 0, "sh", "-c", "env -i setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000")
    pid, victims = written(folder / "logs/0.out"), [server_pid(folder), agent(folder)]
    for victim in victims:
        os.kill(victim, signal.SIGSTOP)
    for victim in victims:
        kill(victim)
    supervisor.disconnect()
    assert not ended(pid)
    connect()
    assert ended(pid)


@pytest.mark.parametrize("reserve", [False, True])
def test_a_machine_without_what_is_required(folder: Path, tmp_path: Path, reserve: bool) -> None:
    owner = {"user": "ana", "run_id": "r1", "run": "a-1", "rank": 0}
    settings = {
        "run_id": "r1",
        "rank": 0,
        "amounts": {"cpus": 5000.0, "required": ["cpu"]},
        **({"reserve": {"owner": owner, "queue": str(tmp_path / "queue")}} if reserve else {}),
    }
    done = subprocess.run(
        [sys.executable, "-m", "muster.node", "open", folder],
        input=json.dumps(settings) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = done.stdout if reserve else done.stderr
    assert "CPUs, and a node needs 5000 CPUs" in said
    assert said.startswith('{"lacks": "it has ' if reserve else "muster-node: ")
    assert not (tmp_path / "queue").exists()


def test_an_end_that_nobody_heard_of_survives_the_server(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    run(supervisor, 0, "sh", "-c", f"until [ -e {folder}/go ]; do sleep 0.01; done; exit 6")
    supervisor.disconnect()
    (folder / "go").touch()
    until(lambda: "ended" in (folder / "journal").read_text(), "the program has ended")
    kill(server_pid(folder))
    new = connect(turn=2)
    for kind in (HostFacts, Launched, Joined, Started, Ready):
        new.expect(kind)
    assert report_of(new)[0] == 6


def test_sigterm_lets_the_program_end(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done")
    assert written(folder / "logs/0.out") == "up"
    pid = server_pid(folder)
    os.kill(pid, signal.SIGTERM)
    assert report_of(supervisor)[0] == 7
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


# --- descriptors


def test_without_descriptors_it_waits(
    folder: Path, connect: Connect, supervisor: Supervisor
) -> None:
    pid = server_pid(folder)
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    before = cpu_time(pid)
    other = connect(greet=False, turn=2)
    with pytest.raises(subprocess.TimeoutExpired):
        other.bridge.wait(2)
    assert cpu_time(pid) - before < 0.5
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    other.greet().expect(HostFacts)


def cpu_time(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("request_", [Stop(0), Kill(0)])
def test_a_node_that_waits_for_its_start_is_ended(
    folder: Path, supervisor: Supervisor, request_: Message
) -> None:
    supervisor.send(supervisor.launch(0, "touch", f"{folder}/started"))
    supervisor.expect(Launched)
    supervisor.expect(Joined)
    supervisor.send(request_)
    assert report_of(supervisor)[0] == 143
    assert not (folder / "started").exists()


def test_sigterm_while_the_node_waits_for_its_start(folder: Path, supervisor: Supervisor) -> None:
    supervisor.send(supervisor.launch(0, "touch", f"{folder}/started"))
    supervisor.expect(Launched)
    supervisor.expect(Joined)
    pid = server_pid(folder)
    os.kill(pid, signal.SIGTERM)
    assert report_of(supervisor)[0] == 143
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")
    assert not (folder / "started").exists()


# --- leaving


def left_by_a_command(supervisor: Supervisor) -> str:
    """The pid of a process that a command in the node has left."""
    names = ("input", "output", "errors")
    parts = {name: supervisor.streams.open({"kind": name}) for name in names}
    numbers = {name: stream.number for name, stream in parts.items()}
    argv = ["sh", "-c", "setsid sleep 1000 & echo $!"]
    stream = supervisor.streams.open({"kind": "command", "argv": argv, **numbers})
    found = supervisor.collect(parts["output"]).decode().strip()
    supervisor.collect(stream)
    return found


def test_who_leaves_ends_what_commands_have_left(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "sleep", "1000")
    left, pid = left_by_a_command(supervisor), server_pid(folder)
    supervisor.send(Kill(0))
    report_of(supervisor)
    supervisor.send(Leave())
    until(lambda: ended(str(pid)), "the server has left")
    assert ended(left)


def test_a_new_node_has_no_process_of_the_one_before(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "sleep", "1000")
    left = left_by_a_command(supervisor)
    supervisor.send(Kill(0))
    report_of(supervisor)
    run(supervisor, 1, "true")
    assert ended(left)


@pytest.mark.parametrize("keep", [False, True])
def test_what_ends_with_the_node(supervisor: Supervisor, keep: bool) -> None:
    run(supervisor, 0, "sleep", "1000", keep=keep)
    parts = {name: supervisor.streams.open({"kind": name}) for name in ("input", "output")}
    numbers = {name: stream.number for name, stream in parts.items()}
    terminal = {"argv": ["sleep", "1000"], "terminal": [24, 80], **numbers}
    command = supervisor.streams.open({"kind": "command", **terminal})
    end = supervisor.streams.open({"kind": "node"})
    supervisor.until(lambda: b"pid" in command.take())
    supervisor.send(Kill(0))
    report_of(supervisor)
    supervisor.collect(command)
    assert command.result == {"code": 137}
    for kind in ("node", "counters", "connect"):
        refused = supervisor.streams.open({"kind": kind, "port": 1})
        supervisor.until(lambda one=refused: bool(one.canceled))  # type: ignore[misc]
        assert refused.canceled == "no program runs there"
    if keep:  # it can be restarted in place
        assert end.result is None
        supervisor.send(Release())
    supervisor.collect(end)


def test_nothing_is_launched_by_a_server_that_leaves(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "true", keep=True)
    assert supervisor.expect(Ended).kept
    one, pid = agent(folder), server_pid(folder)
    os.kill(one, signal.SIGSTOP)  # it takes its time
    supervisor.send(Release(), supervisor.launch(1, "sleep", "1000"), Leave())
    os.kill(one, signal.SIGCONT)
    until(lambda: ended(str(pid)), "the server has left")
    supervisor.until(lambda: bool(supervisor.connection.ended))
    assert not [told for told in supervisor._received if getattr(told, "incarnation", 0) == 1]


def test_an_agent_that_does_not_end_is_killed(folder: Path, supervisor: Supervisor) -> None:
    run(supervisor, 0, "sh", "-c", DETACHED)
    left, one, pid = written(folder / "logs/0.out"), agent(folder), server_pid(folder)
    os.kill(one, signal.SIGSTOP)
    supervisor.send(Leave())
    code, reason, message = report_of(supervisor)
    assert (code, reason, message) == (None, "node_lost", "the run has left the node")
    until(lambda: ended(str(pid)), "the server has left")
    assert ended(left, str(one))


# --- without contact


def after_its_end(folder: Path, connect: Connect) -> Supervisor:
    """Connect to the next server of a folder, once the present one has left."""
    until(lambda: server_pid_if_any(folder) is None, "the server has left")
    supervisor = connect()
    supervisor.expect(HostFacts)
    supervisor.expect(Launched)
    return supervisor


def test_a_server_without_a_node_leaves_too(folder: Path, connect: Connect, clock: Clock) -> None:
    supervisor = connect(isolation=1000.0, program=clock.program)
    supervisor.expect(HostFacts)
    supervisor.disconnect()
    clock.advance(1001.0)
    until(lambda: server_pid_if_any(folder) is None, "the server has left")


def test_after_the_isolation_timeout_its_processes_are_ended(
    folder: Path, connect: Connect, clock: Clock
) -> None:
    supervisor = connect(isolation=1000.0, program=clock.program)
    supervisor.expect(HostFacts)
    run(supervisor, 0, "sh", "-c", DETACHED)
    pid = written(folder / "logs/0.out")
    supervisor.disconnect()
    assert not ended(pid)
    clock.advance(1001.0)
    until(lambda: ended(pid), "its processes have ended")
    again = after_its_end(folder, connect)
    for kind in (Joined, Started, Ready):
        again.expect(kind)
    message = "it had no contact with a supervisor for 1000 s"
    assert report_of(again) == (None, "node_lost", message)


def test_the_isolation_timeout_begins_when_something_was_last_heard(
    folder: Path, connect: Connect, clock: Clock
) -> None:
    """Not when the connection is given up, as nobody answers."""
    supervisor = connect(isolation=1000.0, program=clock.program)
    supervisor.expect(HostFacts)
    run(supervisor, 0, "sh", "-c", DETACHED)
    pid = written(folder / "logs/0.out")
    clock.advance(1001.0)
    until(lambda: ended(pid), "its processes have ended")


def test_the_isolation_timeout_goes_on_while_the_server_is_suspended(
    folder: Path, connect: Connect, clock: Clock
) -> None:
    """That the connection has ended meanwhile is no sign of life."""
    supervisor = connect(isolation=1000.0, program=clock.program)
    supervisor.expect(HostFacts)
    run(supervisor, 0, "sh", "-c", DETACHED)
    pid = written(folder / "logs/0.out")
    server = server_pid(folder)
    os.kill(server, signal.SIGSTOP)
    supervisor.disconnect()
    clock.advance(1001.0)
    os.kill(server, signal.SIGCONT)
    until(lambda: ended(pid), "its processes have ended")


def test_after_the_decision_window_it_exits(folder: Path, connect: Connect) -> None:
    supervisor = connect(decision=0.3)
    supervisor.expect(HostFacts)
    script = f"until [ -e {folder}/go ]; do sleep 0.01; done; echo out of luck >&2; exit 8"
    run(supervisor, 0, "sh", "-c", script)
    pid = server_pid(folder)
    supervisor.disconnect()
    (folder / "go").touch()
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")
    why = "no supervisor has decided what follows: its program exited with code 8"
    assert f"muster: {why}: out of luck\n" in (folder / "server.log").read_text()


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (ExitReport(137, 0, "exit"), "its program exited with code 137"),
        (ExitReport(137, 9, "exit", "last line of stderr:\n  up"), "ended by signal 9: up"),
        (ExitReport(None, 0, "node_lost", "it was gone\n"), "by itself (node_lost): it was gone"),
    ],
)
def test_how_a_program_has_failed_is_a_line(report: ExitReport, text: str) -> None:
    line = _failure(report)
    assert line.endswith(text) and "\n" not in line


@pytest.mark.parametrize("end", ["never launched", "succeeded", "stopped"])
def test_without_a_failure_it_waits_for_a_supervisor(
    folder: Path, connect: Connect, end: str
) -> None:
    supervisor = connect(decision=0.05)
    supervisor.expect(HostFacts)
    if end != "never launched":
        run(supervisor, 0, "sh", "-c", "exit 0" if end == "succeeded" else "sleep 1000")
        if end == "stopped":
            supervisor.send(Stop(0))
        supervisor.expect(Ended)
    pid = server_pid(folder)
    supervisor.disconnect()
    time.sleep(0.3)  # several times the window
    assert state_of(pid) not in ("", "Z")
    connect(decision=0.05).expect(HostFacts)
