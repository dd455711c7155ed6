"""What is installed in a cluster, as its API says it."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.versions import Version, Versions, read_versions

KUBERNETES = {"major": "1", "minor": "34+"}


def schema(*paths: str) -> dict[str, Any]:
    """With these fields; in lists if they are so in a JobSet."""
    top: dict[str, Any] = {"properties": {}}
    for path in paths:
        one = top
        for name in path.split("."):
            one = one.get("items", one)
            empty: dict[str, Any] = {"properties": {}}
            nested = {"items": empty} if name in ("replicatedJobs", "rules") else empty
            one = one["properties"].setdefault(name, nested)
    return top


JOBSETS: list[tuple[dict[str, Any], Version]] = [
    (schema("spec.replicatedJobs.name"), (0, 6)),
    (schema("spec.coordinator"), (0, 6)),
    (schema("spec.coordinator", "spec.failurePolicy.restartStrategy"), (0, 7)),
    (schema("spec.coordinator", "spec.replicatedJobs.dependsOn"), (0, 8)),
    (schema("spec.replicatedJobs.dependsOn", "spec.replicatedJobs.groupName"), (0, 9)),
    (schema("spec.failurePolicy.rules.onJobFailureMessagePatterns"), (0, 10)),
    (schema("spec.volumeClaimPolicies", "spec.replicatedJobs.groupName"), (0, 11)),
    (schema("spec.activeDeadlineSeconds"), (0, 13)),
    ({}, (0, 12)),  # nobody knows: the newest
]


@pytest.mark.parametrize(("fields", "version"), JOBSETS, ids=[str(v) for _, v in JOBSETS])
def test_jobset_is_known_by_its_fields(fields: dict[str, Any], version: Version) -> None:
    found = read_versions(KUBERNETES, {"jobset.x-k8s.io": ["v1alpha2"]}, fields)
    assert found.jobset == version


def test_what_is_not_served_is_not_installed() -> None:
    found = read_versions(KUBERNETES, {"batch": ["v1"]}, {})
    assert found == Versions((1, 34), None, None)


@pytest.mark.parametrize(
    ("served", "version"), [(["v1beta1"], (0, 2)), (["v1beta1", "v1beta2"], (0, 15))]
)
def test_kueue_is_known_by_its_api(served: list[str], version: Version) -> None:
    assert read_versions(KUBERNETES, {"kueue.x-k8s.io": served}, {}).kueue == version


@pytest.mark.parametrize("known", [{}, {"major": "1"}, {"major": "9" * 5000, "minor": "1"}])
def test_no_version_is_said(known: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no version of Kubernetes"):
        read_versions(known, {}, {})
