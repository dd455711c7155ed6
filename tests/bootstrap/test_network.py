"""Addresses of nodes, and the ports that they reserve."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from muster.bootstrap.network import ReservedPorts, interface_of
from muster.frameworks.base import Port
from muster.node.machine import own_address


@pytest.mark.shows("cluster-design/finding-ip")
def test_the_address_is_this_machine_s_own() -> None:
    address = own_address()
    with socket.create_server((address, 0)) as server:
        with socket.create_connection(server.getsockname()):
            peer, sender = server.accept()
            peer.close()
        assert sender[0] == address
    assert interface_of(address) in {None, *(name for _, name in socket.if_nameindex())}
    assert interface_of("127.0.0.1") is None
    assert interface_of("192.0.2.77") is None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.mark.shows("cluster-design/master-script")
def test_two_nodes_on_one_machine_have_different_ports() -> None:
    output: list[str] = []
    port = Port("relay", _free_port(), each=True)
    with closing(ReservedPorts([port], output.append, main=True)) as one:
        with closing(ReservedPorts([port], output.append, main=False)) as other:
            assert one.numbers["relay"] == port.number
            assert other.numbers["relay"] != port.number
        assert len(output) == 1 and "relay" in output[0]
        with socket.socket() as server:  # as every server does
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port.number))
            server.listen()


def test_consecutive_ports_avoid_a_port_in_use() -> None:
    output: list[str] = []
    row = Port("workers", _free_port(), each=True, count=3)
    taken = Port("taken", row.number + 1, each=True)
    with closing(ReservedPorts([taken], output.append, main=True)) as held:
        if held.numbers["taken"] == taken.number:
            with closing(ReservedPorts([row], output.append, main=False)) as others:
                assert not {*range(row.number, row.number + 3)} & {others.numbers["workers"]}


def test_only_the_main_node_reserves_its_ports() -> None:
    with closing(ReservedPorts([Port("scheduler", _free_port())], print, main=False)) as ports:
        assert ports.numbers == {}


def test_a_fixed_port_is_kept_and_reported() -> None:
    output: list[str] = []
    port = Port("scheduler", _free_port(), fixed=True)
    held, ports = (ReservedPorts([port], output.append, main=True) for _ in range(2))
    with closing(held), closing(ports):
        assert ports.numbers["scheduler"] == port.number
    assert "in use here" in output[0]
