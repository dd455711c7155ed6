"""The ConfigMap of a run, which its pods mount: the node program with a description of the nodes;
and, if pods dial, a Secret with what each of them proves itself with. Pure.

Both belong to the JobSet, so that the cluster deletes them with it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from muster.engines.kubernetes.layout import JobLayout
from muster.engines.kubernetes.manifest import in_namespace
from muster.engines.kubernetes.names import key_name, run_labels
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.node_program import FILE_NAME
from muster.engines.remote.resources import amounts_of
from muster.node.pod import DESCRIPTION, Group
from muster.plan.model import RunPlan
from muster.spec.formats.jobset.cluster_settings import merged


def description(
    plan: RunPlan,
    profile: KubernetesProfile,
    every: Iterable[JobLayout],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """What the nodes of a JobSet get: the fields of `node.pod.Description`. settings: of all
    servers, see `node.serve.Settings`."""
    groups = {}
    for one in every:
        group = plan.group(one.group)
        # the cluster limits what a pod has
        amounts = amounts_of(group.resources)._replace(required=())._asdict()
        pod_log = merged(profile.pods, group.kubernetes).get("pod_log", True)
        groups[one.name] = Group(one.ranges, one.jobs, one.nodes, amounts, pod_log)._asdict()
    return {"settings": dict(settings), "groups": groups}


def config_map(
    plan: RunPlan,
    profile: KubernetesProfile,
    name: str,
    program: bytes,
    described: Mapping[str, Any],
) -> dict[str, Any]:
    """The ConfigMap with the node program."""
    text = json.dumps(described, sort_keys=True)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(plan, profile, name),
        "data": {DESCRIPTION: text},
        "binaryData": {FILE_NAME: b64encode(program).decode()},
    }


def secret(
    plan: RunPlan,
    profile: KubernetesProfile,
    name: str,
    every: Iterable[JobLayout],
    key_of: Callable[[int], bytes],
) -> dict[str, Any]:
    """The Secret: an entry for each pod, which mounts only its own (`pods`). key_of: the key of a
    slot (`node.greeting`).

    Kubernetes limits the values to 1 MiB, and etcd the object to 1.5 MiB: with 32 bytes and a short
    name, 15,000 entries have half of that. A kubelet holds them in memory for each pod, 4 KiB each.
    """
    keys = {
        key_name(plan, one.group, *divmod(number, one.nodes)): key_of(slot)
        for one in every
        for number, slot in enumerate(one.slots)
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(plan, profile, name),
        "type": "Opaque",
        "data": {file: b64encode(key).decode() for file, key in keys.items()},
    }


def _metadata(plan: RunPlan, profile: KubernetesProfile, name: str) -> dict[str, Any]:
    return in_namespace({"name": name, "labels": run_labels(plan.run_id)}, profile)
