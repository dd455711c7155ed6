"""Names, addresses and ports of nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local.network import addresses
from muster.errors import EngineError, InvalidInput
from muster.frameworks.base import Port
from muster.plan.model import NodePlan, RunPlan

NAMED = {"name": "workers", "hostname": "w-${index}"}


def lines_for(nodes: tuple[NodePlan, ...], folder: Path) -> list[str]:
    addresses.write_hosts(folder / "hosts", nodes)
    return (folder / "hosts").read_text().splitlines()


@pytest.fixture(autouse=True)
def own_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the hosts file of this machine."""
    own = tmp_path / "etc"
    own.write_text("127.0.0.1 localhost\n10.0.0.1 printer # ours\n10.9.9.9 node-0 old\n\n")
    monkeypatch.setattr(addresses, "HOSTS", own)
    return own


@pytest.mark.shows("distributed-jobs/fqdn")
def test_the_hosts_file_has_the_default_names(
    plan_of: Callable[..., RunPlan], tmp_path: Path
) -> None:
    lines = lines_for(plan_of(nodes=2).nodes, tmp_path)
    assert lines == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "127.5.0.1 node-0",
        "127.5.0.2 node-1",
        "10.0.0.1 printer # ours",
    ]


def test_names_of_nodes_replace_names_of_the_machine(
    plan_of: Callable[..., RunPlan], tmp_path: Path, own_hosts: Path
) -> None:
    own_hosts.write_text(
        "10.0.0.1 printer\n10.0.0.2 w-0.lab\n10.0.0.3 other w-0\n10.0.0.4 node-0\n"
    )
    plan = plan_of(node_groups=[NAMED], subdomain="lab")
    lines = lines_for(plan.nodes, tmp_path)
    assert lines[2:] == ["127.5.0.1 w-0.lab w-0 node-0", "10.0.0.1 printer"]


@pytest.mark.shows("jobset/headless-service")
def test_each_name_is_listed_once_with_the_full_name_first(tmp_path: Path) -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "a.b", "127.5.0.4", "a", ("a.b.c", "node-3", "a"))
    assert addresses.node_names(node) == ("a.b", "a", "a.b.c", "node-3")


def test_a_node_without_aliases_has_one_name(tmp_path: Path) -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "node-3", "127.5.0.4", "node-3")
    assert addresses.node_names(node) == ("node-3",)


def test_nodes_have_a_hosts_file_if_the_machine_has_none(
    plan_of: Callable[..., RunPlan], tmp_path: Path, own_hosts: Path
) -> None:
    own_hosts.unlink()
    assert lines_for(plan_of(nodes=1).nodes, tmp_path)[-1] == "127.5.0.1 node-0"


