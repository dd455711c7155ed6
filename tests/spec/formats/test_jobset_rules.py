"""What JobSet's webhook refuses, and what it lets pass and should not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

JOB = "spec.replicatedJobs[1].template.spec"
POD = f"{JOB}.template.spec"
RULES = "spec.failurePolicy.rules"
MAX = 2**31 - 1
CLAIM = {"metadata": {"name": "data"}, "spec": {}}

#: What is changed about a manifest that is right -> what is said of it.
BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no name": (
        {"metadata.name": None},
        ["metadata.name: is missing (every JobSet has a name)"],
    ),
    "a name that is no label": (
        {"metadata.name": "My_Set"},
        [
            "metadata.name: 'My_Set' cannot name a JobSet "
            "(use lower-case letters, digits and -, from a letter to a letter or digit)"
        ],
    ),
    "a Job with too long a name": (
        {"metadata.name": "a" * 56},
        [
            "spec.replicatedJobs[0].name: its Job 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "aaaaaaa...' would have a name of 65 characters (63 are allowed: shorten it, or the "
            "JobSet's name)",
            "spec.replicatedJobs[1].name: its Job 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "aaaaaaa...' would have a name of 66 characters (63 are allowed: shorten it, or the "
            "JobSet's name)",
        ],
    ),
    "a pod with too long a name": (
        {"metadata.name": "a" * 46},
        [
            "spec.replicatedJobs[1].name: its pod 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-w"
            "orkers-...' would have a name of 64 characters (63 are allowed: shorten it, or the "
            "JobSet's name)",
        ],
    ),
    "two of one name": (
        {"spec.replicatedJobs[1].name": "driver"},
        [
            "spec.replicatedJobs[1].name: 'driver' is given twice "
            "(it is there already, as replicatedJobs[0]: remove one)"
        ],
    ),
    "a group that is no label": (
        {"spec.replicatedJobs[1].groupName": "Group"},
        [
            "spec.replicatedJobs[1].groupName: 'Group' cannot name a group "
            "(use lower-case letters, digits and -, from a letter to a letter or digit)"
        ],
    ),
    "a subdomain with a dot": (
        {"spec.network.subdomain": "a.b"},
        [
            "spec.network.subdomain: 'a.b' cannot name a subdomain "
            "(use lower-case letters, digits and -, from a letter to a letter or digit)"
        ],
    ),
    "no replicated Jobs": (
        {"spec.replicatedJobs": []},
        [
            "spec.replicatedJobs: there is none, and a JobSet without never finishes (add one)",
        ],
    ),
    "nothing that runs": (
        {"spec.replicatedJobs[0].replicas": 0, "spec.replicatedJobs[1].replicas": 0},
        [
            "spec.replicatedJobs: all have 0 replicas: nothing would start, and nothing finish "
            "(give one of them a replica)"
        ],
    ),
    "negative replicas": (
        {"spec.replicatedJobs[1].replicas": -1},
        ["spec.replicatedJobs[1].replicas: must be at least 0, not -1"],
    ),
    "more pods than can be counted": (
        {
            "spec.replicatedJobs[1].replicas": 70000,
            f"{JOB}.parallelism": 70000,
            f"{JOB}.completions": 70000,
        },
        [
            "spec.replicatedJobs[1].replicas: 70,000 replicas of 70,000 pods each "
            "(a replicated Job can have 2,147,483,647 pods)"
        ],
    ),
    "somebody else's": (
        {"spec.managedBy": "example.com/other"},
        [
            "spec.managedBy: it is left to example.com/other, and Muster would not be asked "
            "(remove it to have Muster run it)"
        ],
    ),
    "nobody's": (
        {"spec.managedBy": "other"},
        ["spec.managedBy: 'other' is no controller's name (they look like example.com/name)"],
    ),
    "the first depends on others": (
        {"spec.replicatedJobs[0].dependsOn": [{"name": "workers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[0].dependsOn: the first replicated Job has nothing before it "
            "(remove it)"
        ],
    ),
    "a dependency on itself": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "workers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[1].dependsOn[0].name: workers would wait for itself, for ever "
            "(remove it)"
        ],
    ),
    "a dependency on what comes later": (
        {
            "spec.replicatedJobs[2]": {
                "name": "last",
                "template": {
                    "spec": {
                        "template": {"spec": {"containers": [{"name": "c", "command": ["true"]}]}}
                    }
                },
            },
            "spec.replicatedJobs[1].dependsOn": [{"name": "last", "status": "Complete"}],
        },
        [
            "spec.replicatedJobs[1].dependsOn[0].name: last comes later in the list, and would "
            "have to be there before (move it before workers)"
        ],
    ),
    "a dependency on nobody": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "drivers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[1].dependsOn[0].name: there is no replicated Job 'drivers' "
            '(did you mean "driver"?)'
        ],
    ),
    "an unknown status": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Completed"}]},
        [
            "spec.replicatedJobs[1].dependsOn[0].status: cannot be 'Completed' "
            '(did you mean "Complete"?)'
        ],
    ),
    "six dependencies": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Ready"}] * 6},
        [
            "spec.replicatedJobs[1].dependsOn: there are 6 (5 are allowed)",
            *(
                f"spec.replicatedJobs[1].dependsOn[{number}].name: 'driver' is given twice "
                "(it is there already, as dependsOn[0]: remove one)"
                for number in range(1, 6)
            ),
        ],
    ),
    "two ways to say the order": (
        {
            "spec.startupPolicy.startupPolicyOrder": "InOrder",
            "spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Ready"}],
        },
        [
            "spec.replicatedJobs[1].dependsOn: stands beside startupPolicy InOrder, which says all "
            "there is about the order (keep one; dependsOn is the newer of them)"
        ],
    ),
    "an unknown success target": (
        {"spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["worker"]}},
        [
            "spec.successPolicy.targetReplicatedJobs[0]: there is no replicated Job 'worker' "
            '(did you mean "workers"?)'
        ],
    ),
    "success of what does not run": (
        {
            "spec.replicatedJobs[1].replicas": 0,
            "spec.successPolicy": {"operator": "Any", "targetReplicatedJobs": ["workers"]},
        },
        [
            "spec.successPolicy.targetReplicatedJobs: all of these have 0 replicas: there is no "
            "success to wait for (name one that runs)"
        ],
    ),
    "failure rules": (
        {
            RULES: [
                {"name": "1st", "action": "FailJobSet", "targetReplicatedJobs": ["worker"]},
                {"name": "again", "action": "Restart"},
                {
                    "name": "again",
                    "action": "RestartJobSet",
                    "onJobFailureReasons": ["DeadlineExceded"],
                    "onJobFailureMessagePatterns": ["(", "fine"],
                },
                {"action": "FailJobSet", "name": "r" * 129},
            ]
        },
        [
            f"{RULES}[0].name: '1st' cannot name a rule "
            "(use letters, digits and _ , : from a letter to a letter, digit or _)",
            f"{RULES}[0].targetReplicatedJobs[0]: there is no replicated Job 'worker' "
            '(did you mean "workers"?)',
            f"{RULES}[1].action: cannot be 'Restart' (did you mean \"RestartJob\"?)",
            f"{RULES}[2].name: 'again' is the name of {RULES}[1], too (names are unique)",
            f"{RULES}[2].onJobFailureMessagePatterns[0]: '(' is no regular expression: "
            "missing ) (the syntax is RE2's: https://github.com/google/re2/wiki/Syntax)",
            f"{RULES}[2].onJobFailureReasons[0]: cannot be 'DeadlineExceded' "
            '(did you mean "DeadlineExceeded"?)',
            f"{RULES}[3].name: has 129 characters (128 are allowed)",
        ],
    ),
    "failure rules that can be read": (
        {
            RULES: [
                {"name": "1st", "action": "FailJobSet", "targetReplicatedJobs": ["worker"]},
                {"name": "again", "action": "RestartJobSet"},
                {
                    "name": "again",
                    "action": "RestartJobSet",
                    "onJobFailureMessagePatterns": ["(", "fine"],
                },
                {"action": "FailJobSet", "name": "r" * 129},
            ]
        },
        [
            f"{RULES}[0].name: '1st' cannot name a rule "
            "(use letters, digits and _ , : from a letter to a letter, digit or _)",
            f"{RULES}[0].targetReplicatedJobs[0]: there is no replicated Job 'worker' "
            '(did you mean "workers"?)',
            f"{RULES}[2].name: 'again' is the name of {RULES}[1], too (names are unique)",
            f"{RULES}[2].onJobFailureMessagePatterns[0]: '(' is no regular expression: "
            "missing ) (the syntax is RE2's: https://github.com/google/re2/wiki/Syntax)",
            f"{RULES}[3].name: has 129 characters (128 are allowed)",
        ],
    ),
    "too many Jobs to restart one by one": (
        {
            "spec.replicatedJobs[0].replicas": 1025,
            RULES: [{"action": "RestartJob"}],
        },
        [
            "spec.replicatedJobs[0].replicas: 1,025 replicas, and a rule with the action "
            "RestartJob (with such a rule, a replicated Job can have 1024)"
        ],
    ),
    "in place, without what it needs": (
        {
            "spec.replicatedJobs[0]": None,
            "spec.failurePolicy.restartStrategy": "InPlaceRestart",
        },
        [
            "spec.replicatedJobs[0].template.spec.backoffLimit: is 0, which would end pods that "
            f"are to stay (InPlaceRestart needs it to be {MAX})",
            "spec.replicatedJobs[0].template.spec.podReplacementPolicy: is not given "
            "(InPlaceRestart needs it to be Failed)",
        ],
    ),
    "a coordinator that is not there": (
        {"spec.coordinator": {"replicatedJob": "leader"}},
        [
            "spec.coordinator.replicatedJob: there is no replicated Job 'leader' "
            "(there are: driver, workers)"
        ],
    ),
    "a coordinator out of range": (
        {"spec.coordinator": {"replicatedJob": "workers", "jobIndex": 1, "podIndex": 2}},
        [
            "spec.coordinator.jobIndex: workers has no Job 1 (it has 1, counted from 0)",
            "spec.coordinator.podIndex: a Job of workers has no pod 2 (it has 2, counted from 0)",
        ],
    ),
    "a coordinator with too long an address": (
        {"metadata.name": "c" * 40, "spec.coordinator": {"replicatedJob": "driver"}},
        [
            f"spec.coordinator: its address '{'c' * 40}-driver-0-0.ccc...' has 92 characters "
            "(a label can have 63: shorten the JobSet's name or its subdomain)",
        ],
    ),
    "claims": (
        {
            "spec.volumeClaimPolicies": [
                {"templates": [CLAIM, CLAIM, {"metadata": {"name": "Up", "namespace": "x"}}]},
            ],
            f"{POD}.containers[0].volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        [
            "spec.volumeClaimPolicies[0].templates[1].metadata.name: 'data' is the name of "
            "spec.volumeClaimPolicies[0].templates[0], too (names are unique)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.name: 'Up' cannot name a claim "
            "(use lower-case letters, digits and -, from a letter to a letter or digit)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.name: no container mounts 'Up' "
            "(add a volumeMount of that name, or remove it)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.namespace: cannot be given "
            "(it is the JobSet's)",
        ],
    ),
    "a claim that is a volume as well": (
        {
            "spec.volumeClaimPolicies": [{"templates": [CLAIM]}],
            f"{POD}.volumes": [{"name": "data", "emptyDir": {}}],
            f"{POD}.containers[0].volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        [
            "spec.volumeClaimPolicies[0].templates[0].metadata.name: 'data' is the name of "
            f"{POD}.volumes[0], too (rename one of them)"
        ],
    ),
    "51 policies": (
        {
            "spec.volumeClaimPolicies": [{"templates": []}] * 51,
        },
        ["spec.volumeClaimPolicies: there are 51 (50 are allowed)"],
    ),
    "a negative time": (
        {"spec.ttlSecondsAfterFinished": -1},
        ["spec.ttlSecondsAfterFinished: must be at least 0, not -1"],
    ),
    "pods that wait for others of their Job": (
        {f"{JOB}.parallelism": 1},
        [
            f"{JOB}.parallelism: only 1 of 2 pods at a time "
            "(Muster starts all pods of a Job together: make them alike, or use replicas)"
        ],
    ),
    "an Indexed Job without completions": (
        {f"{JOB}.completions": None},
        [
            f"{JOB}.completions: is missing, and an Indexed Job needs it (write completions: 2)",
        ],
    ),
    "a queue of work": (
        {f"{JOB}.completions": None, f"{JOB}.completionMode": "NonIndexed"},
        [
            f"{JOB}.completions: is missing: this is a queue of work, which Muster does not run "
            "(write completions: 2)"
        ],
    ),
    "no pods at all": (
        {f"{JOB}.parallelism": 0},
        [
            f"{JOB}.parallelism: is 0: no pod would ever start (use spec.suspend to hold it back)",
        ],
    ),
    "a pod failure policy": (
        {
            f"{JOB}.backoffLimit": 3,
            f"{POD}.restartPolicy": "OnFailure",
            f"{JOB}.podFailurePolicy.rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0, 1]}},
                {"action": "FailJob"},
                {"action": "Count", "onPodConditions": [{"type": "Ready"}]},
                {
                    "action": "Count",
                    "onExitCodes": {"operator": "In", "values": [], "containerName": "other"},
                },
            ],
        },
        [
            f"{JOB}.podFailurePolicy: needs restartPolicy Never, so that pods fail at all "
            f"(set it in {POD})",
            f"{JOB}.podFailurePolicy.rules[0].action: FailIndex: Muster counts retries for a Job, "
            "not for each index (use replicas of one pod each, and FailJob)",
            f"{JOB}.podFailurePolicy.rules[0].onExitCodes.values: holds 0, which is no failure "
            "(remove it)",
            f"{JOB}.podFailurePolicy.rules[1]: has neither onExitCodes nor onPodConditions "
            "(give one of them)",
            f"{JOB}.podFailurePolicy.rules[2].onPodConditions[0].type: Muster knows of no 'Ready' "
            "(it knows DisruptionTarget: a node was lost)",
            f"{JOB}.podFailurePolicy.rules[3].onExitCodes.values: is empty (name a code)",
            f"{JOB}.podFailurePolicy.rules[3].onExitCodes.containerName: there is no container "
            "'other' (there are: main)",
        ],
    ),
    "a working directory from nowhere": (
        {f"{POD}.containers[0].workingDir": "code"},
        [f"{POD}.containers[0].workingDir: 'code' is no absolute path (write /code)"],
    ),
    "always again": (
        {f"{POD}.restartPolicy": "Always"},
        [f"{POD}.restartPolicy: cannot be 'Always' (there are: OnFailure, Never)"],
    ),
    "what Muster itself does not take": (
        {
            "spec.replicatedJobs[1].template.spec.template.spec.containers[0].env": [
                {"name": "a.b", "value": "1"}
            ]
        },
        [
            "spec.replicatedJobs[1].template.spec.template.spec.containers[0].env.a.b: 'a.b' "
            "cannot name an environment variable "
            "(use letters, digits and _, not starting with a digit)"
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_told_in_the_manifest_s_words(
    case: str,
    make: Callable[[dict[str, Any]], Any],
    problems: Callable[[Any], list[str]],
) -> None:
    changes, expected = BAD[case]
    assert sorted(problems(make(changes))) == sorted(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"spec.replicatedJobs[1].replicas": 0},
        {"spec.managedBy": "jobset.sigs.k8s.io/jobset-controller"},
        {"spec.startupPolicy.startupPolicyOrder": "InOrder"},
        {
            "spec.startupPolicy.startupPolicyOrder": "AnyOrder",
            "spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Ready"}],
        },
        {f"{JOB}.parallelism": 5},
        {"metadata": {"generateName": "demo-"}},
        {"spec.ttlSecondsAfterFinished": 0},
        {"metadata.name": "a" * 45},
    ],
)
def test_what_jobset_takes_is_taken(
    changes: dict[str, Any], make: Callable[[dict[str, Any]], Any], read: Callable[[Any], Any]
) -> None:
    read(make(changes))
