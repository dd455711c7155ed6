"""What the double says about itself, as the engine reads it."""

from __future__ import annotations

import pytest

from muster.engines.kubernetes.versions import read_versions
from support.kube import discovery
from support.kube.discovery import Version, jobset_schema, pruned, served, unknown_fields


@pytest.mark.parametrize("minor", [8, 9, 10, 11, 12])
def test_the_schema_tells_the_version_of_jobset(minor: int) -> None:
    known: Version = (0, minor)
    groups = {"jobset.x-k8s.io": ["v1alpha2"]}
    found = read_versions(discovery.version((1, 34)), groups, jobset_schema(known))
    assert (found.kubernetes, found.jobset, found.kueue) == ((1, 34), known, None)


def test_fields_that_a_version_does_not_have() -> None:
    job = {
        "name": "a",
        "dependsOn": [],
        "groupName": "g",
        "template": {"metadata": {"labels": {"x": "1"}}},
    }
    manifest = {"kind": "JobSet", "metadata": {"y": 1}, "spec": {"replicatedJobs": [job]}}
    schema = jobset_schema((0, 8))
    assert list(unknown_fields(schema, manifest)) == ["spec.replicatedJobs[0].groupName"]
    (kept,) = pruned(schema, manifest)["spec"]["replicatedJobs"]
    assert kept == {name: value for name, value in job.items() if name != "groupName"}


@pytest.mark.parametrize("kueue", [False, True])
def test_kinds_that_are_served(kueue: bool) -> None:
    names = {one.plural for one in served(jobset=False, kueue=kueue)}
    assert "jobsets" not in names
    assert ("workloads" in names) == kueue
