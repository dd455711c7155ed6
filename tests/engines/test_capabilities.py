"""What an engine cannot do is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from muster.engines.base import Capabilities, Engine, Report, RunContext, Session
from muster.engines.basic import BasicEngine
from muster.engines.capabilities import PHRASES, plan_problems, require
from muster.engines.local.engine import LocalEngine
from muster.engines.loop import RunLoop
from muster.errors import InvalidInput
from muster.frameworks.base import Network
from muster.plan.model import RunPlan


class Bare(BasicEngine):
    """An engine without any capability."""

    name = "bare"

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        return [network] * nodes

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> Session:
        raise NotImplementedError(context)


def test_every_capability_has_a_phrase() -> None:
    assert tuple(PHRASES) == Capabilities.__struct_fields__


def test_requests_are_refused_in_words() -> None:
    with pytest.raises(InvalidInput, match=r"^engine bare cannot run commands in nodes$"):
        require(Bare(), "exec")
    require(LocalEngine(), "exec")


@pytest.mark.parametrize(
    ("spec", "path", "capability"),
    [
        ({"suspend": True}, "suspend", "suspend"),
        (
            {"node_groups": [{"name": "a", "max_replicas": 2}]},
            "node_groups[a].max_replicas",
            "resize",
        ),
        ({"node_groups": [{"name": "a", "retries": 2}]}, "node_groups[a].retries", "replace_node"),
        ({"failure": {"action": "restart_node"}}, "failure.action", "replace_node"),
        (
            {"failure": {"rules": [{"action": "restart_node", "name": "x"}]}},
            "failure.rules[x].action",
            "replace_node",
        ),
    ],
)
def test_a_plan_that_asks_for_more_is_refused(
    plan_of: Callable[..., RunPlan], spec: dict[str, Any], path: str, capability: str
) -> None:
    plan, suspend = plan_of(**spec), "suspend" in spec
    (problem,) = plan_problems(Bare(), plan, suspend=suspend)
    assert (problem.path, problem.message) == (path, f"engine bare cannot {PHRASES[capability]}")
    able: Engine = LocalEngine()
    assert list(plan_problems(able, plan, suspend=suspend)) == []


def test_any_engine_can_run_a_plain_plan(plan_of: Callable[..., RunPlan]) -> None:
    plan = plan_of(nodes=2, failure={"max_restarts": 3})
    assert list(plan_problems(Bare(), plan, suspend=False)) == []


def test_a_bare_engine_reserves_nothing(plan_of: Callable[..., RunPlan]) -> None:
    one: Engine = Bare()
    plan = plan_of(nodes=2)
    assert not one.may_queue(plan)
    assert one.limits({"workers": plan.groups[0].resources}) == {}
    assert one.shares_of_memory(plan).keys() == {"workers"}
