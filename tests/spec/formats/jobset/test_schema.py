"""Muster refuses and accepts the same manifests as the API server and JobSet's webhook."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from muster.errors import InvalidInput
from muster.spec.formats.documents import Manifest, documents
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.schema import SCHEMA, check_structure
from muster.spec.policies import SuccessPolicy
from support.jobset_crd import schema, trimmed
from support.jobset_manifests import JOB, MAIN, POD, Make, Problems, Read

from .test_junk import FULL


def _parent(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        data = data[step]
    return data


def _paths(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all fields of objects."""
    pairs: Any = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else pairs:
        if isinstance(data, dict):
            yield (*way, key)
        yield from _paths(value, (*way, key))


#: Changes -> the problems.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a number as text": (
        {f"{MAIN}.command": ["sleep", 1]},
        [f'{MAIN}.command[1]: must be text, not 1 (put it in quotes: "1")'],
    ),
    "a boolean as text": (
        {f"{MAIN}.args": ["x", True]},
        [f'{MAIN}.args[1]: must be text, not true (put it in quotes: "true")'],
    ),
    "a number as a variable's value": (
        {f"{MAIN}.env": [{"name": "A", "value": 1}]},
        [f'{MAIN}.env[0].value: must be text, not 1 (put it in quotes: "1")'],
    ),
    "a variable twice": (
        {f"{MAIN}.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        [f"{MAIN}.env[1].name: 'A' is given twice (also at env[0]: remove one)"],
    ),
    "a mount point twice": (
        {
            f"{POD}.volumes": [{"name": "a"}, {"name": "b"}],
            f"{MAIN}.volumeMounts": [
                {"name": "a", "mountPath": "/x"},
                {"name": "b", "mountPath": "/x"},
            ],
        },
        [
            f"{MAIN}.volumeMounts[1].mountPath: '/x' is given twice "
            "(also at volumeMounts[0]: remove one)"
        ],
    ),
    "ports, with TCP as the default protocol": (
        {
            f"{MAIN}.ports": [
                {"containerPort": 80},
                {"containerPort": 80, "protocol": "UDP"},
                {"containerPort": 80, "protocol": "TCP"},
            ]
        },
        [
            f"{MAIN}.ports[2].containerPort: 80 and 'TCP' is given twice "
            "(also at ports[0]: remove one)"
        ],
    ),
    "fields that Muster does not use": (
        {
            f"{POD}.tolerations": 5,
            f"{POD}.nodeSelector": {"disk": 1},
            f"{MAIN}.tty": "yes",
            f"{MAIN}.securityContext": {"runAsUser": "root"},
        },
        [
            f"{POD}.tolerations: must be a list, not 5",
            f'{POD}.nodeSelector.disk: must be text, not 1 (put it in quotes: "1")',
            f"{MAIN}.tty: must be true or false, not 'yes' (without the quotes: yes)",
            f"{MAIN}.securityContext.runAsUser: must be a whole number, not 'root'",
        ],
    ),
    "numbers out of range": (
        {f"{JOB}.backoffLimit": 2**31, "spec.failurePolicy": {"maxRestarts": -(2**31) - 1}},
        [
            f"{JOB}.backoffLimit: must be at most 2147483647, not 2147483648",
            "spec.failurePolicy.maxRestarts: must be at least -2147483648, not -2147483649",
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_manifests_that_the_api_server_refuses_are_refused(
    case: str, make: Make, problems: Problems
) -> None:
    changes, expected = REFUSED[case]
    assert sorted(problems(make(changes))) == sorted(expected)


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("securityContext.runAsUser", -(2**63), 2**63 - 1),  # int64
        ("terminationGracePeriodSeconds", 0, 2**31 - 1),  # int64 with Kubernetes's own limits
    ],
)
def test_bounds_of_numbers(field: str, low: int, high: int) -> None:
    assert [_problems_of_pod_field(field, n) for n in (low, high)] == [[], []]
    assert _problems_of_pod_field(field, low - 1) == [f"must be at least {low}, not {low - 1}"]
    assert _problems_of_pod_field(field, high + 1) == [f"must be at most {high}, not {high + 1}"]


def _problems_of_pod_field(field: str, value: Any) -> list[str]:
    outer, _, inner = field.rpartition(".")
    pod = {outer: {inner: value}} if outer else {inner: value}
    pod["containers"] = [{"name": "c"}]
    job = {"name": "a", "template": {"spec": {"template": {"spec": pod}}}}
    return [p.message for p in check_structure({"spec": {"replicatedJobs": [job]}})[1]]


@pytest.mark.parametrize("path", list(_paths(FULL["spec"], ("spec",))), ids=str)
def test_null_means_that_a_field_is_left_out(path: tuple[Any, ...]) -> None:
    without, null = copy.deepcopy(FULL), copy.deepcopy(FULL)
    _parent(null, path)[path[-1]] = None
    del _parent(without, path)[path[-1]]
    assert check_structure(null) == check_structure(without)


def test_every_keyword_of_the_schema_is_checked() -> None:
    """A newer schema that uses other keywords needs code for them."""
    document = json.loads(SCHEMA.read_text())
    found = set(_keywords([document["schema"], *document["definitions"]]))
    assert found == {
        *("$ref", "type", "format", "enum", "required", "pattern", "minimum", "maxItems"),
        *("properties", "additionalProperties", "items", "x-kubernetes-int-or-string"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
        *("type object", "type array", "type string", "type integer", "type boolean"),
        *("format int32", "format int64", "format date-time"),
        *("x-kubernetes-list-type map", "x-kubernetes-list-type set"),
    }


def _keywords(schemas: list[Any]) -> Iterator[str]:
    for part in schemas:
        yield from part
        for name in ("type", "format", "x-kubernetes-list-type"):
            if name in part:
                yield f"{name} {part[name]}"
        inner = [*part.get("properties", {}).values()]
        inner += [part[name] for name in ("items", "additionalProperties") if name in part]
        yield from _keywords(inner)


def test_a_negative_limit_means_0(make: Make, read: Read) -> None:
    manifest = read(make({"spec.failurePolicy": {"maxRestarts": -1}}))
    assert manifest.spec.failure.max_restarts == 0


def test_all_of_empty_targets_is_reached_with_the_first_success(make: Make, read: Read) -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["workers"]}
    manifest = read(make({"spec.replicatedJobs[1].replicas": 0, "spec.successPolicy": policy}))
    assert manifest.spec.success == SuccessPolicy(when="any")
    text = "successPolicy All over replicated Jobs with 0 replicas is reached at the first success"
    assert any(text in note for note in manifest.notes)


@pytest.mark.parametrize("name", [None, "", "2nd", "a-name-of-more-than-forty-characters-in-total"])
def test_invalid_group_names(name: str | None, make: Make, read: Read) -> None:
    env = "metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']"
    changes: dict[str, Any] = {
        "spec.replicatedJobs[0].name": name,
        "spec.replicatedJobs[1].dependsOn": [{"name": name or "", "status": "Complete"}],
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": [name or ""]},
        "spec.failurePolicy": {
            "maxRestarts": 1,
            "rules": [
                {
                    "name": "r",
                    "action": "FailJobSet",
                    "targetReplicatedJobs": [name or ""],
                    "onJobFailureReasons": ["BackoffLimitExceeded"],
                }
            ],
        },
        f"{POD.replace('[1]', '[0]')}.containers[0].env": [
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": env}}}
        ],
    }
    manifest = read(make(changes))
    first, second = manifest.spec.node_groups
    assert first.name == "group-0"
    assert first.hostname == f"demo-{name or ''}-${{replica}}-${{index}}"
    assert first.env["WHO"] == (name or "")
    assert second.depends_on[0].group == "group-0"
    assert manifest.spec.success.groups == ("group-0",)
    assert manifest.spec.failure.rules[0].groups == ("group-0",)
    assert any("is node group group-0" in note for note in manifest.notes)


def test_one_invalid_entry_does_not_affect_the_others(make: Make, problems: Problems) -> None:
    changes = {
        f"{MAIN}.ports": [{"containerPort": "http"}],
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
        "spec.coordinator": {"replicatedJob": "workers"},
    }
    path = f"{MAIN}.ports[0].containerPort"
    assert problems(make(changes)) == [f"{path}: must be a whole number, not 'http'"]


@pytest.mark.parametrize("broken", [5, None, "x", []])
def test_null_entries_are_refused(broken: Any, make: Make, problems: Problems) -> None:
    changes = {
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
        "spec.failurePolicy": {"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["w"]}]},
    }
    data = make(changes)
    data["spec"]["replicatedJobs"][1] = broken
    (messages,) = problems(data)
    assert messages.startswith("spec.replicatedJobs[1]: must be a mapping, not")


def test_a_name_that_is_a_number(make: Make, problems: Problems) -> None:
    changes = {
        "spec.replicatedJobs[1].name": 7,
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
    }
    output = 'spec.replicatedJobs[1].name: must be text, not 7 (put it in quotes: "7")'
    assert problems(make(changes)) == [output]


JUNK = st.sampled_from(
    [
        *(0, 1, -1, 3, 1.0, 1.5, 2**31, 2**63, True, False, "", "x", "1", "true", "500m", "2Gi"),
        *("All", "Never", "Ready", "Indexed", [], {}, ["x"], ["x", "x"], [1], [None], [[]]),
        *({"x": 1}, {"x": "y"}, {"name": "a"}, [{"name": "a"}], [{"name": "a"}, {"name": "a"}]),
    ]
)


def _places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if way:
        yield way
    pairs: Any = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else pairs:
        yield from _places(value, (*way, key))


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest with other values at one or two places."""
    data = copy.deepcopy(FULL)
    for way, value in draw(
        st.lists(st.tuples(st.sampled_from(list(_places(FULL))), JUNK), min_size=1, max_size=2)
    ):
        inner: Any = data
        try:
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change took it away
    return data


def _read(data: Any) -> Manifest | None:
    try:
        (document,) = documents(json.dumps(data), "x.yaml")
        return read_jobset(document)
    except (InvalidInput, ValueError):
        return None


@settings(deadline=None, max_examples=300)
@given(changed())
def test_no_manifest_is_read_that_the_api_server_refuses(data: dict[str, Any]) -> None:
    if check_structure(data)[1]:
        assert _read(data) is None


crd = pytest.mark.skipif(
    "MUSTER_JOBSET_CRD" not in os.environ, reason="JobSet's CustomResourceDefinition"
)


@crd
def test_the_schema_is_the_published_one() -> None:
    published = schema(Path(os.environ["MUSTER_JOBSET_CRD"]))
    shipped = json.loads(SCHEMA.read_text())
    assert shipped == json.loads(json.dumps(trimmed(published, shipped["version"])))


def _for_json_schema(part: Any) -> Any:
    """A schema of Kubernetes as a JSON Schema, where their meanings differ."""
    if isinstance(part, list):
        return [_for_json_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {key: _for_json_schema(value) for key, value in part.items()}
    if part.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    bits = {"int32": 31, "int64": 63}.get(str(part.get("format")))
    if bits and part.get("type") == "integer":
        made = {"minimum": -(2**bits), "maximum": 2**bits - 1, **made}
    return made


def _without_nulls(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _without_nulls(v) for k, v in data.items() if v is not None}
    return [_without_nulls(v) for v in data] if isinstance(data, list) else data


def _filled(data: Any) -> Any:
    """As JobSet's webhook fills a manifest in."""
    spec = data.get("spec")
    policy = spec.get("failurePolicy") if isinstance(spec, dict) else None
    for named in (
        spec.get("replicatedJobs") if isinstance(spec, dict) else (),
        policy.get("rules") if isinstance(policy, dict) else (),
    ):
        for item in named if isinstance(named, list) else ():
            if isinstance(item, dict):
                item.setdefault("name", "")
    return data


@crd
@settings(deadline=None, max_examples=500)
@given(changed())
def test_the_same_result_as_the_schema_of_the_definition(data: dict[str, Any]) -> None:
    theirs = _validator(Path(os.environ["MUSTER_JOBSET_CRD"]))
    wrong = [error.json_path for error in theirs.iter_errors(_filled(_without_nulls(data)))]
    ours = [p for p in check_structure(data, limits={})[1] if "is given twice" not in p.message]
    assert bool(ours) == bool(wrong), (ours, wrong)


@cache
def _validator(path: Path) -> Draft202012Validator:
    return Draft202012Validator(_for_json_schema(schema(path)))


def test_whole_numbers_can_have_a_decimal_point(make: Make, read: Read) -> None:
    numbers = {"completions": 2.0, "parallelism": 2.0, "backoffLimit": 3.0}
    changes = {f"{JOB}.{name}": number for name, number in numbers.items()}
    group = read(make(changes)).spec.node_groups[1]
    assert (group.nodes, group.retries) == (2, 3)
