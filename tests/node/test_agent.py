"""A node agent driven over its channel, with real processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node import incarnation_files
from muster.node.channel import Channel
from muster.node.messages import Ready, Restart, Start, Stop
from support.agents import Node, probe


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(*argv: str, **launch: Any) -> Node:
        made.append(Node(tmp_path, *argv, **launch))
        return made[-1]

    yield make
    for node in made:
        node.channel.close()
        node.process.wait(30)


def test_incarnation_from_start_to_end(nodes: Any, tmp_path: Path) -> None:
    node = nodes("sh", "-c", "echo rank $LOCAL_RANK", copies=2)
    node.expect("started")
    node.expect("ready")
    ended = node.expect("ended")
    assert (ended["exit_code"], ended["signal"], ended["reason"]) == (0, 0, "exit")
    assert (tmp_path / "1.out").read_text() == "rank 1\n"


def test_first_failing_process_ends_the_node(nodes: Any) -> None:
    script = "if [ $LOCAL_RANK = 1 ]; then exit 21; fi; exec sleep 1000"
    node = nodes("sh", "-c", script, copies=3)
    node.expect("started")
    node.expect("ready")
    assert node.expect("ended")["exit_code"] == 21


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_period(
    nodes: Any, tmp_path: Path
) -> None:
    script = "trap '' TERM; touch ready; while :; do sleep 1000; done"
    node = nodes("sh", "-c", script, grace_period=0.2)
    node.expect("started")
    node.expect("ready")
    while not (tmp_path / "ready").exists():
        assert node.process.poll() is None
    node.send("stop")
    ended = node.expect("ended")
    assert (ended["exit_code"], ended["signal"]) == (137, 9)


def test_a_stopped_program_can_clean_up(nodes: Any, tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 3' TERM; touch ready; while :; do sleep 0.01; done"
    node = nodes("sh", "-c", script)
    node.expect("started")
    node.expect("ready")
    while not (tmp_path / "ready").exists():
        assert node.process.poll() is None
    node.send("stop")
    assert node.expect("ended")["exit_code"] == 3
    assert (tmp_path / "0.out").read_text() == "bye\n"


def test_all_processes_end_when_the_channel_closes(nodes: Any, tmp_path: Path) -> None:
    node = nodes("sh", "-c", "setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait")
    node.expect("started")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert node.process.poll() is None
    node.channel.close()
    node.process.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_missing_program_is_reported(nodes: Any, tmp_path: Path) -> None:
    ended = nodes("no-such-program").expect("ended")
    assert ended["exit_code"] == 127
    assert "no-such-program: command not found" in ended["message"]
    assert "no-such-program: command not found" in (tmp_path / "0.err").read_text()


@pytest.mark.parametrize("what", ["file", "port", "command"])
def test_a_node_is_ready_when_its_probe_succeeds(nodes: Any, tmp_path: Path, what: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        value = {"file": str(tmp_path / "up"), "port": port, "command": ["test", "-e", "up"]}
        node = nodes("sleep", "1000", probe=probe(**{what: value[what]}))
        node.expect("started")
        server.listen()
        (tmp_path / "up").touch()
        node.expect("ready")
        node.send("kill")
        node.expect("ended")


def test_probe_that_never_succeeds_fails_the_node(nodes: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "never")
    node = nodes("sleep", "1000", probe=probe(file=missing, threshold=3))
    node.expect("started")
    ended = node.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (None, "startup_timeout")
    assert ended["message"] == f"startup probe failed 3 times: no file {missing}"


def test_probe_command_that_hangs_counts_as_failed(nodes: Any) -> None:
    hanging = probe(command=["sleep", "1000"], timeout=0.02, threshold=2)
    node = nodes("sleep", "1000", probe=hanging)
    node.expect("started")
    assert node.expect("ended")["reason"] == "startup_timeout"


@pytest.mark.parametrize("what", ["file", "port", "command"])
def test_a_node_fails_when_its_liveness_probe_has_failed_often(
    nodes: Any, tmp_path: Path, what: str
) -> None:
    up = tmp_path / "up"
    up.touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        value = {"file": str(up), "port": port, "command": ["test", "-e", "up"]}
        alive = probe(**{what: value[what]}, threshold=3)
        node = nodes("sleep", "1000", probe=probe(file=str(tmp_path / "begun")), liveness=alive)
        node.expect("started")
        up.unlink()  # which nobody looks at before it is ready
        up.touch()
        (tmp_path / "begun").touch()
        node.expect("ready")
        up.unlink()
    ended = node.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (None, "unhealthy")
    assert ended["message"].startswith("liveness probe failed 3 times: ")


def test_a_liveness_probe_may_fail_now_and_then(nodes: Any, tmp_path: Path) -> None:
    """Failures count in a row: every second try fails, and the tenth ends the program."""
    script = tmp_path / "probe.sh"
    script.write_text(
        "read -r n 2>/dev/null < count || n=0\n"
        "echo $((n + 1)) > count\n"
        "test $n -lt 10 || touch done\n"
        "exit $((n % 2))\n"
    )
    alive = probe(command=["sh", str(script)], threshold=2)
    node = nodes("sh", "-c", "until test -e done; do sleep 0.01; done", liveness=alive)
    node.expect("started")
    node.expect("ready")
    assert node.expect("ended")["exit_code"] == 0


def test_messages_sent_together_are_all_received(nodes: Any) -> None:
    """A stop can arrive right behind the start."""
    ours, theirs = socket.socketpair()
    one, other = Channel(ours), Channel(theirs)
    one.send(Start(0))
    one.send(Stop(0))
    one.close()
    other.wait_for(Start)
    assert other.pop_pending() == [Stop(0)]
    assert other.receive() == []
    assert other.closed
    with pytest.raises(EOFError, match="no Restart message"):
        other.wait_for(Restart)
    other.close()


def test_messages_are_received_after_a_send_that_fails() -> None:
    ours, theirs = socket.socketpair()
    one, other = Channel(ours), Channel(theirs)
    other.send(Ready(0))
    other.close()
    one.send(Stop(0))
    assert not one.closed
    assert one.receive() == [Ready(0)]
    assert one.receive() == []
    assert one.closed
    one.close()


# --- a launcher, whose ranks write to their own files


def launcher_and_rank(folder: Path) -> dict[str, Any]:
    """A rank with its own output files, and a launcher that inherits those of the agent."""
    files = {"stdout": str(folder / "rank.out"), "stderr": str(folder / "rank.err")}
    process = {
        "stdout": "",
        "stderr": "",
        "error_file": str(folder / "note"),
        "env": {**os.environ},
    }
    return {"processes": [process], "ranks": [files]}


def test_a_launcher_knows_the_output_files_of_its_ranks(nodes: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank.err")  # of an earlier incarnation
    node = nodes(
        "sh", "-c", 'echo "$MUSTER_RANKS" > seen; test -f rank.err', **launcher_and_rank(tmp_path)
    )
    node.expect("started")
    node.expect("ready")
    assert node.expect("ended")["exit_code"] == 0
    outputs = incarnation_files.pop_rank_outputs(
        {incarnation_files.RANK_OUTPUTS: (tmp_path / "seen").read_text()}
    )
    assert outputs is not None
    assert outputs.files == [(str(tmp_path / "rank.out"), str(tmp_path / "rank.err"))]
    assert outputs.error_file == str(tmp_path / "note")


def test_a_hanging_rank_fails_its_node(nodes: Any, tmp_path: Path) -> None:
    node = nodes("sleep", "1000", hang_timeout=0.05, **launcher_and_rank(tmp_path))
    node.expect("started")
    node.expect("ready")
    assert node.expect("ended")["reason"] == "hang"


def test_failure_of_a_silent_launcher_is_explained_by_its_rank(nodes: Any, tmp_path: Path) -> None:
    (tmp_path / "rank.err").write_text("before\n")
    node = nodes("sh", "-c", "echo oh no >> rank.err; exit 7", **launcher_and_rank(tmp_path))
    node.expect("started")
    node.expect("ready")
    ended = node.expect("ended")
    assert (ended["exit_code"], ended["message"]) == (7, "oh no")
