"""What a node finds out about the others, without any others: one thread plays them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from muster.node import survey

HERE = {"IpAddress": "127.0.0.1", "FQDN": "localhost"}
MINUTE = 60


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], None),
        ([(100.0, 103.0, 103.0)], None),  # it was busy, and its clock is right
        ([(100.0, 102.9, 103.0), (104.0, 104.1, 104.25)], None),
        ([(100.0, 103.0, 103.0), (104.0, 104.05, 104.1)], 0.0),
        ([(100.0, 130.05, 100.1), (104.0, 134.0, 104.02), (105.0, 135.1, 105.15)], 29.99),
    ],
)
def test_the_quickest_answer_tells_the_time(
    times: list[tuple[float, float, float]], expected: float | None
) -> None:
    found = survey.offset(times)
    assert found == (None if expected is None else pytest.approx(expected))


class Other:
    """Another node: it asks whoever asks it before it answers."""

    def __init__(self, asks: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heard: list[bytes] = []
        self._asks = asks

    def run(self) -> None:
        while True:
            try:
                asker, _ = self.server.accept()
            except OSError:
                return  # closed: the test is over
            with asker, socket.create_connection(("127.0.0.1", self._asks), MINUTE) as asked:
                self.heard.append(asked.makefile("rb").readline())
                asker.sendall(b"1.5\n")


@pytest.fixture
def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def other(free: int) -> Iterator[Other]:
    made = Other(free)
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.server.shutdown(socket.SHUT_RDWR)
    made.server.close()
    thread.join()


def look(rank: int, free: int, other: Other) -> dict[str, Any]:
    """What a node of that rank finds, of two."""
    ports = {"x": {str(rank): free, str(1 - rank): other.port}}
    return survey.Survey(rank, {0: HERE, 1: HERE}, ports).run()


def test_a_node_answers_while_it_asks(free: int, other: Other) -> None:
    """Else two that ask each other wait until one gives up, and take that for a clock's fault."""
    found = look(0, free, other)["found"]
    assert [one["ok"] for one in found if one["what"] == "ports"] == [True]
    assert len(other.heard) == 1  # nothing had to be tried again
    assert float(other.heard[0]) > 0


def test_the_clock_of_rank_0_is_asked_for(
    free: int, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_times", lambda *_: [(0.0, 5.0, 9.0), (10.0, 13.1, 10.2)])
    found = look(1, free, other)
    assert (found["rank"], found["offset"]) == (1, pytest.approx(3.0))


def test_time_is_asked_for_some_times(free: int, other: Other) -> None:
    with socket.create_server(("127.0.0.1", free)) as server:  # answers nothing, but is there
        threading.Thread(target=_hang_up, args=(server, 1), daemon=True).start()
        assert list(survey._times("127.0.0.1", free)) == []
    assert other.heard == []


def _hang_up(server: socket.socket, times: int) -> None:
    for _ in range(times):
        server.accept()[0].close()
