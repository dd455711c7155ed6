"""The preflight check of a node; a thread plays the other node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from muster.node import preflight

HERE = {"IpAddress": "127.0.0.1", "FQDN": "localhost"}
MINUTE = 60


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], None),
        ([(100.0, 103.0, 103.0)], None),  # a slow answer: the clock may be right
        ([(100.0, 102.9, 103.0), (104.0, 104.1, 104.25)], None),
        ([(100.0, 103.0, 103.0), (104.0, 104.05, 104.1)], 0.0),
        ([(100.0, 130.05, 100.1), (104.0, 134.0, 104.02), (105.0, 135.1, 105.15)], 29.99),
    ],
)
def test_the_sample_with_the_shortest_round_trip_counts(
    times: list[tuple[float, float, float]], expected: float | None
) -> None:
    found = preflight.clock_offset(times)
    assert found == (None if expected is None else pytest.approx(expected))


class Other:
    """Another node, which connects to the checked node before it answers."""

    def __init__(self, port_of_node: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.received: list[bytes] = []
        self._port_of_node = port_of_node

    def run(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return  # closed: the test is over
            with (
                client,
                socket.create_connection(("127.0.0.1", self._port_of_node), MINUTE) as connection,
            ):
                self.received.append(connection.makefile("rb").readline())
                client.sendall(b"1.5\n")


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


def check(rank: int, free: int, other: Other) -> dict[str, Any]:
    """The result of the preflight check on the node of that rank, of two nodes."""
    ports = {"x": {str(rank): free, str(1 - rank): other.port}}
    return preflight.Preflight(rank, {0: HERE, 1: HERE}, ports).run()


def test_a_node_answers_while_it_tries_others(free: int, other: Other) -> None:
    """Otherwise two nodes that check each other wait for a timeout, and report wrong clocks."""
    found = check(0, free, other)["found"]
    assert [one["ok"] for one in found if one["what"] == "ports"] == [True]
    assert len(other.received) == 1  # no retry was needed
    assert float(other.received[0]) > 0


def test_the_clock_of_rank_0_is_compared(
    free: int, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        preflight, "_clock_samples", lambda *_: [(0.0, 5.0, 9.0), (10.0, 13.1, 10.2)]
    )
    found = check(1, free, other)
    assert (found["rank"], found["offset"]) == (1, pytest.approx(3.0))


def test_several_clock_samples_are_taken(free: int, other: Other) -> None:
    with socket.create_server(("127.0.0.1", free)) as server:  # accepts, but does not answer
        threading.Thread(target=_hang_up, args=(server, 1), daemon=True).start()
        assert list(preflight._clock_samples("127.0.0.1", free)) == []
    assert other.received == []


def _hang_up(server: socket.socket, times: int) -> None:
    for _ in range(times):
        server.accept()[0].close()
