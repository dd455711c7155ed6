"""How Jobs (batch/v1) end, by Kubernetes' documentation: its examples, and more cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState
from muster.spec.formats.jobset.write import write_jobset
from support.jobset import read

from .job_examples import EXAMPLES, Codes, Example, Refused, job, manifest, name_of
from .test_indexed_jobs import Pods

PAGE = Path(__file__).parents[2] / "docs/internals/conformance.md"
ENDED = {name: one for name, one in EXAMPLES.items() if isinstance(one, Example)}
REFUSED = {name: one for name, one in EXAMPLES.items() if isinstance(one, Refused)}
STATES = {"Complete": "SUCCEEDED", "Failed": "FAILED"}


def test_every_example_is_on_the_page() -> None:
    text = PAGE.read_text()
    assert [name for name in EXAMPLES if f"`{name.partition(',')[0]}`" not in text] == []


@pytest.mark.parametrize("name", ENDED)
def test_an_example_ends_as_on_kubernetes(name: str) -> None:
    example = ENDED[name]
    pods = Pods(manifest(example.spec)).play(example.codes)
    assert pods.state == STATES[example.condition]
    assert pods.indexes(NodeState.SUCCEEDED, "workers") == example.completed
    assert pods.indexes(NodeState.FAILED, "workers").startswith(example.failed)
    if example.starts:
        assert [pods.count.get(index, 0) for index in range(pods.policy.size)] == example.starts


@pytest.mark.parametrize("name", REFUSED)
def test_an_example_is_refused_with_its_reason(name: str) -> None:
    example = REFUSED[name]
    with pytest.raises(InvalidInput) as caught:
        read(manifest(example.spec, example.name))
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == len(example.messages)
    for message in example.messages:
        assert any(message in text for text in found), found


@pytest.mark.parametrize("name", ENDED)
def test_an_example_can_be_written_as_a_jobset(name: str) -> None:
    spec = read(manifest(ENDED[name].spec)).spec
    (group,) = spec.node_groups
    (again,) = read(write_jobset(spec).data).spec.node_groups
    for field in ("nodes", "replicas", "parallelism", "retries", "early_success", "max_failed"):
        assert getattr(again, field) == getattr(group, field)


def test_the_examples_end_as_on_kubernetes_on_this_machine(tmp_path: Path) -> None:
    """All run at once, from one folder."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    running = {name_of(example): one for example, one in ENDED.items() if one.runs}
    for name, one in running.items():
        (folder / f"{name}.yaml").write_text(json.dumps(manifest(one.spec, name)))
    environ = {**os.environ, "MUSTER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "muster", "run", str(folder)]
    done = subprocess.run(
        command, check=False, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1, done.stderr  # some fail, as on Kubernetes
    ends = {}
    for run in Client(tmp_path / "home").runs(limit=100):
        completed = [node.rank for node in run.nodes if node.state == "SUCCEEDED"]
        ends[run.name.rpartition("-")[0]] = (str(run.state), format_ranks(completed))
    assert ends == {name: (STATES[one.condition], one.completed) for name, one in running.items()}


# --- more cases: three pods at once, unless something else is given


def pods(**fields: Any) -> Pods:
    numbers = {"completions": 3, "parallelism": 3, "backoffLimit": 1, **fields}
    return Pods(manifest(job("exit 0", **numbers)))


@pytest.mark.parametrize(
    ("fields", "codes", "state", "starts"),
    [
        pytest.param({}, {1: (1, 0)}, "SUCCEEDED", [1, 2, 1], id="J40 a pod is replaced alone"),
        pytest.param({}, {1: (1,)}, "FAILED", [1, 2, 1], id="J41 backoffLimit at once"),
        pytest.param(
            {"completionMode": "Indexed", "backoffLimit": 0},
            {1: (1,)},
            "FAILED",
            [1, 1, 1],
            id="J42 no replacement",
        ),
        pytest.param(
            {"completions": None, "parallelism": None},
            {0: (1, 0)},
            "SUCCEEDED",
            [2],
            id="J43 one pod by default",
        ),
    ],
)
def test_a_job_ends_as_on_kubernetes(
    fields: dict[str, Any], codes: Codes, state: str, starts: list[int]
) -> None:
    one = pods(**fields).play(codes)
    assert one.state == state
    assert [one.count.get(index, 0) for index in range(one.policy.size)] == starts


def test_J44_a_deadline_is_for_all_pods_together() -> None:
    for fields in ({}, {"parallelism": 1}):
        one = pods(activeDeadlineSeconds=60, **fields)
        one.all_ready()
        one.tick(after=61.0).end_stopping()
        assert one.state == "FAILED"


def test_J45_a_suspended_job_starts_no_pod() -> None:
    one = pods(suspend=True)
    assert one.starts() == []
    assert read(manifest(job("exit 0", suspend=True))).spec.suspend


def test_J46_pods_are_named_by_job_and_index() -> None:
    named = {}
    for mode in ("Indexed", "NonIndexed"):
        plan = pods(completionMode=mode).plan
        assert [node.hostname for node in plan.nodes] == ["example-0", "example-1", "example-2"]
        named[mode] = plan.groups[0].node_env
    assert named == {"Indexed": {"JOB_COMPLETION_INDEX": "${index}"}, "NonIndexed": {}}
