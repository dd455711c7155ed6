"""What keeps a cluster: until its time is over, or nobody uses it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from muster.node import keeper


class Service:
    """A service that tells how much it is used."""

    def __init__(self) -> None:
        self.told: Any = {"clients": 0, "tasks": {"running": 0}}
        self.asked = threading.Semaphore(0)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.release()
                body = json.dumps(outer.told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody wants to know."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def quiet(self) -> str:
        return json.dumps(
            {
                "address": "127.0.0.1",
                "port": str(self.server.server_port),
                "path": "/counts",
                "zero": ["clients", "tasks.running", "tasks.absent", "schedulers"],
                "own": {"schedulers": 1},
            }
        )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service()
    monkeypatch.setenv(keeper.VARIABLE, made.quiet)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_it_ends_when_its_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert keeper.main(["--until", str(time.time() + 0.05)]) == 0
    assert "time to live is over" in capsys.readouterr().out


def test_its_time_counts_from_the_runs_first_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not from the start of a keeper that begins again after a loss."""
    monkeypatch.setenv(keeper.STARTED, str(time.time() - 7200))
    assert keeper.main(["--ttl", "3600"]) == 0
    assert "time to live is over" in capsys.readouterr().out


def test_it_ends_when_nobody_uses_it(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert keeper.main(["--idle", "0.2"]) == 0
    assert "nobody has used it for 0.2 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "use", [{"clients": 1}, {"clients": 0, "tasks": {"running": 2}}, {"schedulers": 2}]
)
def test_it_stays_while_it_is_used(service: Service, use: dict[str, Any]) -> None:
    service.told = use
    ended = threading.Event()

    def keep() -> None:
        keeper.main(["--idle", "0.1"])
        ended.set()

    threading.Thread(target=keep, daemon=True).start()
    for _ in range(8):  # looks, more than the idle time takes
        assert service.asked.acquire(timeout=60)
    assert not ended.is_set()
    service.told = {"schedulers": 1}
    assert ended.wait(60)


def test_what_does_not_answer_is_not_taken_for_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"address": "127.0.0.1", "port": "1", "path": "/", "zero": ["clients"]}
    monkeypatch.setenv(keeper.VARIABLE, json.dumps(quiet))
    until = time.time() + 0.4
    assert keeper.main(["--idle", "0.05", "--until", str(until)]) == 0
    assert time.time() >= until
