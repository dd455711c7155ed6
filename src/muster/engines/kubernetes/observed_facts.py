"""What pods and a JobSet of the user's say, which a cluster runs as they are. Pure.

Their pods have the containers of the user: one of them, the main container, stands for the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from muster.engines.kubernetes.endings import exit_of, node_termination
from muster.engines.kubernetes.names import JOBSET_GROUP, JOBSET_NAME, RUN
from muster.engines.kubernetes.pod_facts import (
    JobSetFacts,
    PodFacts,
    WorkloadFacts,
    jobset_facts,
    pod_facts,
    seconds,
    workload_facts,
)
from muster.engines.kubernetes.pods import NODE
from muster.spec.formats.jobset.as_is import DEFAULT_CONTAINER

#: What a container is called here that has the name of the node's container, and is not it.
_OTHER = f"{NODE} (of the user)"


#: By kind, the objects of JobSets that may be observed: those of Muster's own runs are not.
OBSERVED: Mapping[str, str] = {"Pod": f"{JOBSET_NAME},!{RUN}", "JobSet": "", "Workload": ""}


class ObservedPod(PodFacts, frozen=True):
    """A pod of a JobSet that is observed. `run` is the key with which it was read."""

    #: The name of its main container.
    container: str = ""
    #: Whether all of its containers are ready.
    is_ready: bool = False
    #: When the pod was accepted by its machine; "" if it was not.
    accepted_at: str = ""
    #: When the first container that has failed did, or else the main one ended.
    ended_at: float | None = None

    @property
    def was_deleted(self) -> bool:
        """Whether it was deleted, and not by the cluster for a reason that it names."""
        is_over = self.phase in ("Failed", "Succeeded")
        return self.disruption is None and (self.is_ending or not is_over)


class ObservedJobSet(JobSetFacts, frozen=True):
    """A JobSet that is observed. `run` is the key with which it was read."""

    #: The run of Muster that it belongs to; "" if to none.
    owner: str = ""


class ReadObserved:
    """Reads the objects of all JobSets of a namespace that may be observed (`watcher.ReadFacts`):
    the name of the JobSet stands for the run."""

    def __init__(self) -> None:
        self._containers: dict[str, Mapping[str, str]] = {}

    def expect(self, jobset: str, containers: Mapping[str, str]) -> None:
        """The main containers in the manifest of a JobSet, by replicated Job. For others, it is
        guessed: a webhook may have added containers to a pod."""
        self._containers[jobset] = containers

    def forget(self, jobset: str) -> None:
        """A JobSet is observed no more."""
        self._containers.pop(jobset, None)

    def __call__(
        self, kind: str, item: Mapping[str, Any], *, is_deleted: bool = False
    ) -> ObservedPod | ObservedJobSet | WorkloadFacts:
        if kind == "Workload":
            return workload_facts(item)
        about = item.get("metadata") or {}
        if kind == "JobSet":
            return observed_jobset(item, str(about.get("name")), RUN)
        name = str((about.get("labels") or {}).get(JOBSET_NAME))
        containers = self._containers.get(name, {})
        return observed_pod(item, name, containers, is_deleted=is_deleted)


def observed_pod(
    pod: Mapping[str, Any],
    key: str,
    containers: Mapping[str, str],
    *,
    is_deleted: bool = False,
) -> ObservedPod:
    """What a pod says. containers: by replicated Job, the main container. is_deleted: the API
    server does not have it any more."""
    about, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = about.get("labels") or {}
    main = _main(pod, containers.get(str(labels.get(JOBSET_GROUP)), ""))
    seen = _with_node(pod, main)
    facts = pod_facts(seen, is_deleted=is_deleted)
    is_over = is_deleted or status.get("phase") in ("Failed", "Succeeded")
    ended = _first_failed(status) or node_termination(seen) or {}
    code, number = exit_of(ended) if ended else (None, 0)
    return ObservedPod(
        **{
            **asdict(facts),
            "run": key,
            # a container that has ended may be started again, and others run on
            "end": facts.end if is_over else None,
            "exit_code": code if is_over else None,
            "signal": number if is_over else 0,
        },
        container=main,
        is_ready=_is_true(status.get("conditions") or (), "Ready"),
        accepted_at=str(status.get("startTime") or ""),
        ended_at=seconds(ended.get("finishedAt")) if is_over and ended else None,
    )


def observed_jobset(jobset: Mapping[str, Any], key: str, run_label: str) -> ObservedJobSet:
    """What a JobSet says. run_label: the label that names its run."""
    facts = jobset_facts(jobset)
    return ObservedJobSet(
        **{**asdict(facts), "run": key},
        owner=str(((jobset.get("metadata") or {}).get("labels") or {}).get(run_label) or ""),
    )


def _main(pod: Mapping[str, Any], name: str) -> str:
    """The name of the main container: the given one; else that which kubectl takes, or the first
    one."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    name = name or str(annotations.get(DEFAULT_CONTAINER) or "")
    containers: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    names = [str(one.get("name")) for one in containers]
    return name if name in names or not names else names[0]


def _with_node(pod: Mapping[str, Any], main: str) -> Mapping[str, Any]:
    """The pod with its main container under the name that those of Muster's own pods have."""
    if main == NODE:
        return pod
    names = {main: NODE, NODE: _OTHER}

    def renamed(found: Any) -> list[dict[str, Any]]:
        return [{**one, "name": names.get(one.get("name"), one.get("name"))} for one in found or ()]

    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = {
        kind: renamed(status[kind])
        for kind in ("containerStatuses", "initContainerStatuses")
        if kind in status
    }
    return {
        **pod,
        "spec": {**spec, "containers": renamed(spec.get("containers"))},
        "status": {**status, **statuses},
    }


def _first_failed(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the container ended that was the first to fail; None if none has failed."""
    failed: list[Mapping[str, Any]] = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(kind) or ():
            ended = (one.get("state") or {}).get("terminated")
            if ended and (ended.get("exitCode") or ended.get("signal")):
                failed.append(ended)
    return min(failed, key=lambda ended: str(ended.get("finishedAt") or "~"), default=None)


def _is_true(conditions: Sequence[Mapping[str, Any]], kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)
