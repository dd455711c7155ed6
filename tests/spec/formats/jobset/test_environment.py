"""Fields that pods refer to (downward API), and `$(NAME)`."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from muster.spec.formats.jobset.references import Value, expand
from support.jobset_manifests import JOB, MAIN, Make, Problems, Read

LABEL = "jobset.sigs.k8s.io/"


def field_ref(field: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": field}}}


def label(name: str) -> dict[str, Any]:
    return field_ref(f"metadata.labels['{LABEL}{name}']")


#: Field -> the variable, the same on every node (SAME) or different on each (EACH).
SAME: dict[str, tuple[dict[str, Any], str]] = {
    "jobset-name": (label("jobset-name"), "demo"),
    "as an annotation": (field_ref(f"metadata.annotations['{LABEL}jobset-name']"), "demo"),
    "replicatedjob-replicas": (label("replicatedjob-replicas"), "1"),
    "global-replicas": (label("global-replicas"), "4"),
    "job-global-index": (label("job-global-index"), "3"),
    "group-name": (label("group-name"), "default"),
    "job-group-index": (label("job-group-index"), "3"),
    "group-replicas": (label("group-replicas"), "4"),
    "job-key": (
        label("job-key"),
        hashlib.sha1(b"default/demo-workers-0", usedforsecurity=False).hexdigest(),
    ),
    "coordinator": (label("coordinator"), "demo-driver-2-0.demo"),
    "a label of the pod": (field_ref("metadata.labels['mine']"), "yes"),
    "an annotation of the pod": (field_ref("metadata.annotations['note']"), "hi"),
    "namespace": (field_ref("metadata.namespace"), "default"),
    "service account": (field_ref("spec.serviceAccountName"), "default"),
    "machine": (field_ref("spec.nodeName"), "localhost"),
    "limits": (
        {
            "name": "X",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        },
        "1536",
    ),
    "limits, rounded up": (
        {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        "2",
    ),
    "requests are the limits": (
        {
            "name": "X",
            "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}},
        },
        "1500",
    ),
}
EACH: dict[str, tuple[dict[str, Any], str]] = {
    "jobset-uid": (label("jobset-uid"), "${run.id}"),
    "replicatedjob-name": (label("replicatedjob-name"), "${group}"),
    "job-index": (label("job-index"), "${replica}"),
    "restart-attempt": (label("restart-attempt"), "${run.restarts}"),
    "index": (
        field_ref("metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        "${index}",
    ),
    "index as a label": (
        field_ref("metadata.labels['batch.kubernetes.io/job-completion-index']"),
        "${index}",
    ),
    "job-name": (field_ref("metadata.labels['job-name']"), "demo-workers-${replica}"),
    "pod": (field_ref("metadata.name"), "${hostname}"),
    "uid": (field_ref("metadata.uid"), "${run.id}-${rank}"),
    "address": (field_ref("status.podIP"), "${address}"),
}
AROUND: dict[str, Any] = {
    "spec.coordinator": {"replicatedJob": "driver", "jobIndex": 2},
    "spec.replicatedJobs[0].replicas": 3,
    f"{JOB}.template.metadata": {"labels": {"mine": "yes"}, "annotations": {"note": "hi"}},
    f"{MAIN}.resources.limits": {"cpu": "1500m", "memory": "1.5Gi"},
}


@pytest.mark.parametrize("case", SAME)
def test_variables_that_are_the_same_for_every_pod(case: str, make: Make, read: Read) -> None:
    var, expected = SAME[case]
    group = read(make({**AROUND, f"{MAIN}.env": [var]})).spec.node_groups[1]
    assert group.env == {"X": expected}


@pytest.mark.parametrize("case", EACH)
def test_variables_that_differ_for_each_pod(case: str, make: Make, read: Read) -> None:
    var, expected = EACH[case]
    group = read(make({**AROUND, f"{MAIN}.env": [var]})).spec.node_groups[1]
    assert group.node_env == {"X": expected, "JOB_COMPLETION_INDEX": "${index}"}


def test_the_first_jobs_are_numbered_from_0(make: Make, read: Read) -> None:
    first = "spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
    changes = {**AROUND, f"{first}.env": [label("job-global-index")]}
    assert read(make(changes)).spec.node_groups[0].node_env["X"] == "${replica}"


@pytest.mark.parametrize(
    ("fact", "group", "value"),
    [
        ("job-global-index", "default", "${run.replica}"),
        ("job-group-index", "default", "${run.replica}"),
        ("job-group-index", "own", "${replica}"),
    ],
)
def test_later_jobs_are_numbered_after_them(
    fact: str, group: str, value: str, make: Make, read: Read
) -> None:
    changes = {"spec.replicatedJobs[1].replicas": 2, "spec.replicatedJobs[1].groupName": group}
    data = make({**AROUND, f"{MAIN}.env": [label(fact)], **changes})
    assert read(data).spec.node_groups[1].node_env["X"] == value


def test_an_index_without_a_placeholder_is_refused(make: Make, problems: Problems) -> None:
    """The index counts neither from 0 nor over all Jobs."""
    data = make({f"{MAIN}.env": [label("job-group-index")]})
    driver, workers = data["spec"]["replicatedJobs"]
    workers |= {"replicas": 2, "groupName": "g"}
    data["spec"]["replicatedJobs"] = [driver, {**driver, "name": "x", "groupName": "g"}, workers]
    path = MAIN.replace("[1]", "[2]")
    assert problems(data) == [
        f"{path}.env[0]: job-group-index differs between Jobs here, and starts at 1, which "
        "Muster does not support (write the number for each replicated Job by hand, or give "
        "this one a "
        "single replica)"
    ]


#: Field -> why it is refused.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a key of each Job": (
        label("job-key"),
        {"spec.replicatedJobs[1].replicas": 2},
        "job-key differs between Jobs here, which Muster does not support (use metadata.uid, "
        "or the "
        "label job-name)",
    ),
    "no coordinator": (
        label("coordinator"),
        {"spec.coordinator": None},
        "the JobSet has no coordinator (name one in spec.coordinator)",
    ),
    "restarts of one Job": (
        label("job-restart-attempt"),
        {},
        "job-restart-attempt counts the restarts of one Job, which Muster does not provide (use "
        "restart-attempt)",
    ),
    "a typing mistake": (
        label("job-indx"),
        {},
        f"pods have no label '{LABEL}job-indx' (did you mean \"{LABEL}job-index\"?)",
    ),
    "no index": (
        field_ref("metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        {f"{JOB}.completionMode": "NonIndexed"},
        "pods of a NonIndexed Job have no index (make it Indexed)",
    ),
    "no such field": (
        field_ref("status.podIp"),
        {},
        "pods have no field 'status.podIp' (did you mean \"status.podIP\"?)",
    ),
    "no limit": (
        {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}},
        {},
        "container main has no nvidia.com/gpu, so the value is the whole machine's (add it "
        "to resources.limits)",
    ),
    "two values": (
        {**field_ref("metadata.name"), "value": "x"},
        {},
        "has both value and valueFrom (keep only one of them)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_references_without_a_value_are_refused(case: str, make: Make, problems: Problems) -> None:
    var, changes, expected = REFUSED[case]
    data = make({**AROUND, f"{MAIN}.env": [var], **changes})
    assert problems(data) == [f"{MAIN}.env[0]: {expected}"]


#: Text -> its expansion by Kubernetes, with A=1 and B different on each node.
TEXTS = {
    "plain": Value("plain"),
    "$A": Value("$A"),
    "a$(A)b": Value("a1b"),
    "$$(A)": Value("$(A)"),
    "$$$(A)": Value("$1"),
    "$(C)": Value("$(C)"),
    "$(seq 1 3)": Value("$(seq 1 3)"),
    "$(A": Value("$(A"),
    "costs 5$": Value("costs 5$"),
    "$(B)": Value("${index}", per_node=True),
    "$(A)-$(B)": Value("1-${index}", per_node=True),
    "${HOME}-$(B)": Value("${HOME}-${index}", per_node=True),
    "${index}": Value("${index}"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_references_are_expanded_as_in_kubernetes(text: str) -> None:
    known = {"A": Value("1"), "B": Value("${index}", per_node=True)}
    assert expand(text, known.get) == TEXTS[text]


def test_variables_refer_to_earlier_ones(make: Make, read: Read) -> None:
    env = [
        {"name": "LATE", "value": "$(HOST)"},
        label("job-index") | {"name": "J"},
        {"name": "HOST", "value": "w-$(J)"},
        {"name": "URL", "value": "http://$(HOST):80"},
    ]
    manifest = read(make({f"{MAIN}.env": env}))
    group = manifest.spec.node_groups[1]
    assert group.env == {"LATE": "$(HOST)"}
    assert group.node_env == {
        "J": "${replica}",
        "HOST": "w-${replica}",
        "URL": "http://w-${replica}:80",
        "JOB_COMPLETION_INDEX": "${index}",
    }
    assert manifest.notes == (
        "$(HOST) (workers) is not replaced in LATE: it is defined later, as in Kubernetes",
    )


def test_arguments_that_are_the_same_on_all_nodes_are_expanded(make: Make, read: Read) -> None:
    changes = {
        f"{MAIN}.env": [{"name": "A", "value": "1"}, label("job-index") | {"name": "J"}],
        f"{MAIN}.args": ["--a=$(A)", "--job=$(J)", "$$(A)", "$(date)"],
    }
    assert read(make(changes)).spec.node_groups[1].args == ("--a=1", "--job=0", "$(A)", "$(date)")


def test_arguments_that_differ_between_nodes_become_node_args(make: Make, read: Read) -> None:
    changes = {
        f"{MAIN}.command": ["python", "train.py"],
        f"{MAIN}.args": ["--fast", "--rank=$(JOB_COMPLETION_INDEX)", "${rank}", "$$${rank}"],
    }
    group = read(make(changes)).spec.node_groups[1]
    assert (group.command, group.args) == (("python", "train.py"), ("--fast",))
    assert group.node_args == ("--rank=${index}", "$${rank}", "$$$${rank}")


def test_a_command_that_differs_between_nodes(make: Make, read: Read) -> None:
    changes = {
        f"{MAIN}.command": ["sh", "-c", "echo $(JOB_COMPLETION_INDEX) $0"],
        f"{MAIN}.args": ["x"],
    }
    group = read(make(changes)).spec.node_groups[1]
    assert (group.command, group.args) == (("sh", "-c"), None)
    assert group.node_args == ("echo ${index} $0", "x")


def test_a_program_that_differs_between_nodes_is_refused(make: Make, problems: Problems) -> None:
    data = make({f"{MAIN}.command": ["/bin/tool-$(JOB_COMPLETION_INDEX)", "x"]})
    assert problems(data) == [
        f"{MAIN}.command[0]: '/bin/tool-$(JOB_COMPLETION_INDEX)' differs from pod to pod, and a "
        "group has one program (let a shell find it: sh -c 'exec ...')"
    ]


def test_placeholders_of_muster_are_plain_text(make: Make, read: Read) -> None:
    env = [
        label("job-index") | {"name": "J"},
        {"name": "X", "value": "${rank}-$(J)"},
        {"name": "Y", "value": "${rank}"},
    ]
    group = read(make({f"{MAIN}.env": env})).spec.node_groups[1]
    assert (group.node_env["X"], group.env) == ("$${rank}-${replica}", {"Y": "${rank}"})


def test_variables_that_muster_sets_are_not_repeated(make: Make, read: Read) -> None:
    env = [label("job-index") | {"name": "MUSTER_REPLICA"}]
    group = read(make({f"{MAIN}.env": env})).spec.node_groups[1]
    assert group.node_env == {"JOB_COMPLETION_INDEX": "${index}"}
