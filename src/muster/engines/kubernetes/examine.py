"""What an engine `kubernetes` finds, for `muster engines check`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from muster.engines.findings import Finding
from muster.engines.kubernetes.access import why_no_cluster
from muster.engines.kubernetes.answers import understood
from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.found_versions import record_versions
from muster.engines.kubernetes.kinds import METRICS_API_GROUP
from muster.engines.kubernetes.pods import SHARED
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.queues import why_no_queue
from muster.engines.kubernetes.role import Rule, needed_rights, rules
from muster.engines.kubernetes.versions import OLDEST_JOBSET, OLDEST_KUBERNETES, Version, Versions
from muster.engines.profiles import file_of
from muster.storage.home import Home

#: Of a volume that pods on several machines can write.
_SHARED_MODE = "ReadWriteMany"


def examine(profile: KubernetesProfile, engine: str, home: Home) -> list[Finding]:
    """Findings about the cluster, as far as it can be reached. engine: its name. home: where its
    versions are recorded."""
    cluster = Cluster(profile, retry_for=RETRY_BRIEFLY)
    try:
        return [*_of_cluster(cluster, profile, engine, home)]
    finally:
        cluster.close()


def _of_cluster(
    cluster: Cluster, profile: KubernetesProfile, engine: str, home: Home
) -> Iterator[Finding]:
    try:
        versions = cluster.versions()
        record_versions(home, cluster.connection.server, versions)
    except CannotCall as error:
        if why := why_no_cluster(profile, os.environ):
            is_given = profile.kubeconfig is not None or profile.context is not None
            where = f"the engine's settings are in {file_of(home, engine)}" if is_given else ""
            yield Finding("cluster", False, why, where)
            return
        given = {"--kubeconfig": profile.kubeconfig, "--context": profile.context}
        options = "".join(f" {o} {value}" for o, value in given.items() if value is not None)
        advice = f"`kubectl{options} cluster-info` makes the same request"
        yield Finding("cluster", False, str(error), advice)
        return
    text = f"Kubernetes {_text(versions.kubernetes)} answers, and accepts the credentials"
    yield Finding(
        *("cluster", versions.kubernetes >= OLDEST_KUBERNETES, text),
        "" if versions.kubernetes >= OLDEST_KUBERNETES else _too_old(OLDEST_KUBERNETES),
    )
    yield _jobset(versions.jobset)
    yield _kueue(cluster, versions.kueue, profile)
    yield _rights(cluster, profile, versions, engine)
    if profile.claim is not None:
        yield _claim(cluster, profile.claim)


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _too_old(oldest: Version) -> str:
    return f"{_text(oldest)} or newer is needed"


def _jobset(version: Version | None) -> Finding:
    if version is None:
        text = "is not installed: runs are plain Jobs, which nothing restarts without a supervisor"
        return Finding("JobSet", True, text)
    if version < OLDEST_JOBSET:
        return Finding("JobSet", False, f"{_text(version)} is installed", _too_old(OLDEST_JOBSET))
    return Finding("JobSet", True, f"{_text(version)} or newer is installed")


def _kueue(cluster: Cluster, version: Version | None, profile: KubernetesProfile) -> Finding:
    if version is None:
        advice = "" if profile.queue is None else "install Kueue, or leave out `queue`"
        return Finding(
            "Kueue", profile.queue is None, "is not installed: runs are not queued", advice
        )
    found = f"{_text(version)} or newer is installed"
    if profile.queue is None:
        return Finding("Kueue", True, f"{found}; runs are not queued")
    if why := why_no_queue(cluster, profile.queue):
        return Finding("Kueue", False, f"{found}; {why}", "set another `queue`, or leave it out")
    return Finding("Kueue", True, f"{found}; runs wait in {profile.queue}")


def _rights(
    cluster: Cluster, profile: KubernetesProfile, versions: Versions, engine: str
) -> Finding:
    namespace = cluster.connection.namespace
    every = rules(profile, versions)
    try:
        missing = cluster.missing_verbs(needed_rights(profile, versions))
        lacking = cluster.missing_verbs(needed_rights(profile, versions, optional=True))
    except CannotCall as error:
        return Finding("rights", False, str(error))
    if not missing:
        if problem := _why_no_namespace(cluster):
            return Finding("namespace", False, problem)
        text = f"all that runs need in namespace {namespace}"
        text += f"; missing, but optional: {_missing(every, lacking)}" if lacking else ""
        return Finding("rights", True, text)
    text = _missing(every, missing)
    advice = f"`muster engines role {engine} --user NAME` prints the Role for an administrator"
    return Finding("rights", False, f"missing in namespace {namespace}: {text}", advice)


def _missing(every: Iterable[Rule], rights: Iterable[tuple[str, str, str]]) -> str:
    """Rights that are missing, and what they are for. every: all rules."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for verb, group, resource in rights:
        verbs.setdefault((group, resource), []).append(verb)
    why = {(one.group, resource): one.why for one in every for resource in one.resources}
    return "; ".join(
        f"{', '.join(found)} {_named(*what)} (to {why[what]})" for what, found in verbs.items()
    )


def _named(group: str, resource: str) -> str:
    """A resource as people know it: pods are of two groups."""
    return f"{resource}.{group}" if group == METRICS_API_GROUP else resource


def _why_no_namespace(cluster: Cluster) -> str:
    """Why nothing can be created in the namespace; "" if it can. Rights do not tell: those for all
    namespaces hold in one that does not exist, too."""
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "muster-check"}}
    try:
        cluster.apply(one, dry_run=True)
    except CannotCall as error:
        return str(error)
    return ""


def _claim(cluster: Cluster, name: str) -> Finding:
    try:
        found = cluster.read("PersistentVolumeClaim", name)
        with understood():
            spec, status = found.get("spec") or {}, found.get("status") or {}
            phase = str(status.get("phase") or "Pending")
            modes = [str(one) for one in spec.get("accessModes") or ()]
    except CannotCall as error:
        return Finding("claim", False, str(error), "create it, or leave out `claim`")
    text = f"{name} is {phase}, {', '.join(modes)}"
    if _SHARED_MODE not in modes:
        advice = f"pods on several machines can share a volume that is {_SHARED_MODE}"
        return Finding("claim", False, text, advice)
    return Finding("claim", phase != "Lost", f"{text}; pods share it at {SHARED}")
