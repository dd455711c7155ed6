"""What versions of Kubernetes, JobSet and Kueue can do. Pure.

A manifest has only fields that the cluster knows: others would be dropped there without a word, or
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

Version = tuple[int, int]

#: The oldest that are supported.
OLDEST_KUBERNETES: Version = (1, 33)
OLDEST_JOBSET: Version = (0, 6)
#: What `muster explain` writes for, unless the profile says otherwise.
NEWEST_KUBERNETES: Version = (1, 36)
NEWEST_JOBSET: Version = (0, 12)
NEWEST_KUEUE: Version = (0, 19)


class Versions(Struct, frozen=True):
    """What is installed in a cluster. None: it is not."""

    kubernetes: Version = NEWEST_KUBERNETES
    jobset: Version | None = NEWEST_JOBSET
    kueue: Version | None = NEWEST_KUEUE

    def has(self, oldest: Version) -> bool:
        """Whether JobSet is installed, and at least of this version."""
        return self.jobset is not None and self.jobset >= oldest


#: The JobSet that is the first with a field or an action.
RESTART_STRATEGY: Version = (0, 7)
DEPENDS_ON: Version = (0, 8)
SEVERAL_DEPENDENCIES: Version = (0, 9)
MESSAGE_PATTERNS: Version = (0, 10)
VOLUME_CLAIMS: Version = (0, 11)
DEADLINE: Version = (0, 13)


def parse_version(text: str) -> Version | None:
    """Major and minor version of `v1.34.2`, `1.34+` or `0.11.0-devel`; None if it is none."""
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})(?!\d)", text)
    return None if found is None else (int(found[1]), int(found[2]))


#: Groups of the API.
JOBSET_API_GROUP, KUEUE_API_GROUP = "jobset.x-k8s.io", "kueue.x-k8s.io"
#: Field of a JobSet -> the version that is the first to have it: the API has no versions. Newest
#: first.
_FIRST_WITH: Mapping[str, Version] = {
    "spec.activeDeadlineSeconds": DEADLINE,
    "status.replicatedJobsStatus.jobRestarts": (0, 12),
    "spec.volumeClaimPolicies": VOLUME_CLAIMS,
    "spec.failurePolicy.rules.onJobFailureMessagePatterns": MESSAGE_PATTERNS,
    "spec.replicatedJobs.groupName": SEVERAL_DEPENDENCIES,
    "spec.replicatedJobs.dependsOn": DEPENDS_ON,
    "spec.failurePolicy.restartStrategy": RESTART_STRATEGY,
    "spec.coordinator": OLDEST_JOBSET,
}
#: Version of Kueue's API -> the first release that serves it.
_KUEUE_SERVES: Mapping[str, Version] = {"v1beta2": (0, 15), "v1beta1": (0, 2)}


def read_versions(
    kubernetes: Mapping[str, Any], groups: Mapping[str, Collection[str]], schema: Mapping[str, Any]
) -> Versions:
    """What is installed. kubernetes: as /version says it. groups: of the API, with the versions
    that are served. schema: of a JobSet, as OpenAPI; {} if it is not known. Raises ValueError."""
    found = parse_version(f"{kubernetes.get('major', '')}.{kubernetes.get('minor', '')}")
    if found is None:
        raise ValueError("it has no version of Kubernetes")
    kueue = [
        first
        for version, first in _KUEUE_SERVES.items()
        if version in groups.get(KUEUE_API_GROUP, ())
    ]
    return Versions(
        found,
        _jobset(schema) if JOBSET_API_GROUP in groups else None,
        max(kueue, default=None),
    )


def _jobset(schema: Mapping[str, Any]) -> Version:
    """The newest version whose fields a cluster's JobSets have."""
    if not schema:
        return NEWEST_JOBSET
    known = (version for field, version in _FIRST_WITH.items() if _has_field(schema, field))
    return next(known, OLDEST_JOBSET)


def _has_field(schema: Mapping[str, Any], path: str) -> bool:
    for name in path.split("."):
        fields = schema.get("items", schema).get("properties") or {}
        if name not in fields:
            return False
        schema = fields[name]
    return True
