"""Notes on names of nodes that may not resolve in pods."""

from __future__ import annotations

from typing import Any

import pytest

from engines.conftest import PlanOf
from muster.engines.kubernetes.named_nodes import notes
from muster.engines.kubernetes.profile import KubernetesProfile, read_settings

GROUP = {"name": "workers", "nodes": 2, "hostname": "js-workers-${replica}-${index}"}
NAME = "js-workers-0-0.js"
TEXT = f"env.MASTER_ADDR of group workers names a node, {NAME}: that "
DOES_NOT = "does not resolve, as its programs are not root"


def of_node(**security: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "node", "securityContext": security}]}}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "resolves if the user of its image is root"),
        ({"container": {"user": "1000:1000"}}, DOES_NOT),
        ({"container": {"user": "0"}}, None),
        ({"container": {"user": "root"}}, None),
        ({"container": {"non_root": True}}, DOES_NOT),
        ({"kubernetes": {"pod": {"spec": {"securityContext": {"runAsUser": 7}}}}}, DOES_NOT),
        ({"kubernetes": {"pod": of_node(runAsUser=0)}}, None),
        ({"kubernetes": {"pod": of_node(runAsNonRoot=True)}}, DOES_NOT),
    ],
)
def test_it_depends_on_the_user(plan_of: PlanOf, more: dict[str, Any], told: str | None) -> None:
    group = {**GROUP, "env": {"MASTER_ADDR": f"{NAME}:3389"}, **more}
    found = list(notes(plan_of(node_groups=[group], subdomain="js"), KubernetesProfile()))
    assert len(found) == (told is not None)
    assert all(one.startswith(f"{TEXT}{told}") for one in found)


def test_a_profile_has_users_as_well(plan_of: PlanOf) -> None:
    profile = read_settings({"pod": {"spec": {"securityContext": {"runAsUser": 1000}}}})
    plan = plan_of(node_groups=[{**GROUP, "env": {"MASTER_ADDR": NAME}}], subdomain="js")
    assert DOES_NOT in "".join(notes(plan, profile))


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"command": ["sh", "-c", f"ping {NAME}; true"]}, "command"),
        ({"args": [f"--main={NAME}"]}, "args"),
        ({"node_env": {"A": f"${{index}} {NAME}"}}, "node_env.A"),
        ({"node_args": ["tcp://js.lab.svc:1"]}, "node_args"),
        ({"env": {"A": "x-js-workers-0-0.js"}}, None),
        ({"env": {"A": "js-workers-0-2.js"}}, None),
    ],
)
def test_all_texts_of_a_group_are_looked_at(
    plan_of: PlanOf, more: dict[str, Any], where: str | None
) -> None:
    plan = plan_of(node_groups=[{**GROUP, **more}], subdomain="js", namespace="lab")
    found = [one.partition(" of group")[0] for one in notes(plan, KubernetesProfile())]
    assert found == ([] if where is None else [where])
