"""Pods that dial the supervisor (`contact = "dial"`), by a user who may not exec into pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.profile import read_settings
from muster.engines.kubernetes.role import role
from muster.engines.kubernetes.versions import Versions
from support.faults import until
from support.kube import Cluster
from support.kube.access import Rule
from support.kube_engine import add_engine, require_client, shared_cluster
from support.sessions import Session, make_plan

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

DIAL = {"contact": "dial", "address": "127.0.0.1"}
MakeSession = Callable[..., Session]


@pytest.fixture
def cluster(tmp_path: Path, own_home: Path) -> Cluster:
    require_client()
    cluster = shared_cluster()
    rules = role(read_settings(DIAL), Versions())["rules"]
    granted = [Rule(one["verbs"], one["resources"], one["apiGroups"], "default") for one in rules]
    assert not any("pods/exec" in one.resources for one in granted)
    cluster.grant("token-of-dialed", "dialed", tuple(granted))
    config = cluster.write_kubeconfig("token-of-dialed", path=tmp_path / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(config), **DIAL)
    return cluster


@pytest.fixture
def session(cluster: Cluster, own_home: Path) -> Iterator[MakeSession]:
    made: list[Session] = []

    def make(command: str, nodes: int) -> Session:
        plan = make_plan(command, nodes)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session("kubernetes", own_home, plan, keep=True))
        return made[-1]

    yield make
    for one in made:
        one.abandon()


def test_nodes_dial_run_and_leave_nothing(session: MakeSession, cluster: Cluster) -> None:
    one = session("echo rank $RANK of $INITIAL_CLUSTER_SIZE", 2)
    one.start(0, 1)
    assert {e["exit_code"] for e in one.ended(0, 1).values()} == {0}
    assert one.close() == 0
    assert [one.output(rank) for rank in (0, 1)] == ["rank 0 of 2\n", "rank 1 of 2\n"]
    until(lambda: not cluster.pods(**{RUN: one.plan.run_id}), "its pods are gone")


def test_nodes_dial_the_next_supervisor(session: MakeSession, cluster: Cluster) -> None:
    one = session("echo incarnation $MUSTER_RESTART; exec sleep 1000", 2)
    one.start(0, 1)
    one.ready(0, 1)
    for rank in (0, 1):
        one.wait_for_output("incarnation 0", rank)
    before = [pod["metadata"]["uid"] for pod in cluster.pods(**{RUN: one.plan.run_id})]
    one.replaced()
    one.kill(0, 1)
    assert {e["signal"] for e in one.ended_after_all(0, 1).values()} == {9}
    one.start(0, 1, incarnation=1)
    one.ready(0, 1, incarnation=1)
    after = [pod["metadata"]["uid"] for pod in cluster.pods(**{RUN: one.plan.run_id})]
    assert after == before, "programs start again in the same pods"
    one.kill(0, 1, incarnation=1)
    one.ended(0, 1, incarnation=1)
    assert one.close() == 0
    for rank in (0, 1):
        assert one.output(rank).startswith("incarnation 0\n")
