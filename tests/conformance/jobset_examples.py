"""Every manifest in JobSet's folder of examples, by its path there (`site/static/examples`, commit
08dfbdf; its README links to some), and whether Muster runs it.

The manifests are rewritten: they have the same fields with the same meaning, and short programs.
`MUSTER_JOBSET_EXAMPLES` names a folder with JobSet's originals, to compare these with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: The path at which programs create marker folders, and the placeholder of the test's folder.
MARKS, FOLDER = "/marks", "@FOLDER@"
#: A program that fails the first three times it is started; it counts them with marker folders.
FAIL_THREE_TIMES = f"for n in 1 2 3; do mkdir {MARKS}/@NAME@-$n 2>/dev/null && exit 1; done; exit 0"
FAIL_ONCE = f"mkdir {MARKS}/@NAME@-once 2>/dev/null && exit 1; exit 0"
LONG = ("sleep", "1000")


class Runs(NamedTuple):
    """A JobSet that runs."""

    #: The `spec` of the manifest.
    spec: dict[str, Any]
    #: The final state of the run.
    state: str = "SUCCEEDED"
    #: The number of restarts of the run.
    restarts: int = 0
    #: Whether the README links to the example.
    linked: bool = False
    #: Labels and annotations.
    metadata: dict[str, Any] | None = None
    #: Further objects in the file.
    others: tuple[dict[str, Any], ...] = ()


class Refused(NamedTuple):
    """A JobSet that is refused."""

    spec: dict[str, Any]
    #: Text of the error.
    message: str


class Other(NamedTuple):
    """A file without a JobSet."""

    #: The kinds of the objects in the file.
    kinds: tuple[str, ...]


def job(name: str, *command: str, pods: int | None = None, **options: Any) -> dict[str, Any]:
    """A replicated Job. Options are fields of its container, or of the replicated Job, the Job or
    the pod if they start with `rj_`, `job_` or `pod_`."""
    objects: dict[str, dict[str, Any]] = {"rj": {}, "job": {}, "pod": {}, "container": {}}
    for key, value in options.items():
        prefix, _, rest = key.partition("_")
        target, field = (prefix, rest) if rest and prefix in objects else ("container", key)
        objects[target][field] = value
    if pods is not None:
        objects["job"] |= {"parallelism": pods, "completions": pods}
    main = {"name": name, "image": "busybox", **objects["container"]}
    if command:
        main["command"] = [*command]
    pod = {"containers": [main], **objects["pod"]}
    if MARKS in str(main):
        main["volumeMounts"] = [{"mountPath": MARKS, "name": "marks"}]
        pod["volumes"] = [{"name": "marks", "hostPath": {"path": FOLDER}}]
    return {
        "name": name,
        **objects["rj"],
        "template": {"spec": objects["job"] | {"template": {"spec": pod}}},
    }


def shell(name: str, script: str, pods: int | None = None, **options: Any) -> dict[str, Any]:
    return job(name, "bash", "-c", script, pods=pods, **options)


def quick(name: str, pods: int | None = None, **options: Any) -> dict[str, Any]:
    return job(name, "sleep", pods=pods, args=["0.1s"], **options)


RESTART = {
    "name": "RESTART",
    "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}
    },
}
NAMES = [
    {
        "name": "JOBSET_NAME",
        "valueFrom": {
            "fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/jobset-name']"}
        },
    },
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
INDEX = {
    "name": "RANK",
    "valueFrom": {
        "fieldRef": {
            "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        }
    },
}


def failing(policy: dict[str, Any], *, until: int | None = None, **leader: Any) -> dict[str, Any]:
    """A leader whose first pod fails, always or until the given number of restarts."""
    wait = "sleep 1000" if until is None else f'[ "$RESTART" -ge {until} ] || sleep 1000'
    fail = "exit 1" if until is None else f'[ "$RESTART" -ge {until} ] || exit 1'
    script = f'if [[ "$JOB_COMPLETION_INDEX" == "0" ]]; then {fail}; else {wait}; fi'
    common = {"rj_replicas": 1, "job_backoffLimit": 0, "env": [RESTART]}
    return {
        "failurePolicy": policy,
        "replicatedJobs": [
            shell("leader", script, 2, **common, **leader),
            shell("workers", wait, 2, **common),
        ],
    }


def by_job(rules: dict[str, str], workers: str) -> dict[str, Any]:
    """Separate rules for leaders and workers."""
    common = {
        "rj_replicas": 1,
        "job_backoffLimit": 0,
        "pod_restartPolicy": "Never",
        "pod_terminationGracePeriodSeconds": 0,
    }
    return {
        "failurePolicy": {
            "maxRestarts": 2,
            "rules": [
                {"name": f"r_{group}", "action": action, "targetReplicatedJobs": [f"rj-{group}"]}
                for group, action in rules.items()
            ],
        },
        "replicatedJobs": [
            job("rj-leader", "/bin/sh", "-c", pods=2, args=["exit 0"], **common),
            job(
                "rj-worker",
                *("/bin/sh", "-c"),
                pods=2,
                args=[f'[ "$JOB_COMPLETION_INDEX" = 1 ] && exit 0; {workers}'],
                **common,
            ),
        ],
    }


def in_place(**options: Any) -> dict[str, Any]:
    fields = {
        "rj_replicas": 2,
        "job_backoffLimit": 2**31 - 1,
        "job_podReplacementPolicy": "Failed",
        "pod_serviceAccountName": "jobset-in-place-restart",
        "pod_terminationGracePeriodSeconds": 0,
    }
    return {
        "failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
        "replicatedJobs": [job("rj", *options.pop("command", ()), pods=2, **fields, **options)],
    }


AGAIN = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
ONE_FAILS = f'[ "$HOSTNAME" = @NAME@-rj-0-0 ] || exit 0; {FAIL_ONCE}'
AGENT = {
    "name": "in-place-restart-agent",
    "image": "agent",
    "restartPolicy": "Always",
    "restartPolicyRules": AGAIN,
    "startupProbe": {
        "httpGet": {"path": "/barrier-is-down", "port": 8081},
        "failureThreshold": 600,
        "periodSeconds": 1,
    },
    "env": NAMES,
}


def gang(cpu: str, replicas: int, grace: int = 0, **options: Any) -> dict[str, Any]:
    return quick(
        "rj",
        2,
        rj_replicas=replicas,
        job_backoffLimit=0,
        pod_terminationGracePeriodSeconds=grace,
        pod_schedulingGroup={"podGroupName": "js-abc-workers-def"},
        resources={"requests": {"cpu": cpu}},
        **options,
    )


def preempting(priority: str) -> Runs:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": f"{priority}-group"},
        "spec": {"priorityClassName": priority},
    }
    workload = {**group, "kind": "Workload", "metadata": {"name": f"{priority}-workload"}}
    spec = {"replicatedJobs": [gang("3", 2, pod_priorityClassName=priority)]}
    return Runs(spec, others=(workload, group))


RULE = {"targetReplicatedJobs": ["leader"]}
IGNORE = "RestartJobSetAndIgnoreMaxRestarts"
ECHO = {"exec": {"command": ["echo", "ready"]}, "initialDelaySeconds": 1}
MASTER = [
    {"name": "MASTER_ADDR", "value": "@NAME@-workers-0-0.@NAME@"},
    {"name": "MASTER_PORT", "value": "3389"},
    {"name": "PYTHONUNBUFFERED", "value": "0"},
]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
MODEL = {"mountPath": "/workspace/model", "name": "initializer"}
QUEUE = {"kueue.x-k8s.io/queue-name": "multislice-queue"}
POOL = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}

EXAMPLES: dict[str, Runs | Refused | Other] = {
    "argo-workflow/rbac": Other(("ServiceAccount", "Role", "RoleBinding")),
    "argo-workflow/workflow": Other(("Workflow",)),
    "depends-on/depends-on": Runs(
        {
            "replicatedJobs": [
                shell("initializer", f"mkdir {MARKS}/@NAME@-initialized"),
                shell(
                    "launcher",
                    f"rmdir {MARKS}/@NAME@-initialized",
                    rj_dependsOn=[{"name": "initializer", "status": "Complete"}],
                    startupProbe=ECHO,
                ),
                shell(
                    "worker",
                    f"! [ -d {MARKS}/@NAME@-initialized ]",
                    4,
                    rj_dependsOn=[{"name": "launcher", "status": "Ready"}],
                ),
            ]
        }
    ),
    "depends-on/multiple-depends-on": Runs(
        {
            "replicatedJobs": [
                shell("dataset-initializer", f"mkdir {MARKS}/@NAME@-data"),
                shell("model-initializer", f"mkdir {MARKS}/@NAME@-model"),
                shell(
                    "worker",
                    f"ls -d {MARKS}/@NAME@-data {MARKS}/@NAME@-model",
                    4,
                    rj_dependsOn=[
                        {"name": "dataset-initializer", "status": "Complete"},
                        {"name": "model-initializer", "status": "Complete"},
                    ],
                ),
            ]
        }
    ),
    "failure-policy/failjobset-action": Runs(
        failing({"maxRestarts": 3, "rules": [{"action": "FailJobSet", **RULE}]}), "FAILED"
    ),
    "failure-policy/host-maintenance-event-model": Runs(
        failing(
            {
                "maxRestarts": 0,
                "rules": [
                    {"action": IGNORE, "onJobFailureReasons": ["PodFailurePolicy"]},
                    {"action": "RestartJobSet", **RULE},
                ],
            },
            pod_restartPolicy="Never",
            job_podFailurePolicy={
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]
            },
        ),
        "FAILED",
    ),
    "failure-policy/onjobfailurereasons-present": Runs(
        failing(
            {
                "maxRestarts": 3,
                "rules": [
                    {"action": IGNORE, **RULE, "onJobFailureReasons": ["BackoffLimitExceeded"]}
                ],
            },
            until=4,
        ),
        restarts=4,
    ),
    "failure-policy/onjobfailurereasons-present-podfailurepolicy": Runs(
        failing(
            {
                "maxRestarts": 3,
                "rules": [{"action": IGNORE, **RULE, "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            until=4,
            pod_restartPolicy="Never",
            job_podFailurePolicy={
                "rules": [
                    {
                        "action": "FailJob",
                        "onPodConditions": [],
                        "onExitCodes": {"containerName": "leader", "operator": "In", "values": [1]},
                    }
                ]
            },
        ),
        restarts=4,
    ),
    "failure-policy/restartjob-action": Runs(
        by_job({"leader": "RestartJobSet", "worker": "RestartJob"}, FAIL_ONCE), restarts=1
    ),
    "failure-policy/restartjobandignoremaxrestarts-action": Runs(
        by_job({"leader": IGNORE, "worker": "RestartJobAndIgnoreMaxRestarts"}, FAIL_THREE_TIMES),
        restarts=3,
    ),
    "failure-policy/restartjobset-action": Runs(
        failing({"maxRestarts": 3, "rules": [{"action": "RestartJobSet", **RULE}]}), "FAILED", 3
    ),
    "failure-policy/restartjobsetandignoremaxrestarts-action": Runs(
        failing({"maxRestarts": 3, "rules": [{"action": IGNORE, **RULE}]}, until=4), restarts=4
    ),
    "in-place-restart/jobset-main-container-mode": Runs(
        in_place(
            container_name="in-place-restart-agent",
            restartPolicy="Never",
            restartPolicyRules=[{**AGAIN[0], "action": "Restart"}],
            env=[*NAMES, {"name": "WORKER_COMMAND", "value": ONE_FAILS}],
        ),
        restarts=1,
    ),
    "in-place-restart/jobset-sidecar-container-mode": Runs(
        in_place(
            command=("/bin/bash", "-c", ONE_FAILS),
            pod_initContainers=[AGENT],
            restartPolicy="Never",
            restartPolicyRules=AGAIN,
            env=NAMES,
        ),
        restarts=1,
    ),
    "in-place-restart/service-account": Other(
        (
            *("ServiceAccount", "Role", "RoleBinding"),
            *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        )
    ),
    "prometheus-operator/prometheus": Other(
        ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Prometheus", "Service")
    ),
    "pytorch/cnn-mnist/mnist": Runs(
        {
            "replicatedJobs": [
                shell(
                    "workers",
                    'getent hosts $MASTER_ADDR && [ "$RANK" = "$JOB_COMPLETION_INDEX" ]',
                    4,
                    job_backoffLimit=0,
                    ports=[{"containerPort": 3389}],
                    env=[*MASTER, INDEX],
                )
            ]
        }
    ),
    "pytorch/resnet-cifar10/resnet": Runs(
        {
            "replicatedJobs": [
                shell(
                    "workers",
                    "getent hosts $MASTER_ADDR",
                    4,
                    job_backoffLimit=0,
                    ports=[{"containerPort": 3389}],
                    env=MASTER,
                )
            ]
        }
    ),
    "simple/coordinator": Runs(
        {
            "coordinator": {"replicatedJob": "driver", "jobIndex": 0, "podIndex": 0},
            "replicatedJobs": [
                quick("workers", 4, job_backoffLimit=0),
                quick("driver", 1, job_backoffLimit=0),
            ],
        }
    ),
    "simple/exclusive-placement": Runs(
        {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [quick("workers", 3, rj_replicas=3, job_backoffLimit=10)],
        },
        linked=True,
        metadata={"annotations": POOL},
    ),
    "simple/failure-policy": Runs(
        failing({"restartStrategy": "BlockingRecreate", "maxRestarts": 3}), "FAILED", 3
    ),
    "simple/group": Runs(
        {
            "replicatedJobs": [
                quick("rj-1", 2, rj_replicas=1, job_backoffLimit=0),
                quick("rj-2", 2, rj_replicas=1, rj_groupName="group-b", job_backoffLimit=0),
            ]
        }
    ),
    "simple/jobset-with-network": Runs(
        {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": "example",
                "publishNotReadyAddresses": True,
            },
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
            "replicatedJobs": [
                job("leader", *LONG, pods=1, rj_replicas=1, job_backoffLimit=0),
                shell(
                    "workers",
                    "getent hosts @NAME@-leader-0-0.example",
                    2,
                    rj_replicas=1,
                    job_backoffLimit=0,
                ),
            ],
        },
        linked=True,
    ),
    "simple/paralleljobs": Runs(
        {
            "replicatedJobs": [
                quick("workers", 4, job_backoffLimit=0),
                quick("driver", 1, job_backoffLimit=0),
            ]
        }
    ),
    "simple/success-policy": Runs(
        {
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
            "replicatedJobs": [
                job("leader", *LONG, pods=1, rj_replicas=1, job_backoffLimit=0),
                quick("workers", 2, rj_replicas=1, job_backoffLimit=0),
            ],
        },
        linked=True,
    ),
    "simple/ttl-after-finished": Runs(
        {
            "ttlSecondsAfterFinished": 600,
            "replicatedJobs": [quick("workers", 4, job_backoffLimit=0)],
        }
    ),
    "startup-policy/startup-driver-ready": Runs(
        {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [
                job(
                    "driver",
                    "sleep",
                    pods=1,
                    args=["3s"],
                    job_backoffLimit=0,
                    readinessProbe=ECHO,
                ),
                quick("workers", 4, job_backoffLimit=0),
            ],
        },
        linked=True,
    ),
    "tensorflow/mnist": Runs(
        {"replicatedJobs": [job("tensorflow", "python3", "-c", "", pods=2, job_backoffLimit=5)]}
    ),
    "tpu-multislice/kueue-config": Other(("ResourceFlavor", "ClusterQueue", "LocalQueue")),
    "tpu-multislice/v6e-jax-workload": Runs(
        {
            "failurePolicy": {"maxRestarts": 4},
            "replicatedJobs": [
                shell(
                    "slice",
                    "true",
                    4,
                    rj_replicas=2,
                    job_backoffLimit=0,
                    pod_hostNetwork=True,
                    pod_dnsPolicy="ClusterFirstWithHostNet",
                    pod_nodeSelector={
                        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                        "cloud.google.com/gke-tpu-topology": "4x4",
                    },
                    securityContext={"privileged": True},
                    resources={"limits": {"google.com/tpu": 4}},
                )
            ],
        },
        metadata={"labels": QUEUE, "annotations": POOL},
    ),
    "volume-claim-policy/single-pvc": Runs(
        {
            "volumeClaimPolicies": [
                {"templates": [{"metadata": {"name": "initializer"}, "spec": CLAIM}]},
                {
                    "templates": [{"metadata": {"name": "checkpoints"}, "spec": CLAIM}],
                    "retentionPolicy": {"whenDeleted": "Retain"},
                },
            ],
            "replicatedJobs": [
                shell("initializer", "echo model > /workspace/model/m", volumeMounts=[MODEL]),
                shell(
                    "node",
                    "cat /workspace/model/m > /workspace/checkpoints/$JOB_COMPLETION_INDEX",
                    3,
                    rj_dependsOn=[{"name": "initializer", "status": "Complete"}],
                    volumeMounts=[
                        MODEL,
                        {"mountPath": "/workspace/checkpoints", "name": "checkpoints"},
                    ],
                ),
            ],
        }
    ),
    "workload-aware-scheduling/dra/jobset": Refused(
        {
            "replicatedJobs": [
                quick(
                    "workers",
                    2,
                    rj_replicas=3,
                    job_backoffLimit=0,
                    pod_terminationGracePeriodSeconds=0,
                    pod_schedulingGroup={"podGroupName": "training-workers"},
                    pod_resourceClaims=[
                        {"name": "gpu", "resourceClaimTemplateName": "gpu-claim-template"}
                    ],
                    resources={"claims": [{"name": "gpu"}]},
                )
            ]
        },
        "resourceClaims: Muster has no devices to claim",
    ),
    "workload-aware-scheduling/dra/kind": Other(("Cluster",)),
    "workload-aware-scheduling/dra/podgroup": Other(("PodGroup",)),
    "workload-aware-scheduling/dra/resourceclaimtemplate": Other(("ResourceClaimTemplate",)),
    "workload-aware-scheduling/dra/workload": Other(("Workload",)),
    "workload-aware-scheduling/jobset": Runs({"replicatedJobs": [gang("4", 3)]}),
    "workload-aware-scheduling/kind": Other(("Cluster",)),
    "workload-aware-scheduling/podgroup": Other(("PodGroup",)),
    "workload-aware-scheduling/preemption/high-priority": Other(("PriorityClass",)),
    "workload-aware-scheduling/preemption/high-priority-jobset": preempting("high-priority"),
    "workload-aware-scheduling/preemption/low-priority": Other(("PriorityClass",)),
    "workload-aware-scheduling/preemption/low-priority-jobset": preempting("low-priority"),
    "workload-aware-scheduling/tas/jobset": Runs(
        {"failurePolicy": {"maxRestarts": 10}, "replicatedJobs": [gang("500m", 2)]}
    ),
    "workload-aware-scheduling/tas/podgroup": Other(("PodGroup",)),
    "workload-aware-scheduling/tas/workload": Other(("Workload",)),
    "workload-aware-scheduling/workload": Other(("Workload",)),
}


def name_of(example: str) -> str:
    """A unique name, short enough for the names of pods."""
    return f"example-{[*EXAMPLES].index(example)}"
