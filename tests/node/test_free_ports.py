"""The ports that a node server reserves. For free ports see also tests/engines/test_ports.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.node import free_ports
from muster.node.free_ports import PortKeeper, hold_port
from muster.node.messages import PortRequest, ReservePorts

RELAY = PortRequest("relay.0", 7070, 1, preferred=False, held=True)
ROW = PortRequest("row", 9000, 3, preferred=False, held=True)
DRAWN = PortRequest("drawn", 9100, 1, preferred=False, held=False)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[PortKeeper]:
    keeper = PortKeeper(str(tmp_path / "ports"))
    yield keeper
    keeper.close()


def test_ports_are_free_for_the_node_and_taken_for_others(keeper: PortKeeper) -> None:
    answer = keeper.reserve(ReservePorts([RELAY, ROW, DRAWN]))
    assert (set(answer.numbers), answer.problem) == ({"relay.0", "row", "drawn"}, "")
    numbers = answer.numbers
    held = [numbers["relay.0"], *range(numbers["row"], numbers["row"] + 3)]
    assert [hold_port(number) for number in held] == [None] * 4
    with socket.create_server(("", numbers["relay.0"])):
        pass
    free = hold_port(numbers["drawn"])
    assert free is not None
    free.close()


def test_asked_again_it_answers_the_same(keeper: PortKeeper) -> None:
    first = keeper.reserve(ReservePorts([RELAY, DRAWN]))
    again = keeper.reserve(ReservePorts([RELAY, DRAWN, ROW]))
    assert first.numbers.items() < again.numbers.items()


def test_a_server_that_takes_over_reserves_the_same_if_they_are_free(tmp_path: Path) -> None:
    path = str(tmp_path / "ports")
    keeper = PortKeeper(path)
    first = keeper.reserve(ReservePorts([RELAY, ROW])).numbers
    keeper.close()
    taken = hold_port(first["row"] + 1)
    other = PortKeeper(path)
    second = other.reserve(ReservePorts([RELAY, ROW])).numbers
    assert second["relay.0"] == first["relay.0"]
    assert second["row"] != first["row"]
    other.close()
    assert taken is not None
    taken.close()
    for content in ("", "[]", '{"relay.0": "x", "row": 99999}'):
        (tmp_path / "ports").write_text(content)
        broken = PortKeeper(path)
        assert broken.reserve(ReservePorts([RELAY])).problem == ""
        broken.close()


def test_a_preferred_number_is_used_if_it_is_free(keeper: PortKeeper, tmp_path: Path) -> None:
    number, sockets = free_ports.hold_free_ports(1)
    wanted = ReservePorts([RELAY._replace(number=number, preferred=True)])
    assert keeper.reserve(wanted).numbers["relay.0"] != number
    sockets[0].close()
    other = PortKeeper(str(tmp_path / "others"))
    assert other.reserve(wanted).numbers == {"relay.0": number}
    other.close()


def test_without_free_ports_it_says_so(keeper: PortKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "_RANGE", range(20000, 20002))
    answer = keeper.reserve(ReservePorts([ROW, RELAY]))
    assert answer.numbers == {}
    assert answer.problem.startswith("no 3 free ports in a row")
