"""What a cluster checks when objects are created, as far as manifests of Muster are concerned: the
schema of a release of JobSet, the rules of its webhook, and those of Kubernetes for Jobs and pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from muster.engines.kubernetes.versions import Version
from muster.spec.formats.quantity import parse_quantity
from support.kube.objects import BY_PLURAL, ApiError, Obj
from support.kube.storage import Storage
from support.kube.webhooks import Webhooks

_CRDS = Path(__file__).with_name("crds")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[^=\x00-\x1f\x7f-\U0010ffff]+")


def refusals(objects: Iterable[Obj], jobset: Version | None) -> list[str]:
    """Why a cluster with this JobSet refuses objects; empty if it does not."""
    found: list[str] = []
    for one in objects:
        where = f"{one['kind']} {one['metadata']['name']}"
        every = [*_of_admission(one), *_of_metadata(one["metadata"], "metadata")]
        if one["kind"] == "JobSet":
            assert jobset is not None, "there are none"
            every += _of_schema(one, jobset)
            for job in one["spec"]["replicatedJobs"]:
                every += _of_job(job["template"]["spec"], job["name"])
                every += _of_metadata(job["template"]["metadata"], job["name"])
        elif one["kind"] == "Job":
            every += _of_job(one["spec"], "spec")
        found += [f"{where}: {text}" for text in every]
    return found


# --- JobSet


@cache
def _validator(version: Version) -> Draft202012Validator:
    """Of a release: fields that it does not have are refused, as with `fieldValidation: Strict`."""
    document = json.loads((_CRDS / f"jobset-{version[0]}.{version[1]}.json").read_text())
    schema, definitions = (_strict(document[name]) for name in ("schema", "definitions"))
    return Draft202012Validator({**schema, "definitions": definitions})


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: _strict(one) for name, one in schema.items() if name != "format"}
    if "x-kubernetes-int-or-string" in schema:
        made["type"] = ["integer", "string"]
        made.pop("pattern", None)
    if isinstance(schema.get("properties"), Mapping) and "type" in schema:
        made["additionalProperties"] = False
    return made


def _of_schema(jobset: Obj, version: Version) -> Iterator[str]:
    for error in _validator(version).iter_errors(jobset):
        yield f"{error.json_path}: {error.message}"


def _of_admission(one: Obj) -> Iterator[str]:
    """Webhooks, defaults and sizes."""
    storage = Storage()
    storage.admissions.append(Webhooks(storage, kueue=False).admit)
    plural = next(kind.plural for kind in BY_PLURAL.values() if kind.kind == one["kind"])
    made = json.loads(json.dumps(one))
    namespace = made["metadata"].setdefault("namespace", "default")
    storage.create("namespaces", {"metadata": {"name": namespace}})
    made["metadata"].pop("ownerReferences", None)
    try:
        storage.create(plural, made)
    except ApiError as error:
        yield str(error)


# --- Kubernetes


def _of_metadata(metadata: Obj, where: str) -> Iterator[str]:
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for key, value in labels.items():
        if not _VALUE.fullmatch(value):
            yield f"{where}: label {key} cannot be {value!r}"
    for key in (*labels, *annotations):
        if not _KEY.fullmatch(key):
            yield f"{where}: {key!r} is not a key of labels or annotations"
    if sum(len(key) + len(value) for key, value in annotations.items()) > 256 << 10:
        yield f"{where}: annotations are too long"
    name = metadata.get("name")
    if name is not None and not _SUBDOMAIN.fullmatch(name):
        yield f"{where}: {name!r} is not a name"


def _of_job(job: Obj, where: str) -> Iterator[str]:
    if job["completionMode"] == "Indexed" and job["completions"] > 10**5 < job["parallelism"]:
        yield f"{where}: too many pods for an Indexed Job"
    pod = job["template"]
    names = [one["name"] for one in _containers(pod["spec"])]
    for rule in job.get("podFailurePolicy", {}).get("rules", ()):
        codes = rule.get("onExitCodes")
        if ("onExitCodes" in rule) == ("onPodConditions" in rule):
            yield f"{where}: a rule has either exit codes or conditions"
        if codes is not None:
            values = codes["values"]
            if values != sorted(set(values)) or not 0 < len(values) <= 255:
                yield f"{where}: exit codes must be unique and in order"
            if codes["operator"] == "In" and 0 in values:
                yield f"{where}: 0 is not a code of a failure"
            if codes.get("containerName", names[0]) not in names:
                yield f"{where}: a rule names no container"
    if "podFailurePolicy" in job:
        if pod["spec"]["restartPolicy"] != "Never":
            yield f"{where}: podFailurePolicy needs restartPolicy Never"
        if job.get("podReplacementPolicy", "Failed") != "Failed":
            yield f"{where}: podFailurePolicy needs podReplacementPolicy Failed"
    yield from _of_metadata(pod["metadata"], where)
    yield from _of_pod(pod["spec"], where)


def _containers(pod: Obj) -> list[Obj]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _of_pod(pod: Obj, where: str) -> Iterator[str]:
    volumes = [one["name"] for one in pod.get("volumes", ())]
    names = [one["name"] for one in _containers(pod)]
    for kind, given in (("volume", volumes), ("container", names)):
        if len(set(given)) < len(given):
            yield f"{where}: two {kind}s have one name"
        yield from (
            f"{where}: {n!r} is not a name of a {kind}" for n in given if not _LABEL.fullmatch(n)
        )
    for one in pod.get("volumes", ()):
        if len(one) != 2:
            yield f"{where}: volume {one['name']} has not one source"
    if pod.get("terminationGracePeriodSeconds", 0) < 0:
        yield f"{where}: a negative grace period"
    for alias in pod.get("hostAliases", ()):
        with suppress(ValueError):
            ip_address(alias["ip"])
            continue
        yield f"{where}: {alias['ip']!r} is not an address"
    for one in pod.get("initContainers", ()):
        if one.get("restartPolicy", "Always") != "Always":
            yield f"{where}: init container {one['name']} cannot have this restartPolicy"
    for one in _containers(pod):
        yield from _of_container(one, {*volumes}, f"{where}, container {one['name']}")


def _of_container(one: Obj, volumes: set[str], where: str) -> Iterator[str]:
    if not one.get("image") or one["image"] != one["image"].strip():
        yield f"{where}: has no image"
    paths = [mount["mountPath"] for mount in one.get("volumeMounts", ())]
    if len(set(paths)) < len(paths):
        yield f"{where}: two volumes are mounted at one path"
    for mount in one.get("volumeMounts", ()):
        yield from _of_mount(mount, volumes, where)
    for variable in one.get("env", ()):
        if not _VARIABLE.fullmatch(variable["name"]):
            yield f"{where}: {variable['name']!r} is not a variable"
        if "value" in variable and "valueFrom" in variable:
            yield f"{where}: {variable['name']} has two values"
    yield from _of_resources(one.get("resources", {}), where)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        given = one.get(probe, {})
        if any(given.get(name, 1) < 1 for name in ("periodSeconds", "timeoutSeconds")):
            yield f"{where}: {probe} has a period below 1"
        if given and len({"exec", "httpGet", "tcpSocket", "grpc"} & given.keys()) != 1:
            yield f"{where}: {probe} has not one handler"


def _of_mount(mount: Obj, volumes: set[str], where: str) -> Iterator[str]:
    if mount["name"] not in volumes:
        yield f"{where}: there is no volume {mount['name']}"
    if ":" in mount["mountPath"]:
        yield f"{where}: {mount['mountPath']} has a colon"
    if "subPath" in mount and "subPathExpr" in mount:
        yield f"{where}: {mount['mountPath']} has both subPath and subPathExpr"
    inside = mount.get("subPath") or mount.get("subPathExpr", "")
    if inside.startswith("/") or ".." in inside.split("/"):
        yield f"{where}: {inside} leads out of the volume"


def _of_resources(resources: Obj, where: str) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, amount in requests.items():
        if name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
            yield f"{where}: requests more {name} than its limit"
        if "/" in name and parse_quantity(amount) % 1:
            yield f"{where}: {name} must be a whole number"
        if "/" in name and limits.get(name) != amount:
            yield f"{where}: limit and request of {name} must be equal"
