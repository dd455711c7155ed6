"""The Jobs in the examples of Kubernetes' documentation about Jobs, by their paths there
(`content/en/examples` of kubernetes/website), and how they end.

The manifests are rewritten: they have the same fields with the same meaning, and short programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

#: A pod that is lost with its node.
LOST = -1
#: Index -> exit codes of its pods, the last for all later ones. Others succeed.
Codes = Mapping[int, Sequence[int]]


class Example(NamedTuple):
    """A Job that runs."""

    #: The `spec` of the manifest.
    spec: dict[str, Any]
    #: Complete or Failed.
    condition: str
    #: Kubernetes: status.completedIndexes and status.failedIndexes.
    completed: str
    failed: str = ""
    #: How its pods end.
    codes: Codes = MappingProxyType({})
    #: How often pods of each index start.
    starts: Sequence[int] = ()
    #: Whether the local engine runs it: not if a node has to be lost, nor other containers.
    runs: bool = True


class Refused(NamedTuple):
    """A Job that is refused."""

    spec: dict[str, Any]
    #: Texts of the problems.
    messages: tuple[str, ...]
    name: str | None = "example"


def name_of(example: str) -> str:
    """The name of an example's Job when all run at once."""
    return example.replace("/", "-")


def job(script: str, *, pod: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The spec of a Job whose pods run a shell script."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "containers": [container], **(pod or {})}
    return {**fields, "template": {"metadata": {"name": "example"}, "spec": spec}}


def indexed(completions: int, parallelism: int, **fields: Any) -> dict[str, Any]:
    numbers = {"completions": completions, "parallelism": parallelism}
    return {**numbers, "completionMode": "Indexed", **fields}


def exit_rule(action: str, code: int) -> dict[str, Any]:
    codes = {"containerName": "main", "operator": "In", "values": [code]}
    return {"action": action, "onExitCodes": codes}


def fail_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": list(rules)}}


IGNORE_LOST = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
INDEX = "$JOB_COMPLETION_INDEX"
ODD = f"exit $(( 1 - {INDEX} % 2 ))"
#: The names of the pods resolve, below the subdomain.
FIND = (
    f'test "${{HOSTNAME##*-}}" = {INDEX} || exit 1;'
    " for n in 0 1 2; do getent hosts ${HOSTNAME%-*}-$n.headless-svc || exit 1; done"
)
_INPUT = {"volumeMounts": [{"name": "input", "mountPath": "/input"}]}
_FILTER = {"name": "worker", "image": "busybox", "command": ["rev", "/input/data.txt"], **_INPUT}
#: Where the volume is, also if nothing can be mounted.
_CHECK_INDEX = f'test "$(cat $MUSTER_MOUNT_INPUT/data.txt)" = {INDEX}'
_INDEX_FILE = {
    "path": "data.txt",
    "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"},
}
_VOLUMES = [{"name": "input", "emptyDir": {}}]
_WITH_INPUT = {"containers": [_FILTER], "volumes": _VOLUMES}
_SIDECAR = {**_FILTER, "name": "logs", "restartPolicy": "Always"}
_NO_COMMAND = {"containers": [{"name": "c", "image": "job-wq"}]}

