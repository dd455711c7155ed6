"""Polling checks: when they hold, and the reason while they do not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.node.checks import CheckPoller
from support.servers import serving


class Server(ThreadingHTTPServer):
    """Answers every path with `status` and `body`, or with the bytes in `raw` instead of HTTP."""

    status, body, raw = 200, b"", b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths: list[str] = []
        self.tokens: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.tokens.append(self.headers["Authorization"])
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
    made = Server()
    with serving(made):
        yield made


@pytest.fixture(autouse=True)
def _temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("checks")))


def waiting(check: dict[str, Any]) -> CheckPoller:
    return CheckPoller(check, dict(os.environ), 0.0)


def reason_of(check: dict[str, Any]) -> str:
    """The reason why the check does not hold; empty if it does."""
    one = waiting(check)
    one.step(0.0)
    assert one.done is (one.why == "")
    assert (one.due is None) is one.done
    return one.why


def reap(one: CheckPoller, now: float) -> None:
    """Wait for the command that the check has started."""
    while not one.reaped(*os.waitpid(-1, 0), now):
        pass  # a child of an earlier test


def answers(port: int, path: str | None = None) -> dict[str, Any]:
    return {"type": "answers", "address": "127.0.0.1", "port": str(port), "path": path}


def test_a_check_of_a_port_holds_when_it_answers() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        one = waiting(answers(port))
        one.step(0.0)
        assert one.why == f"127.0.0.1:{port} does not answer: Connection refused"
        listener.listen()
        assert one.due is not None
        one.step(one.due / 2)
        assert not one.done, "it was not due"
        one.step(one.due)
        assert (one.done, one.due, one.why) == (True, None, "")


def test_checks_become_rarer() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        one = waiting(answers(unused.getsockname()[1]))
        times = [0.0]
        while times[-1] < 60.0:
            one.step(times[-1])
            assert one.due is not None
            times.append(one.due)
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (0.02, 0.5)
    late = [gap / waited for waited, gap in zip(times, gaps, strict=False) if waited > 1.0]
    assert max(late) <= 0.051, "a gap is at most a twentieth of the time before"


@pytest.mark.parametrize(
    ("status", "why"), [(200, ""), (302, ""), (404, "the answer was 404"), (503, "503")]
)
def test_an_http_check(server: Server, status: int, why: str) -> None:
    server.status = status
    found = reason_of(answers(server.server_port, "/health"))
    assert why in found
    assert bool(why) is bool(found)
    assert server.paths == ["/health"]


def test_an_answer_that_is_not_http(server: Server) -> None:
    server.raw = b"220 mail ready\r\n"
    found = reason_of(answers(server.server_port, "/health"))
    assert found.startswith(f"127.0.0.1:{server.server_port}/health: BadStatusLine")


def joined(port: int, *expected: str, **more: Any) -> dict[str, Any]:
    return {
        **{"type": "joined", "address": "127.0.0.1", "port": str(port), "path": "/members"},
        **{"members": ["workers", "*"], "name": ["name"], "where": {}, "what": "worker"},
        "expected": [[rank, name] for rank, name in enumerate(expected)],
        **more,
    }


@pytest.mark.parametrize(
    ("answer", "more", "why"),
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
def test_the_reason_names_missing_members(server: Server, answer: Any, more: Any, why: str) -> None:
    server.body = json.dumps(answer).encode()
    assert reason_of(joined(server.server_port, "a", "b", **more)) == why


def test_absent_members_are_not_awaited(server: Server) -> None:
    server.body = json.dumps({"workers": [{"name": "b"}]}).encode()
    absent = {0}
    one = CheckPoller(joined(server.server_port, "a", "b", "c"), {}, 0.0, absent)
    one.step(0.0)
    assert one.why == "1 of 2 workers have not joined: c"
    absent.add(2)
    assert one.due is not None
    one.step(one.due)
    assert one.done


def test_a_command_gets_the_awaited_members(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    check = succeeds("sh", "-c", f'echo "$@" > {arguments}', "sh")
    check["expected"] = [[0, "a"], [1, "b"], [2, "c"]]
    one = CheckPoller(check, dict(os.environ), 0.0, {1})
    one.step(0.0)
    reap(one, 1.0)
    assert arguments.read_text() == "a c\n"


@pytest.mark.parametrize(("token", "shown"), [("open", "Bearer open"), ("", None)])
def test_the_token_is_sent(server: Server, token: str, shown: str | None) -> None:
    server.body = b"{}"
    reason_of(joined(server.server_port, "a", token=token))
    assert server.tokens == [shown]


def test_numeric_names_are_compared_as_text(server: Server) -> None:
    server.body = b'{"workers": [{"name": 0}, {"name": 1}]}'
    assert reason_of(joined(server.server_port, "0", "1")) == ""


def test_a_long_list_of_missing_members_is_cut(server: Server) -> None:
    server.body = b"{}"
    found = reason_of(joined(server.server_port, *map(str, range(12))))
    assert found == "12 of 12 workers have not joined: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."


def test_an_answer_that_is_not_json(server: Server) -> None:
    server.body = b"<html>"
    port = server.server_port
    assert reason_of(joined(port, "a")) == f"127.0.0.1:{port}/members: the answer is not JSON"


def succeeds(*command: str, what: str = "") -> dict[str, Any]:
    return {"type": "succeeds", "command": list(command), "what": what, "patience": 10.0}


def test_a_command_that_succeeds_later(tmp_path: Path) -> None:
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


def test_the_reason_is_the_last_output_of_the_command(tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = succeeds("sh", "-c", f"cat {output}; exit 1", what="the nodes")
    one = CheckPoller(command, {"PATH": "/bin:/usr/bin", "TMPDIR": str(tmp_path)}, 0.0)
    for words in ("node-1 is missing", "node-2 is missing"):
        output.write_text(words)
        assert one.due is not None
        one.step(one.due)
        reap(one, one.due)
        assert one.why == f"the nodes: {words}"
    assert one.due is not None
    one.step(one.due)
    one.cancel()
    reap(one, one.due)
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_a_command_that_hangs_is_repeated() -> None:
    one = waiting(succeeds("sleep", "1000"))
    one.step(0.0)
    one.step(9.9)
    assert one.due == 10.0, "it may take ten seconds"
    one.step(10.0)
    assert one.due is None
    reap(one, 11.0)
    assert one.why == "`sleep 1000`: it took longer than 10 s"
    assert one.due is not None
    one.step(one.due)
    one.cancel()
    reap(one, 12.0)
    assert not one.done


def test_a_check_canceled_between_two_attempts_leaves_nothing(tmp_path: Path) -> None:
    one = CheckPoller(succeeds("false"), {**os.environ, "TMPDIR": str(tmp_path)}, 0.0)
    one.step(0.0)
    reap(one, 0.0)
    assert list(tmp_path.iterdir()) != []
    one.cancel()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_command() -> None:
    assert reason_of(succeeds("no-such-command")).startswith(
        "`no-such-command`: no-such-command: command not found"
    )


def test_children_of_others_are_ignored() -> None:
    one = waiting(succeeds("true"))
    one.step(0.0)
    assert not one.reaped(1, 0, 1.0)
    reap(one, 1.0)
    assert one.done
