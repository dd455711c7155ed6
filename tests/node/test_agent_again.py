"""A node agent that is kept, and what it tells of each of its node's lives."""

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
def kept(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(script: str, **launch: Any) -> Node:
        made.append(Node(tmp_path, "sh", "-c", script, keep=True, **launch))
        return made[-1]

    yield make
    for node in made:
        node.channel.close()
        assert node.process.wait(30) == 0


LISTEN = """
    trap 'echo stopped; exit 0' TERM; trap 'echo heard' USR1
    echo life $LIFE up; while :; do sleep 0.01; done
"""


def test_lives_follow_each_other_in_one_agent(kept: Any) -> None:
    node = kept("echo life $LIFE $COMMON; exit $LIFE")
    for life in range(3):
        if life:
            node.begin(life)
        node.expect("started", life)
        node.expect("ready", life)
        ended = node.expect("ended", life)
        assert (ended["exit_code"], ended["kept"]) == (life, True)
        assert node.process.poll() is None
    assert node.output() == "life 0\nlife 1 1\nlife 2 2\n"


def test_each_life_has_arguments_of_its_own(kept: Any) -> None:
    node = kept('echo "$@"', node_args=["sh", "0"])
    node.ended()
    node.begin(1, node_args=["sh", "one", "two"])
    node.ended(1)
    assert node.output() == "0\none two\n"


def test_what_means_another_life_is_not_heard(kept: Any) -> None:
    node = kept(LISTEN)
    node.says("life 0 up")
    node.tell("stop", life=1)
    node.tell("stop")
    assert node.ended()["exit_code"] == 0
    for op in ("stop", "kill"):
        node.tell(op)
    node.tell("signal", number=int(signal.SIGTERM))
    node.begin(1)
    node.tell("kill")
    node.tell("signal", life=2, number=int(signal.SIGTERM))
    node.says("life 1 up")
    node.tell("kill", life=0)
    node.tell("signal", life=1, number=int(signal.SIGUSR1))
    node.says("heard")
    node.tell("kill", life=1)
    assert node.ended(1)["signal"] == signal.SIGKILL
    assert node.output() == "life 0 up\nstopped\nlife 1 up\nheard\n"


def test_an_end_right_behind_the_beginning(kept: Any) -> None:
    node = kept("exit 3")
    node.ended()
    node.begin(1, "stop")
    assert node.expect("ended", 1)["exit_code"] == 143, "nothing was started"
    node.begin(2)
    assert node.ended(2)["exit_code"] == 3


def test_it_ends_with_whoever_drives_the_run(kept: Any) -> None:
    node = kept("true")
    node.ended()
    node.channel.close()
    assert node.process.wait(30) == 0


def test_a_signal_to_the_agent_is_for_the_life_it_is_in(kept: Any) -> None:
    node = kept(LISTEN)
    node.says("up")
    node.process.terminate()
    assert node.ended()["exit_code"] == 0
    node.process.terminate()  # nothing runs
    node.begin(1)
    node.says("life 1 up")
    node.process.terminate()
    assert node.ended(1)["exit_code"] == 0


def test_each_life_has_its_mark(kept: Any, tmp_path: Path) -> None:
    node = kept("cat begun")
    for life in (0, 7, 12):
        if life:
            node.begin(life)
        node.ended(life)
    assert node.output() == "0\n7\n12\n"
    node.begin(13, "stop")
    node.expect("ended", 13)
    assert (tmp_path / "begun").read_text() == "12\n", "nothing was started"


def test_a_place_that_is_gone_is_left(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    node = kept("rmdir ../work", cwd=str(tmp_path / "work"))
    assert node.ended()["kept"]
    node.begin(1)
    ended = node.expect("ended", 1)
    assert (ended["exit_code"], ended["reason"], ended["kept"]) == (None, "not_started", False)
    assert "work" in ended["message"]
    assert node.process.wait(30) == 0


def test_a_mark_of_the_life_before_does_not_make_this_one_ready(kept: Any, tmp_path: Path) -> None:
    script = "if [ $LIFE = 0 ]; then touch up; exec sleep 1000; fi; "
    script += "read word < fifo; touch up; echo done"
    os.mkfifo(tmp_path / "fifo")
    node = kept(script, probe=probe(file="up"))
    node.expect("started")
    node.expect("ready")
    node.tell("kill")
    node.expect("ended")
    node.begin(1)
    node.expect("started", 1)
    assert not (tmp_path / "up").exists()
    (tmp_path / "fifo").write_text("go\n")
    node.says("done")
    assert node.hear()["event"] in ("ready", "ended")


def test_a_mark_elsewhere_is_left_alone(kept: Any, tmp_path_factory: Any) -> None:
    mark = tmp_path_factory.mktemp("shared") / "up"
    mark.touch()
    node = kept("exec sleep 1000", probe=probe(file=str(mark)))
    node.expect("started")
    node.expect("ready")
    assert mark.exists()
    node.tell("kill")
    node.expect("ended")


def test_silence_is_a_failure_and_a_word_is_none(kept: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    node = kept("echo x; read word < fifo; exec sleep 1000", hang_timeout=0.02)
    ended = node.ended()
    assert (ended["exit_code"], ended["reason"]) == (None, "hang")
    assert ended["message"] == "nothing was written for 0.02 s"
    node.begin(1, hang_timeout=1000)
    node.says("x\nx")
    node.tell("stop", life=1)
    assert node.ended(1)["reason"] == "exit"


def test_the_process_at_fault_is_heard_first(kept: Any) -> None:
    script = "echo from $LOCAL_RANK >&2; [ $LOCAL_RANK = 1 ] && exit 3; exec sleep 1000"
    node = kept(script, copies=3)
    ended = node.ended()
    assert (ended["exit_code"], ended["message"]) == (3, "from 1")


def test_whoever_has_words_is_heard_if_the_one_at_fault_has_none(kept: Any, tmp_path: Path) -> None:
    script = "if [ $LOCAL_RANK = 0 ]; then echo words >&2; : > said; exec sleep 1000; fi; "
    script += "while ! [ -e said ]; do :; done; exit 3"
    ended = kept(script, copies=2).ended()
    assert (ended["exit_code"], ended["message"]) == (3, "words")


def test_a_noted_error_is_better_than_words(kept: Any, tmp_path: Path) -> None:
    noted = {"message": {"message": "boom", "extraInfo": {"timestamp": "1610000000"}}}
    (tmp_path / "error-0.json").write_text(json.dumps({"message": "stale"}))
    note = f"printf %s '{json.dumps(noted)}' > error-0.json"
    node = kept(f"echo words >&2; [ $LIFE = 0 ] || {note}; exit 1", error_files=True)
    ended = node.ended()
    assert (ended["message"], ended["raised_at"]) == ("words", None)
    node.begin(1)
    ended = node.ended(1)
    assert (ended["message"], ended["raised_at"]) == ("boom", 1610000000.0)
    node.begin(2, error_files=False)
    ended = node.ended(2)
    assert (ended["message"], ended["raised_at"]) == ("words", None), "it is the owner's own"


def test_who_did_as_told_has_no_error(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "error-0.json").write_text("{}")
    ended = kept("echo words >&2", error_files=True).ended()
    assert (ended["exit_code"], ended["message"], ended.get("raised_at")) == (0, "", None)
