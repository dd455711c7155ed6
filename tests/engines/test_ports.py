"""Free ports of this machine, and those that a run holds."""

from __future__ import annotations

import socket

import pytest

from muster.engines import ports
from muster.errors import EngineError
from muster.frameworks.base import Port
from muster.node import free_ports


def test_a_held_port_is_free_for_its_run_and_taken_for_others() -> None:
    held = ports.Ports([Port("master", 29500)], 1, own_interfaces=False)
    number = held.numbers["master"]
    assert free_ports.hold_port(number) is None, "another run uses another port"
    with socket.create_server(("", number)):
        assert free_ports.hold_port(number) is None
    held.close()
    again = free_ports.hold_port(number)
    assert again is not None
    again.close()


def test_fixed_ports_and_ports_on_own_interfaces_are_not_changed() -> None:
    assert ports.Ports([Port("a", 7, fixed=True)], 1, own_interfaces=False).numbers == {"a": 7}
    assert ports.Ports([Port("a", 29500)], 1, own_interfaces=True).numbers == {"a": 29500}


def free_number() -> int:
    number, held = ports.hold_free_ports(1)
    for one in held:
        one.close()
    return number


def test_a_preferred_port_is_used_if_it_is_free() -> None:
    expected = [Port("master", free_number(), preferred=True)]
    first = ports.Ports(expected, 1, own_interfaces=False)
    assert first.numbers["master"] == expected[0].number
    second = ports.Ports(expected, 1, own_interfaces=False)
    assert second.numbers["master"] != expected[0].number, "the first run holds it"
    first.close()
    second.close()


def test_servers_on_all_addresses_have_different_ports_on_each_node() -> None:
    number = free_number()
    expected = [Port("server", number, fixed=True, each=True, wildcard=True)]
    held = ports.Ports(expected, 2, own_interfaces=False)
    assert held.numbers["server.0"] == number != held.numbers["server.1"]
    held.close()
    assert set(ports.Ports(expected, 2, own_interfaces=True).numbers.values()) == {number}


def test_each_node_gets_its_own_port() -> None:
    held = ports.Ports([Port("relay", 7070, each=True), Port("one", 1)], 3, own_interfaces=False)
    assert sorted(held.numbers) == ["one", "relay.0", "relay.1", "relay.2"]
    assert len(set(held.numbers.values())) == 4
    assert all(free_ports.hold_port(number) is None for number in held.numbers.values())
    held.close()
    own = ports.Ports([Port("relay", 7070, each=True)], 2, own_interfaces=True)
    assert own.numbers == {"relay.0": 7070, "relay.1": 7070}


def test_a_range_of_ports_is_held_for_each_node() -> None:
    held = ports.Ports([Port("range", 9000, count=5, each=True)], 2, own_interfaces=False)
    for first in held.numbers.values():
        assert 20000 <= first <= 32000 - 5
        assert [free_ports.hold_port(first + more) for more in range(5)] == [None] * 5
    one, two = held.numbers.values()
    assert abs(one - two) >= 5
    held.close()


def test_ranges_that_are_not_held_do_not_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = ports.Ports([Port("range", 1, count=8)], 1, own_interfaces=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(free_ports, "_RANGE", range(first, first + 8))
    monkeypatch.setattr(free_ports, "_drawn", iter)
    found = ports.Ports([Port("range", 1, count=4, each=True, held=False)], 2, own_interfaces=False)
    assert sorted(found.numbers.values()) == [first, first + 4]
    again = [free_ports.hold_port(number) for number in range(first, first + 8)]
    assert None not in again
    for one in again:
        assert one is not None
        one.close()
    found.close()


def test_a_range_avoids_used_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """One port of seven is in use: a range of four fits behind it, one of five does not."""
    free = ports.Ports([Port("range", 1, count=7)], 1, own_interfaces=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(free_ports, "_RANGE", range(first, first + 7))
    monkeypatch.setattr(free_ports, "_drawn", iter)
    used = free_ports.hold_port(first + 2)
    assert used is not None
    expected = [Port("range", 1, count=4), Port("range", 1, count=5)]
    held = ports.Ports(expected[:1], 1, own_interfaces=False)
    assert held.numbers == {"range": first + 3}
    held.close()
    with pytest.raises(EngineError, match="no 5 free ports in a row"):
        ports.Ports(expected[1:], 1, own_interfaces=False)
    used.close()
    assert all(
        one is not None and one.close() is None
        for one in map(free_ports.hold_port, range(first, first + 7))
    )
