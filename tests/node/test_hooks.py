"""Commands that run beside a node's program: when it has started, and before it is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agents import Node, probe


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(script: str, **launch: Any) -> Node:
        made.append(Node(tmp_path, "sh", "-c", script, **launch))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()
        one.process.wait(30)


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_a_node_is_ready_when_its_start_hook_has_succeeded(node: Any, tmp_path: Path) -> None:
    hook = sh("echo hook $RANK; until test -e go; do sleep 0.01; done; touch up")
    one = node("sleep 1000", after_start=hook, probe=probe(file=str(tmp_path / "up"), threshold=1))
    one.expect("started")
    (tmp_path / "go").touch()
    one.expect("ready")  # else its probe would have failed
    one.send("kill")
    one.expect("ended")
    assert (tmp_path / "0.out").read_text().startswith("hook")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (sh("exit 3"), 3, "after_start failed with exit code 3"),
        (["no-such-program"], 127, "after_start: no-such-program: command not found"),
    ],
)
def test_a_node_fails_with_its_start_hook(
    node: Any, command: list[str], code: int, message: str
) -> None:
    one = node("sleep 1000", after_start=command)
    one.expect("started")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (code, "exit")
    assert ended["message"].startswith(message)


SAVES = (
    "trap 'echo saved >> log; exit 0' TERM; echo up >> log; touch up; while :; do sleep 0.01; done"
)


def up(one: Any) -> None:
    one.expect("started")
    one.expect("ready")


def test_a_stop_hook_runs_before_the_program_is_signaled(node: Any, tmp_path: Path) -> None:
    one = node(SAVES, before_stop=sh("echo hook >> log"), probe=probe(file=str(tmp_path / "up")))
    up(one)
    one.send("stop")
    assert one.expect("ended")["exit_code"] == 0
    assert (tmp_path / "log").read_text() == "up\nhook\nsaved\n"


@pytest.mark.parametrize("command", [["no-such-program"], sh("exit 3")])
def test_a_stop_hook_that_fails_changes_nothing(
    node: Any, tmp_path: Path, command: list[str]
) -> None:
    one = node(SAVES, before_stop=command, probe=probe(file=str(tmp_path / "up")))
    up(one)
    one.send("stop")
    assert one.expect("ended")["exit_code"] == 0
    assert (tmp_path / "log").read_text() == "up\nsaved\n"
    assert "before_stop" in (tmp_path / "0.err").read_text()


def test_a_stop_hook_uses_the_grace_period(node: Any) -> None:
    one = node("sleep 1000", before_stop=["sleep", "1000"], grace_period=0.1)
    up(one)
    one.send("stop")
    assert one.expect("ended")["signal"] == 9


def test_a_program_that_is_not_alive_gets_its_stop_hook(node: Any, tmp_path: Path) -> None:
    never = probe(file=str(tmp_path / "never"), threshold=1)
    one = node("sleep 1000", before_stop=sh("echo hook > log"), liveness=never)
    up(one)
    assert one.expect("ended")["reason"] == "unhealthy"
    assert (tmp_path / "log").read_text() == "hook\n"


def test_a_program_that_ends_by_itself_gets_none(node: Any, tmp_path: Path) -> None:
    one = node("exit 4", before_stop=sh("echo hook > log"))
    up(one)
    assert one.expect("ended")["exit_code"] == 4
    assert not (tmp_path / "log").exists()
