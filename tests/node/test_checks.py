"""Waiting for something to be as it must be: what is looked at, and what is said meanwhile."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.node.checks import Waiting


class Server(ThreadingHTTPServer):
    """It answers every path with `status` and `body`, or with what is in `raw` and no HTTP."""

    status, body, raw = 200, b"", b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.shown: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.shown.append(self.headers["Authorization"])
        if self.server.raw:
            self.wfile.write(self.server.raw)
            return
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("checks")))


def waiting(check: dict[str, Any]) -> Waiting:
    return Waiting(check, dict(os.environ), 0.0)


def look(check: dict[str, Any]) -> str:
    """Why it does not hold; empty if it does."""
    one = waiting(check)
    one.step(0.0)
    assert one.done is (one.why == "")
    assert (one.due is None) is one.done
    return one.why


def reap(one: Waiting, now: float) -> None:
    """Wait for the command it has started."""
    while not one.reaped(*os.waitpid(-1, 0), now):
        pass  # somebody else's, from a test before


def answers(port: int, path: str | None = None) -> dict[str, Any]:
    return {"type": "answers", "address": "127.0.0.1", "port": str(port), "path": path}


def test_a_port_that_answers() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        one = waiting(answers(port))
        one.step(0.0)
        assert one.why == f"127.0.0.1:{port} does not answer: Connection refused"
        listener.listen()
        assert one.due is not None
        one.step(one.due / 2)
        assert not one.done, "it was not time to look"
        one.step(one.due)
        assert (one.done, one.due, one.why) == (True, None, "")


def test_looks_become_rarer() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        one = waiting(answers(nobody.getsockname()[1]))
        times = [0.0]
        while times[-1] < 60.0:
            one.step(times[-1])
            assert one.due is not None
            times.append(one.due)
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (0.02, 0.5)
    late = [gap / waited for waited, gap in zip(times, gaps, strict=False) if waited > 1.0]
    assert max(late) <= 0.051, "what is waited for is seen soon, as waiting goes"


@pytest.mark.parametrize(
    ("status", "why"), [(200, ""), (302, ""), (404, "the answer was 404"), (503, "503")]
)
def test_a_page_that_answers(server: Server, status: int, why: str) -> None:
    server.status = status
    found = look(answers(server.server_port, "/health"))
    assert why in found
    assert bool(why) is bool(found)
    assert server.asked == ["/health"]


def test_what_answers_is_no_web_server(server: Server) -> None:
    server.raw = b"220 mail ready\r\n"
    found = look(answers(server.server_port, "/health"))
    assert found.startswith(f"127.0.0.1:{server.server_port}/health: BadStatusLine")


def joined(port: int, *expected: str, **more: Any) -> dict[str, Any]:
    return {
        **{"type": "joined", "address": "127.0.0.1", "port": str(port), "path": "/members"},
        **{"members": ["workers", "*"], "name": ["name"], "where": {}, "what": "worker"},
        "expected": [[rank, name] for rank, name in enumerate(expected)],
        **more,
    }


@pytest.mark.parametrize(
    ("told", "more", "why"),
    [
        ({"workers": {"tcp://a": {"name": "a"}, "tcp://b": {"name": "b"}}}, {}, ""),
        ({"workers": [{"name": "b"}, {"name": "a"}, {"name": "other"}]}, {}, ""),
        ({"workers": [{"name": "a"}]}, {}, "1 of 2 workers have not joined: b"),
        ({"workers": []}, {}, "2 of 2 workers have not joined: a, b"),
        ({}, {}, "2 of 2 workers have not joined: a, b"),
        ([], {}, "2 of 2 workers have not joined: a, b"),
        ({"workers": "none"}, {}, "2 of 2 workers have not joined: a, b"),
        ({"workers": [None, 3, {"name": None}]}, {}, "2 of 2 workers have not joined: a, b"),
        ([{"id": {"n": "a"}}, {"id": {"n": "b"}}], {"members": ["*"], "name": ["id", "n"]}, ""),
        (
            {"workers": [{"name": "a", "state": "ALIVE"}, {"name": "b", "state": "DEAD"}]},
            {"where": {"state": "ALIVE"}},
            "1 of 2 workers have not joined: b",
        ),
        (
            {"workers": [{"name": n, "is": {"up": True}} for n in "ab"]},
            {"where": {"is.up": "True"}},
            "",
        ),
    ],
)
def test_who_has_joined(server: Server, told: Any, more: Any, why: str) -> None:
    server.body = json.dumps(told).encode()
    assert look(joined(server.server_port, "a", "b", **more)) == why


def test_who_is_absent_is_not_awaited(server: Server) -> None:
    server.body = json.dumps({"workers": [{"name": "b"}]}).encode()
    absent = {0}
    one = Waiting(joined(server.server_port, "a", "b", "c"), {}, 0.0, absent)
    one.step(0.0)
    assert one.why == "1 of 2 workers have not joined: c"
    absent.add(2)
    assert one.due is not None
    one.step(one.due)
    assert one.done


def test_a_command_is_told_who_is_awaited(tmp_path: Path) -> None:
    told = tmp_path / "told"
    check = succeeds("sh", "-c", f'echo "$@" > {told}', "sh")
    check["expected"] = [[0, "a"], [1, "b"], [2, "c"]]
    one = Waiting(check, dict(os.environ), 0.0, {1})
    one.step(0.0)
    reap(one, 1.0)
    assert told.read_text() == "a c\n"


@pytest.mark.parametrize(("token", "shown"), [("open", "Bearer open"), ("", None)])
def test_what_is_shown_to_be_let_in(server: Server, token: str, shown: str | None) -> None:
    server.body = b"{}"
    look(joined(server.server_port, "a", token=token))
    assert server.shown == [shown]


def test_names_are_what_they_say_and_not_what_they_are(server: Server) -> None:
    server.body = b'{"workers": [{"name": 0}, {"name": 1}]}'
    assert look(joined(server.server_port, "0", "1")) == ""


def test_many_who_have_not_joined(server: Server) -> None:
    server.body = b"{}"
    found = look(joined(server.server_port, *map(str, range(12))))
    assert found == "12 of 12 workers have not joined: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."


def test_who_tells_of_members_tells_no_json(server: Server) -> None:
    server.body = b"<html>"
    port = server.server_port
    assert look(joined(port, "a")) == f"127.0.0.1:{port}/members: the answer is no JSON"


def succeeds(*command: str, what: str = "") -> dict[str, Any]:
    return {"type": "succeeds", "command": list(command), "what": what, "patience": 10.0}


def test_a_command_that_succeeds_at_last(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    one = waiting(succeeds("test", "-e", str(mark), what="the mark"))
    one.step(0.0)
    assert one.why == "the mark: it has not ended yet"
    reap(one, 1.0)
    assert (one.done, one.why) == (False, "the mark: it exited with 1")
    mark.touch()
    assert one.due is not None
    one.step(one.due)
    reap(one, 2.0)
    assert (one.done, one.due) == (True, None)


def test_what_a_command_said_last_is_why(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = succeeds("sh", "-c", f"cat {said}; exit 1", what="the choir")
    one = Waiting(command, {"PATH": "/bin:/usr/bin", "TMPDIR": str(tmp_path)}, 0.0)
    for words in ("node-1 is missing", "node-2 is missing"):
        said.write_text(words)
        assert one.due is not None
        one.step(one.due)
        reap(one, one.due)
        assert one.why == f"the choir: {words}"
    assert one.due is not None
    one.step(one.due)
    one.end()
    reap(one, one.due)
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_a_command_that_hangs_is_asked_again() -> None:
    one = waiting(succeeds("sleep", "1000"))
    one.step(0.0)
    one.step(9.9)
    assert one.due == 10.0, "it has ten seconds"
    one.step(10.0)
    assert one.due is None
    reap(one, 11.0)
    assert one.why == "`sleep 1000`: it took longer than 10 s"
    assert one.due is not None
    one.step(one.due)
    one.end()
    reap(one, 12.0)
    assert not one.done


def test_nothing_is_left_of_a_command_that_is_let_go_of_between_two_looks(tmp_path: Path) -> None:
    one = Waiting(succeeds("false"), {**os.environ, "TMPDIR": str(tmp_path)}, 0.0)
    one.step(0.0)
    reap(one, 0.0)
    assert list(tmp_path.iterdir()) != []
    one.end()
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_not_there() -> None:
    assert look(succeeds("no-such-command")).startswith(
        "`no-such-command`: no-such-command: command not found"
    )


def test_another_s_child_is_not_ours() -> None:
    one = waiting(succeeds("true"))
    one.step(0.0)
    assert not one.reaped(1, 0, 1.0)
    reap(one, 1.0)
    assert one.done
