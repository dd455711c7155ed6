"""JobSets that a cluster runs as they are."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.client.target import parse_as_is
from muster.errors import InvalidInput
from muster.spec.formats.jobset.as_is import (
    DEFAULT_CONTAINER,
    changed_fields,
    images,
    job_of,
    parts,
    stripped,
)
from muster.spec.formats.manifests import count_jobs
from muster.spec.models import JobSpec, Workload
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import overrides_from_mapping
from muster.spec.resolve import resolve
from muster.spec.rules import check


def job(name: str, containers: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    """A replicated Job. fields: of its Job, or `replicas`."""
    replicas = fields.pop("replicas", None)
    pod = {"containers": containers or [{"name": "main", "image": "busybox"}]}
    made: dict[str, Any] = {
        "name": name,
        "template": {"spec": {**fields, "template": {"spec": pod}}},
    }
    return made if replicas is None else {**made, "replicas": replicas}


def jobset(*jobs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", **metadata},
        "spec": {"replicatedJobs": [*jobs]},
    }


def sizes(manifest: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(one.group, one.jobs, one.pods) for one in parts(manifest)]


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({}, (1, 1)),
        ({"replicas": 3}, (3, 1)),
        ({"completions": 4, "parallelism": 4}, (1, 4)),
        ({"completions": 4, "parallelism": 2}, (1, 4)),
        ({"parallelism": 2}, (1, 2)),
        ({"completions": 5, "replicas": 2}, (2, 5)),
    ],
)
def test_a_replicated_job_is_a_group(fields: dict[str, Any], size: tuple[int, int]) -> None:
    assert sizes(jobset(job("w", **fields))) == [("w", *size)]


def test_jobs_without_pods_are_left_out_and_odd_names_are_numbered() -> None:
    found = jobset(job("a", replicas=0), job("1b"), job("c", completions=0), job("d"))
    assert sizes(found) == [("group-1", 1, 1), ("d", 1, 1)]
    assert [one.name for one in parts(found)] == ["1b", "d"]


def test_the_main_container_is_the_first_or_the_one_that_is_named() -> None:
    both = [{"name": "log", "image": "fluent"}, {"name": "main", "image": "torch"}]
    first = job("w", both)
    named = deepcopy(first)
    named["template"]["spec"]["template"]["metadata"] = {"annotations": {DEFAULT_CONTAINER: "main"}}
    assert [one.container for one in parts(jobset(first))] == ["log"]
    assert [(one.container, one.image) for one in parts(jobset(named))] == [("main", "torch")]
    assert images(jobset(first, job("v"))) == ["fluent", "torch", "busybox"]


def test_the_job_has_the_manifest_and_no_policy_of_its_own() -> None:
    made = job_of(jobset(job("w", completions=2), labels={"team": "vision"}))
    assert made.workload is not None and made.workload.uid is None
    assert (made.name, made.tags) == ("train", {"team": "vision"})
    assert [(one.name, one.nodes) for one in made.node_groups] == [("w", 2)]
    assert made.failure.max_restarts == 0
    assert [(rule.action, rule.count) for rule in made.failure.rules] == [("restart_node", False)]
    assert check(made) == []


def test_what_the_server_has_written_is_left_out() -> None:
    metadata = {
        **{"uid": "1", "resourceVersion": "2", "generation": 1, "managedFields": []},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
    }
    found = {**jobset(job("w"), **metadata), "status": {"restarts": 1}}
    assert stripped(found) == jobset(job("w"), annotations={"a": "b"})
    assert job_of(found, "1").workload == Workload(
        manifest=jobset(job("w"), annotations={"a": "b"}), uid="1"
    )


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ({**jobset(job("w")), "apiVersion": "jobset.x-k8s.io/v1"}, "apiVersion"),
        ({**jobset(job("w")), "metadata": {}}, "metadata.name"),
        (jobset(), "spec.replicatedJobs"),
        ({**jobset(), "spec": {}}, "spec.replicatedJobs"),
        ({**jobset(), "spec": None}, "spec.replicatedJobs"),
        ({**jobset(), "spec": [1]}, "spec"),
        (jobset({"name": "w"}), "spec.replicatedJobs[0].template"),
        (jobset(job("v"), job("v")), "spec.replicatedJobs[1].name"),
        (jobset(job("w", replicas="many")), "spec.replicatedJobs[0].replicas"),
        (
            jobset(job("w", completions=[])),
            "spec.replicatedJobs[0].template.spec.completions",
        ),
        (
            jobset(job("w", [{"image": "busybox"}])),
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0].name",
        ),
        (jobset(job("w"), labels=["a"]), "metadata.labels"),
        (jobset(job("w"), annotations="a"), "metadata.annotations"),
        (jobset(job("w"), name=5), "metadata.name"),
    ],
)
def test_what_cannot_be_read_is_said(manifest: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as error:
        job_of(manifest)
    assert [problem.path for problem in error.value.problems] == [path]


FIELDS = (
    *("apiVersion", "metadata", "name", "generateName", "labels", "annotations", "spec"),
    *("replicatedJobs", "replicas", "template", "completions", "parallelism", "containers"),
    *("initContainers", "image", "terminationGracePeriodSeconds", DEFAULT_CONTAINER, 1, None),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=10,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in it."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        inner = [*data.items()]
    elif isinstance(data, list):
        inner = [*enumerate(data)]
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@settings(max_examples=500)
@given(st.data())
def test_a_manifest_with_anything_anywhere_is_read_or_refused_at_a_place(
    data: st.DataObject,
) -> None:
    found = jobset(job("w", completions=2, replicas=1), job("v"), labels={"a": "b"})
    path = data.draw(st.sampled_from(places(found)[1:]))
    inner: Any = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(anything)
    try:
        made = job_of(found)
    except InvalidInput as error:
        assert all(one.path for one in error.problems)
    else:
        assert all(isinstance(one, str) for one in images(found))
        assert sum(group.replicas for group in made.node_groups) >= 1


# --- files


def write(folder: Path, *objects: dict[str, Any]) -> Path:
    path = folder / "jobset.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_a_file_may_have_what_muster_does_not_run(tmp_path: Path) -> None:
    one = job("w", restartPolicy="x", unknownField=1)
    path = write(tmp_path, jobset(one))
    found = parse_as_is(path, {})
    assert found is not None and found[0].spec.workload is not None
    assert found[0].spec.workload.manifest == jobset(one)
    assert count_jobs(path) == 1


def test_other_objects_of_the_file_are_noted(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    found = parse_as_is(write(tmp_path, service, jobset(job("w"))), {})
    assert found is not None
    (note,) = found[1]
    assert note.startswith("Service s (") and note.endswith("is not applied: `kubectl apply` does")


def test_a_file_of_several_jobs_is_read_one_by_one(tmp_path: Path) -> None:
    other = jobset(job("v"), name="other")
    path = write(tmp_path, jobset(job("w")), other)
    assert parse_as_is(path, {}) is None
    found = parse_as_is(f"{path}#other", {})
    assert found is not None and found[0].spec.name == "other"


def test_what_is_no_jobset_is_read_otherwise(tmp_path: Path) -> None:
    plain = {**job("x")["template"], "apiVersion": "batch/v1", "kind": "Job"}
    assert parse_as_is(write(tmp_path, {**plain, "metadata": {"name": "j"}}), {}) is None
    assert parse_as_is(tmp_path / "missing.py", {}) is None
    assert parse_as_is(None, {}) is None


def test_problems_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "jobset.yaml"
    path.write_text(yaml.safe_dump(jobset(job("w", [{"name": "a", "image": "<image>"}]))))
    with pytest.raises(InvalidInput) as error:
        parse_as_is(path, {})
    (problem,) = error.value.problems
    assert problem.source.startswith(str(path)) and "was not filled in" in problem.message


# --- changes


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nodes": 3}, "node_groups[0].nodes"),
        ({"env": {"A": "1"}}, "node_groups[0].env"),
        ({"args": ["x"]}, "node_groups[0].args"),
        ({"max_restarts": 2}, "failure"),
        ({"resources": {"cpus": 1}}, "node_groups[0].resources"),
        ({"processes_per_node": 2}, "processes_per_node"),
    ],
)
def test_what_contradicts_the_manifest_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as error:
        resolve(job_of(jobset(job("w", completions=2))), overrides_from_mapping(changes))
    assert path in [problem.path for problem in error.value.problems]
    assert "run as it is" in str(error.value)


def test_what_is_about_the_run_may_change() -> None:
    made = job_of(jobset(job("w", completions=2)))
    changes = {"engine": "kubernetes", "tags": {"a": "b"}, "max_runtime": "2h", "suspend": True}
    found = resolve(made, overrides_from_mapping(changes))
    assert (found.spec.max_runtime, found.spec.suspend) == (7200.0, True)
    assert list(changed_fields(resolve(made, RunOverrides()).spec)) == []


def test_an_adopted_jobset_does_not_begin_suspended() -> None:
    made = replace(job_of(jobset(job("w")), "1"), suspend=True)
    assert [problem.path for problem in changed_fields(made)] == ["suspend"]


def test_groups_are_those_of_the_manifest() -> None:
    made = job_of(jobset(job("w"), job("v")))
    made = replace(made, node_groups=made.node_groups[:1])
    assert [problem.path for problem in changed_fields(made)] == ["node_groups"]
    broken = JobSpec(name="x", workload=Workload(manifest={"kind": "JobSet"}))
    assert "workload.manifest.spec.replicatedJobs" in {one.path for one in changed_fields(broken)}


def test_what_only_muster_has_set_is_not_shown_as_the_jobs() -> None:
    origins = resolve(job_of(jobset(job("w"))), RunOverrides()).origins
    assert origins["node_groups[w].image"] == "job"
    hidden = [name for name in origins if name.startswith(("failure.", "grace_period"))]
    assert len(hidden) > 2
    assert {origins[name] for name in hidden} == {"default"}
