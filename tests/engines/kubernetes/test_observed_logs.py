"""The copies of the logs of observed pods, with an API server whose streams last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import Answer, ApiStub, Request, write_config
from muster.engines.kubernetes import observed_logs
from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.observed_facts import ObservedPod, observed_pod
from muster.engines.kubernetes.observed_logs import LogCopies, PodLog
from muster.engines.loop import EventLoop, RunLoop
from support.faults import until

pytest.importorskip("kubernetes")

#: Logs that are followed at the same time.
MOST = observed_logs._MOST


class Server:
    """Pods that write a line, and nothing more until they are told to end; then another one."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.followed: set[str] = set()
        self._changed = threading.Condition()
        self.stub = ApiStub(self._answer)

    def _answer(self, request: Request) -> Answer:
        pod = request.path.split("/")[-2]
        if request.query.get("follow") == "true":
            return Answer(stream=self._stream(pod))
        return Answer(self._first(pod) + (self._last() if pod in self.ended else b""))

    def _first(self, pod: str) -> bytes:
        return f"2026-03-01T12:00:00Z {pod}\n".encode()

    def _last(self) -> bytes:
        return b"2026-03-01T12:00:01Z over\n"

    def _stream(self, pod: str) -> Iterator[bytes]:
        self.followed.add(pod)
        yield self._first(pod)
        with self._changed:
            self._changed.wait_for(lambda: pod in self.ended, 240)
        yield self._last()

    def end(self, *pods: str) -> None:
        with self._changed:
            self.ended.update(pods)
            self._changed.notify_all()


class Copies:
    """Copies in a folder, and those that are done."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder, self._cluster = folder, cluster
        self._loop = EventLoop()
        self.done: list[PodLog] = []
        self.logs: dict[str, PodLog] = {}
        self.copies = LogCopies(RunLoop(self._loop, _raise), self.done.append)

    def add(self, name: str) -> None:
        path = str(self._folder / name)
        pod, record = observed(name), self._folder / f"{name}.json"
        self.logs[name] = PodLog(self._cluster, pod, path, record)
        self.copies.add(self.logs[name])

    def text(self, name: str) -> str:
        path = self._folder / name
        return path.read_text() if path.exists() else ""

    def until(self, what: Callable[[], object]) -> None:
        def holds() -> object:
            self._loop.post(lambda: None)
            self._loop.run_once()
            return what()

        until(holds, timeout=120)

    def close(self) -> None:
        self.copies.close()
        self.until(lambda: not len(self.copies))
        self._loop.close()


def _raise(error: Exception) -> None:
    raise error


def observed(name: str) -> ObservedPod:
    return observed_pod({"metadata": {"name": name, "uid": name}}, "r1", {})


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.end(*made.followed)
    made.stub.close()


@pytest.fixture
def copies(tmp_path: Path, server: Server) -> Iterator[Copies]:
    made = Copies(tmp_path, Cluster(write_config(tmp_path / "config", server.stub.url)))
    yield made
    made.close()


def threads() -> int:
    return sum(one.name == "pod-logs" for one in threading.enumerate())


def test_a_few_logs_are_followed(server: Server, copies: Copies) -> None:
    for name in ("a", "b"):
        copies.add(name)
    copies.until(lambda: copies.text("a") == "a\n" and copies.text("b") == "b\n")
    assert server.followed == {"a", "b"}
    server.end("a")
    copies.copies.end(copies.logs["a"])
    copies.until(lambda: copies.done == [copies.logs["a"]])
    assert copies.text("a") == "a\nover\n"
    assert (copies.logs["a"].problem, len(copies.copies)) == ("", 1)


def test_many_logs_are_read_in_turn(
    server: Server, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_logs, "_TURN_PAUSE", 0.5)
    names = [f"p{number}" for number in range(3 * MOST)]
    for name in names:
        copies.add(name)
    copies.until(lambda: all(copies.text(name) == f"{name}\n" for name in names))
    assert threads() <= MOST
    # the containers that have ended come first: no other one is done
    server.end(names[-1])
    copies.copies.end(copies.logs[names[-1]])
    copies.until(lambda: copies.done)
    assert copies.text(names[-1]) == f"{names[-1]}\nover\n"
    server.end(*names)
    for name in names:
        copies.copies.end(copies.logs[name])
    copies.until(lambda: len(copies.done) == len(names))
    assert all(copies.text(name) == f"{name}\nover\n" for name in names)
    copies.until(lambda: threads() == 0)


def test_what_is_closed_reads_nothing_more(server: Server, copies: Copies) -> None:
    for number in range(MOST):
        copies.add(f"p{number}")
    copies.until(lambda: len(server.followed) == MOST)
    start = time.monotonic()
    copies.copies.close()
    copies.until(lambda: len(copies.copies) == 0 and threads() == 0)
    assert time.monotonic() - start < 120


def test_another_session_continues(tmp_path: Path, server: Server, copies: Copies) -> None:
    copies.add("a")
    copies.until(lambda: copies.text("a") == "a\n")
    copies.copies.close()
    copies.until(lambda: len(copies.copies) == 0)
    server.end("a")
    again = Copies(tmp_path, Cluster(write_config(tmp_path / "config", server.stub.url)))
    again.add("a")
    again.copies.end_all()
    again.until(lambda: again.done)
    assert again.text("a") == "a\nover\n"
    again.close()
