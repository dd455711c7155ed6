"""Names and addresses of nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local.network import addresses
from muster.errors import InvalidInput
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


def test_nodes_behind_an_uplink_reach_what_the_machine_has_on_its_loopback(
    plan_of: Callable[..., RunPlan], tmp_path: Path, own_hosts: Path
) -> None:
    own_hosts.write_text(
        "127.0.0.1 localhost\n127.0.1.1 objectstorage.jobs.example.org\n10.0.0.1 printer\n"
    )
    addresses.write_hosts(tmp_path / "hosts", plan_of().nodes, routed=True)
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert lines[3:] == [
        "10.77.128.2 host.muster.internal",
        "10.77.128.2 objectstorage.jobs.example.org",
        "10.0.0.1 printer",
    ]