def test_without_namespaces_the_host_name_is_the_short_one(
    plan_of: Callable[..., RunPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = plan_of(node_groups=[NAMED], subdomain="lab").nodes
    monkeypatch.setattr(addresses, "wrapper", lambda: "/lib/w.so")
    assert addresses.wrapper_environment(Path("/hosts"), node) == {
        "LD_PRELOAD": "/lib/w.so",
        "NSS_WRAPPER_HOSTS": "/hosts",
        "NSS_WRAPPER_HOSTNAME": "w-0",
    }
    monkeypatch.setattr(addresses, "wrapper", lambda: None)
    assert addresses.wrapper_environment(Path("/hosts"), node) == {}


def test_addresses_belong_to_one_run() -> None:
    one, two = addresses.allocate("shared", 300), addresses.allocate("shared", 300)
    assert len(set(one)) == 300
    assert all(a.startswith("127.") and not a.startswith("127.0.") for a in one)
    assert not set(one) & set(two)


def test_an_isolated_network_has_addresses_for_1000_nodes() -> None:
    found = addresses.allocate("isolated", 1000)
    assert (found[0], found[254], found[255]) == ("10.77.0.1", "10.77.0.255", "10.77.1.0")
    with pytest.raises(InvalidInput, match="network: isolated supports 1000 nodes"):
        addresses.allocate("isolated", 1001)


def test_a_held_port_is_free_for_its_run_and_taken_for_others() -> None:
    import socket

    held = addresses.Ports([Port("master", 29500)], 1, own_interfaces=False)
    number = held.numbers["master"]
    assert addresses.hold_port(number) is None, "another run uses another port"
    with socket.create_server(("", number)):
        assert addresses.hold_port(number) is None
    held.close()
    again = addresses.hold_port(number)
    assert again is not None
    again.close()


def test_fixed_ports_and_ports_on_own_interfaces_are_not_changed() -> None:
    assert addresses.Ports([Port("a", 7, fixed=True)], 1, own_interfaces=False).numbers == {"a": 7}
    assert addresses.Ports([Port("a", 29500)], 1, own_interfaces=True).numbers == {"a": 29500}


def free_number() -> int:
    number, held = addresses.hold_free_ports(1)
    for one in held:
        one.close()
    return number


def test_a_preferred_port_is_used_if_it_is_free() -> None:
    expected = [Port("master", free_number(), preferred=True)]
    first = addresses.Ports(expected, 1, own_interfaces=False)
    assert first.numbers["master"] == expected[0].number
    second = addresses.Ports(expected, 1, own_interfaces=False)
    assert second.numbers["master"] != expected[0].number, "the first run holds it"
    first.close()
    second.close()


def test_servers_on_all_addresses_have_different_ports_on_each_node() -> None:
    number = free_number()
    expected = [Port("server", number, fixed=True, each=True, wildcard=True)]
    held = addresses.Ports(expected, 2, own_interfaces=False)
    assert held.numbers["server.0"] == number != held.numbers["server.1"]
    held.close()
    assert set(addresses.Ports(expected, 2, own_interfaces=True).numbers.values()) == {number}


def test_each_node_gets_its_own_port() -> None:
    held = addresses.Ports(
        [Port("relay", 7070, each=True), Port("one", 1)], 3, own_interfaces=False
    )
    assert sorted(held.numbers) == ["one", "relay.0", "relay.1", "relay.2"]
    assert len(set(held.numbers.values())) == 4
    assert all(addresses.hold_port(number) is None for number in held.numbers.values())
    held.close()
    own = addresses.Ports([Port("relay", 7070, each=True)], 2, own_interfaces=True)
    assert own.numbers == {"relay.0": 7070, "relay.1": 7070}


def test_a_range_of_ports_is_held_for_each_node() -> None:
    held = addresses.Ports([Port("range", 9000, count=5, each=True)], 2, own_interfaces=False)
    for first in held.numbers.values():
        assert 20000 <= first <= 32000 - 5
        assert [addresses.hold_port(first + more) for more in range(5)] == [None] * 5
    one, two = held.numbers.values()
    assert abs(one - two) >= 5
    held.close()


def test_ranges_that_are_not_held_do_not_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = addresses.Ports([Port("range", 1, count=8)], 1, own_interfaces=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(addresses, "_RANGE", range(first, first + 8))
    monkeypatch.setattr(addresses.random, "sample", lambda numbers, _: list(numbers))
    found = addresses.Ports(
        [Port("range", 1, count=4, each=True, held=False)], 2, own_interfaces=False
    )
    assert sorted(found.numbers.values()) == [first, first + 4]
    again = [addresses.hold_port(number) for number in range(first, first + 8)]
    assert None not in again
    for one in again:
        assert one is not None
        one.close()
    found.close()


def test_a_range_avoids_used_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """One port of seven is in use: a range of four fits behind it, one of five does not."""
    free = addresses.Ports([Port("range", 1, count=7)], 1, own_interfaces=False)
    first = free.numbers["range"]
    free.close()
    monkeypatch.setattr(addresses, "_RANGE", range(first, first + 7))
    monkeypatch.setattr(addresses.random, "sample", lambda numbers, _: list(numbers))
    used = addresses.hold_port(first + 2)
    assert used is not None
    expected = [Port("range", 1, count=4), Port("range", 1, count=5)]
    held = addresses.Ports(expected[:1], 1, own_interfaces=False)
    assert held.numbers == {"range": first + 3}
    held.close()
    with pytest.raises(EngineError, match="no 5 free ports in a row"):
        addresses.Ports(expected[1:], 1, own_interfaces=False)
    used.close()
    assert all(
        one is not None and one.close() is None
        for one in map(addresses.hold_port, range(first, first + 7))
    )
