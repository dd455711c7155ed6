"""What the API server and JobSet's webhook refuse or accept, Muster does."""

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
from muster.spec.formats.api_check import TABLE, api_problems
from muster.spec.formats.documents import documents
from muster.spec.formats.jobset_read import Manifest, read_jobset
from muster.spec.policies import SuccessPolicy
from support.jobset_crd import derived, schema

from .conftest import JOB, POD, Make, Problems, Read
from .test_junk import FULL

MAIN = f"{POD}.containers[0]"


#: Changes -> what the API server refuses of them.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a number as a word": (
        {f"{MAIN}.command": ["sleep", 1]},
        [f'{MAIN}.command[1]: must be text, not 1 (put it in quotes: "1")'],
    ),
    "a truth as a word": (
        {f"{MAIN}.args": ["x", True]},
        [f'{MAIN}.args[1]: must be text, not true (put it in quotes: "true")'],
    ),
    "a number as a variable's value": (
        {f"{MAIN}.env": [{"name": "A", "value": 1}]},
        [f'{MAIN}.env[0].value: must be text, not 1 (put it in quotes: "1")'],
    ),
    "a variable twice": (
        {f"{MAIN}.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        [f"{MAIN}.env[1].name: 'A' is given twice (it is there already, as env[0]: remove one)"],
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
            "(it is there already, as volumeMounts[0]: remove one)"
        ],
    ),
    "ports, whose protocol is TCP unless they say so": (
        {
            f"{MAIN}.ports": [
                {"containerPort": 80},
                {"containerPort": 80, "protocol": "UDP"},
                {"containerPort": 80, "protocol": "TCP"},
            ]
        },
        [
            f"{MAIN}.ports[2].containerPort: 80 and 'TCP' is given twice "
            "(it is there already, as ports[0]: remove one)"
        ],
    ),
    "what Muster does not look at": (
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
    "more than a number can be": (
        {f"{JOB}.backoffLimit": 2**31, "spec.failurePolicy": {"maxRestarts": -(2**31) - 1}},
        [
            f"{JOB}.backoffLimit: must be at most 2147483647, not 2147483648",
            "spec.failurePolicy.maxRestarts: must be at least -2147483648, not -2147483649",
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_api_server_refuses(case: str, make: Make, problems: Problems) -> None:
    changes, expected = REFUSED[case]
    assert sorted(problems(make(changes))) == sorted(expected)


def test_a_negative_limit_is_none(make: Make, read: Read) -> None:
    manifest = read(make({"spec.failurePolicy": {"maxRestarts": -1}}))
    assert manifest.spec.failure.max_restarts == 0


def test_all_of_nothing_is_reached_with_the_first_success(make: Make, read: Read) -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["workers"]}
    manifest = read(make({"spec.replicatedJobs[1].replicas": 0, "spec.successPolicy": policy}))
    assert manifest.spec.success == SuccessPolicy(when="any")
    text = "successPolicy All over replicated Jobs with 0 replicas is reached at the first success"
    assert any(text in note for note in manifest.notes)


@pytest.mark.parametrize("name", [None, "", "2nd", "a-name-of-more-than-forty-characters-all-told"])
def test_names_that_groups_cannot_have(name: str | None, make: Make, read: Read) -> None:
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


def test_one_broken_entry_says_nothing_about_the_others(make: Make, problems: Problems) -> None:
    changes = {
        f"{MAIN}.ports": [{"containerPort": "http"}],
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
        "spec.coordinator": {"replicatedJob": "workers"},
    }
    path = f"{MAIN}.ports[0].containerPort"
    assert problems(make(changes)) == [f"{path}: must be a whole number, not 'http'"]


@pytest.mark.parametrize("broken", [5, None, "x", []])
def test_an_entry_that_is_none(broken: Any, make: Make, problems: Problems) -> None:
    changes = {
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
        "spec.failurePolicy": {"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["w"]}]},
    }
    data = make(changes)
    data["spec"]["replicatedJobs"][1] = broken
    (said,) = problems(data)
    assert said.startswith("spec.replicatedJobs[1]: must be a mapping, not")


def test_a_name_that_is_a_number(make: Make, problems: Problems) -> None:
    changes = {
        "spec.replicatedJobs[1].name": 7,
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
    }
    said = 'spec.replicatedJobs[1].name: must be text, not 7 (put it in quotes: "7")'
    assert problems(make(changes)) == [said]


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
    """A manifest with something else at one place, or two."""
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
def test_nothing_is_read_that_the_api_server_refuses(data: dict[str, Any]) -> None:
    if any(True for _ in api_problems(data)):
        assert _read(data) is None


crd = pytest.mark.skipif(
    "MUSTER_JOBSET_CRD" not in os.environ, reason="JobSet's CustomResourceDefinition"
)


@crd
def test_the_table_is_the_one_of_the_definition() -> None:
    said = schema(Path(os.environ["MUSTER_JOBSET_CRD"]))
    assert json.loads(TABLE.read_text()) == json.loads(json.dumps(derived(said)))


def _for_json_schema(said: Any) -> Any:
    """Kubernetes' schemas where they mean something else than JSON Schema's."""
    if isinstance(said, list):
        return [_for_json_schema(item) for item in said]
    if not isinstance(said, dict):
        return said
    made = {key: _for_json_schema(value) for key, value in said.items()}
    if said.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    bits = {"int32": 31, "int64": 63}.get(str(said.get("format")))
    if bits and said.get("type") == "integer":
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
def test_the_same_verdict_as_the_definition_s_schema(data: dict[str, Any]) -> None:
    theirs = _validator(Path(os.environ["MUSTER_JOBSET_CRD"]))
    wrong = [error.json_path for error in theirs.iter_errors(_filled(_without_nulls(data)))]
    ours = [p for p in api_problems(data) if "is given twice" not in p.message]
    assert bool(ours) == bool(wrong), (ours, wrong)


@cache
def _validator(path: Path) -> Draft202012Validator:
    return Draft202012Validator(_for_json_schema(schema(path)))


def test_whole_numbers_may_have_a_point(make: Make, read: Read) -> None:
    numbers = {"completions": 2.0, "parallelism": 2.0, "backoffLimit": 3.0}
    changes = {f"{JOB}.{name}": number for name, number in numbers.items()}
    group = read(make(changes)).spec.node_groups[1]
    assert (group.nodes, group.retries) == (2, 3)
