"""What the API server says about itself: its version, its groups, and the schema of JobSets."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from muster.spec.formats.jobset.schema import SCHEMA
from support.kube import metrics
from support.kube.objects import ALL, BY_PLURAL, JOBSET_GROUP, Obj, Resource

Version = tuple[int, int]
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Fields of a JobSet -> the first version that has them.
_SINCE: Mapping[str, Version] = {
    "spec.failurePolicy.restartStrategy": (0, 7),
    "spec.replicatedJobs[].dependsOn": (0, 8),
    "spec.replicatedJobs[].groupName": (0, 9),
    "spec.failurePolicy.rules[].onJobFailureMessagePatterns": (0, 10),
    "spec.volumeClaimPolicies": (0, 11),
    "status.replicatedJobsStatus[].jobRestarts": (0, 12),
}
#: What all kinds have.
_ALWAYS = ("status", "apiVersion", "kind", "metadata")
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")


def version(kubernetes: Version) -> Obj:
    """The answer to /version."""
    major, minor = kubernetes
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0",
        "platform": "linux/amd64",
    }


def groups(resources: Sequence[Resource]) -> Obj:
    """The answer to /apis."""
    named = dict.fromkeys((one.group, one.version) for one in resources if one.group)
    named[("authorization.k8s.io", "v1")] = None
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, number) for group, number in named],
    }


def _group(group: str, number: str) -> Obj:
    made = {"groupVersion": f"{group}/{number}", "version": number}
    return {"name": group, "versions": [made], "preferredVersion": made}


def group(name: str, resources: Sequence[Resource]) -> Obj | None:
    """The answer to /apis/GROUP."""
    number = next((one.version for one in resources if one.group == name), None)
    if number is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, number)}


def kinds(name: str, resources: Sequence[Resource]) -> Obj | None:
    """The answer to /apis/GROUP/VERSION, and /api/v1."""
    listed: list[Obj] = []
    for one in resources:
        if one.api_version == name:
            base: Obj = {
                "name": one.plural,
                "singularName": one.kind.lower(),
                "namespaced": one.namespaced,
                "kind": one.kind,
                "verbs": list(metrics.VERBS if one == metrics.RESOURCE else _VERBS),
                "shortNames": list(one.short),
            }
            listed.append(base)
            if one.status:
                sub = {"name": f"{one.plural}/status", "verbs": ["get", "patch", "update"]}
                listed.append(base | sub | {"shortNames": []})
    if name == "v1":
        listed += [
            {
                "name": f"pods/{name}",
                "singularName": "",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get"] if name == "log" else ["create", "get"],
            }
            for name in ("exec", "log", "portforward")
        ]
    if name == "authorization.k8s.io/v1":
        listed.append(
            {
                "name": "selfsubjectaccessreviews",
                "singularName": "",
                "namespaced": False,
                "kind": "SelfSubjectAccessReview",
                "verbs": ["create"],
            }
        )
    if not listed:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": name,
        "resources": listed,
    }


# --- schemas


@cache
def jobset_schema(known: Version) -> Obj:
    """The schema of a JobSet with the fields that a version has, and without references."""
    document = json.loads(SCHEMA.read_text())

    def resolved(schema: Any) -> Any:
        if isinstance(schema, dict):
            if "$ref" in schema:
                return resolved(document["definitions"][int(schema["$ref"].rpartition("/")[2])])
            return {name: resolved(inner) for name, inner in schema.items()}
        if isinstance(schema, list):
            return [resolved(inner) for inner in schema]
        return schema

    made: Obj = copy.deepcopy(resolved(document["schema"]))
    made["properties"]["status"] = _status()
    for path, since in _SINCE.items():
        if known < since:
            _remove(made, path.split("."))
    return made


def _status() -> Obj:
    """The schema of what a JobSet's status has for its replicated Jobs."""
    numbers = {name: {"type": "integer"} for name in _COUNTS}
    restarts = {"jobRestarts": {"type": "array", "items": {"type": "integer"}}}
    properties = {"name": {"type": "string"}, **numbers, **restarts}
    rows = {"type": "array", "items": {"type": "object", "properties": properties}}
    return {"type": "object", "properties": {"replicatedJobsStatus": rows}}


def _remove(schema: Obj, path: list[str]) -> None:
    for part in path[:-1]:
        name = part.removesuffix("[]")
        schema = schema["properties"][name]
        schema = schema["items"] if part.endswith("[]") else schema
    schema["properties"].pop(path[-1], None)


def unknown_fields(schema: Obj, value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that a schema does not have."""
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{path}[{number}]")
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, inner in value.items():
        known = schema["properties"].get(name)
        where = f"{path}.{name}".lstrip(".")
        if where in _ALWAYS:
            continue
        if known is None:
            yield where
        else:
            yield from unknown_fields(known, inner, where)


def pruned(schema: Obj, value: Any, path: str = "") -> Any:
    """A value without the fields that a schema does not have."""
    if isinstance(value, list) and "items" in schema:
        return [pruned(schema["items"], item, f"{path}[]") for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    made = {}
    for name, inner in value.items():
        where = f"{path}.{name}".lstrip(".")
        if where in _ALWAYS:
            made[name] = inner
        elif name in schema["properties"]:
            made[name] = pruned(schema["properties"][name], inner, where)
    return made


def openapi_index(resources: Sequence[Resource]) -> Obj:
    """The answer to /openapi/v3."""
    paths = {}
    for one in dict.fromkeys(_path(one) for one in resources):
        mark = hashlib.sha256(one.encode()).hexdigest().upper()
        paths[one] = {"serverRelativeURL": f"/openapi/v3/{one}?hash={mark}"}
    return {"paths": paths}


def openapi(path: str, resources: Sequence[Resource], jobset: Version | None) -> Obj | None:
    """The answer to /openapi/v3/PATH. Only JobSets have a schema."""
    mine = [one for one in resources if _path(one) == path]
    if not mine:
        return None
    paths, schemas = {}, {}
    for one in mine:
        kind = {"group": one.group, "version": one.version, "kind": one.kind}
        query = [{"name": name, "in": "query"} for name in ("fieldValidation", "dryRun", "force")]
        place = "/namespaces/{namespace}" if one.namespaced else ""
        operation = {"parameters": query, "x-kubernetes-group-version-kind": kind}
        base = f"/{path}{place}/{one.plural}"
        paths[f"{base}/{{name}}"] = {"patch": operation}
        paths[base] = {"post": operation}
        schema: Obj = {"type": "object"}
        if one.group == JOBSET_GROUP and jobset is not None:
            schema = jobset_schema(jobset)
        name = ".".join([*reversed(one.group.split(".")), one.version, one.kind])
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [kind]}
    info = {"title": "Kubernetes", "version": "unversioned"}
    made = {"openapi": "3.0.0", "info": info, "paths": paths}
    return {**made, "components": {"schemas": schemas}}


def _path(one: Resource) -> str:
    return f"apis/{one.api_version}" if one.group else f"api/{one.version}"


def served(*, jobset: bool, kueue: bool) -> list[Resource]:
    """The kinds of a cluster."""
    without = set() if jobset else {JOBSET_GROUP}
    if not kueue:
        without.add(BY_PLURAL["workloads"].group)
    return [one for one in ALL if one.group not in without]
