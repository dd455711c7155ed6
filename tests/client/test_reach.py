"""Where dashboards and ports are reached."""

from __future__ import annotations

import json
import socket

import pytest
from msgspec.structs import replace

from muster.client.contexts import Address
from muster.client.http.api import HttpAPI
from muster.client.reach import NodePort, answering_host, dashboard, listen, shares_loopback
from muster.errors import InvalidInput
from muster.store.records import NodeRecord, RunSummary

RUN = RunSummary("id", "demo-1", "j", "demo", "IN_PROGRESS", "", "local", 0, 0, None, None, 2)


def node(rank: int) -> NodeRecord:
    fqdn = f"node-{rank}.demo-1"
    return NodeRecord(
        rank, "workers", 0, rank, f"n{rank}", fqdn, f"127.9.9.{rank + 1}", "READY", None, 0, None
    )


NODES = [node(0), node(1)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://127.0.0.1:8431", True), ("http://localhost:8431", True), ("http://[::1]:1", True),
     ("https://10.0.0.7:8431", False), ("https://muster.example.org", False)],
)  # fmt: skip
def test_loopback_is_that_of_nodes_only_on_the_servers_machine(url: str, expected: bool) -> None:
    assert shares_loopback(HttpAPI(Address(url))) is expected


@pytest.mark.parametrize(
    ("endpoints", "rank", "url"),
    [
        ({"dashboard": "http://127.9.9.2:8787/status"}, 1, "http://h:1/status"),
        ({"serve": "http://node-0:8000"}, 0, "http://h:1"),
        ({"serve": "http://127.9.9.1:8000", "dashboard": "https://node-1.demo-1:1/a?b=c"}, 1,
         "https://h:1/a?b=c"),
    ],
)  # fmt: skip
def test_the_dashboard_is_a_port_of_a_node(endpoints: dict[str, str], rank: int, url: str) -> None:
    place = dashboard(RUN, NODES, endpoints)
    assert (place.node.rank, place.url("h", 1)) == (rank, url)


@pytest.mark.parametrize(
    "endpoints",
    [{}, {"address": "tcp://127.9.9.1:8786"}, {"dashboard": "http://127.9.9.7:1/"},
     {"dashboard": "http://127.9.9.1/"}],
)  # fmt: skip
def test_a_run_without_dashboard(endpoints: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=r"demo-1 has no dashboard.*--port N --rank N"):
        dashboard(RUN, NODES, endpoints)


def test_urls_of_ipv6_addresses_have_brackets() -> None:
    assert NodePort(NODES[0], 80).url("::1") == "http://[::1]:80/"


def test_a_program_may_listen_on_the_nodes_address_or_on_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = NodePort(NODES[0], server.getsockname()[1])
        assert answering_host(place) == "127.0.0.1"
        with socket.create_server((NODES[0].address, place.port)):
            assert answering_host(place) == NODES[0].address
    assert answering_host(place) is None


def test_a_preferred_port_may_be_taken_and_a_given_one_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with listen(None, taken) as other:
            assert other.getsockname()[0] == "127.0.0.1"
            assert other.getsockname()[1] != taken
        with pytest.raises(InvalidInput, match=f"^local_port: {taken} cannot be used"):
            listen(taken, 1)


def elsewhere(address: str) -> NodeRecord:
    """A node on another machine, which has its address."""
    intent = json.dumps({"host": "gpu1", "address": address})
    return replace(NODES[0], address="", intent=intent)


def test_the_loopback_of_this_machine_is_not_that_of_a_node_elsewhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = NodePort(elsewhere("127.9.9.8"), server.getsockname()[1])
        assert place.hosts == ("127.9.9.8", "127.0.0.1", "::1"), "as its machine sees it"
        assert answering_host(place) is None
        with socket.create_server(("127.9.9.8", place.port)):
            assert answering_host(place) == "127.9.9.8"


def test_a_dashboard_on_another_machine() -> None:
    node = elsewhere("127.9.9.8")
    place = dashboard(RUN, [node], {"dashboard": "http://127.9.9.8:8787/status"})
    assert (place.node, place.port) == (node, 8787)


def test_an_address_that_is_not_known_is_left_out() -> None:
    assert NodePort(replace(NODES[0], address=""), 80).hosts == ("127.0.0.1", "::1")
