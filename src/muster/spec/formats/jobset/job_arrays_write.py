"""Write arrays of single nodes as Jobs; the inverse of `job_arrays.array_settings`."""

from __future__ import annotations

from typing import Any

from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.policies import EarlySuccess


def is_job(spec: JobSpec, group: NodeGroup) -> bool:
    """Whether a group is written as one Job, whose pods are its replicas."""
    return group.is_array and group.nodes == 1 and spec.failure.strategy != "in_place"


def is_work_queue(group: NodeGroup) -> bool:
    """Whether the group is written as a Job without completions: all its replicas run at once, and
    one has to succeed."""
    at_once = group.parallelism is not None and group.parallelism >= group.replicas > 1
    return at_once and group.min_success == 1 and not (has_index_limits(group) or group.array)


def has_index_limits(group: NodeGroup) -> bool:
    """Whether replicas have retries of their own, or may fail while others continue, and not only a
    limit for all together."""
    limit = MAX_INT32 if group.total_retries is None else group.total_retries
    return group.max_failed != 0 or group.retries != limit


def array_fields(group: NodeGroup) -> dict[str, Any]:
    """The fields of the Job without its pods."""
    at_once = group.parallelism or group.replicas
    made: dict[str, Any] = {"parallelism": min(at_once, group.replicas)}
    if is_work_queue(group):
        made["completionMode"] = "NonIndexed"
    else:
        made["completions"] = group.replicas
    if not has_index_limits(group):
        return made | {"backoffLimit": group.retries} | _success_policy(group)
    made["backoffLimitPerIndex"] = group.retries
    if group.max_failed is not None and group.max_failed < group.replicas:
        made["maxFailedIndexes"] = group.max_failed
    if group.total_retries is not None:
        made["backoffLimit"] = group.total_retries
    return made | _success_policy(group)


def _success_policy(group: NodeGroup) -> dict[str, Any]:
    rules = [_success_rule(enough) for enough in group.early_success]
    return {"successPolicy": {"rules": rules}} if rules else {}


def _success_rule(enough: EarlySuccess) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if enough.replicas is not None:
        made["succeededIndexes"] = enough.replicas
    if enough.count is not None:
        made["succeededCount"] = enough.count
    return made
