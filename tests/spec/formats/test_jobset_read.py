"""What a manifest means to Muster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from muster.spec.formats.jobset_read import Manifest
from muster.spec.models import Mount, NodeGroup, Resources, StartupProbe
from muster.spec.policies import Backoff, DependsOn, FailurePolicy, FailureRule, SuccessPolicy

Make = Callable[[dict[str, Any]], Any]
Read = Callable[[Any], Manifest]
Problems = Callable[[Any], list[str]]

JOB = "spec.replicatedJobs[1].template.spec"
POD = f"{JOB}.template.spec"
MAIN = f"{POD}.containers[0]"
MAX = 2**31 - 1
#: What a container writes into /tmp is its own, and gone when it starts again.
OWN_TMP = Mount(source="scratch:life/tmp", path="/tmp")


def workers(manifest: Manifest) -> NodeGroup:
    return manifest.spec.node_groups[-1]


def test_a_plain_manifest(make: Make, read: Read) -> None:
    spec = read(make({})).spec
    assert spec.name == "demo"
    assert spec.subdomain == "demo"
    assert spec.grace_period == 30
    assert spec.failure == FailurePolicy()
    assert spec.success == SuccessPolicy()
    assert spec.startup == "parallel"
    assert spec.node_groups == (
        NodeGroup(
            name="driver",
            nodes=1,
            command=("echo", "hello"),
            image="busybox",
            mounts=(OWN_TMP,),
            hostname="demo-driver-${replica}-${index}",
            node_env={"JOB_COMPLETION_INDEX": "${index}"},
        ),
        NodeGroup(
            name="workers",
            nodes=2,
            command=("echo", "hello"),
            image="busybox",
            mounts=(OWN_TMP,),
            hostname="demo-workers-${replica}-${index}",
            node_env={"JOB_COMPLETION_INDEX": "${index}"},
        ),
    )


#: Changes -> what the last group is besides.
GROUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "replicas": ({"spec.replicatedJobs[1].replicas": 3}, {"replicas": 3}),
    "Kubernetes retries": ({f"{JOB}.backoffLimit": None}, {"retries": 6}),
    "retries": ({f"{JOB}.backoffLimit": 2}, {"retries": 2}),
    "a deadline": ({f"{JOB}.activeDeadlineSeconds": 90}, {"timeout": 90.0}),
    "more at once than there are": ({f"{JOB}.parallelism": 9}, {"nodes": 2}),
    "one pod": ({f"{JOB}.parallelism": None, f"{JOB}.completions": None}, {"nodes": 1}),
    "no index": ({f"{JOB}.completionMode": "NonIndexed"}, {"node_env": {}}),
    "arguments": ({f"{MAIN}.args": ["a", "b"]}, {"args": ("a", "b")}),
    "a working directory": ({f"{MAIN}.workingDir": "/opt/x"}, {"working_dir": "/opt/x"}),
    "a page": (
        {f"{MAIN}.startupProbe": {"httpGet": {"port": 80, "path": "up"}}},
        {"startup_probe": StartupProbe(tcp=80, http="/up", period=10, timeout=1, threshold=3)},
    ),
    "the machine's own /tmp": (
        {
            f"{POD}.volumes": [{"name": "t", "hostPath": {"path": "/tmp"}}],
            f"{MAIN}.volumeMounts": [{"name": "t", "mountPath": "/tmp"}],
        },
        {"mounts": (Mount(source="/tmp", path="/tmp"),)},
    ),
    "dependencies": (
        {
            "spec.replicatedJobs[1].dependsOn": [
                {"name": "driver", "status": "Complete"},
            ]
        },
        {"depends_on": (DependsOn(group="driver", status="complete"),)},
    ),
    "limits": (
        {
            f"{MAIN}.resources.limits": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 1},
        },
        {"resources": Resources(cpus=1.5, memory=2 << 30, gpus=1)},
    ),
    "requests alone": ({f"{MAIN}.resources.requests": {"cpu": 4}}, {"resources": None}),
    "a startup probe": (
        {f"{MAIN}.startupProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 5}},
        {
            "startup_probe": StartupProbe(
                exec_=("true",), period=10, timeout=1, threshold=3, initial_delay=5
            )
        },
    ),
    "a file": (
        {f"{MAIN}.startupProbe": {"exec": {"command": ["test", "-e", "/up"]}, "periodSeconds": 1}},
        {"startup_probe": StartupProbe(file="/up", period=1, timeout=1, threshold=3)},
    ),
    "a readiness probe, which fails for ever": (
        {f"{MAIN}.readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 0}},
        {"startup_probe": StartupProbe(tcp=80, period=10, timeout=1, threshold=MAX)},
    ),
    "a port by name": (
        {
            f"{MAIN}.ports": [{"name": "web", "containerPort": 8080}],
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}},
        },
        {"startup_probe": StartupProbe(tcp=8080, period=10, timeout=1, threshold=MAX)},
    ),
    "both probes, alike": (
        {
            f"{MAIN}.startupProbe": {"tcpSocket": {"port": 80}},
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": 80}},
        },
        {"startup_probe": StartupProbe(tcp=80, period=10, timeout=1, threshold=3)},
    ),
    "volumes": (
        {
            f"{POD}.volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "sets", "hostPath": {"path": "/data", "type": "Directory"}},
                {"name": "kept", "persistentVolumeClaim": {"claimName": "mine"}},
                {"name": "far", "nfs": {"server": "box", "path": "/x", "readOnly": True}},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
            ],
            f"{MAIN}.volumeMounts": [
                {"name": "tmp", "mountPath": "/tmp/"},
                {"name": "sets", "mountPath": "/sets", "readOnly": True},
                {"name": "kept", "mountPath": "/kept"},
                {"name": "far", "mountPath": "/far"},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        },
        {
            "mounts": (
                Mount(source="scratch:life/tmp.volume", path="/tmp"),
                Mount(source="/data", path="/sets", read_only=True),
                Mount(source="volume:mine", path="/kept"),
                Mount(source="nfs://box/x", path="/far", read_only=True),
            )
        },
    ),
    "claims": (
        {
            "spec.volumeClaimPolicies": [
                {"templates": [{"metadata": {"name": "gone"}, "spec": {}}]},
                {
                    "templates": [{"metadata": {"name": "kept"}, "spec": {}}],
                    "retentionPolicy": {"whenDeleted": "Retain"},
                },
            ],
            f"{MAIN}.volumeMounts": [
                {"name": "gone", "mountPath": "/gone"},
                {"name": "kept", "mountPath": "/kept"},
            ],
        },
        {
            "mounts": (
                Mount(source="scratch:run/gone", path="/gone"),
                Mount(source="volume:kept-demo", path="/kept"),
                OWN_TMP,
            )
        },
    ),
}


@pytest.mark.shows("jobset/group-of-jobs", "jobset/multi-template")
@pytest.mark.parametrize("case", GROUPS)
def test_replicated_jobs_are_groups(case: str, make: Make, read: Read) -> None:
    changes, expected = GROUPS[case]
    group = workers(read(make(changes)))
    assert {name: getattr(group, name) for name in expected} == expected


def test_a_page_that_is_encrypted_is_asked_for_by_a_command(make: Make, read: Read) -> None:
    probe = {"httpGet": {"port": 80, "path": "up", "scheme": "HTTPS"}}
    made = workers(read(make({f"{MAIN}.readinessProbe": probe}))).startup_probe
    assert made is not None
    assert made.exec_ is not None
    assert made.exec_[0] == "python3"
    assert made.exec_[3:] == ("https", "80", "/up")


#: Changes -> what the job is besides.
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "suspended": ({"spec.suspend": True}, {"suspend": True}),
    "deleted later": ({"spec.ttlSecondsAfterFinished": 60}, {"ttl_after_finished": 60.0}),
    "at the end of its time": ({"spec.activeDeadlineSeconds": 9}, {"attempt_timeout": 9.0}),
    "in order": ({"spec.startupPolicy.startupPolicyOrder": "InOrder"}, {"startup": "in_order"}),
    "no names": ({"spec.network.enableDNSHostnames": False}, {"subdomain": None}),
    "other names": ({"spec.network.subdomain": "example"}, {"subdomain": "example"}),
    "labels": ({"metadata.labels": {"team": "a"}}, {"tags": {"team": "a"}}),
    "a generated name": ({"metadata": {"generateName": "demo-"}}, {"name": "demo"}),
    "described": (
        {"metadata.annotations": {"kubernetes.io/description": "For people."}},
        {"description": "For people."},
    ),
    "the longest time to end": (
        {f"{POD}.terminationGracePeriodSeconds": 45},
        {"grace_period": 45.0},
    ),
    "success of some": (
        {"spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]}},
        {"success": SuccessPolicy(groups=("workers",))},
    ),
    "success of any": (
        {"spec.successPolicy": {"operator": "Any"}},
        {"success": SuccessPolicy(when="any")},
    ),
}


@pytest.mark.parametrize("case", JOBS)
def test_the_jobset_is_the_job(case: str, make: Make, read: Read) -> None:
    changes, expected = JOBS[case]
    spec = read(make(changes)).spec
    assert {name: getattr(spec, name) for name in expected} == expected


def test_what_has_no_replicas_is_left_out(make: Make, read: Read) -> None:
    changes = {
        "spec.replicatedJobs[0].replicas": 0,
        "spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Complete"}],
        "spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver", "workers"]},
        "spec.failurePolicy": {
            "maxRestarts": 1,
            "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["driver"]}],
        },
    }
    manifest = read(make(changes))
    (group,) = manifest.spec.node_groups
    assert group.depends_on == ()
    assert manifest.spec.success.groups == ("workers",)
    assert manifest.spec.failure.rules == ()
    assert manifest.notes == (
        "driver has 0 replicas and is left out; nobody waits for it",
        "rule failurePolicyRule0 is left out: its replicated Jobs have 0 replicas",
    )


LIMIT = (
    "exit",
    "out_of_memory",
    "node_lost",
    "startup_timeout",
    "hang",
    "not_started",
    "output_lost",
)
CODES = ("exit", "out_of_memory")
REACHED = "Job has reached the specified backoff limit"
NEITHER_CODES_NOR_LOST = ("startup_timeout", "hang", "not_started", "output_lost")

#: A rule, the pod failure rules of the workers -> Muster's rules.
RULES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[FailureRule]]] = {
    "without a condition": (
        {"action": "FailJobSet"},
        [],
        [FailureRule(action="fail", name="failurePolicyRule0")],
    ),
    "about some": (
        {"name": "some", "action": "RestartJob", "targetReplicatedJobs": ["workers", "workers"]},
        [],
        [FailureRule(action="restart_replica", name="some", groups=("workers",))],
    ),
    "for free": (
        {"name": "free", "action": "RestartJobAndIgnoreMaxRestarts"},
        [],
        [FailureRule(action="restart_replica", name="free", count=False)],
    ),
    "all again, for free": (
        {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts"},
        [],
        [FailureRule(action="restart_run", name="free", count=False)],
    ),
    "a deadline": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        [],
        [FailureRule(action="fail", name="r.deadline", reasons=("deadline",))],
    ),
    "too many failed pods": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
        [],
        [FailureRule(action="fail", name="r.limit", reasons=LIMIT)],
    ),
    "a pod failure policy": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        [
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="fail",
                name="r.pods.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(2, 3),
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.lost",
                groups=("workers",),
                reasons=("node_lost",),
            ),
        ],
    ),
    "what a pod failure policy leaves": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
        [
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(action="fail", name="r.limit", groups=("driver",), reasons=LIMIT),
            FailureRule(
                action="fail",
                name="r.limit.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(7,),
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers.others",
                groups=("workers",),
                reasons=NEITHER_CODES_NOR_LOST,
            ),
        ],
    ),
    "everything but a deadline": (
        {
            "name": "r",
            "action": "FailJobSet",
            "onJobFailureReasons": ["BackoffLimitExceeded", "PodFailurePolicy"],
        },
        [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}],
        [FailureRule(action="fail", name="r.pods.limit", reasons=LIMIT)],
    ),
    "what can never happen": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["FailedIndexes"]},
        [],
        [],
    ),
    "messages": (
        {"name": "r", "action": "FailJobSet", "onJobFailureMessagePatterns": ["exit code 3"]},
        [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="restart_node",
                name="workers.ignored",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(7,),
                count=False,
                before_retries=True,
            ),
            FailureRule(
                action="fail",
                name="r.deadline",
                reasons=("deadline",),
                messages=("exit code 3",),
                text="Job was active longer than specified deadline",
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.1",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(3,),
                messages=("exit code 3",),
                text="Container main for pod default/demo-workers-${replica}-${index}-xxxxx failed "
                "with exit code ${exit_code} matching FailJob rule at index 1",
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.lost",
                groups=("workers",),
                reasons=("node_lost",),
                messages=("exit code 3",),
                text="Pod default/demo-workers-${replica}-${index}-xxxxx has condition "
                "DisruptionTarget matching FailJob rule at index 2",
            ),
            FailureRule(
                action="fail",
                name="r.limit",
                groups=("driver",),
                reasons=LIMIT,
                messages=("exit code 3",),
                text=REACHED,
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=tuple(code for code in range(1, 256) if code not in (3, 7)),
                messages=("exit code 3",),
                text=REACHED,
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers.others",
                groups=("workers",),
                reasons=NEITHER_CODES_NOR_LOST,
                messages=("exit code 3",),
                text=REACHED,
            ),
        ],
    ),
    "what is replaced and not counted": (
        {"name": "r", "action": "FailJobSet"},
        [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="restart_node",
                name="workers.ignored",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(3,),
                count=False,
                before_retries=True,
            ),
            FailureRule(
                action="restart_node",
                name="workers.ignored-lost",
                groups=("workers",),
                reasons=("node_lost",),
                count=False,
                before_retries=True,
            ),
            FailureRule(action="fail", name="r"),
        ],
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_failure_rules(case: str, make: Make, read: Read) -> None:
    rule, pods, expected = RULES[case]
    changes: dict[str, Any] = {"spec.failurePolicy": {"maxRestarts": 2, "rules": [rule]}}
    if pods:
        changes[f"{JOB}.podFailurePolicy.rules"] = pods
    failure = read(make(changes)).spec.failure
    assert failure == FailurePolicy(
        max_restarts=2,
        rules=tuple(expected),
        strategy="recreate",
        backoff=Backoff(initial=0, jitter=0),
    )


FAIL_JOB = [
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}},
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
]


def at_once(action: str, name: str, **more: Any) -> tuple[FailureRule, FailureRule]:
    """What ends a Job of the workers, whatever retries are left."""
    what: dict[str, Any] = {"groups": ("workers",), "before_retries": True, **more}
    return (
        FailureRule(action=action, name=name, reasons=CODES, exit_codes=(1, 2), **what),  # type: ignore[arg-type]
        FailureRule(action=action, name=f"{name}.lost", reasons=("node_lost",), **what),  # type: ignore[arg-type]
    )


def at_once_by_message() -> tuple[FailureRule, FailureRule]:
    """The same for a rule with a pattern: each with what the Job controller says of it."""
    codes, lost = at_once("fail", "s.pods.workers", messages=("x",))
    pod = "default/demo-workers-${replica}-${index}-xxxxx"
    by_code = f"Container main for pod {pod} failed with exit code ${{exit_code}}"
    by_condition = f"Pod {pod} has condition DisruptionTarget"
    number = [i for i, r in enumerate(FAIL_JOB) if "onExitCodes" in r and r["action"] == "FailJob"]
    end = " matching FailJob rule at index"
    return (
        replace(codes, name=f"s.pods.workers.{number[0]}", text=f"{by_code}{end} {number[0]}"),
        replace(lost, text=f"{by_condition}{end} {len(FAIL_JOB) - 1}"),
    )


#: A failure policy -> Muster's rules, where Jobs are retried; behind the one about what is ignored.
RETRIED: dict[str, tuple[dict[str, Any] | None, list[FailureRule]]] = {
    "no policy": (None, [*at_once("fail", "workers.at-once")]),
    "no restarts": ({"maxRestarts": 0}, [*at_once("fail", "workers.at-once")]),
    "restarts": ({"maxRestarts": 1}, [*at_once("restart_run", "workers.at-once")]),
    "a rule about everything": (
        {"rules": [{"name": "r", "action": "RestartJob"}]},
        [
            *at_once("restart_replica", "r.at-once.workers"),
            FailureRule(action="restart_replica", name="r"),
        ],
    ),
    "a rule about that": (
        {
            "maxRestarts": 1,
            "rules": [
                {
                    "name": "r",
                    "action": "RestartJobAndIgnoreMaxRestarts",
                    "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
                }
            ],
        },
        [
            FailureRule(
                action="restart_replica", name="r.deadline", reasons=("deadline",), count=False
            ),
            *at_once("restart_replica", "r.pods.workers", count=False),
        ],
    ),
    "a rule about both": (
        {
            "rules": [
                {
                    "name": "r",
                    "action": "RestartJob",
                    "onJobFailureReasons": ["PodFailurePolicy", "BackoffLimitExceeded"],
                }
            ]
        },
        [
            *at_once("restart_replica", "r.at-once.workers"),
            FailureRule(action="restart_replica", name="r.pods.limit", reasons=LIMIT),
        ],
    ),
    "a rule about others": (
        {
            "maxRestarts": 2,
            "rules": [
                {"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["driver"]},
                {
                    "name": "s",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                    "onJobFailureMessagePatterns": ["x"],
                },
            ],
        },
        [
            FailureRule(action="fail", name="r", groups=("driver",)),
            *at_once_by_message(),
            *at_once("restart_run", "workers.at-once"),
        ],
    ),
}


@pytest.mark.parametrize("case", RETRIED)
def test_pod_failure_policies_come_before_retries(case: str, make: Make, read: Read) -> None:
    policy, expected = RETRIED[case]
    changes: dict[str, Any] = {
        f"{JOB}.podFailurePolicy.rules": FAIL_JOB,
        f"{JOB}.backoffLimit": None,
    }
    if policy is not None:
        changes["spec.failurePolicy"] = policy
    manifest = read(make(changes))
    ignored, *rules = manifest.spec.failure.rules
    assert (ignored.name, ignored.before_retries) == ("workers.ignored", True)
    assert rules == expected
    assert manifest.spec.node_groups[1].retries == 6


def test_long_names_of_rules_may_become_longer(make: Make, read: Read) -> None:
    rule = {"name": "n" * 128, "action": "FailJobSet"}
    changes = {
        f"{JOB}.podFailurePolicy.rules": FAIL_JOB,
        f"{JOB}.backoffLimit": 1,
        "spec.failurePolicy.rules": [rule],
    }
    names = [rule.name for rule in read(make(changes)).spec.failure.rules]
    assert f"{'n' * 128}.at-once.workers.lost" in names


def test_rules_that_are_never_reached_are_left_out(make: Make, read: Read) -> None:
    rules = [
        {"action": "RestartJobSet", "targetReplicatedJobs": ["driver", "workers"]},
        {"action": "FailJobSet", "targetReplicatedJobs": ["workers"]},
    ]
    manifest = read(make({"spec.failurePolicy.rules": rules}))
    assert len(manifest.spec.failure.rules) == 1
    assert manifest.notes == (
        "rule failurePolicyRule1 is left out: earlier ones decide all it fits",
    )


def test_the_end_of_the_whole_time_is_final(make: Make, read: Read) -> None:
    changes = {"spec.activeDeadlineSeconds": 60, "spec.failurePolicy.maxRestarts": 3}
    (rule,) = read(make(changes)).spec.failure.rules
    assert (rule.action, rule.reasons) == ("fail", ("deadline",))


IN_PLACE = {
    "spec.replicatedJobs[0]": None,
    "spec.failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
    "spec.replicatedJobs[0].template.spec.backoffLimit": MAX,
    "spec.replicatedJobs[0].template.spec.podReplacementPolicy": "Failed",
}
FIRST = "spec.replicatedJobs[0].template.spec.template.spec"


def test_the_agent_that_runs_the_program_is_replaced(make: Make, read: Read) -> None:
    agent = {
        "name": "in-place-restart-agent",
        "image": "<fill me in>",
        "restartPolicy": "Never",
        "restartPolicyRules": [],
        "env": [
            {"name": "JOBSET_NAME", "value": "x"},
            {"name": "MINE", "value": "1"},
            {"name": "WORKER_COMMAND", "value": "echo $MINE"},
        ],
    }
    manifest = read(make({**IN_PLACE, f"{FIRST}.containers": [agent]}))
    (group,) = manifest.spec.node_groups
    assert group.command == ("bash", "-c", "echo $MINE")
    assert group.env == {"MINE": "1"}
    assert group.image is None
    assert group.retries == 0
    assert manifest.spec.failure.strategy == "in_place"
    assert manifest.notes == (
        "JobSet's in-place restart agent is not run: Muster restarts programs in place itself",
    )


def test_the_agent_beside_the_program_is_replaced(make: Make, read: Read) -> None:
    agent = {
        "name": "agent",
        "image": "registry/in-place-restart-agent:v1",
        "restartPolicy": "Always",
        "startupProbe": {"httpGet": {"port": 8081, "path": "/barrier-is-down"}},
    }
    again = [{"action": "RestartAllContainers"}]
    changes = {
        **IN_PLACE,
        f"{FIRST}.initContainers": [agent],
        f"{FIRST}.containers[0].restartPolicyRules": again,
    }
    (group,) = read(make(changes)).spec.node_groups
    assert group.command == ("echo", "hello")
    assert group.startup_probe is None


def test_in_place_without_an_agent_is_said(make: Make, read: Read) -> None:
    assert read(make(IN_PLACE)).notes == (
        "InPlaceRestart needs no agent here; on Kubernetes, nothing would restart without one",
    )


#: Changes -> what is said before the run starts.
NOTES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "about one group": (
        {f"{POD}.nodeSelector": {"a": "b"}},
        ["nodeSelector (workers) is not used: Muster chooses where nodes run"],
    ),
    "about all groups": (
        {
            f"{POD}.hostNetwork": True,
            "spec.replicatedJobs[0].template.spec.template.spec.hostNetwork": True,
        },
        ["hostNetwork is not used: the engine decides how nodes are kept apart"],
    ),
    "nothing to say of what says nothing": ({f"{POD}.tolerations": [], f"{POD}.affinity": {}}, []),
    "what a cluster wrote": (
        {
            "status": {"restarts": 1},
            "metadata.uid": "x",
            "metadata.managedFields": [{"manager": "kubectl"}],
            "metadata.annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        [],
    ),
    "queues and topologies": (
        {
            "metadata.labels": {"kueue.x-k8s.io/queue-name": "q"},
            "metadata.annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"},
        },
        [
            "label kueue.x-k8s.io/queue-name is kept, and not used here: a run starts at once",
            "annotation alpha.jobset.sigs.k8s.io/exclusive-topology is kept, and not used here: "
            "all nodes are on one machine",
        ],
    ),
    "unlike times to end": (
        {f"{POD}.terminationGracePeriodSeconds": 5},
        [
            "terminationGracePeriodSeconds differs, and is 30 for all: Muster has one for the run",
        ],
    ),
    "requests and other resources": (
        {
            f"{MAIN}.resources": {
                "limits": {"google.com/tpu": 4, "cpu": 1},
                "requests": {"cpu": 1, "memory": "1Gi"},
            }
        },
        [
            "requests.memory (workers) is not used: nothing is set aside, only limits count",
            "limits.google.com/tpu (workers) is not used: Muster gives out cpu, memory and GPUs",
        ],
    ),
    "an existing claim": (
        {
            f"{POD}.volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}],
            f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        ["claim mine is the folder MUSTER_HOME/volumes/mine"],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_notes(case: str, make: Make, read: Read) -> None:
    changes, expected = NOTES[case]
    assert list(read(make(changes)).notes) == expected


#: Changes -> what is refused.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a field of nobody": (
        {f"{JOB}.foo": 1},
        [f"{JOB}.foo: Muster does not read this field (remove it if the program can do without)"],
    ),
    "a typing mistake": (
        {"spec.replicatedJobs[1].replica": 2},
        [
            "spec.replicatedJobs[1].replica: Muster does not read this field "
            '(did you mean "replicas"?)'
        ],
    ),
    "a field one level too high": (
        {"spec.replicatedJobs[1].completions": 2},
        [
            "spec.replicatedJobs[1].completions: Muster does not read this field "
            "(it belongs to the Job's spec (template.spec): check the indentation)"
        ],
    ),
    "no command": (
        {f"{MAIN}.command": None},
        [
            f"{MAIN}.command: is missing: what the image would run is not known here "
            "(write what is to run)"
        ],
    ),
    "a second container": (
        {f"{POD}.containers[1]": {"name": "logs", "command": ["tail"]}},
        [
            f"{POD}.containers[1]: Muster runs one container of a pod, and logs is another "
            "(make it a replicated Job of its own)"
        ],
    ),
    "init containers": (
        {
            f"{POD}.initContainers": [
                {"name": "fetch", "command": ["curl"]},
                {"name": "proxy", "command": ["proxy"], "restartPolicy": "Always"},
            ]
        },
        [
            f"{POD}.initContainers[0]: Muster runs no init containers, and fetch is one (do its "
            "work first in the command, or in a replicated Job that this one dependsOn)",
            f"{POD}.initContainers[1]: Muster runs no sidecars, and proxy is one (start it in the "
            "command, or make it a replicated Job of its own)",
        ],
    ),
    "secrets": (
        {
            f"{MAIN}.env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
            ],
            f"{POD}.volumes": [{"name": "s", "secret": {"secretName": "s"}}],
        },
        [
            f"{MAIN}.env[0].valueFrom.secretKeyRef: Muster has no ConfigMaps and Secrets "
            "(write the value here, or give it to the run with --env)",
            f"{POD}.volumes[0].secret: Muster has no ConfigMaps and Secrets "
            "(put what is in it into a file, and its folder into a hostPath volume)",
        ],
    ),
    "probes": (
        {
            f"{MAIN}.livenessProbe": {"exec": {"command": ["true"]}},
            f"{MAIN}.startupProbe": {"grpc": {"port": 1}},
            f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}, "successThreshold": 2},
        },
        [
            f"{MAIN}.livenessProbe: Muster does not end nodes that run and do not answer "
            "(remove it; a spec of Muster's own can say hang_timeout)",
            f"{MAIN}.startupProbe.grpc: Muster cannot ask a gRPC service "
            "(use tcpSocket, or exec with a client of it)",
            f"{MAIN}.readinessProbe: looks at something else than the startupProbe, and Muster has "
            "one probe (keep the one that says when others may start)",
        ],
    ),
    "a port nobody named": (
        {f"{MAIN}.readinessProbe": {"tcpSocket": {"port": "web"}, "successThreshold": 2}},
        [
            f"{MAIN}.readinessProbe.successThreshold: is 2: to Muster, one success is enough "
            "(remove it)",
            f"{MAIN}.readinessProbe.tcpSocket.port: 'web' is no port of the container "
            "(write its number)",
        ],
    ),
    "volumes": (
        {
            f"{POD}.volumes": [{"name": "a", "hostPath": {"path": "x"}}, {"name": "a"}],
            f"{MAIN}.volumeMounts": [
                {"name": "b", "mountPath": "/b"},
                {"name": "a", "mountPath": "a"},
                {"name": "a", "mountPath": "/a", "subPath": "x"},
            ],
        },
        [
            f"{POD}.volumes[0].hostPath.path: 'x' is no absolute path (write it from / on)",
            f"{POD}.volumes[1].name: 'a' is given twice "
            "(it is there already, as volumes[0]: remove one)",
            f"{MAIN}.volumeMounts[0].name: there is no volume 'b' (there are: a)",
            f"{MAIN}.volumeMounts[1].mountPath: 'a' is no absolute path (write /a)",
            f"{MAIN}.volumeMounts[2].subPath: Muster shows volumes as a whole "
            "(mount the volume, and use the path below it)",
        ],
    ),
    "quantities": (
        {f"{MAIN}.resources.limits": {"cpu": "much", "nvidia.com/gpu": "500m"}},
        [
            f"{MAIN}.resources.limits.cpu: 'much' is not a quantity (write 500m, 2 or 4Gi)",
            f"{MAIN}.resources.limits.nvidia.com/gpu: 0.500 is no whole number (round it)",
        ],
    ),
    "placeholders": (
        {f"{MAIN}.image": "gcr.io/<project>/x", f"{MAIN}.command": ["echo", "<message>"]},
        [
            f"{MAIN}.image: 'gcr.io/<project>/x' was not filled in (write what belongs there)",
            f"{MAIN}.command[1]: '<message>' was not filled in (write what belongs there)",
        ],
    ),
    "numbers as text": (
        {f"{MAIN}.env": [{"name": "PORT", "value": 80}]},
        [f'{MAIN}.env[0].value: must be text, not 80 (put it in quotes: "80")'],
    ),
    "a name no variable can have": (
        {f"{MAIN}.env": [{"name": "a-b", "value": "x"}]},
        [
            f"{MAIN}.env.a-b: 'a-b' cannot name an environment variable "
            "(use letters, digits and _, not starting with a digit)"
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(case: str, make: Make, problems: Problems) -> None:
    changes, expected = REFUSED[case]
    assert sorted(problems(make(changes))) == sorted(expected)


def test_lines_are_told(tmp_path: Any) -> None:
    from pathlib import Path

    from muster.errors import InvalidInput
    from muster.spec.formats.manifests import read_manifests

    path = Path(tmp_path) / "two.yaml"
    one = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\n"
        "kind: JobSet\n"
        "metadata: {name: NAME}\n"
        "spec:\n"
        "  replicatedJobs:\n"
        "  - name: a\n"
        "    replikas: 2\n"
        "    template: {spec: {template: {spec: {containers: [{name: c, command: [x]}]}}}}\n"
    )
    path.write_text("# first\n" + one.replace("NAME", "one") + "---\n" + one.replace("NAME", "two"))
    with pytest.raises(InvalidInput) as caught:
        read_manifests(path)
    assert [p.source for p in caught.value.problems] == [f"{path}:8", f"{path}:17"]
