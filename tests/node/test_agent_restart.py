"""Restarts in place: one agent, several incarnations."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agents import Node, probe


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(script: str, **launch: Any) -> Node:
        made.append(Node(tmp_path, "sh", "-c", script, keep=True, **launch))
        return made[-1]

    yield make
    for node in made:
        node.channel.close()
        assert node.process.wait(30) == 0


LISTEN = """
    trap 'echo stopped; exit 0' TERM; trap 'echo signalled' USR1
    echo incarnation $INCARNATION up; while :; do sleep 0.01; done
"""


def test_one_agent_runs_several_incarnations(restartable: Any) -> None:
    node = restartable("echo incarnation $INCARNATION $COMMON; exit $INCARNATION")
    for incarnation in range(3):
        if incarnation:
            node.restart(incarnation)
        node.expect("started", incarnation)
        node.expect("ready", incarnation)
        ended = node.expect("ended", incarnation)
        assert (ended["exit_code"], ended["kept"]) == (incarnation, True)
        assert node.process.poll() is None
    assert node.output() == "incarnation 0\nincarnation 1 1\nincarnation 2 2\n"


def test_each_incarnation_has_its_arguments(restartable: Any) -> None:
    node = restartable('echo "$@"', node_args=["sh", "0"])
    node.ended()
    node.restart(1, node_args=["sh", "one", "two"])
    node.ended(1)
    assert node.output() == "0\none two\n"


def test_messages_for_other_incarnations_are_ignored(restartable: Any) -> None:
    node = restartable(LISTEN)
    node.wait_for_output("incarnation 0 up")
    node.send("stop", incarnation=1)
    node.send("stop")
    assert node.ended()["exit_code"] == 0
    for op in ("stop", "kill"):
        node.send(op)
    node.send("signal", number=int(signal.SIGTERM))
    node.restart(1)
    node.send("kill")
    node.send("signal", incarnation=2, number=int(signal.SIGTERM))
    node.wait_for_output("incarnation 1 up")
    node.send("kill", incarnation=0)
    node.send("signal", incarnation=1, number=int(signal.SIGUSR1))
    node.wait_for_output("signalled")
    node.send("kill", incarnation=1)
    assert node.ended(1)["signal"] == signal.SIGKILL
    assert node.output() == "incarnation 0 up\nstopped\nincarnation 1 up\nsignalled\n"


def test_a_stop_right_after_a_restart_prevents_the_start(restartable: Any) -> None:
    node = restartable("exit 3")
    node.ended()
    node.restart(1, "stop")
    assert node.expect("ended", 1)["exit_code"] == 143, "nothing was started"
    node.restart(2)
    assert node.ended(2)["exit_code"] == 3


@pytest.mark.parametrize("stopped", [False, True])
def test_a_restart_may_wait_for_what_runs_before(restartable: Any, stopped: bool) -> None:
    node = restartable("exit 3")
    node.ended()
    node.restart(1, *(["stop"] if stopped else []), waits=True)
    assert node.expect("joined", 1)
    node.send("start", incarnation=1)  # the server sends it after a stop, too
    if stopped:
        assert node.expect("ended", 1)["exit_code"] == 143, "nothing was started"
    else:
        assert node.ended(1)["exit_code"] == 3


def test_the_agent_ends_with_the_supervisor(restartable: Any) -> None:
    node = restartable("true")
    node.ended()
    node.channel.close()
    assert node.process.wait(30) == 0


def test_an_invalid_message_ends_the_node(restartable: Any) -> None:
    node = restartable("echo up; exec sleep 1000")
    node.wait_for_output("up")
    node.send_line(b'{"type": "stop"}')
    ended = node.ended()
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 9, "node_lost")
    assert ended["message"] == (
        "the supervisor sent an invalid message: Stop: incarnation is missing"
    )
    assert not ended["kept"]
    assert node.process.wait(30) == 0


def test_an_invalid_message_ends_an_agent_without_an_incarnation(
    restartable: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    node = restartable("true")
    node.ended()
    node.send_line(b'{"type": "restart", "launch": 1}')
    assert node.process.wait(30) == 0
    assert capfd.readouterr().err == (
        "muster: the supervisor sent an invalid message: Restart: launch must be an object, not 1\n"
    )


def test_a_signal_to_the_agent_ends_the_current_incarnation(restartable: Any) -> None:
    node = restartable(LISTEN)
    node.wait_for_output("up")
    node.process.terminate()
    assert node.ended()["exit_code"] == 0
    node.process.terminate()  # nothing runs
    node.restart(1)
    node.wait_for_output("incarnation 1 up")
    node.process.terminate()
    assert node.ended(1)["exit_code"] == 0


def test_each_incarnation_records_its_start(restartable: Any, tmp_path: Path) -> None:
    node = restartable("cat begun")
    for incarnation in (0, 12, 7):
        if incarnation:
            node.restart(incarnation)
        node.ended(incarnation)
    assert node.output() == "0 0\n12 0\n7 0\n"
    node.restart(13, "stop")
    node.expect("ended", 13)
    assert (tmp_path / "begun").read_text() == "7 0\n", "nothing was started"


def test_a_missing_folder_ends_the_agent(restartable: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    node = restartable("rmdir ../work", cwd=str(tmp_path / "work"))
    assert node.ended()["kept"]
    node.restart(1)
    ended = node.expect("ended", 1)
    assert (ended["exit_code"], ended["reason"], ended["kept"]) == (None, "not_started", False)
    assert "work" in ended["message"]
    assert node.process.wait(30) == 0


@pytest.mark.parametrize("late", ["stop", "kill", "signal"])
def test_what_was_meant_for_the_node_before_in_a_slot_does_not_reach_the_next(
    restartable: Any, late: str
) -> None:
    """Another replica of an array has the same number of restarts."""
    node = restartable("echo $COMMON")
    node.ended()
    node.send(late, **({"number": int(signal.SIGTERM)} if late == "signal" else {}))
    node.restart(0, rank=1)
    assert node.ended()["exit_code"] == 0


def test_an_agent_that_cannot_empty_its_slot_ends_without_a_report(
    restartable: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    node = restartable("true")
    assert node.ended()["kept"]
    node.restart(1, reuses_slot=True)
    assert node.process.wait(30) == 0
    assert node.channel.drain() == [], "another agent can start the node"
    assert capfd.readouterr().err == (
        "muster: the slot needs another agent: the slot cannot be emptied\n"
    )


def test_a_ready_file_of_the_previous_incarnation_is_removed(
    restartable: Any, tmp_path: Path
) -> None:
    script = "if [ $INCARNATION = 0 ]; then touch up; exec sleep 1000; fi; "
    script += "read word < fifo; touch up; echo done"
    os.mkfifo(tmp_path / "fifo")
    node = restartable(script, probe=probe(file="up"))
    node.expect("started")
    node.expect("ready")
    node.send("kill")
    node.expect("ended")
    node.restart(1)
    node.expect("started", 1)
    assert not (tmp_path / "up").exists()
    (tmp_path / "fifo").write_text("go\n")
    node.wait_for_output("done")
    assert node.receive()["type"] in ("ready", "ended")


def test_a_ready_file_outside_of_the_node_is_kept(restartable: Any, tmp_path_factory: Any) -> None:
    mark = tmp_path_factory.mktemp("shared") / "up"
    mark.touch()
    node = restartable("exec sleep 1000", probe=probe(file=str(mark)))
    node.expect("started")
    node.expect("ready")
    assert mark.exists()
    node.send("kill")
    node.expect("ended")


def test_a_hang_is_a_failure_and_output_prevents_it(restartable: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = "echo up $INCARNATION; read word < fifo; exec sleep 1000"
    node = restartable(script, hang_timeout=0.02)  # it may have written nothing by then
    ended = node.ended()
    assert (ended["exit_code"], ended["reason"]) == (None, "hang")
    assert ended["message"] == "nothing was written for 0.02 s"
    node.restart(1, hang_timeout=1000)
    node.wait_for_output("up 1")
    node.send("stop", incarnation=1)
    assert node.ended(1)["reason"] == "exit"


def test_the_failed_process_explains_the_failure(restartable: Any) -> None:
    script = "echo from $LOCAL_RANK >&2; [ $LOCAL_RANK = 1 ] && exit 3; exec sleep 1000"
    node = restartable(script, copies=3)
    ended = node.ended()
    assert (ended["exit_code"], ended["message"]) == (3, "from 1")


def test_another_process_explains_the_failure_of_a_silent_one(
    restartable: Any, tmp_path: Path
) -> None:
    script = "if [ $LOCAL_RANK = 0 ]; then echo words >&2; : > written; exec sleep 1000; fi; "
    script += "while ! [ -e written ]; do :; done; exit 3"
    ended = restartable(script, copies=2).ended()
    assert (ended["exit_code"], ended["message"]) == (3, "words")


def test_a_recorded_error_takes_precedence_over_stderr(restartable: Any, tmp_path: Path) -> None:
    recorded = {"message": {"message": "boom", "extraInfo": {"timestamp": "1610000000"}}}
    (tmp_path / "error-0.json").write_text(json.dumps({"message": "stale"}))
    note = f"printf %s '{json.dumps(recorded)}' > error-0.json"
    node = restartable(f"echo words >&2; [ $INCARNATION = 0 ] || {note}; exit 1", error_files=True)
    ended = node.ended()
    assert (ended["message"], ended["raised_at"]) == ("words", None)
    node.restart(1)
    ended = node.ended(1)
    assert (ended["message"], ended["raised_at"]) == ("boom", 1610000000.0)
    node.restart(2, error_files=False)
    ended = node.ended(2)
    assert (ended["message"], ended["raised_at"]) == ("words", None), (
        "the user's own error file is not read"
    )


def test_a_stopped_process_has_no_error(restartable: Any, tmp_path: Path) -> None:
    (tmp_path / "error-0.json").write_text("{}")
    ended = restartable("echo words >&2", error_files=True).ended()
    assert (ended["exit_code"], ended["message"], ended.get("raised_at")) == (0, "", None)
