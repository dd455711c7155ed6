"""What an engine cannot do is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.engines.base import Capabilities, Engine, Report, RunContext, Session
from muster.engines.basic import BasicEngine
from muster.engines.capabilities import PHRASES, image_problems, require, spec_problems
from muster.engines.local.engine import LocalEngine
from muster.engines.loop import RunLoop
from muster.engines.registry import engine_named
from muster.errors import InvalidInput
from muster.frameworks.base import Network
from muster.plan.model import RunPlan
from muster.spec.formats.jobset.as_is import job_of
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.storage.home import Home
from support.sessions import make_plan


class Bare(BasicEngine):
    """An engine without any capability."""

    name = "bare"

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        return [network] * nodes

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> Session:
        raise NotImplementedError(context)


def resolved(spec: dict[str, Any]) -> JobSpec:
    return resolve(spec_from_mapping({"command": ["true"], **spec}), RunOverrides()).spec


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
        (
            {"node_groups": [{"name": "a", "mounts": [{"source": "/tmp"}]}]},
            "node_groups[a].mounts",
            "mounts",
        ),
        ({"resources": {"gpus": 1}}, "node_groups[workers].resources", "limits"),
        ({"resources": {"disk": "1GiB"}}, "node_groups[workers].resources", "limits"),
        ({"nodes": 2, "shape": "VM.GPU.A10.1"}, "node_groups[workers].shape", "limits"),
        (
            {
                "node_groups": [
                    {
                        "name": "a",
                        "extra_containers": [{"name": "b", "role": "init", "image": "busybox"}],
                    }
                ]
            },
            "node_groups[a].extra_containers",
            "extra_containers",
        ),
        ({"failure": {"strategy": "in_place"}}, "failure.strategy", "in_place"),
        ({"failure": {"action": "restart_node"}}, "failure.action", "replace_node"),
        (
            {"failure": {"rules": [{"action": "restart_node", "name": "x"}]}},
            "failure.rules[0].action",
            "replace_node",
        ),
    ],
)
def test_a_spec_that_asks_for_more_is_refused(
    spec: dict[str, Any], path: str, capability: str, own_home: Path
) -> None:
    (problem,) = spec_problems(Bare(), resolved(spec))
    assert (problem.path, problem.message) == (path, f"engine bare cannot {PHRASES[capability]}")
    able: Engine = LocalEngine()
    if not getattr(able.capabilities, capability):
        able = engine_named("container", Home(own_home))
    assert list(spec_problems(able, resolved(spec))) == []


def test_everything_that_is_refused_is_listed() -> None:
    actions = ("restart_node", "fail", "restart_node")
    rules = [{"action": action, "exit_codes": [code]} for code, action in enumerate(actions, 1)]
    spec = resolved({"suspend": True, "failure": {"action": "restart_node", "rules": rules}})
    assert [problem.path for problem in spec_problems(Bare(), spec)] == [
        "suspend",
        "failure.action",
        "failure.rules[0].action",
        "failure.rules[2].action",
    ]


@pytest.mark.parametrize("name", ["local", "kubernetes", "container"])
def test_an_image_s_own_program_is_for_engines_that_run_it(own_home: Path, name: str) -> None:
    engine = engine_named(name, Home(own_home))
    spec, plan = resolved({"image": "a:1"}), make_plan("true")
    group = replace(plan.groups[0], command=None, image="a:1")
    plan = replace(plan, groups=(group,))
    found = [*image_problems(engine, spec, plan)]
    if name == "container":
        assert found == []
        return
    (problem,) = found
    assert problem.path == "node_groups[workers].command"
    text = f"is missing: only image a:1 knows what runs, and engine {name} does not run its"
    assert text in problem.message
    assert "--engine container" in problem.hint
    assert not [*image_problems(engine, replace(spec, artifact="."), plan)]


def test_a_jobset_as_it_is_is_for_engines_that_run_such() -> None:
    job = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}}
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [{"name": "w", **job}]},
    }
    found = [*spec_problems(LocalEngine(), job_of(manifest))]
    assert ("engine", "engine local cannot run a JobSet as it is") in [
        (problem.path, problem.message) for problem in found
    ]
    one = Bare()
    one.capabilities = Capabilities(workloads=True, replace_node=True)
    assert [*spec_problems(one, job_of(manifest))] == []
    plan = make_plan("true")
    plan = replace(plan, groups=(replace(plan.groups[0], command=None, image="a:1"),))
    assert [*image_problems(one, job_of(manifest), plan)] == [], "its containers are started as is"


def test_any_engine_can_run_a_plain_spec() -> None:
    spec = resolved({"nodes": 2, "failure": {"max_restarts": 3}})
    assert list(spec_problems(Bare(), spec)) == []


def test_resources_that_are_the_defaults_need_no_limits() -> None:
    assert list(spec_problems(Bare(), resolved({"resources": {"gpus": 0}}))) == []


def test_an_engine_without_limits_may_have_gpus() -> None:
    one = Bare()
    one.capabilities = Capabilities(gpus=True)
    assert list(spec_problems(one, resolved({"resources": {"gpus": 2}}))) == []
    (problem,) = spec_problems(one, resolved({"resources": {"gpus": 2, "cpus": 1}}))
    assert problem.hint == "leave out all but gpus"


@pytest.mark.parametrize(
    ("resources", "gpus", "paths"),
    [
        ({"gpus": 1}, False, ["node_groups[workers].resources.gpus"]),
        ({"gpus": 1, "cpus": 1}, False, ["node_groups[workers].resources.gpus"]),
        ({"gpus": 0, "cpus": 1}, False, []),
        ({"gpus": 1}, True, []),
    ],
)
def test_an_engine_with_limits_may_have_no_gpus(
    resources: dict[str, Any], gpus: bool, paths: list[str]
) -> None:
    one = Bare()
    one.capabilities = Capabilities(limits=True, gpus=gpus)
    found = list(spec_problems(one, resolved({"resources": resources})))
    assert [problem.path for problem in found] == paths
    for problem in found:
        assert problem.message == f"engine bare cannot {PHRASES['gpus']}"
        assert problem.hint.startswith("leave it out")


def test_an_image_that_an_engine_does_not_use_is_noted(plan_of: Callable[..., RunPlan]) -> None:
    one: Engine = Bare()
    assert one.notes(plan_of(image="demo:1")) == [
        "group workers: image demo:1 is not used by engine bare"
    ]
    assert one.notes(plan_of()) == []


def test_a_bare_engine_reserves_nothing(plan_of: Callable[..., RunPlan]) -> None:
    one: Engine = Bare()
    plan = plan_of(nodes=2)
    assert not one.may_queue(plan)
    assert one.limits({"workers": plan.groups[0].resources}) == {}
    assert one.shares_of_memory(plan).keys() == {"workers"}
