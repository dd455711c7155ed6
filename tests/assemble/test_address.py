from __future__ import annotations

import socket

import pytest

from muster.assemble.address import interface_of, own_address


@pytest.mark.shows("cluster-design/finding-ip")
def test_the_address_is_this_machine_s_own() -> None:
    address = own_address()
    with socket.create_server((address, 0)) as server:
        with socket.create_connection(server.getsockname()):
            peer, came_from = server.accept()
            peer.close()
        assert came_from[0] == address
    assert interface_of(address) in {None, *(name for _, name in socket.if_nameindex())}
    assert interface_of("127.0.0.1") is None
    assert interface_of("192.0.2.77") is None
