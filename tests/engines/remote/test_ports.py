"""Which ports are reserved where, and their numbers."""

from __future__ import annotations

from muster.engines.remote.ports import RemotePorts
from muster.frameworks.base import Port
from muster.node.messages import PortRequest, PortsReserved

PORTS = (
    Port("relay", 7070, each=True),
    Port("head", 6379, preferred=True),
    Port("fixed", 80, fixed=True),
    Port("server", 8000, fixed=True, each=True, wildcard=True, count=2, held=False),
)


def ports() -> RemotePorts:
    return RemotePorts(PORTS, 2)


def test_each_server_reserves_the_ports_of_its_node() -> None:
    first, second = (ports().request(rank) for rank in range(2))
    assert first is not None and second is not None
    assert first.ports == [
        PortRequest("relay.0", 7070, 1, preferred=False, held=True),
        PortRequest("head", 6379, 1, preferred=True, held=True),
        PortRequest("server.0", 8000, 2, preferred=True, held=False),
    ]
    assert [port.name for port in second.ports] == ["relay.1", "server.1"]
    assert RemotePorts((), 2).request(0) is None


def test_numbers_are_known_when_the_servers_have_answered() -> None:
    found = ports()
    assert [found.awaited(rank) for rank in range(2)] == [True, True]
    found.reserved(0, PortsReserved({"relay.0": 1, "head": 2, "server.0": 3}, ""))
    assert [found.awaited(rank) for rank in range(2)] == [False, True]
    found.reserved(1, PortsReserved({"relay.1": 4, "server.1": 5}, ""))
    assert not found.awaited(1)
    assert found.numbers == {
        **{"relay.0": 1, "relay.1": 4, "head": 2, "fixed": 80, "server.0": 3, "server.1": 5}
    }


def test_another_host_of_a_node_is_asked_for_the_numbers_that_others_know() -> None:
    found = ports()
    found.reserved(1, PortsReserved({"relay.1": 4, "server.1": 5}, ""))
    again = found.request(1)
    assert again is not None
    assert [(port.number, port.preferred) for port in again.ports] == [(4, True), (5, True)]


def test_ports_that_cannot_be_reserved() -> None:
    found = ports()
    found.reserved(1, PortsReserved({"relay.1": 4}, "no free port"))
    assert found.awaited(1)
    assert found.problems == {1: "no free port"}
    found.request(1)
    assert found.problems == {}


def test_only_what_was_asked_for_is_taken() -> None:
    found = ports()
    found.reserved(1, PortsReserved({"head": 1, "relay.0": 2}, ""))
    assert (found.numbers["head"], found.numbers["relay.0"]) == (6379, 7070)
