"""Objects of the cluster's API: kinds, errors, selectors and times."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Obj = dict[str, Any]
JOBSET_GROUP, KUEUE_GROUP = "jobset.x-k8s.io", "kueue.x-k8s.io"


class Resource(NamedTuple):
    """A kind of objects, as discovery lists it."""

    group: str
    version: str
    plural: str
    kind: str
    short: tuple[str, ...] = ()
    namespaced: bool = True
    #: Whether it has a status, which only `/status` writes.
    status: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As messages name it, such as `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_CORE = ("", "v1")
ALL = (
    Resource(*_CORE, "namespaces", "Namespace", ("ns",), namespaced=False),
    Resource(*_CORE, "nodes", "Node", ("no",), namespaced=False),
    Resource(*_CORE, "pods", "Pod", ("po",)),
    Resource(*_CORE, "services", "Service", ("svc",)),
    Resource(*_CORE, "configmaps", "ConfigMap", ("cm",), status=False),
    Resource(*_CORE, "secrets", "Secret", status=False),
    Resource(*_CORE, "persistentvolumeclaims", "PersistentVolumeClaim", ("pvc",)),
    Resource(*_CORE, "events", "Event", ("ev",), status=False),
    Resource(*_CORE, "resourcequotas", "ResourceQuota", ("quota",)),
    Resource("batch", "v1", "jobs", "Job"),
    Resource(JOBSET_GROUP, "v1alpha2", "jobsets", "JobSet"),
    Resource(KUEUE_GROUP, "v1beta2", "workloads", "Workload", ("wl",)),
    Resource(KUEUE_GROUP, "v1beta2", "localqueues", "LocalQueue"),
    Resource(KUEUE_GROUP, "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False),
)
BY_PLURAL = {one.plural: one for one in ALL}
#: Kinds whose `metadata.generation` counts changes of the spec.
_GENERATIONS = ("pods", "jobs", "jobsets", "workloads", "localqueues", "clusterqueues")


def has_generation(resource: Resource) -> bool:
    return resource.plural in _GENERATIONS


class ApiError(Exception):
    """An answer that refuses."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, dict(details or {})

    def status(self) -> Obj:
        """The object `Status` of the answer."""
        made: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        return made | ({"details": self.details} if self.details else {})


def not_found(resource: Resource, name: str) -> ApiError:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details)


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return ApiError(409, "Conflict", text, details)


class Cause(NamedTuple):
    """What is wrong with a field."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def invalid(resource: Resource, name: str, causes: Sequence[Cause], before: str = "") -> ApiError:
    """The refusal of an object. before: by whom, for a webhook."""
    listed = [f"{one.field}: {one.message}" for one in causes]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {
        "name": name,
        "group": resource.group,
        "kind": resource.kind,
        "causes": [one._asdict() for one in causes],
    }
    message = f'{before}{kind} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details)


# --- metadata


def key_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return found


def owners_of(obj: Mapping[str, Any]) -> list[Obj]:
    return list(obj["metadata"].get("ownerReferences") or ())


def owner_reference(owner: Mapping[str, Any]) -> Obj:
    """A reference to the controller of an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(obj: Mapping[str, Any]) -> str:
    """The uid of the object that controls it; "" if none does."""
    return next((str(one["uid"]) for one in owners_of(obj) if one.get("controller")), "")


def timestamp(seconds: float | None = None) -> str:
    """A time as the API writes it: whole seconds."""
    at = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def condition(obj: Mapping[str, Any], kind: str) -> Obj:
    """A condition of the status; empty if it has none of this type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    found: Obj = next((one for one in conditions if one["type"] == kind), {})
    return found


def has_condition(obj: Mapping[str, Any], kind: str) -> bool:
    return bool(condition(obj, kind).get("status") == "True")


def set_condition(obj: Obj, kind: str, value: bool, reason: str = "", message: str = "") -> bool:
    """Set a condition in the status. The time of its transition stays if its value does. Returns
    whether anything has changed."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    text = str(value)
    made = {"type": kind, "status": text, "reason": reason, "message": message}
    known = next((one for one in conditions if one["type"] == kind), None)
    if known is None:
        conditions.append({**made, "lastTransitionTime": timestamp()})
        return True
    if all(known.get(name) == given for name, given in made.items()):
        return False
    if known["status"] != text:
        known["lastTransitionTime"] = timestamp()
    known.update(made)
    return True


# --- selectors

_EXPRESSION = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<gone>[^\s=!,()]+)"
    r"|(?P<key>[^\s=!,()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


class Selector:
    """Labels, or fields, that objects must have, as a query names them."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[str, bool, frozenset[str] | None]] = []
        at = 0
        while at < len(text):
            found = _EXPRESSION.match(text, at)
            if found is None or found.end() == at:
                raise ApiError(400, "BadRequest", f"unable to parse requirement: {text!r}")
            at = found.end()
            self._rules.append(_rule(found))

    def matches(self, values: Mapping[str, str]) -> bool:
        return all(_holds(values.get(key), wanted, given) for key, wanted, given in self._rules)

    def names(self) -> list[str]:
        return [key for key, _, _ in self._rules]


def _rule(found: re.Match[str]) -> tuple[str, bool, frozenset[str] | None]:
    """The key, whether its value must be among the values, and those; None: any."""
    if found["absent"]:
        return found["gone"], False, None
    if found["set"]:
        values = frozenset(one.strip() for one in found["values"].split(","))
        return found["key"], found["set"] == "in", values
    if found["op"]:
        return found["key"], found["op"] != "!=", frozenset((found["value"],))
    return found["key"], True, None


def _holds(value: str | None, wanted: bool, given: Iterable[str] | None) -> bool:
    if given is None:
        return (value is not None) == wanted
    return (value is not None and value in given) == wanted


#: Field selectors that kinds have beside the name and the namespace.
_FIELDS = {
    "pods": ("spec.nodeName", "status.phase", "status.podIP", "spec.restartPolicy"),
    "events": (
        "involvedObject.uid",
        "involvedObject.name",
        "involvedObject.kind",
        "reason",
        "type",
    ),
    "jobs": ("status.successful",),
    "secrets": ("type",),
}


def fields_of(resource: Resource, obj: Mapping[str, Any]) -> dict[str, str]:
    """The values that a field selector of this kind can name."""
    found = {}
    for path in ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.plural, ())):
        value: Any = obj
        for part in path.split("."):
            value = value.get(part, "") if isinstance(value, Mapping) else ""
        found[path] = str(value)
    return found
