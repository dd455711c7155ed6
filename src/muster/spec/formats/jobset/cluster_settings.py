"""What a job asks of Kubernetes for its pods, or a profile by default, with the words of
Kubernetes; and the fields that this becomes, for manifests of the engine and of `muster convert`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.errors import Problem
from muster.spec.formats.jobset.own_parts import own_problems
from muster.spec.formats.jobset.patches import patch_problems
from muster.spec.formats.jobset.schema import template_problems
from muster.spec.formats.quantity import parse_quantity
from muster.spec.wording import Refused, say, suggestion

#: A prefix is the name of a domain.
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

#: Names of objects in the cluster: setting -> field of a pod's spec.
OBJECTS = {
    "service_account": "serviceAccountName",
    "priority_class": "priorityClassName",
    "runtime_class": "runtimeClassName",
    "scheduler": "schedulerName",
}
#: All names. exclusive: a label of nodes, each value of which serves one replica at most (JobSet:
#: exclusive-topology); topology: where Kueue places the pods of the group; resources: further ones,
#: such as {"rdma/ib": 1}; pod_log: whether the log of a pod has the output of its programs; pod: a
#: strategic merge patch of the pod template.
NAMES = (
    *OBJECTS,
    *("image_pull_secrets", "node_selector", "tolerations", "affinity", "exclusive"),
    *("topology", "resources", "pod_log", "pod"),
)
#: Setting below `topology` -> Kueue's annotation of pods.
_KUEUE = "kueue.x-k8s.io"
TOPOLOGY = {
    "required": f"{_KUEUE}/podset-required-topology",
    "preferred": f"{_KUEUE}/podset-preferred-topology",
    "unconstrained": f"{_KUEUE}/podset-unconstrained-topology",
    "slice": f"{_KUEUE}/podset-slice-required-topology",
    "slice_size": f"{_KUEUE}/podset-slice-size",
    "group": f"{_KUEUE}/podset-group-name",
}
#: Labels of what is queued: where it waits, with which priority, and the seconds it may take.
QUEUE, PRIORITY = f"{_KUEUE}/queue-name", f"{_KUEUE}/priority-class"
MAX_EXEC_TIME = f"{_KUEUE}/max-exec-time-seconds"
#: JobSet: the annotation of a Job with the key of a label of nodes, see `exclusive`.
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
#: The API server takes no other further resources.
_QUALIFIED = re.compile(r"hugepages-|[^/]+/")
_OF_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_OPERATORS = ("Exists", "Equal", "Lt", "Gt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LEVELS = ("required", "preferred", "unconstrained")


def merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a group. defaults: of the profile. given: in the job. Tables are merged, and
    so are tolerations: an administrator's are needed whatever the job says."""
    found = {**defaults, **given}
    for name in ("node_selector", "resources"):
        if name in defaults and name in given:
            found[name] = {**defaults[name], **given[name]}
    if "tolerations" in defaults and "tolerations" in given:
        others = [one for one in given["tolerations"] if one not in defaults["tolerations"]]
        found["tolerations"] = [*defaults["tolerations"], *others]
    return found


# --- the fields of manifests


def pod_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a pod's spec for the settings of a group."""
    made = {field: settings[name] for name, field in OBJECTS.items() if name in settings}
    if names := settings.get("image_pull_secrets"):
        made["imagePullSecrets"] = [{"name": name} for name in names]
    if selector := settings.get("node_selector"):
        made["nodeSelector"] = dict(selector)
    if tolerations := settings.get("tolerations"):
        made["tolerations"] = [dict(one) for one in tolerations]
    if affinity := settings.get("affinity"):
        made["affinity"] = dict(affinity)
    return made


def pod_annotations(settings: Mapping[str, Any]) -> dict[str, str]:
    """Where Kueue places the pods of a group (Kueue: Topology Aware Scheduling)."""
    return {
        TOPOLOGY[name]: "true" if value is True else str(value)
        for name, value in settings.get("topology", {}).items()
        if value not in (None, False)
    }


def job_annotations(settings: Mapping[str, Any]) -> dict[str, str]:
    """Where JobSet places the pods of a Job."""
    return {EXCLUSIVE: settings["exclusive"]} if "exclusive" in settings else {}


def queue_labels(queue: str | None, priority: str | None, seconds: float | None) -> dict[str, str]:
    """By which Kueue knows where a run waits, and how long it may take. seconds: None without a
    limit (Kueue: `queue-name`, `priority-class`, `max-exec-time-seconds`)."""
    limit = None if seconds is None else str(math.ceil(seconds))
    labels = {QUEUE: queue, PRIORITY: priority, MAX_EXEC_TIME: limit}
    return {key: text for key, text in labels.items() if text is not None}


def further_limits(settings: Mapping[str, Any]) -> dict[str, str]:
    """Amounts of further resources."""
    return {name: str(value) for name, value in settings.get("resources", {}).items()}


# --- problems


