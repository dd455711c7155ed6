"""Services of a node, as its agent runs them: real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node.messages import decode_launch
from muster.node.services import Services
from support.agents import Node, launch_data

FOREVER = "exec sleep 1000"
#: Reports its start, and its end after SIGTERM.
ORDERLY = (
    "trap 'echo {0} ends >> all; exit 0' TERM; echo {0} >> all; touch {0}; "
    "while :; do sleep 0.01; done"
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(script: str, **launch: Any) -> Node:
        made.append(Node(tmp_path, "sh", "-c", script, **launch))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()
        assert one.process.wait(60) == 0


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """A service of the launch message: a script, run by a shell."""

    def make(name: str, script: str, **more: Any) -> dict[str, Any]:
        own = str(tmp_path / f"{name}.log")
        usual = {"env": {}, "stdout": own, "stderr": own, "after": None, "ready": None}
        argv = ["sh", "-c", script]
        return {"name": name, "argv": argv, **usual, "grace": 60.0, **more}

    return make


def files_exist(*names: str) -> dict[str, Any]:
    """A check that these files exist; `all` and `pid` must have content, too."""
    written = ("all", "pid")
    tests = " && ".join(f"test {'-s' if name in written else '-e'} {name}" for name in names)
    what = f"the file {names[0]}" if len(names) == 1 else ""
    command = ["sh", "-c", tests]
    return {"type": "succeeds", "command": command, "what": what, "patience": 60.0}


def lines(node: Node) -> list[str]:
    return (node.folder / "all").read_text().splitlines()


def await_files(node: Node, *names: str) -> None:
    """Wait for files."""
    while not all((node.folder / name).exists() for name in names):
        assert node.process.poll() is None


# --- start


def test_each_service_starts_when_its_check_passes(node: Any, service: Any) -> None:
    services = [
        service("one", f"echo one >> all; touch one; {FOREVER}", ready=files_exist("one")),
        service("two", f"test -e one && echo two >> all; touch two; {FOREVER}"),
        service("three", f"echo three >> all; touch three; {FOREVER}", after=files_exist("go")),
    ]
    one = node("echo program >> all", services=services, gather=files_exist("three"))
    one.expect("started")
    await_files(one, "two")
    assert lines(one) == ["one", "two"]
    (one.folder / "go").touch()
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0
    assert lines(one) == ["one", "two", "three", "program"]


def test_a_service_has_its_own_environment(node: Any, service: Any) -> None:
    env = {"OWN": "1", "LOCAL_RANK": "service"}
    script = f'echo "$OWN $LOCAL_RANK $INCARNATION"; touch up; {FOREVER}'
    one = node(
        'echo "$OWN $LOCAL_RANK $INCARNATION"',
        services=[service("one", script, env=env)],
        gather=files_exist("up"),
    )
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.expect("ended")
    assert (one.folder / "one.log").read_text() == "1 service 0\n"
    assert one.output() == " 0 0\n"


def test_the_launcher_comes_before_the_program(node: Any) -> None:
    one = node('echo "$WORD"', launcher=["env", "WORD=before"])
    assert one.ended()["exit_code"] == 0
    assert one.output() == "before\n"


def test_a_check_that_does_not_pass_is_named(node: Any, service: Any) -> None:
    services = [
        service("one", FOREVER),
        service("two", "echo two >> all", after=files_exist("never")),
    ]
    one = node("echo program >> all", services=services, services_timeout=0.5)
    one.expect("started")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (None, "startup_timeout")
    assert ended["message"] in (
        "not ready after 0.5 s: the file never: it exited with 1",
        "not ready after 0.5 s: the file never: it has not ended yet",  # a slow machine
    )
    assert not (one.folder / "all").exists()


@pytest.mark.parametrize("incarnation", [0, 1])
def test_a_node_that_is_scaled_down_is_not_awaited(node: Any, incarnation: int) -> None:
    """It may be removed while another waits, or together with the restart of the other."""
    command = ["sh", "-c", "echo checked >> all; test $# = 0", "sh"]
    gather = {"type": "succeeds", "command": command, "expected": [[1, "node-1"]], "patience": 60.0}
    one = node("echo program >> all", gather=gather, keep=incarnation == 1)
    one.expect("started")
    await_files(one, "all")
    if incarnation == 0:
        one.send("absent", ranks=[1])
    else:
        one.send("stop")
        one.expect("ended")
        one.restart(1, "absent", gather=gather, ranks=[1])
        one.expect("started", 1)
    one.expect("ready", incarnation)
    assert one.expect("ended", incarnation)["exit_code"] == 0


def test_progress_messages_become_rarer(tmp_path: Path) -> None:
    gather = {"type": "answers", "address": "127.0.0.1", "port": "1", "path": None}
    launch = launch_data(tmp_path, gather=gather)
    services = Services(decode_launch(launch), 0.0)
    services.step(0.0)
    printed_at = [now for now in range(200) if services.progress_message(float(now))]
    assert printed_at == [10, 30, 70, 150]
    assert "127.0.0.1:1 does not answer" in services.progress_message(1000.0)
    services.stop(1000.0)
    assert services.progress_message(5000.0) == ""


def test_a_missing_service(node: Any, service: Any) -> None:
    argv = ["no-such-service"]
    services = [service("one", "", argv=argv), service("two", "echo two >> all")]
    one = node("echo program >> all", services=services)
    one.expect("started")
    ended = one.expect("ended")
    assert ended["exit_code"] == 127
    assert "no-such-service: command not found" in ended["message"]
    assert not (one.folder / "all").exists()


# --- services that end by themselves


@pytest.mark.parametrize(
    ("script", "code", "number", "how"),
    [
        ("exit 3", 3, 0, "exit code 3"),
        ("exit 0", None, 0, "exit code 0"),
        ("kill -9 $$", 137, 9, "signal 9 ended it"),
    ],
)
@pytest.mark.parametrize("program", [True, False])
def test_a_service_that_ends_before_it_is_ready(
    node: Any, service: Any, script: str, code: int | None, number: int, how: str, program: bool
) -> None:
    services = [service("one", f"echo oh >&2; {script}", ready=files_exist("never"))]
    one = node("echo program >> all", services=services, program=program)
    one.expect("started")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (code, number, "exit")
    assert ended["message"] == f"one ended by itself ({how})\noh"
    assert not (one.folder / "all").exists()


@pytest.mark.parametrize(
    ("end", "code", "number", "how"),
    [("exit 3", 3, 0, "exit code 3"), ("kill -9 $$", 137, 9, "signal 9 ended it")],
)
def test_a_service_that_ends_while_the_program_runs(
    node: Any, service: Any, end: str, code: int, number: int, how: str
) -> None:
    """The node fails because of its service, however its program ends."""
    lost = f"echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; echo lost >&2; {end}"
    program = "touch go; while kill -0 $(cat pid); do sleep 0.01; done 2> ended; exit 21"
    one = node(program, services=[service("one", lost)], gather=files_exist("pid"))
    one.expect("started")
    one.expect("ready")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["signal"]) == (code, number)
    assert ended["message"] == f"one ended by itself ({how})\nlost"


def test_the_stderr_tail_is_of_this_incarnation(node: Any, service: Any) -> None:
    services = [service("one", '[ "$INCARNATION" = 0 ] && echo of an earlier incarnation; exit 3')]
    one = node("true", services=services, gather=files_exist("never"), keep=True)
    one.expect("started")
    assert one.expect("ended")["message"].endswith("of an earlier incarnation")
    one.restart(1)
    one.expect("started", 1)
    assert one.expect("ended", 1)["message"] == "one ended by itself (exit code 3)"


def test_the_program_can_end_a_service(node: Any, service: Any) -> None:
    """A client can shut its cluster down and continue."""
    services = [service("one", "while ! [ -e go ]; do sleep 0.01; done; touch ended")]
    one = node("touch go; while ! [ -e ended ]; do sleep 0.01; done", services=services)
    one.expect("started")
    one.expect("ready")
    message = one.receive()
    if message["type"] == "done":  # the service was a little slower than the program
        message = one.receive()
    assert (message["type"], message["exit_code"]) == ("ended", 0)


@pytest.mark.parametrize(
    ("script", "code", "number", "message"),
    [
        ("exit 0", 0, 0, ""),
        ("echo oh >&2; exit 3", 3, 0, "oh"),
        ("exit 3", 3, 0, "two ended by itself (exit code 3)"),
        ("kill -9 $$", 137, 9, "two ended by itself (signal 9 ended it)"),
    ],
)
def test_a_service_in_place_of_the_program(
    node: Any, service: Any, script: str, code: int, number: int, message: str
) -> None:
    """When it ends, the node ends, with its other services."""
    wait = "while ! [ -e go ]; do sleep 0.01; done"
    services = [service("one", ORDERLY.format("one")), service("two", f"{wait}; {script}")]
    one = node("echo program >> all", services=services, program=False)
    one.expect("started")
    one.expect("ready")
    await_files(one, "all")
    (one.folder / "go").touch()
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["signal"], ended["message"]) == (code, number, message)
    assert lines(one) == ["one", "one ends"]


# --- stopping


def test_services_stop_in_reverse_order(node: Any, service: Any) -> None:
    names = ("one", "two", "three")
    services = [service(name, ORDERLY.format(name), ready=files_exist(name)) for name in names]
    one = node("while [ $(wc -l < all) != 3 ]; do sleep 0.01; done", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0
    assert lines(one) == [*names, "three ends", "two ends", "one ends"]


def test_a_service_that_ignores_sigterm_is_killed(node: Any, service: Any) -> None:
    stubborn = f"trap '' TERM; touch up; {FOREVER}"
    services = [
        service("one", ORDERLY.format("one")),
        service("two", stubborn, grace=0.5, ready=files_exist("up", "all")),
    ]
    one = node("true", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0, "the program has succeeded"
    assert lines(one) == ["one", "one ends"]


def test_processes_of_a_service_end_with_it(node: Any, service: Any) -> None:
    daemon = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait"
    one = node("true", services=[service("one", daemon)], gather=files_exist("pid"))
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.expect("ended")
    with pytest.raises(ProcessLookupError):
        os.kill(int((one.folder / "pid").read_text()), 0)


def test_a_failed_program_ends_its_services(node: Any, service: Any) -> None:
    services = [service("one", f"echo $$ > pid; trap '' TERM; {FOREVER}")]
    one = node("echo oh >&2; exit 5", services=services, gather=files_exist("pid"))
    one.expect("started")
    one.expect("ready")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["message"]) == (5, "oh")
    with pytest.raises(ProcessLookupError):
        os.kill(int((one.folder / "pid").read_text()), 0)


@pytest.mark.parametrize("op", ["stop", "kill"])
@pytest.mark.parametrize("program", [True, False])
def test_a_node_stopped_before_its_services_were_ready(
    node: Any, service: Any, op: str, program: bool
) -> None:
    services = [service("one", f"touch up; {FOREVER}", ready=files_exist("never"))]
    one = node("echo program >> all", services=services, program=program)
    one.expect("started")
    await_files(one, "up")
    one.send(op)
    ended = one.expect("ended")
    number = signal.SIGTERM if op == "stop" else signal.SIGKILL
    assert (ended["exit_code"], ended["signal"]) == (128 + number, number)
    assert not (one.folder / "all").exists()


@pytest.mark.parametrize("op", ["stop", "kill"])
def test_a_node_without_a_program_is_stopped(node: Any, service: Any, op: str) -> None:
    services = [service("one", ORDERLY.format("one")), service("two", ORDERLY.format("two"))]
    one = node("echo program >> all", services=services, program=False)
    one.expect("started")
    one.expect("ready")
    while not (one.folder / "all").exists() or len(lines(one)) < 2:
        assert one.process.poll() is None
    one.send(op)
    ended = one.expect("ended")
    number = signal.SIGTERM if op == "stop" else signal.SIGKILL
    assert (ended["exit_code"], ended["signal"]) == (128 + number, number)
    assert lines(one)[2:] == (["two ends", "one ends"] if op == "stop" else [])


def test_a_service_that_does_not_stop_is_killed(node: Any, service: Any) -> None:
    services = [service("one", f"trap '' TERM; touch up; {FOREVER}")]
    one = node("", services=services, program=False, grace_period=0.2, gather=files_exist("up"))
    one.expect("started")
    one.expect("ready")
    one.send("stop")
    assert one.expect("ended")["signal"] == signal.SIGKILL


def test_a_kill_while_services_stop_does_not_change_the_result(node: Any, service: Any) -> None:
    """The program has succeeded; only its services were still running."""
    services = [service("one", f"trap '' TERM; touch up; {FOREVER}", ready=files_exist("up"))]
    one = node("true", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.send("kill")
    assert one.expect("ended")["exit_code"] == 0


# --- incarnations


@pytest.mark.parametrize("program", [True, False])
def test_a_second_incarnation_starts_its_services(node: Any, service: Any, program: bool) -> None:
    serving = f"echo $$ > pid-$INCARNATION; {ORDERLY.format('one')}"
    services = [service("one", serving, ready=files_exist("all"))]
    one = node("echo program $INCARNATION >> all", services=services, program=program, keep=True)
    for incarnation in (0, 1):
        if incarnation:
            (one.folder / "all").unlink()
            one.restart(incarnation)
        one.expect("started", incarnation)
        one.expect("ready", incarnation)
        if program:
            one.expect("done", incarnation)
        else:
            one.send("stop", incarnation)
        ended = one.expect("ended", incarnation)
        assert (ended["exit_code"], ended["kept"]) == (0 if program else 143, True)
        own = ["one", *([f"program {incarnation}"] if program else []), "one ends"]
        assert lines(one) == own
        with pytest.raises(ProcessLookupError):
            os.kill(int((one.folder / f"pid-{incarnation}").read_text()), 0)
