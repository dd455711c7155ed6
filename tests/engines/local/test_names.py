"""Names of nodes: the hosts file, and what stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local import names
from muster.plan.model import NodePlan, RunPlan

NAMED = {"name": "workers", "hostname": "w-${index}"}


def lines_for(nodes: tuple[NodePlan, ...], folder: Path) -> list[str]:
    names.write_hosts(folder / "hosts", nodes)
    return (folder / "hosts").read_text().splitlines()


@pytest.fixture(autouse=True)
def own_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What this machine's own hosts file says."""
    own = tmp_path / "etc"
    own.write_text("127.0.0.1 localhost\n10.0.0.1 printer # ours\n10.9.9.9 node-0 old\n\n")
    monkeypatch.setattr(names, "HOSTS", own)
    return own


@pytest.mark.shows("distributed-jobs/fqdn")
def test_usual_names(plan_of: Callable[..., RunPlan], tmp_path: Path) -> None:
    lines = lines_for(plan_of(nodes=2).nodes, tmp_path)
    assert lines == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "127.5.0.1 node-0",
        "127.5.0.2 node-1",
        "10.0.0.1 printer # ours",
    ]


def test_a_name_of_the_machine_gives_way_to_a_node_s(
    plan_of: Callable[..., RunPlan], tmp_path: Path, own_hosts: Path
) -> None:
    own_hosts.write_text(
        "10.0.0.1 printer\n10.0.0.2 w-0.lab\n10.0.0.3 other w-0\n10.0.0.4 node-0\n"
    )
    plan = plan_of(node_groups=[NAMED], subdomain="lab")
    lines = lines_for(plan.nodes, tmp_path)
    assert lines[2:] == ["127.5.0.1 w-0.lab w-0 node-0", "10.0.0.1 printer"]


@pytest.mark.shows("jobset/headless-service")
def test_all_names_once_the_full_one_first(tmp_path: Path) -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "a.b", "127.5.0.4", "a", ("a.b.c", "node-3", "a"))
    assert names.node_names(node) == ("a.b", "a", "a.b.c", "node-3")


def test_names_need_no_list(tmp_path: Path) -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "node-3", "127.5.0.4", "node-3")
    assert names.node_names(node) == ("node-3",)


def test_a_machine_without_a_hosts_file(
    plan_of: Callable[..., RunPlan], tmp_path: Path, own_hosts: Path
) -> None:
    own_hosts.unlink()
    assert lines_for(plan_of(nodes=1).nodes, tmp_path)[-1] == "127.5.0.1 node-0"


def test_without_namespaces_the_host_name_is_the_short_one(
    plan_of: Callable[..., RunPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = plan_of(node_groups=[NAMED], subdomain="lab").nodes
    monkeypatch.setattr(names, "wrapper", lambda: "/lib/w.so")
    assert names.wrapper_environment(Path("/hosts"), node) == {
        "LD_PRELOAD": "/lib/w.so",
        "NSS_WRAPPER_HOSTS": "/hosts",
        "NSS_WRAPPER_HOSTNAME": "w-0",
    }
    monkeypatch.setattr(names, "wrapper", lambda: None)
    assert names.wrapper_environment(Path("/hosts"), node) == {}
