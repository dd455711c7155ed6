"""Jobs that belong to no JobSet (batch/v1), read by the rules for those that do."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from muster.errors import InvalidInput
from muster.spec.formats.documents import Manifest, documents
from muster.spec.formats.fields import FieldTables, Model
from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset import plain_job as plain
from muster.spec.formats.jobset.plain_job_fields import TABLES
from muster.spec.formats.jobset.plain_job_read import read_job
from muster.spec.formats.jobset.single_job import CONTROLLER
from muster.spec.formats.jobset.unread_fields import TABLES as JOBSET_TABLES
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.models import NodeGroup
from muster.spec.policies import EarlySuccess
from support.jobset import read as read_data

from .conftest import _set
from .test_junk import FULL, junk, places

POD = "spec.template.spec"
MAIN = f"{POD}.containers[0]"
INDEXED = {"spec.completionMode": "Indexed", "spec.completions": 5, "spec.parallelism": 2}


def job(changes: dict[str, Any]) -> dict[str, Any]:
    """A Job `pi` of one pod, and these changes."""
    container = {"name": "main", "image": "perl", "command": ["echo", "hello"]}
    data: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    for path, value in changes.items():
        _set(data, path, value)
    return data


def read(changes: dict[str, Any]) -> Manifest:
    return read_data(job(changes))


def group(changes: dict[str, Any]) -> NodeGroup:
    (made,) = read(changes).spec.node_groups
    return made


def problems(data: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        read_data(data)
    return [str(problem._replace(source="")) for problem in caught.value.problems]


def test_a_job_is_one_group() -> None:
    manifest = read({"spec.backoffLimit": 4})
    spec = manifest.spec
    (made,) = spec.node_groups
    assert manifest.notes == ()
    assert (spec.name, spec.subdomain, spec.clean_env, spec.namespace) == (
        *("pi", None, True, "default"),
    )
    assert (made.name, made.nodes, made.replicas, made.retries) == ("workers", 1, 1, 4)
    assert (made.hostname, made.node_env, made.is_array) == ("pi-${index}", {}, False)


#: Changes -> fields of the job.
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "suspended": ({"spec.suspend": True}, {"suspend": True}),
    "deleted later": ({"spec.ttlSecondsAfterFinished": 60}, {"ttl_after_finished": 60.0}),
    "labels": (
        {"metadata.labels": {"team": "a", "controller-uid": "of an exported Job"}},
        {"tags": {"team": "a"}},
    ),
    "a namespace": ({"metadata.namespace": "ml"}, {"namespace": "ml"}),
    "a generated name": ({"metadata": {"generateName": "pi-"}}, {"name": "pi"}),
    "described": (
        {"metadata.annotations": {"kubernetes.io/description": "For people.", "a": "b"}},
        {"description": "For people.", "annotations": {"a": "b"}},
    ),
    "a subdomain": ({f"{POD}.subdomain": "headless-svc"}, {"subdomain": "headless-svc"}),
    "a grace period": ({f"{POD}.terminationGracePeriodSeconds": 5}, {"grace_period": 5.0}),
    "a deadline of an array": (
        {**INDEXED, "spec.activeDeadlineSeconds": 9},
        {"attempt_timeout": 9.0},
    ),
}


@pytest.mark.parametrize("case", JOBS)
def test_the_job_becomes_the_job(case: str) -> None:
    changes, expected = JOBS[case]
    spec = read(changes).spec
    assert {name: getattr(spec, name) for name in expected} == expected


#: Changes -> fields of the group.
GROUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Kubernetes retries": ({}, {"retries": 6}),
    "a deadline": ({"spec.activeDeadlineSeconds": 90}, {"timeout": 90.0}),
    "all pods at once": ({"spec.completions": 3, "spec.parallelism": 3}, {"nodes": 3}),
    "an array": (INDEXED, {"replicas": 5, "parallelism": 2, "hostname": "pi-${replica}"}),
    "an index": (INDEXED, {"node_env": {"JOB_COMPLETION_INDEX": "${replica}"}}),
    "no index": ({**INDEXED, "spec.completionMode": "NonIndexed"}, {"node_env": {}}),
    "parallelism is 1 by default": (
        {**INDEXED, "spec.parallelism": None},
        {"replicas": 5, "parallelism": 1},
    ),
    "a work queue": ({"spec.parallelism": 3}, {"replicas": 3, "min_success": 1}),
    "limits of indexes": (
        {**INDEXED, "spec.backoffLimitPerIndex": 1, "spec.maxFailedIndexes": 2},
        {"retries": 1, "total_retries": None, "max_failed": 2},
    ),
    "success of some": (
        {**INDEXED, "spec.successPolicy.rules": [{"succeededIndexes": "0-1"}]},
        {"early_success": (EarlySuccess(replicas="0-1"),)},
    ),
    "a long name, as in Kubernetes": (
        {"metadata.name": "a" * 63},
        {"hostname": f"{'a' * 52}-${{index}}"},
    ),
    "dots in a name": ({"metadata.name": "pi.v2"}, {"hostname": "pi-v2-${index}"}),
}


@pytest.mark.parametrize("case", GROUPS)
def test_the_job_s_pods_become_its_group(case: str) -> None:
    changes, expected = GROUPS[case]
    made = group(changes)
    assert {name: getattr(made, name) for name in expected} == expected


def test_pods_read_fields_and_labels_of_their_job() -> None:
    paths = {
        "NAME": "metadata.name",
        "SPACE": "metadata.namespace",
        "OWN": "metadata.labels['app']",
        "JOB": "metadata.labels['batch.kubernetes.io/job-name']",
        "OLD_JOB": "metadata.labels['job-name']",
        "UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
        "OLD_UID": "metadata.labels['controller-uid']",
        "INDEX": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    }
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in paths.items()
    ]
    labels = {"app": "x", "job-name": "old", "controller-uid": "of an exported Job"}
    changes = {**INDEXED, f"{MAIN}.env": env, "spec.template.metadata.labels": labels}
    made = group(changes)
    assert made.env == {"SPACE": "default", "OWN": "x", "JOB": "pi", "OLD_JOB": "pi"}
    assert made.node_env == {
        "NAME": "pi-${replica}",
        "UID": "${run.id}",
        "OLD_UID": "${run.id}",
        "INDEX": "${replica}",
        "JOB_COMPLETION_INDEX": "${replica}",
    }
    assert made.pod_metadata.labels == {"app": "x"}


#: Changes -> the notes.
NOTES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an exported Job": (
        {
            "spec.selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}},
            "spec.manualSelector": False,
            "metadata.uid": "1",
            "status": {"succeeded": 1},
        },
        [
            "selector is not used: a run has no pods but its own",
            "manualSelector is not used: a run has no pods but its own",
        ],
    ),
    "a host name": (
        {f"{POD}.hostname": "x"},
        ["hostname of a pod is not used: pods are named JOB-INDEX"],
    ),
    "several pods without an index": (
        {"spec.completions": 2},
        ["completionMode NonIndexed is run as Indexed: every node has an index"],
    ),
    "a work queue": (
        {"spec.parallelism": 2},
        [
            "the Job without completions is a work queue; here, a pod that fails after the first "
            "success is still replaced"
        ],
    ),
    "its usual controller": ({"spec.managedBy": "kubernetes.io/job-controller"}, []),
    "what pods of JobSets have, too": (
        {f"{POD}.nodeSelector": {"disk": "ssd"}},
        ["nodeSelector is used by engine kubernetes only"],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_is_not_used_is_noted(case: str) -> None:
    changes, expected = NOTES[case]
    assert list(read(changes).notes) == expected


NAMES = "use lower-case letters, digits and -, start and end with a letter or digit"
#: Changes -> the problems.
BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no name": ({"metadata.name": None}, ["metadata.name: is missing (every Job has a name)"]),
    "a bad name": (
        {"metadata.name": "Pi_1"},
        [f"metadata.name: 'Pi_1' cannot name a Job ({NAMES})"],
    ),
    "a long name": (
        {"metadata.name": "a" * 64},
        ["metadata.name: has 64 characters, a Job's name may have 63 (shorten it)"],
    ),
    "pods with a long name": (
        {**INDEXED, "metadata.name": "a" * 62},
        [
            f"metadata.name: its pod '{'a' * 55}...' would have a host name of 64 characters "
            "(63 are allowed: shorten it)"
        ],
    ),
    "dots in names of pods": (
        {**INDEXED, "metadata.name": "pi.v2"},
        [f"metadata.name: 'pi.v2' cannot name an Indexed Job ({NAMES})"],
    ),
    "a bad subdomain": (
        {f"{POD}.subdomain": "a.b"},
        [
            f"{POD}.subdomain: 'a.b' cannot name a subdomain (use up to 63 lower-case letters, "
            "digits and -; start and end with a letter or digit)"
        ],
    ),
    "another controller": (
        {"spec.managedBy": "example.com/other"},
        [
            "spec.managedBy: another controller, example.com/other, manages this Job "
            "(remove the field to run it with Muster)"
        ],
    ),
    "no restartPolicy": (
        {f"{POD}.restartPolicy": None, **INDEXED, "spec.backoffLimitPerIndex": 1},
        [f"{POD}.restartPolicy: is missing (write OnFailure or Never)"],
    ),
    "a misspelled restartPolicy": (
        {f"{POD}.restartPolicy": None, f"{POD}.restartPolcy": "Never"},
        [f'{POD}.restartPolcy: Muster does not read this field (did you mean "restartPolicy"?)'],
    ),
    "another restartPolicy": (
        {f"{POD}.restartPolicy": "Always"},
        [f"{POD}.restartPolicy: cannot be 'Always' (use OnFailure or Never)"],
    ),
    "no spec": ({"spec": None}, ["spec: is missing"]),
    "no template": ({"spec.template": None}, ["spec.template: is missing"]),
    "no command": (
        {f"{MAIN}.command": None, f"{MAIN}.image": None},
        [
            f"{MAIN}.command: is missing, and there is no image with a program of its own "
            "(write the program to run)"
        ],
    ),
    "unknown fields": (
        {"spec.completion": 3, "spec.replicas": 2, "spec.containers": [1], "sepc": {"a": 1}},
        [
            'spec.completion: Muster does not read this field (did you mean "completions"?)',
            "spec.replicas: Muster does not read this field "
            "(remove it if the program does not need it)",
            "spec.containers: Muster does not read this field (it belongs to the pod's spec "
            "(template.spec): check the indentation)",
            'sepc: Muster does not read this field (did you mean "spec"?)',
        ],
    ),
    "wrong types": (
        {"spec.parallelism": "two", f"{MAIN}.command": ["sleep", 1]},
        [
            f'{MAIN}.command[1]: must be text, not 1 (put it in quotes: "1")',
            "spec.parallelism: must be a whole number, not 'two'",
        ],
    ),
    "negative numbers": (
        {"spec.backoffLimit": -1, "spec.ttlSecondsAfterFinished": -1},
        [
            "spec.backoffLimit: must be at least 0, not -1",
            "spec.ttlSecondsAfterFinished: must be at least 0, not -1",
        ],
    ),
    "an Indexed Job without completions": (
        {"spec.completionMode": "Indexed", "spec.parallelism": 1},
        [
            "spec.completions: is missing, and an Indexed Job requires it (write completions: 1)",
        ],
    ),
    "no pods": (
        {"spec.completions": 0},
        ["spec.completions: is 0: the Job has no pods (leave the Job out)"],
    ),
    "limits of indexes without an index": (
        {
            "spec.completions": 2,
            "spec.backoffLimitPerIndex": 1,
            f"{POD}.restartPolicy": "OnFailure",
        },
        [
            "spec.backoffLimitPerIndex: requires completionMode Indexed (write it, or use "
            "backoffLimit)",
            "spec.backoffLimitPerIndex: requires restartPolicy Never, as pods cannot fail "
            f"otherwise (set it in {POD})",
        ],
    ),
    "FailIndex without limits of indexes": (
        {
            "spec.podFailurePolicy.rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}
            ],
            "spec.podReplacementPolicy": "TerminatingOrFailed",
        },
        [
            "spec.podFailurePolicy.rules[0].action: FailIndex requires backoffLimitPerIndex "
            "(add it in spec, or use FailJob)",
            "spec.podReplacementPolicy: conflicts with podFailurePolicy, which requires Failed "
            "(remove it, or write Failed)",
        ],
    ),
    "other containers": (
        {
            f"{POD}.containers[1]": {"name": "more", "command": ["x"]},
            f"{MAIN}.restartPolicy": "Never",
        },
        [
            f"{MAIN}.restartPolicy: Muster does not restart single containers of a pod (set it for "
            "the pod, one level up)",
            f"{POD}.containers[1].image: is missing (give the container its image)",
        ],
    ),
    "a code of one of several containers": (
        {
            f"{POD}.containers[1]": {"name": "more", "image": "busybox"},
            "spec.podReplacementPolicy": "Failed",
            "spec.podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "more", "operator": "In", "values": [3]},
                    }
                ]
            },
        },
        [
            "spec.podFailurePolicy.rules[0].onExitCodes.containerName: Muster has one exit code "
            "of a pod, that of the container that has failed (remove it: then the rule is about "
            "all containers)"
        ],
    ),
    "a deadline of a pod": (
        {f"{POD}.activeDeadlineSeconds": 5},
        [
            f"{POD}.activeDeadlineSeconds: Muster has no deadline for a single pod "
            "(set it for the Job (spec.activeDeadlineSeconds))"
        ],
    ),
    "a label of JobSet": (
        {
            f"{MAIN}.env": [
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}
                    },
                }
            ]
        },
        [
            f"{MAIN}.env[0]: pods have no label 'jobset.sigs.k8s.io/job-index' "
            "(add it to the pod template's labels)"
        ],
    ),
    "a placeholder": (
        {f"{MAIN}.image": "gcr.io/<project>/job-wq-1"},
        [f"{MAIN}.image: 'gcr.io/<project>/job-wq-1' was not filled in (write what belongs there)"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_problems_are_at_the_fields_of_the_job(case: str) -> None:
    changes, expected = BAD[case]
    assert sorted(problems(job(changes))) == sorted(expected)


def test_problems_have_lines() -> None:
    data = job(
        {
            "spec.backoffLimitPerIndex": 1,
            f"{POD}.subdomain": "a.b",
            f"{MAIN}.workingDir": "x",
            f"{MAIN}.stdin": "x",
        }
    )
    lines = json.dumps(data, indent=1).splitlines()
    with pytest.raises(InvalidInput) as caught:
        read_data(data)
    for problem in caught.value.problems:
        field = problem.path.rpartition(".")[2]
        number = int(problem.source.rpartition(":")[2])
        assert f'"{field}":' in lines[number - 1]
    assert len(caught.value.problems) == 4


def test_origins_are_fields_of_the_job() -> None:
    origins = read(INDEXED).origins
    expected = {
        "name": "metadata.name",
        "subdomain": f"{POD}.subdomain",
        "attempt_timeout": "spec.activeDeadlineSeconds",
        "node_groups[0].replicas": "spec.completions",
        "node_groups[0].parallelism": "spec.parallelism",
        "node_groups[0].hostname": "metadata.name",
        "node_groups[0].command": f"{MAIN}.command",
    }
    assert {name: origins[name].path for name in expected} == expected
    assert [one.path for one in origins.values() if "replicated" in one.path] == []


def test_no_field_is_both_read_and_listed_as_unread() -> None:
    for table in (TABLES.noted, TABLES.refused):
        for model in (plain.JobManifest, plain.PlainJob, plain.PlainPodSpec):
            assert not set(table.get(model, {})) & {info.encode_name for info in fields(model)}


@pytest.mark.parametrize(
    ("model", "of_jobset"), [(plain.PlainJob, k8s.Job), (plain.PlainPodSpec, k8s.PodSpec)]
)
def test_every_field_of_a_job_in_a_jobset_is_known(model: Model, of_jobset: Model) -> None:
    assert _known(of_jobset, JOBSET_TABLES) <= _known(model, TABLES)


def _known(model: Model, tables: FieldTables) -> set[str]:
    read = {info.encode_name for info in fields(model)}
    return read | {*tables.noted.get(model, {}), *tables.refused.get(model, {})}


_FULL = copy.deepcopy(FULL)
#: A Job with the fields of a Job of a JobSet, and its own.
FULL_JOB = job(
    {
        "metadata": _FULL["metadata"],
        "spec": {
            **_FULL["spec"]["replicatedJobs"][0]["template"]["spec"],
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 1,
            "maxFailedIndexes": 1,
            "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]},
            "suspend": True,
            "ttlSecondsAfterFinished": 5,
            "selector": {"matchLabels": {"a": "b"}},
            "manualSelector": True,
            "managedBy": CONTROLLER,
            "podReplacementPolicy": "Failed",
        },
        f"{POD}.subdomain": "svc",
        f"{POD}.hostname": "x",
        f"{MAIN}.volumeMounts[1]": None,  # a claim
    }
)
OF_JOBSET = ("JobSet", "replicatedJob", "replicated Job")


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(list(places(FULL_JOB))), junk), max_size=3))
def test_junk_is_refused_or_read(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """No message is about a JobSet, and every problem is in the file."""
    data = copy.deepcopy(FULL_JOB)
    for way, value in changes:
        inner: Any = data
        try:
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change took it away
    (document,) = documents(json.dumps(data, indent=1), "x.yaml")
    try:
        manifest = read_job(document)
    except InvalidInput as error:
        texts = [str(problem) for problem in error.problems]
        assert all(problem.source.startswith("x.yaml:") for problem in error.problems)
    else:
        write_jobset(manifest.spec)
        texts = [*manifest.notes, *manifest.lost]
    assert [text for text in texts if any(word in text for word in OF_JOBSET)] == []
