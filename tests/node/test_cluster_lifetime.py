"""The program of a cluster without its own: it ends after its lifetime, or when it is unused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from muster.node import cluster_lifetime
from support.servers import serving


class Service:
    """A service that reports how much it is used."""

    def __init__(self) -> None:
        self.status: Any = {"clients": 0, "tasks": {"running": 0}}
        self.requests = threading.Semaphore(0)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.release()
                body = json.dumps(outer.status).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """No log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

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
    monkeypatch.setenv(cluster_lifetime.QUIET, made.quiet)
    with serving(made.server):
        yield made


def test_a_cluster_ends_with_its_lifetime(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster_lifetime.main(["--until", str(time.time() + 0.05)]) == 0
    assert "time to live is over" in capsys.readouterr().out


def test_the_lifetime_counts_from_the_runs_first_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not from the start after a restart."""
    monkeypatch.setenv(cluster_lifetime.STARTED, str(time.time() - 7200))
    assert cluster_lifetime.main(["--ttl", "3600"]) == 0
    assert "time to live is over" in capsys.readouterr().out


def test_an_unused_cluster_ends(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster_lifetime.main(["--idle", "0.2"]) == 0
    assert "unused for 0.2 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "use", [{"clients": 1}, {"clients": 0, "tasks": {"running": 2}}, {"schedulers": 2}]
)
def test_a_used_cluster_does_not_end(service: Service, use: dict[str, Any]) -> None:
    service.status = use
    ended = threading.Event()

    def keep() -> None:
        cluster_lifetime.main(["--idle", "0.1"])
        ended.set()

    threading.Thread(target=keep, daemon=True).start()
    for _ in range(8):  # more requests than fit into the idle time
        assert service.requests.acquire(timeout=60)
    assert not ended.is_set()
    service.status = {"schedulers": 1}
    assert ended.wait(60)


def test_a_service_that_does_not_answer_counts_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"address": "127.0.0.1", "port": "1", "path": "/", "zero": ["clients"]}
    monkeypatch.setenv(cluster_lifetime.QUIET, json.dumps(quiet))
    until = time.time() + 0.4
    assert cluster_lifetime.main(["--idle", "0.05", "--until", str(until)]) == 0
    assert time.time() >= until