EXAMPLES: dict[str, Example | Refused] = {
    "controllers/job": Example(job("echo 3.14159", backoffLimit=4), "Complete", "0"),
    "application/job/rabbitmq/job": Example(
        job("echo one item", completions=8, parallelism=2, pod={"restartPolicy": "OnFailure"}),
        "Complete",
        "0-7",
        starts=[1] * 8,
    ),
    "application/job/redis/job": Example(
        job("echo items", parallelism=2, pod={"restartPolicy": "OnFailure"}),
        "Complete",
        "0-1",
        starts=[1, 1],
    ),
    "application/job/job-tmpl": Example(job("echo Processing item apple"), "Complete", "0"),
    "tasks/job/job-with-pod-to-pod-communication": Example(
        job(FIND, pod={"subdomain": "headless-svc"}, **indexed(3, 3)), "Complete", "0-2"
    ),
    "controllers/job-backoff-limit-per-index-example": Example(
        job(ODD, **indexed(10, 3, backoffLimitPerIndex=1, maxFailedIndexes=5)),
        "Failed",
        "1,3,5,7,9",
        "0,2,4,6,8",
        dict.fromkeys(range(0, 10, 2), (1,)),
        [2, 1] * 5,
    ),
    "controllers/job-backoff-limit-per-index-failindex": Example(
        job(
            f"case {INDEX} in 0) exit 1;; 1) exit 42;; esac",
            **indexed(4, 2, backoffLimitPerIndex=1, backoffLimit=6),
            **fail_rules(exit_rule("FailIndex", 42)),
        ),
        "Failed",
        "2-3",
        "0-1",
        {0: (1,), 1: (42,)},
        [2, 1, 1, 1],
    ),
    "controllers/job-pod-failure-policy-example": Example(
        job(
            "exit 42",
            completions=12,
            parallelism=3,
            backoffLimit=6,
            **fail_rules(exit_rule("FailJob", 42), IGNORE_LOST),
        ),
        "Failed",
        "",
        "0",
        dict.fromkeys(range(12), (42,)),
        [1, 1, 1] + [0] * 9,
    ),
    "controllers/job-pod-failure-policy-failjob": Example(
        job(
            "exit 42",
            completions=8,
            parallelism=2,
            backoffLimit=6,
            **fail_rules(exit_rule("FailJob", 42)),
        ),
        "Failed",
        "",
        "0",
        dict.fromkeys(range(8), (42,)),
        [1, 1] + [0] * 6,
    ),
    "controllers/job-pod-failure-policy-ignore": Example(
        job("exit 0", completions=4, parallelism=2, backoffLimit=0, **fail_rules(IGNORE_LOST)),
        "Complete",
        "0-3",
        codes={0: (LOST, 0), 3: (LOST, LOST, 0)},
        starts=[2, 1, 1, 3],
        runs=False,
    ),
    "controllers/job-success-policy": Example(
        job(
            f"test {INDEX} = 2 || sleep 100",
            successPolicy={"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 1}]},
            **indexed(10, 10),
        ),
        "Complete",
        "2",
        codes={0: (1,), 1: (1,)},
    ),
    "application/job/indexed-job": Example(
        job(
            "",
            pod={"initContainers": [{**_FILTER, "name": "input"}], **_WITH_INPUT},
            **indexed(5, 3),
        ),
        "Complete",
        "0-4",
        runs=False,
    ),
    "application/job/indexed-job-vol": Example(
        job(
            "",
            pod={
                "containers": [{**_FILTER, "command": ["sh", "-c", _CHECK_INDEX]}],
                "volumes": [{"name": "input", "downwardAPI": {"items": [_INDEX_FILE]}}],
            },
            **indexed(5, 3),
        ),
        "Complete",
        "0-4",
    ),
    "application/job/job-sidecar": Example(
        job("", pod={"initContainers": [_SIDECAR], **_WITH_INPUT}), "Complete", "0", runs=False
    ),
    "application/job/job-sidecar-legacy": Example(
        job("", pod={"containers": [_FILTER, {**_FILTER, "name": "logs"}], "volumes": _VOLUMES}),
        "Complete",
        "0",
        runs=False,
    ),
    "application/job/rabbitmq/job, with an image's own command": Example(
        job("", completions=8, parallelism=2, pod=_NO_COMMAND), "Complete", "0-7", runs=False
    ),
    "controllers/job-pod-failure-policy-config-issue": Refused(
        job(
            "",
            completions=8,
            parallelism=2,
            **fail_rules({"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]}),
        ),
        ("rules[0].onPodConditions[0].type: Muster does not know 'ConfigIssue'",),
    ),
    "controllers/job-success-policy-example": Refused(
        job("", pod={"restartPolicy": None}, **indexed(10, 10)),
        ("metadata.name: is missing", "spec.template.spec.restartPolicy: is missing"),
        name=None,
    ),
}


def manifest(spec: dict[str, Any], name: str | None = "example") -> dict[str, Any]:
    metadata = {} if name is None else {"name": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
