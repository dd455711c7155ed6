"""Manifests that JobSet's webhook refuses, and invalid ones that it accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.jobset_manifests import JOB, POD

RULES = "spec.failurePolicy.rules"
MAX = 2**31 - 1
CLAIM = {"metadata": {"name": "data"}, "spec": {}}

#: Changes of a valid manifest -> the problems.
BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no name": (
        {"metadata.name": None},
        ["metadata.name: is missing (every JobSet has a name)"],
    ),
    "a name that is not a label": (
        {"metadata.name": "My_Set"},
        [
            "metadata.name: 'My_Set' cannot name a JobSet "
            "(use lower-case letters, digits and -, start with a letter, end with a letter "
            "or digit)"
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
    "two Jobs of one name": (
        {"spec.replicatedJobs[1].name": "driver"},
        [
            "spec.replicatedJobs[1].name: 'driver' is given twice "
            "(also at replicatedJobs[0]: remove one)"
        ],
    ),
    "a group that is not a label": (
        {"spec.replicatedJobs[1].groupName": "Group"},
        [
            "spec.replicatedJobs[1].groupName: 'Group' cannot name a group "
            "(use lower-case letters, digits and -, start with a letter, end with a letter "
            "or digit)"
        ],
    ),
    "a subdomain with a dot": (
        {"spec.network.subdomain": "a.b"},
        [
            "spec.network.subdomain: 'a.b' cannot name a subdomain "
            "(use lower-case letters, digits and -, start with a letter, end with a letter "
            "or digit)"
        ],
    ),
    "no replicated Jobs": (
        {"spec.replicatedJobs": []},
        [
            "spec.replicatedJobs: is empty: a JobSet without replicated Jobs never finishes "
            "(add one)",
        ],
    ),
    "no replicas": (
        {"spec.replicatedJobs[0].replicas": 0, "spec.replicatedJobs[1].replicas": 0},
        [
            "spec.replicatedJobs: all have 0 replicas: the JobSet would never finish "
            "(give one of them replicas)"
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
    "another controller": (
        {"spec.managedBy": "example.com/other"},
        [
            "spec.managedBy: another controller, example.com/other, manages this JobSet "
            "(remove the field to run it with Muster)"
        ],
    ),
    "an invalid controller": (
        {"spec.managedBy": "other"},
        ["spec.managedBy: 'other' is not a controller's name (they look like example.com/name)"],
    ),
    "the first depends on others": (
        {"spec.replicatedJobs[0].dependsOn": [{"name": "workers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[0].dependsOn: the first replicated Job cannot depend on another "
            "(remove it)"
        ],
    ),
    "a dependency on itself": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "workers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[1].dependsOn[0].name: workers would wait for itself forever "
            "(remove it)"
        ],
    ),
    "a dependency on a later Job": (
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
            "spec.replicatedJobs[1].dependsOn[0].name: last comes later in the list, and must "
            "come before (move it before workers)"
        ],
    ),
    "a dependency on a missing Job": (
        {"spec.replicatedJobs[1].dependsOn": [{"name": "drivers", "status": "Ready"}]},
        [
            "spec.replicatedJobs[1].dependsOn[0].name: replicated Job 'drivers' not found "
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
            "spec.replicatedJobs[1].dependsOn: has 6 entries (at most 5 are allowed)",
            *(
                f"spec.replicatedJobs[1].dependsOn[{number}].name: 'driver' is given twice "
                "(also at dependsOn[0]: remove one)"
                for number in range(1, 6)
            ),
        ],
    ),
    "two settings of the order": (
        {
            "spec.startupPolicy.startupPolicyOrder": "InOrder",
            "spec.replicatedJobs[1].dependsOn": [{"name": "driver", "status": "Ready"}],
        },
        [
            "spec.replicatedJobs[1].dependsOn: conflicts with startupPolicy InOrder, which "
            "sets the whole order (keep one; dependsOn is the newer of them)"
        ],
    ),
    "an unknown success target": (
        {"spec.successPolicy": {"operator": "All", "targetReplicatedJobs": ["worker"]}},
        [
            "spec.successPolicy.targetReplicatedJobs[0]: replicated Job 'worker' not found "
            '(did you mean "workers"?)'
        ],
    ),
    "success of Jobs without replicas": (
        {
            "spec.replicatedJobs[1].replicas": 0,
            "spec.successPolicy": {"operator": "Any", "targetReplicatedJobs": ["workers"]},
        },
        [
            "spec.successPolicy.targetReplicatedJobs: all of these have 0 replicas and can never "
            "succeed (name one that runs)"
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
            "(use letters, digits and _ , : start with a letter, end with a letter, digit or _)",
            f"{RULES}[0].targetReplicatedJobs[0]: replicated Job 'worker' not found "
            '(did you mean "workers"?)',
            f"{RULES}[1].action: cannot be 'Restart' (did you mean \"RestartJob\"?)",
            f"{RULES}[2].name: 'again' is also the name of {RULES}[1] (names are unique)",
            f"{RULES}[2].onJobFailureMessagePatterns[0]: '(' is not a regular expression: "
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
            "(use letters, digits and _ , : start with a letter, end with a letter, digit or _)",
            f"{RULES}[0].targetReplicatedJobs[0]: replicated Job 'worker' not found "
            '(did you mean "workers"?)',
            f"{RULES}[2].name: 'again' is also the name of {RULES}[1] (names are unique)",
            f"{RULES}[2].onJobFailureMessagePatterns[0]: '(' is not a regular expression: "
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
    "in place, without its required settings": (
        {
            "spec.replicatedJobs[0]": None,
            "spec.failurePolicy.restartStrategy": "InPlaceRestart",
        },
        [
            "spec.replicatedJobs[0].template.spec.backoffLimit: is 0, which would end pods that "
            f"must be kept (InPlaceRestart requires it to be {MAX})",
            "spec.replicatedJobs[0].template.spec.podReplacementPolicy: is not given "
            "(InPlaceRestart requires it to be Failed)",
        ],
    ),
    "a missing coordinator": (
        {"spec.coordinator": {"replicatedJob": "leader"}},
        [
            "spec.coordinator.replicatedJob: replicated Job 'leader' not found "
            "(use driver or workers)"
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
            "spec.volumeClaimPolicies[0].templates[1].metadata.name: 'data' is also the name of "
            "spec.volumeClaimPolicies[0].templates[0] (names are unique)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.name: 'Up' cannot name a claim "
            "(use lower-case letters, digits and -, start with a letter, end with a letter "
            "or digit)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.name: no container mounts 'Up' "
            "(add a volumeMount of that name, or remove it)",
            "spec.volumeClaimPolicies[0].templates[2].metadata.namespace: cannot be given "
            "(claims are in the JobSet's namespace)",
        ],
    ),
    "a claim that is a volume as well": (
        {
            "spec.volumeClaimPolicies": [{"templates": [CLAIM]}],
            f"{POD}.volumes": [{"name": "data", "emptyDir": {}}],
            f"{POD}.containers[0].volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        [
            "spec.volumeClaimPolicies[0].templates[0].metadata.name: 'data' is also the name of "
            f"{POD}.volumes[0] (rename one of them)"
        ],
    ),
    "51 policies": (
        {
            "spec.volumeClaimPolicies": [{"templates": []}] * 51,
        },
        ["spec.volumeClaimPolicies: has 51 entries (at most 50 are allowed)"],
    ),
    "a negative time": (
        {"spec.ttlSecondsAfterFinished": -1},
        ["spec.ttlSecondsAfterFinished: must be at least 0, not -1"],
    ),
    "more arrays than groups": (
        {f"{JOB}.parallelism": 1, "spec.replicatedJobs[1].replicas": 101},
        [
            "spec.replicatedJobs[1].replicas: 101 Jobs with more completions than parallelism, or "
            "limits of indexes (each is a node group here, and 100 are allowed: use more "
            "completions)"
        ],
    ),
    "limits of indexes": (
        {
            f"{JOB}.backoffLimitPerIndex": 1,
            f"{JOB}.maxFailedIndexes": 3,
            f"{JOB}.completionMode": "NonIndexed",
            f"{POD}.restartPolicy": "OnFailure",
        },
        [
            f"{JOB}.backoffLimitPerIndex: requires completionMode Indexed (write it, or use "
            "backoffLimit)",
            f"{JOB}.backoffLimitPerIndex: requires restartPolicy Never, as pods cannot fail "
            f"otherwise (set it in {POD})",
            f"{JOB}.maxFailedIndexes: 3 indexes may fail, but there are 2 (at most 2)",
        ],
    ),
    "a limit of failed indexes alone": (
        {f"{JOB}.maxFailedIndexes": 1},
        [
            f"{JOB}.maxFailedIndexes: requires backoffLimitPerIndex (add it; 0 fails an index at "
            "its first failure)"
        ],
    ),
    "many indexes": (
        {
            f"{JOB}.backoffLimitPerIndex": 1,
            f"{JOB}.completions": 100_001,
            f"{POD}.restartPolicy": "Never",
        },
        [
            f"{JOB}.maxFailedIndexes: is missing, and a Job with over 100,000 completions "
            "requires it (add it)"
        ],
    ),
    "many indexes at once": (
        {f"{JOB}.completions": 200_000, f"{JOB}.parallelism": 100_001},
        [f"{JOB}.parallelism: 100,001 is too many for an Indexed Job (at most 100,000)"],
    ),
    "limits of many indexes": (
        {
            f"{JOB}.backoffLimitPerIndex": 1,
            f"{JOB}.completions": 100_001,
            f"{JOB}.parallelism": 10_001,
            f"{JOB}.maxFailedIndexes": 10_001,
            f"{POD}.restartPolicy": "Never",
        },
        [
            f"{JOB}.{name}: 10,001 is too many for a Job with over 100,000 completions and "
            "backoffLimitPerIndex (at most 10,000)"
            for name in ("parallelism", "maxFailedIndexes")
        ],
    ),
    "a success policy of a Job": (
        {
            f"{JOB}.completionMode": "NonIndexed",
            f"{JOB}.successPolicy.rules": [
                {},
                {"succeededIndexes": "1,0"},
                {"succeededIndexes": "0-2"},
                {"succeededIndexes": "0;1"},
                {"succeededIndexes": "1", "succeededCount": 2},
            ],
        },
        [
            f"{JOB}.successPolicy: requires completionMode Indexed (write it)",
            f"{JOB}.successPolicy.rules[0]: has neither succeededIndexes nor succeededCount (give "
            "one of them, or both)",
            f"{JOB}.successPolicy.rules[1].succeededIndexes: '0' does not come after 1 (name them "
            "in their order)",
            f"{JOB}.successPolicy.rules[2].succeededIndexes: there is no index 2 (indexes go from "
            "0 to 1)",
            f"{JOB}.successPolicy.rules[3].succeededIndexes: '0;1' is not a replica number "
            "(write 3 or 3,17,40-42)",
            f"{JOB}.successPolicy.rules[4].succeededCount: 2 indexes must succeed, of 1 (at most "
            "1)",
        ],
    ),
    "a success policy for no index": (
        {f"{JOB}.successPolicy.rules": [{"succeededIndexes": "0", "succeededCount": 0}]},
        [f"{JOB}.successPolicy.rules[0].succeededCount: must be at least 1, not 0"],
    ),
    "a success policy without rules": (
        {f"{JOB}.successPolicy": {"rules": []}},
        [f"{JOB}.successPolicy.rules: has 0 entries (give one to 20)"],
    ),
    "limits of indexes in place": (
        {
            "spec.failurePolicy": {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
            "spec.replicatedJobs[0].template.spec.backoffLimit": 2**31 - 1,
            "spec.replicatedJobs[0].template.spec.podReplacementPolicy": "Failed",
            "spec.replicatedJobs[0].template.spec.parallelism": 1,
            "spec.replicatedJobs[0].template.spec.completions": 1,
            f"{JOB}.backoffLimitPerIndex": 1,
            f"{JOB}.backoffLimit": 2**31 - 1,
            f"{JOB}.podReplacementPolicy": "Failed",
            f"{POD}.restartPolicy": "Never",
        },
        [
            f"{JOB}: backoffLimitPerIndex or successPolicy conflicts with InPlaceRestart, which "
            "restarts programs before a pod fails (remove one)"
        ],
    ),
    "a deadline of an array beside other Jobs": (
        {f"{JOB}.parallelism": 1, f"{JOB}.activeDeadlineSeconds": 60},
        [
            f"{JOB}.activeDeadlineSeconds: of a Job that runs a few pods at a time is not "
            "supported beside other Jobs (use spec.activeDeadlineSeconds, the JobSet's own)"
        ],
    ),
    "an Indexed Job without completions": (
        {f"{JOB}.completions": None},
        [
            f"{JOB}.completions: is missing, and an Indexed Job requires it (write completions: 2)",
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
            f"{JOB}.podFailurePolicy: requires restartPolicy Never, as pods cannot fail otherwise "
            f"(set it in {POD})",
            f"{JOB}.podFailurePolicy.rules[0].action: FailIndex requires backoffLimitPerIndex "
            f"(add it in {JOB}, or use FailJob)",
            f"{JOB}.podFailurePolicy.rules[0].onExitCodes.values: has 0, which is not a failure "
            "(remove it)",
            f"{JOB}.podFailurePolicy.rules[1]: has neither onExitCodes nor onPodConditions "
            "(give one of them)",
            f"{JOB}.podFailurePolicy.rules[2].onPodConditions[0].type: Muster does not know "
            "'Ready' "
            "(it knows DisruptionTarget: a node was lost)",
            f"{JOB}.podFailurePolicy.rules[3].onExitCodes.values: is empty (add a code)",
            f"{JOB}.podFailurePolicy.rules[3].onExitCodes.containerName: container "
            "'other' not found (use main)",
        ],
    ),
    "a relative working directory": (
        {f"{POD}.containers[0].workingDir": "code"},
        [f"{POD}.containers[0].workingDir: 'code' is not an absolute path (write /code)"],
    ),
    "restartPolicy Always": (
        {f"{POD}.restartPolicy": "Always"},
        [f"{POD}.restartPolicy: cannot be 'Always' (use OnFailure or Never)"],
    ),
    "a name that Muster refuses": (
        {
            "spec.replicatedJobs[1].template.spec.template.spec.containers[0].env": [
                {"name": "a.b", "value": "1"}
            ]
        },
        [
            "spec.replicatedJobs[1].template.spec.template.spec.containers[0].env.a.b: 'a.b' "
            "is not a valid name of an environment variable "
            "(use letters, digits and _, not starting with a digit)"
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_use_the_paths_of_the_manifest(
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
        {f"{JOB}.completions": 100_001, f"{JOB}.parallelism": 50_000},
        {
            f"{JOB}.backoffLimitPerIndex": 1,
            f"{JOB}.completions": 100_001,
            f"{JOB}.parallelism": 10_000,
            f"{JOB}.maxFailedIndexes": 10_000,
            f"{POD}.restartPolicy": "Never",
        },
        {"metadata": {"generateName": "demo-"}},
        {"spec.ttlSecondsAfterFinished": 0},
        {"metadata.name": "a" * 45},
    ],
)
def test_manifests_that_jobset_accepts_are_accepted(
    changes: dict[str, Any], make: Callable[[dict[str, Any]], Any], read: Callable[[Any], Any]
) -> None:
    read(make(changes))
