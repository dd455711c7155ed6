"""Placeholders that Kubernetes fills: what each pod gets is what its node would."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engines.conftest import PlanOf
from engines.kubernetes import golden
from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.plan_problems import problems
from muster.engines.kubernetes.pod_placeholders import (
    PodPlaceholders,
    UnknownPlaceholderError,
    allocatable,
)
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.plan.model import RunPlan
from muster.plan.template import Facts
from muster.spec.reader import spec_from_mapping

_REFERENCE = re.compile(r"\$\$|\$\(([^)]+)\)")
GROUPS = [{"name": "driver", "command": ["a"]}, {"name": "w", "nodes": 3, "command": ["b"]}]


def in_pod(text: str, variables: dict[str, str]) -> str:
    """As Kubernetes expands it."""
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text
    )


def filled(plan: RunPlan, template: str, slots: range) -> list[str]:
    """What the pods of these slots have, in the order of the slots."""
    found = {}
    for job in layout(plan, slots):
        known = PodPlaceholders(plan, job)
        written = known.written(template)
        for number, slot in enumerate(job.slots):
            fields = {
                "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(
                    number % job.nodes
                ),
                "metadata.labels['jobset.sigs.k8s.io/job-index']": str(number // job.nodes),
                "status.podIP": f"10.0.0.{slot}",
            }
            variables = {
                one["name"]: fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
                for one in known.variables([template])
            }
            found[slot] = in_pod(written, variables)
    return [found[slot] for slot in slots]


def wanted(plan: RunPlan, template: str, slots: range) -> list[str]:
    nodes = (replace(plan.nodes[slot], address=f"10.0.0.{slot}") for slot in slots)
    return [Facts(plan, node, 0, 0, {}).fill(template) for node in nodes]


@pytest.mark.parametrize(
    "template",
    [
        "${index}",
        "${rank}",
        "a-${rank}-${index}$${rank}",
        "${run.id} of ${run.name}, ${group}/${replica}/${run.replica}",
        "$${rank} $(HOME) $$ $${address} $$${address}",
        "${hostname}:${address}$",
    ],
)
@pytest.mark.parametrize("nodes", [1, 4, 12])
def test_pods_have_what_their_nodes_would(plan_of: PlanOf, template: str, nodes: int) -> None:
    plan = plan_of(nodes=nodes)
    slots = range(nodes)
    assert filled(plan, template, slots) == wanted(plan, template, slots)


@given(st.text("$()a{ ", max_size=12), st.text("$()x{", max_size=4))
def test_other_text_stays(before: str, after: str) -> None:
    template = before + "${index}" + after
    plan = golden.plan_of(spec_from_mapping({"name": "demo", "command": ["a"], "nodes": 2}))
    assert filled(plan, template, range(2)) == wanted(plan, template, range(2))


def test_replicas_are_known_by_their_jobs(plan_of: PlanOf) -> None:
    plan = plan_of(replicas=3)
    assert filled(plan, "${replica} ${rank}", range(3)) == ["0 0", "1 1", "2 2"]
    plan = plan_of(replicas=3, nodes=2)
    with pytest.raises(UnknownPlaceholderError, match="rank"):
        filled(plan, "${rank}", range(6))


def test_what_is_not_known_is_refused_with_its_place(plan_of: PlanOf) -> None:
    extra: dict[str, Any] = {
        "name": "log",
        "role": "main",
        "image": "log:1",
        "node_env": {"PASSWORD": "${secret.DB}", "INDEX": "${index}"},
        "node_args": ["${index}", "${rank} ${attempt}"],
        "mounts": [
            {"source": "scratch:node/a", "path": "/a"},
            {"source": "nfs://files/data", "path": "/b"},
            {"source": "scratch:run/c", "path": "/c"},
            {"path": "/d", "files": {"a": {"text": "1"}}},
        ],
    }
    groups = [GROUPS[0], {**GROUPS[1], "image": "w:1", "extra_containers": [extra]}]
    plan = plan_of(command=None, node_groups=groups, secrets={"DB": "a long secret"})
    place = "node_groups[w].extra_containers[0]"
    found = {one.path: one.message for one in problems(plan, KubernetesProfile())}
    assert found == {
        f"{place}.node_env.PASSWORD": "${secret.DB} is not known when the pod is made",
        f"{place}.node_args[1]": "${attempt} is not known when the pod is made",
        f"{place}.mounts[2]": "only the container of the program gets scratch:run/c",
        f"{place}.mounts[3]": "only the container of the program gets given files",
    }


def test_slots_are_allocated_alone_where_their_pods_are_not_known(plan_of: PlanOf) -> None:
    extra = {"name": "log", "role": "main", "image": "log:1", "node_args": ["${index}"]}
    groups = [GROUPS[0], {**GROUPS[1], "image": "w:1", "extra_containers": [extra]}]
    plan = plan_of(command=None, node_groups=groups)
    assert allocatable(plan, [0, 1, 2, 3]) == [[0, 1, 2, 3]]
    assert allocatable(plan, [0, 2, 3]) == [[0], [2], [3]]
    assert allocatable(plan, [2]) == [[2]]
    assert allocatable(plan_of(nodes=3), [0, 2]) == [[0, 2]]
    assert allocatable(plan, []) == []
