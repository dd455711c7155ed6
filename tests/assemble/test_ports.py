"""Ports of nodes that may share a machine."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from muster.assemble.ports import OwnPorts
from muster.frameworks.base import Port


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.mark.shows("cluster-design/master-script")
def test_two_nodes_on_one_machine_never_have_the_same() -> None:
    said: list[str] = []
    port = Port("relay", _free(), each=True)
    with closing(OwnPorts([port], said.append, main=True)) as one:
        with closing(OwnPorts([port], said.append, main=False)) as other:
            assert one.numbers["relay"] == port.number
            assert other.numbers["relay"] != port.number
        assert len(said) == 1 and "relay" in said[0]
        with socket.socket() as server:  # as every server does
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port.number))
            server.listen()


def test_several_in_a_row_are_all_free() -> None:
    said: list[str] = []
    row = Port("workers", _free(), each=True, count=3)
    taken = Port("taken", row.number + 1, each=True)
    with closing(OwnPorts([taken], said.append, main=True)) as held:
        if held.numbers["taken"] == taken.number:
            with closing(OwnPorts([row], said.append, main=False)) as others:
                assert not {*range(row.number, row.number + 3)} & {others.numbers["workers"]}


def test_who_is_not_the_main_node_has_none_of_its_ports() -> None:
    with closing(OwnPorts([Port("scheduler", _free())], print, main=False)) as ports:
        assert ports.numbers == {}


def test_a_port_that_must_be_is_kept_and_said() -> None:
    said: list[str] = []
    port = Port("scheduler", _free(), fixed=True)
    held, ports = (OwnPorts([port], said.append, main=True) for _ in range(2))
    with closing(held), closing(ports):
        assert ports.numbers["scheduler"] == port.number
    assert "in use here" in said[0]
