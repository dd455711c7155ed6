"""Services and checks in the launch message of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from muster.frameworks.base import Answers, Joined, RoleSetup, Service, Succeeds
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.plan.services import fill_check, services
from muster.plan.template import Facts

PLACES = {"folder": "/short", "python": "/py", "run.tls": "/tls"}
PORTS: Mapping[str, int] = {"main": 1, "own.0": 20, "own.1": 21}


class Files:
    """Paths of a node's output."""

    processes = (("0.out", "0.err"), ("1.out", "1.err"))

    def service(self, name: str) -> str:
        return f"{name}.log"


def group(*own: Service, **more: Any) -> GroupPlan:
    usual = {"env": {}, "framework_env": {}, "resources": ResourcePlan(), "args": ()}
    role = RoleSetup(services=own)
    return GroupPlan(
        **{"name": "g", "first_rank": 0, "replicas": 1, "nodes": 2, "command": ("x",)},
        **{**usual, **more},
        role=role,
    )


def facts() -> Facts:
    nodes = tuple(NodePlan(r, "g", 0, r, f"i-{r}", f"f-{r}", f"a-{r}", f"h-{r}") for r in (0, 1))
    plan = RunPlan(
        run_id="r",
        run_name="demo-1",
        job_id="j",
        job_name="demo",
        framework="mine",
        processes_per_node=2,
        network="shared",
        network_reason="",
        policy=Policy((GroupPolicy("g", 0, 1, 2, 1),), Success((0,)), 60, 10),
        groups=(group(),),
        nodes=nodes,
    )
    return Facts(plan, nodes[1], 0, 0, PORTS, PLACES)


def launch_services(*own: Service, **more: Any) -> list[dict[str, Any]]:
    env = {"PYTHONPATH": "/work", "X": "shared"}
    return [service._asdict() for service in services(group(*own, **more), facts(), Files(), env)]


def test_every_placeholder_is_filled() -> None:
    one = Service(
        "one",
        ("${python}", "--at", "${roster.0.address}:${port.main}", "${port.own}", "${port.own.0}"),
        env={"WHERE": "${folder}/x", "CA": "${run.tls}/ca.pem"},
        after=Answers("${roster.0.address}", "${port.main}", "/health"),
        ready=Succeeds(("test", "-e", "${folder}/up"), "it is up"),
        grace=2.5,
    )
    assert launch_services(one) == [
        {
            "name": "one",
            "argv": ["/py", "--at", "a-0:1", "21", "20"],
            "env": {"PYTHONPATH": "/work", "X": "shared", "WHERE": "/short/x", "CA": "/tls/ca.pem"},
            "stdout": "one.log",
            "stderr": "one.log",
            "after": {"type": "answers", "address": "a-0", "port": "1", "path": "/health"},
            "ready": {
                "type": "succeeds",
                "command": ["test", "-e", "/short/up"],
                "what": "it is up",
                "patience": 10.0,
                "expected": [],
            },
            "grace": 2.5,
        }
    ]


def test_a_service_can_write_to_the_output_of_the_node() -> None:
    one, two = launch_services(Service("one", ("x",), output="node"), Service("two", ("x",)))
    assert (one["stdout"], one["stderr"]) == ("0.out", "0.err")
    assert (two["stdout"], two["stderr"]) == ("two.log", "two.log")


@pytest.mark.parametrize("owner", [{"env": {"LEVEL": "mine"}}, {"node_env": {"LEVEL": "${rank}"}}])
def test_variables_of_users_override_defaults_and_those_of_services_override_both(
    owner: dict[str, Any],
) -> None:
    one = Service("one", ("x",), env={"X": "own"}, defaults={"LEVEL": "info", "RANK": "${rank}"})
    (free,) = launch_services(one)
    assert free["env"] == {"PYTHONPATH": "/work", "X": "own", "LEVEL": "info", "RANK": "1"}
    (bound,) = launch_services(one, **owner)
    assert bound["env"] == {"PYTHONPATH": "/work", "X": "own", "RANK": "1"}


def test_the_check_of_joined_members_is_filled() -> None:
    check = Joined(
        "${roster.0.address}", "${port.main}", "/m", ("*",), ("name",), ((1, "w-${rank}"),)
    )
    assert fill_check(check, facts()) == {
        "type": "joined",
        "address": "a-0",
        "port": "1",
        "path": "/m",
        "members": ["*"],
        "name": ["name"],
        "expected": [[1, "w-1"]],
        "where": {},
        "what": "member",
        "token": "",
    }
    assert fill_check(None, facts()) is None


def test_an_unknown_placeholder_of_a_service_is_an_error() -> None:
    with pytest.raises(LookupError, match="color"):
        launch_services(Service("one", ("${node.color}",)))
    with pytest.raises(LookupError):
        launch_services(replace(Service("one", ("x",)), env={"A": "${port.none}"}))