def setting_problems(settings: Mapping[str, Any], path: str = "") -> Iterator[Problem]:
    """What is wrong with settings, except for unknown names. path: where they are; "" for a
    profile."""
    start = f"{path}." if path else ""
    for name in OBJECTS:
        value = settings.get(name, "x")
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            hint = "lower-case letters, digits, - and ."
            yield Problem(f"{start}{name}", f"must name an object, not {say(value)}", hint)
    secrets = settings.get("image_pull_secrets", ())
    if not _are_names(secrets):
        text = f"must be a list of names of secrets, not {say(secrets)}"
        yield Problem(f"{start}image_pull_secrets", text, 'as in ["registry-login"]')
    yield from _label_problems(settings.get("node_selector", {}), f"{start}node_selector")
    yield from _resource_problems(settings.get("resources", {}), f"{start}resources")
    exclusive = settings.get("exclusive", "x")
    if not isinstance(exclusive, str) or not _KEY.fullmatch(exclusive):
        text = f"must be the key of a label of nodes, not {say(exclusive)}"
        yield Problem(f"{start}exclusive", text, 'as in "cloud.google.com/gke-nodepool"')
    tolerations = settings.get("tolerations", ())
    if not isinstance(tolerations, (list, tuple)) or not all(
        isinstance(one, Mapping) for one in tolerations
    ):
        text = f"must be a list of tolerations, not {say(tolerations)}"
        hint = "as in [{key: nvidia.com/gpu, operator: Exists}]"
        yield Problem(f"{start}tolerations", text, hint)
    else:
        where = f"{start}tolerations"
        wrong = [*_field_problems("tolerations", [*tolerations], where)]
        yield from wrong or _toleration_problems(tolerations, where)
    if not isinstance(settings.get("affinity", {}), Mapping):
        text = f"must be an affinity of Kubernetes, not {say(settings['affinity'])}"
        yield Problem(f"{start}affinity", text, "as in {nodeAffinity: ...}")
    else:
        yield from _field_problems("affinity", settings.get("affinity", {}), f"{start}affinity")
    yield from _topology_problems(settings.get("topology", {"preferred": "x"}), f"{start}topology")
    if not isinstance(settings.get("pod_log", True), bool):
        yield Problem(f"{start}pod_log", f"must be true or false, not {say(settings['pod_log'])}")
    if "pod" in settings:
        wrong = [*patch_problems(settings["pod"], f"{start}pod")]
        yield from wrong or own_problems(settings["pod"], f"{start}pod")


def _field_problems(field: str, value: Any, path: str) -> Iterator[Problem]:
    """Problems of the types in a field of a pod's spec."""
    for one in template_problems({"spec": {field: value}}, ""):
        yield one._replace(path=path + one.path.removeprefix(f"spec.{field}"))


def _toleration_problems(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[Problem]:
    for number, one in enumerate(tolerations):
        for field in one:
            if field not in _OF_TOLERATION:
                hint = (
                    suggestion(str(field), _OF_TOLERATION)
                    or f"there are {', '.join(_OF_TOLERATION)}"
                )
                yield Problem(f"{path}[{number}].{field}", "unknown field", hint)
        for field, values in (("operator", _OPERATORS), ("effect", _EFFECTS)):
            value = one.get(field, values[0])
            if value not in values:
                text = f"must be {', '.join(values[:-1])} or {values[-1]}, not {say(value)}"
                yield Problem(f"{path}[{number}].{field}", text)


def _are_names(given: object) -> bool:
    return isinstance(given, (list, tuple)) and all(
        isinstance(one, str) and _NAME.fullmatch(one) for one in given
    )


def _label_problems(labels: object, path: str) -> Iterator[Problem]:
    if not isinstance(labels, Mapping):
        yield Problem(path, f"must be a table of labels, not {say(labels)}")
        return
    for key, value in labels.items():
        if not _KEY.fullmatch(str(key)):
            yield Problem(f"{path}.{key}", "is not the key of a label")
        elif not isinstance(value, str) or not _VALUE.fullmatch(value):
            hint = "at most 63 letters, digits, -, _ and ."
            yield Problem(f"{path}.{key}", f"must be a label's text, not {say(value)}", hint)


def _resource_problems(resources: object, path: str) -> Iterator[Problem]:
    if not isinstance(resources, Mapping):
        hint = "as in {rdma/ib: 1}"
        yield Problem(path, f"must be a table of resources, not {say(resources)}", hint)
        return
    own = {"cpu": "cpus", "memory": "memory", "ephemeral-storage": "disk"}
    for key, value in resources.items():
        where = f"{path}.{key}"
        if key in own:
            hint = f"use resources.{own[key]} of the group"
            yield Problem(where, "is set by Muster", hint)
        elif not _KEY.fullmatch(str(key)) or not _QUALIFIED.match(str(key)):
            yield Problem(where, "is not the name of a resource", "as in rdma/ib")
        else:
            try:
                parse_quantity(value)
            except Refused as error:
                yield Problem(where, error.message, error.hint)


def _topology_problems(topology: object, path: str) -> Iterator[Problem]:
    if not isinstance(topology, Mapping):
        hint = "as in {required: cloud.provider.com/rack}"
        yield Problem(path, f"must be a table, not {say(topology)}", hint)
        return
    for key in topology:
        if key not in TOPOLOGY:
            yield Problem(f"{path}.{key}", "unknown setting", f"there are {', '.join(TOPOLOGY)}")
    levels = [name for name in _LEVELS if topology.get(name)]
    if len(levels) > 1:
        yield Problem(path, f"has both {levels[0]} and {levels[1]}", "choose one of them")
    if ("slice" in topology) != ("slice_size" in topology):
        missing = "slice_size" if "slice" in topology else "slice"
        yield Problem(path, f"has no {missing}", "slice and slice_size go together")
    for key in ("required", "preferred", "slice"):
        value = topology.get(key, "x")
        if not isinstance(value, str) or not _KEY.fullmatch(value):
            text = f"must be the key of a label of nodes, not {say(value)}"
            yield Problem(f"{path}.{key}", text, 'as in "cloud.provider.com/rack"')
    size = topology.get("slice_size", 1)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield Problem(f"{path}.slice_size", f"must be a number of pods, not {say(size)}")
    if not isinstance(topology.get("unconstrained", True), bool):
        text = f"must be true or false, not {say(topology['unconstrained'])}"
        yield Problem(f"{path}.unconstrained", text)
