"""Finds a JobSet in a cluster, for `muster adopt`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import rules_text
from muster.engines.kubernetes.versions import JOBSET_API_GROUP
from muster.errors import EngineError, InvalidInput, NoLogs, Problem
from muster.spec.wording import suggestion

#: How kubectl names the kind.
_KINDS = frozenset({"jobset", "jobsets", "jobset.jobset.x-k8s.io", "jobsets.jobset.x-k8s.io"})
#: Verb, group and resource of what it takes to watch a JobSet, and to copy its pods' logs.
_NEEDED = [
    (verb, group, resource)
    for group, resource in ((JOBSET_API_GROUP, "jobsets"), ("", "pods"))
    for verb in ("list", "watch")
]
_LOGS = "get", "", "pods/log"


def read_jobset(
    profile: KubernetesProfile, reference: str, namespace: str | None
) -> Mapping[str, Any]:
    """A JobSet as it is in the cluster. reference: `jobset/NAME` or NAME. namespace: None for that
    of the engine. Raises InvalidInput if there is none, or it belongs to a run; EngineError if the
    cluster does not show it, or will not show what becomes of it."""
    kind, slash, name = reference.rpartition("/")
    if (slash and kind.lower() not in _KINDS) or not name:
        text = f"{reference!r} is not a JobSet"
        raise InvalidInput(Problem("NAME", text, "write jobset/NAME, as for kubectl"))
    own = profile if namespace is None else replace(profile, namespace=namespace)
    cluster = Cluster(own, retry_for=RETRY_BRIEFLY)
    try:
        found = cluster.read("JobSet", name)
    except CannotCall as error:
        if error.is_unknown and (problem := _missing(cluster, name)) is not None:
            raise InvalidInput(problem) from None
        raise EngineError(f"JobSet {name} cannot be read: {error}") from None
    owner = ((found.get("metadata") or {}).get("labels") or {}).get(RUN)
    if owner is not None:
        text = f"JobSet {name} belongs to run {owner} of Muster already"
        raise InvalidInput(Problem("NAME", text, f"`muster status {owner}` shows it"))
    _check_rights(cluster, name)
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **found}


def _check_rights(cluster: Cluster, name: str) -> None:
    """Warn if the logs of a JobSet's pods cannot be read. Raises EngineError if it cannot be
    watched: the run would wait for ever for pods that it does not see."""
    try:
        missing = cluster.missing_verbs([*_NEEDED, _LOGS])
    except CannotCall as error:
        if error.lasts:  # these credentials may not read their rights, so the first list shows it
            return
        raise EngineError(f"JobSet {name} cannot be adopted: {error}") from None
    where = f"in namespace {cluster.connection.namespace}"
    lacking = [one for one in missing if one != _LOGS]
    if lacking:
        text = f"JobSet {name} cannot be watched: your Role {where} lacks {rules_text(lacking)}"
        raise EngineError(text)
    if missing:
        text = f"the run will have no logs: your Role {where} lacks {rules_text([_LOGS])}"
        warnings.warn(text, NoLogs, stacklevel=2)


def _missing(cluster: Cluster, name: str) -> Problem | None:
    """The problem of a name that no JobSet has, with a similar one; None if there are no JobSets in
    this cluster."""
    try:
        names = [str(one["metadata"]["name"]) for one in cluster.list("JobSet").items]
        where = f"namespace {cluster.connection.namespace}"
    except CannotCall as error:
        return None if error.is_unknown else Problem("NAME", f"no JobSet {name} is there: {error}")
    hint = suggestion(name, names) or (
        f"there are {', '.join(sorted(names)[:5])}" if names else "-n names another namespace"
    )
    return Problem("NAME", f"there is no JobSet {name} in {where}", hint)
