"""Services of a node, as its agent runs them: real processes, seen from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node.services import Services
from support.agents import Node

FOREVER = "exec sleep 1000"
#: Ends when it is told to, and says so.
ORDERLY = "trap 'echo {0} ends >> all; exit 0' TERM; echo {0} >> all; while :; do sleep 0.01; done"


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
    """What the agent is told of a service: a script, in a shell."""

    def make(name: str, script: str, **more: Any) -> dict[str, Any]:
        own = str(tmp_path / f"{name}.log")
        usual = {"env": {}, "stdout": own, "stderr": own, "after": None, "ready": None}
        argv = ["sh", "-c", script]
        return {"name": name, "argv": argv, **usual, "grace": 60.0, **more}

    return make


def there(*names: str) -> dict[str, Any]:
    """A check that these files are there."""
    tests = " && ".join(f"test -e {name}" for name in names)
    what = f"the file {names[0]}" if len(names) == 1 else ""
    command = ["sh", "-c", tests]
    return {"type": "succeeds", "command": command, "what": what, "patience": 60.0}


def said(node: Node) -> list[str]:
    return (node.folder / "all").read_text().splitlines()


def appear(node: Node, *names: str) -> None:
    """Wait for files."""
    while not all((node.folder / name).exists() for name in names):
        assert node.process.poll() is None


# --- the beginning


def test_each_starts_when_what_it_waits_for_is_there(node: Any, service: Any) -> None:
    services = [
        service("one", f"echo one >> all; touch one; {FOREVER}", ready=there("one")),
        service("two", f"test -e one && echo two >> all; touch two; {FOREVER}"),
        service("three", f"echo three >> all; touch three; {FOREVER}", after=there("go")),
    ]
    one = node("echo program >> all", services=services, gather=there("three"))
    one.expect("started")
    appear(one, "two")
    assert said(one) == ["one", "two"]
    (one.folder / "go").touch()
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0
    assert said(one) == ["one", "two", "three", "program"]


def test_a_service_has_an_environment_of_its_own(node: Any, service: Any) -> None:
    env = {"OWN": "1", "LOCAL_RANK": "service"}
    script = f'echo "$OWN $LOCAL_RANK $LIFE"; touch up; {FOREVER}'
    one = node(
        'echo "$OWN $LOCAL_RANK $LIFE"',
        services=[service("one", script, env=env)],
        gather=there("up"),
    )
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.expect("ended")
    assert (one.folder / "one.log").read_text() == "1 service 0\n"
    assert one.output() == " 0 0\n"


def test_words_before_the_program_s_own(node: Any) -> None:
    one = node('echo "$WORD"', launcher=["env", "WORD=before"])
    assert one.ended()["exit_code"] == 0
    assert one.output() == "before\n"


def test_what_does_not_come_is_named(node: Any, service: Any) -> None:
    services = [service("one", FOREVER), service("two", "echo two >> all", after=there("never"))]
    one = node("echo program >> all", services=services, ready_timeout=0.5)
    one.expect("started")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (None, "startup_timeout")
    assert ended["message"] in (
        "not ready after 0.5 s: the file never: it exited with 1",
        "not ready after 0.5 s: the file never: it has not ended yet",  # a slow machine
    )
    assert not (one.folder / "all").exists()


@pytest.mark.parametrize("life", [0, 1])
def test_nobody_waits_for_a_node_that_is_scaled_away(node: Any, life: int) -> None:
    """Which may be told while it waits, or in the same breath as that it is to begin."""
    command = ["sh", "-c", "echo asked >> all; test $# = 0", "sh"]
    gather = {"type": "succeeds", "command": command, "expected": [[1, "node-1"]], "patience": 60.0}
    one = node("echo program >> all", gather=gather, keep=life == 1)
    one.expect("started")
    appear(one, "all")
    if life == 0:
        one.tell("absent", ranks=[1])
    else:
        one.tell("stop")
        one.expect("ended")
        one.begin(1, "absent", gather=gather, ranks=[1])
        one.expect("started", 1)
    one.expect("ready", life)
    assert one.expect("ended", life)["exit_code"] == 0


def test_who_waits_long_says_for_what_and_more_seldom_each_time() -> None:
    gather = {"type": "answers", "address": "127.0.0.1", "port": "1", "path": None}
    waiting = Services(
        {"services": [], "gather": gather, "absent": [], "ready_timeout": 600.0}, {}, 0.0
    )
    waiting.step(0.0)
    said_at = [now for now in range(200) if waiting.still_missing(float(now))]
    assert said_at == [10, 30, 70, 150]
    assert "127.0.0.1:1 does not answer" in waiting.still_missing(1000.0)
    waiting.stop(1000.0)
    assert waiting.still_missing(5000.0) == ""


def test_a_service_that_is_not_there(node: Any, service: Any) -> None:
    argv = ["no-such-service"]
    services = [service("one", "", argv=argv), service("two", "echo two >> all")]
    one = node("echo program >> all", services=services)
    one.expect("started")
    ended = one.expect("ended")
    assert ended["exit_code"] == 127
    assert "no-such-service: command not found" in ended["message"]
    assert not (one.folder / "all").exists()


# --- one that ends by itself


@pytest.mark.parametrize(
    ("script", "code", "number", "how"),
    [
        ("exit 3", 3, 0, "exit code 3"),
        ("exit 0", None, 0, "exit code 0"),
        ("kill -9 $$", 137, 9, "signal 9 ended it"),
    ],
)
@pytest.mark.parametrize("program", [True, False])
def test_before_it_was_up(
    node: Any, service: Any, script: str, code: int | None, number: int, how: str, program: bool
) -> None:
    services = [service("one", f"echo oh >&2; {script}", ready=there("never"))]
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
def test_beside_the_program(
    node: Any, service: Any, end: str, code: int, number: int, how: str
) -> None:
    """The node fails of what it needed, whatever its program makes of that."""
    lost = f"echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; echo lost >&2; {end}"
    program = "touch go; while kill -0 $(cat pid); do sleep 0.01; done 2> gone; exit 21"
    one = node(program, services=[service("one", lost)], gather=there("pid"), grace_period=60)
    one.expect("started")
    one.expect("ready")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["signal"]) == (code, number)
    assert ended["message"] == f"one ended by itself ({how})\nlost"


def test_last_words_are_not_those_of_an_earlier_life(node: Any, service: Any) -> None:
    services = [service("one", '[ "$LIFE" = 0 ] && echo of an earlier life; exit 3')]
    one = node("true", services=services, gather=there("never"), keep=True)
    one.expect("started")
    assert one.expect("ended")["message"].endswith("of an earlier life")
    one.begin(1)
    one.expect("started", 1)
    assert one.expect("ended", 1)["message"] == "one ended by itself (exit code 3)"


def test_what_the_program_told_to_end_may_end(node: Any, service: Any) -> None:
    """As a client does that shuts its cluster down, and then goes on."""
    services = [service("one", "while ! [ -e go ]; do sleep 0.01; done; touch gone")]
    one = node("touch go; while ! [ -e gone ]; do sleep 0.01; done", services=services)
    one.expect("started")
    one.expect("ready")
    told = one.hear()
    if told["event"] == "done":  # the service was a little slower than the program
        told = one.hear()
    assert (told["event"], told["exit_code"]) == ("ended", 0)


@pytest.mark.parametrize(
    ("script", "code", "number", "message"),
    [
        ("exit 0", 0, 0, ""),
        ("echo oh >&2; exit 3", 3, 0, "oh"),
        ("exit 3", 3, 0, "two ended by itself (exit code 3)"),
        ("kill -9 $$", 137, 9, "two ended by itself (signal 9 ended it)"),
    ],
)
def test_in_the_program_s_place(
    node: Any, service: Any, script: str, code: int, number: int, message: str
) -> None:
    """It stands for the node: where it leaves, the node does, and what else runs there."""
    wait = "while ! [ -e go ]; do sleep 0.01; done"
    services = [service("one", ORDERLY.format("one")), service("two", f"{wait}; {script}")]
    one = node("echo program >> all", services=services, program=False, grace_period=60)
    one.expect("started")
    one.expect("ready")
    appear(one, "all")
    (one.folder / "go").touch()
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["signal"], ended["message"]) == (code, number, message)
    assert said(one) == ["one", "one ends"]


# --- the end


def test_they_end_in_the_opposite_order(node: Any, service: Any) -> None:
    names = ("one", "two", "three")
    services = [
        service(name, f"touch {name}; {ORDERLY.format(name)}", ready=there(name)) for name in names
    ]
    one = node("while [ $(wc -l < all) != 3 ]; do sleep 0.01; done", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0
    assert said(one) == [*names, "three ends", "two ends", "one ends"]


def test_one_that_does_not_end_is_killed(node: Any, service: Any) -> None:
    stubborn = "trap 'echo told >> all' TERM; touch up; while :; do sleep 0.01; done"
    services = [
        service("one", ORDERLY.format("one")),
        service("two", stubborn, grace=0.5, ready=there("up", "all")),
    ]
    one = node("true", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    assert one.expect("ended")["exit_code"] == 0, "the program has ended well"
    assert said(one) == ["one", "told", "one ends"]


def test_what_it_has_started_ends_with_it(node: Any, service: Any) -> None:
    daemon = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait"
    one = node("true", services=[service("one", daemon)], gather=there("pid"))
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.expect("ended")
    with pytest.raises(ProcessLookupError):
        os.kill(int((one.folder / "pid").read_text()), 0)


def test_a_program_that_fails_takes_its_services_along(node: Any, service: Any) -> None:
    services = [service("one", f"echo $$ > pid; trap '' TERM; {FOREVER}")]
    one = node("echo oh >&2; exit 5", services=services, gather=there("pid"))
    one.expect("started")
    one.expect("ready")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["message"]) == (5, "oh")
    with pytest.raises(ProcessLookupError):
        os.kill(int((one.folder / "pid").read_text()), 0)


@pytest.mark.parametrize("op", ["stop", "kill"])
@pytest.mark.parametrize("program", [True, False])
def test_told_to_end_before_it_was_up(node: Any, service: Any, op: str, program: bool) -> None:
    services = [service("one", f"touch up; {FOREVER}", ready=there("never"))]
    one = node("echo program >> all", services=services, program=program, grace_period=60)
    one.expect("started")
    appear(one, "up")
    one.tell(op)
    ended = one.expect("ended")
    number = signal.SIGTERM if op == "stop" else signal.SIGKILL
    assert (ended["exit_code"], ended["signal"]) == (128 + number, number)
    assert not (one.folder / "all").exists()


@pytest.mark.parametrize("op", ["stop", "kill"])
def test_who_only_serves_is_told_to_end(node: Any, service: Any, op: str) -> None:
    services = [service("one", ORDERLY.format("one")), service("two", ORDERLY.format("two"))]
    one = node("echo program >> all", services=services, program=False, grace_period=60)
    one.expect("started")
    one.expect("ready")
    while not (one.folder / "all").exists() or len(said(one)) < 2:
        assert one.process.poll() is None
    one.tell(op)
    ended = one.expect("ended")
    number = signal.SIGTERM if op == "stop" else signal.SIGKILL
    assert (ended["exit_code"], ended["signal"]) == (128 + number, number)
    assert said(one)[2:] == (["two ends", "one ends"] if op == "stop" else [])


def test_who_only_serves_and_does_not_end_is_killed(node: Any, service: Any) -> None:
    services = [service("one", f"trap '' TERM; touch up; {FOREVER}")]
    one = node("", services=services, program=False, grace_period=0.2, gather=there("up"))
    one.expect("started")
    one.expect("ready")
    one.tell("stop")
    assert one.expect("ended")["signal"] == signal.SIGKILL


def test_a_kill_while_services_end_takes_nothing_back(node: Any, service: Any) -> None:
    """The program has ended well; only its services were still there."""
    services = [service("one", f"trap '' TERM; touch up; {FOREVER}", ready=there("up"))]
    one = node("true", services=services)
    one.expect("started")
    one.expect("ready")
    one.expect("done")
    one.tell("kill")
    assert one.expect("ended")["exit_code"] == 0


# --- lives


@pytest.mark.parametrize("program", [True, False])
def test_a_second_life_has_services_of_its_own(node: Any, service: Any, program: bool) -> None:
    serving = f"echo $$ > pid-$LIFE; {ORDERLY.format('one')}"
    services = [service("one", serving, ready=there("all"))]
    one = node("echo program $LIFE >> all", services=services, program=program, keep=True)
    for life in (0, 1):
        if life:
            (one.folder / "all").unlink()
            one.begin(life)
        one.expect("started", life)
        one.expect("ready", life)
        if program:
            one.expect("done", life)
        else:
            one.tell("stop", life)
        ended = one.expect("ended", life)
        assert (ended["exit_code"], ended["kept"]) == (0 if program else 143, True)
        own = ["one", *([f"program {life}"] if program else []), "one ends"]
        assert said(one) == own
        with pytest.raises(ProcessLookupError):
            os.kill(int((one.folder / f"pid-{life}").read_text()), 0)
