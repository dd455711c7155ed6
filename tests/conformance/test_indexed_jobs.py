"""How Jobs end that run fewer pods at a time than they complete, by Kubernetes' documentation of
Jobs: Indexed completion, backoffLimit, backoffLimitPerIndex, maxFailedIndexes, podFailurePolicy,
successPolicy, and work queues; and what JobSet makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from muster.lifecycle.events import NodeEnded
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Reason
from support.jobset import Jobs, jobset, replicated, rules

#: A pod that is lost with its node.
LOST = -1
Codes = Mapping[int, Sequence[int]]


class Ends(NamedTuple):
    """How a Job ends."""

    #: Complete or Failed.
    condition: str
    #: Kubernetes: status.completedIndexes and status.failedIndexes.
    completed: str
    failed: str = ""
    #: How often pods of each index were started.
    starts: Sequence[int] = ()


class Pods(Jobs):
    """A run whose programs end one after the other, those that started first before others."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.begun: list[int] = []
        self.count: dict[int, int] = {}
        super().__init__(manifest)

    def step(self, *events: Any, after: float = 1.0) -> Pods:
        super().step(*events, after=after)
        for rank in self.starts():
            self.begun.append(rank)
            self.count[rank] = self.count.get(rank, 0) + 1
        return self

    def play(self, codes: Codes, first: int = 0) -> Pods:
        """Let every pod run. codes: of the pods of each index, the last for all later ones; other
        pods succeed. first: rank of the first index."""
        for _ in range(1000):
            if self.status.state.terminal:
                break
            if leaving := [rank for rank, node in enumerate(self.status.nodes) if node.leaving]:
                self.step(*(self.ended(rank, 143, signal=15) for rank in leaving))
                continue
            alive = [rank for rank in self.begun if self.node(rank).alive]
            if not alive:
                self.tick(after=400.0)
                continue
            rank = alive[0]
            self.begun.remove(rank)
            mine = codes.get(rank - first, (0,))
            self.step(self._end(rank, mine[min(self.count[rank], len(mine)) - 1]))
        return self

    def _end(self, rank: int, code: int) -> NodeEnded:
        if code == LOST:
            return self.ended(rank, None, reason=Reason.NODE_LOST)
        return self.ended(rank, code)

    def indexes(self, state: NodeState, group: str) -> str:
        ranks = next(one for one in self.policy.groups if one.name == group).ranks
        return format_ranks(rank - ranks.start for rank in ranks if self.node(rank).state is state)


def job(**fields: Any) -> dict[str, Any]:
    return {"completions": 5, "parallelism": 2, "backoffLimit": None, **fields}


def exit_rule(action: str, *codes: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


IGNORE_LOST = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
EVERY = dict.fromkeys(range(5), (1, 0))


@pytest.mark.parametrize(
    ("fields", "codes", "ends"),
    [
        pytest.param({}, {}, Ends("Complete", "0-4", starts=[1] * 5), id="J01 all succeed"),
        pytest.param({"parallelism": 9}, {}, Ends("Complete", "0-4"), id="J02 more parallelism"),
        pytest.param(
            {"backoffLimit": 2},
            {1: (1, 1, 0)},
            Ends("Complete", "0-4", starts=[1, 3, 1, 1, 1]),
            id="J03 backoffLimit is enough",
        ),
        pytest.param(
            {"backoffLimit": 2},
            {0: (1, 0), 1: (1, 0), 2: (1, 0)},
            Ends("Failed", "0-1", "2", [2, 2, 1, 1, 0]),
            id="J04 backoffLimit is one for all indexes",
        ),
        pytest.param(
            {"backoffLimit": 0},
            {1: (1,)},
            Ends("Failed", "0", "1", [1, 1, 1, 0, 0]),
            id="J05 backoffLimit 0",
        ),
        pytest.param(
            {}, {3: (1,)}, Ends("Failed", "0-2,4", "3", [1, 1, 1, 7, 1]), id="J06 backoffLimit 6"
        ),
        pytest.param(
            {"completionMode": "NonIndexed", "backoffLimit": 1},
            {0: (1, 0)},
            Ends("Complete", "0-4", starts=[2, 1, 1, 1, 1]),
            id="J07 NonIndexed",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 1},
            EVERY,
            Ends("Complete", "0-4", starts=[2] * 5),
            id="J08 backoffLimitPerIndex is enough",
        ),
        pytest.param(
            {"completions": 10, "parallelism": 3, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5},
            dict.fromkeys(range(0, 10, 2), (1,)),
            Ends("Failed", "1,3,5,7,9", "0,2,4,6,8", [2, 1] * 5),
            id="J09 the others run when an index has failed",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1},
            {0: (1,), 2: (1,)},
            Ends("Failed", "1", "0,2", [1, 1, 1, 1, 0]),
            id="J10 maxFailedIndexes is exceeded",
        ),
        pytest.param(
            {"parallelism": 5, "backoffLimitPerIndex": 1},
            {2: (1,)},
            Ends("Failed", "0-1,3-4", "2", [1, 1, 2, 1, 1]),
            id="J11 all indexes at once",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 2, "backoffLimit": 2},
            EVERY,
            Ends("Failed", "0-1", "2", [2, 2, 1, 1, 0]),
            id="J12 backoffLimit beside backoffLimitPerIndex",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 0, "backoffLimit": 1},
            {0: (1,), 3: (1,)},
            Ends("Failed", "1-2", "0,3", [1, 1, 1, 1, 1]),
            id="J13 failed indexes count for backoffLimit",
        ),
        pytest.param(
            {
                "backoffLimitPerIndex": 3,
                "podFailurePolicy": {"rules": [exit_rule("FailIndex", 42)]},
            },
            {1: (1, 42)},
            Ends("Failed", "0,2-4", "1", [1, 2, 1, 1, 1]),
            id="J14 FailIndex",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 3, "podFailurePolicy": {"rules": [exit_rule("FailJob", 42)]}},
            {1: (42,)},
            Ends("Failed", "0", "1", [1, 1, 1, 0, 0]),
            id="J15 FailJob",
        ),
        pytest.param(
            {
                "backoffLimitPerIndex": 0,
                "podFailurePolicy": {"rules": [IGNORE_LOST, exit_rule("FailIndex", 1)]},
            },
            {1: (LOST, LOST, 0), 2: (1,)},
            Ends("Failed", "0-1,3-4", "2", [1, 3, 1, 1, 1]),
            id="J16 Ignore",
        ),
        pytest.param(
            {"backoffLimit": 1, "podFailurePolicy": {"rules": [exit_rule("Count", 1)]}},
            {1: (1, 0)},
            Ends("Complete", "0-4", starts=[1, 2, 1, 1, 1]),
            id="J17 Count",
        ),
        pytest.param(
            {"successPolicy": {"rules": [{"succeededIndexes": "2-4", "succeededCount": 1}]}},
            {},
            Ends("Complete", "0-2", starts=[1, 1, 1, 1, 0]),
            id="J18 successPolicy: some of these indexes",
        ),
        pytest.param(
            {"successPolicy": {"rules": [{"succeededIndexes": "1-2"}]}},
            {},
            Ends("Complete", "0-2", starts=[1, 1, 1, 1, 0]),
            id="J19 successPolicy: these indexes",
        ),
        pytest.param(
            {"successPolicy": {"rules": [{"succeededCount": 3}, {"succeededIndexes": "4"}]}},
            {},
            Ends("Complete", "0-2", starts=[1, 1, 1, 1, 0]),
            id="J20 successPolicy: so many indexes",
        ),
        pytest.param(
            {
                "backoffLimitPerIndex": 0,
                "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]},
            },
            {0: (1,)},
            Ends("Failed", "1-4", "0", [1] * 5),
            id="J21 successPolicy is not met",
        ),
        pytest.param(
            {"backoffLimit": 0, "successPolicy": {"rules": [{"succeededIndexes": "4"}]}},
            {0: (1,)},
            Ends("Failed", "", "0", [1, 1, 0, 0, 0]),
            id="J22 a failure before success",
        ),
        pytest.param(
            {"completions": None, "completionMode": "NonIndexed", "parallelism": 3},
            {1: (1, 0)},
            Ends("Complete", "0-2", starts=[1, 2, 1]),
            id="J23 a work queue",
        ),
        pytest.param(
            {
                "completions": None,
                "completionMode": "NonIndexed",
                "parallelism": 3,
                "backoffLimit": 1,
            },
            {0: (1,)},
            Ends("Failed", "1-2", "0", [2, 1, 1]),
            id="J24 a work queue fails",
        ),
    ],
)
def test_a_job_ends_as_on_kubernetes(fields: dict[str, Any], codes: Codes, ends: Ends) -> None:
    pods = Pods(jobset([replicated("a", job=job(**fields))])).play(codes)
    assert pods.state == {"Complete": "SUCCEEDED", "Failed": "FAILED"}[ends.condition]
    assert pods.indexes(NodeState.SUCCEEDED, "a") == ends.completed
    assert pods.indexes(NodeState.FAILED, "a") == ends.failed
    if ends.starts:
        assert [pods.count.get(index, 0) for index in range(pods.policy.size)] == ends.starts


def test_J25_the_deadline_is_for_all_pods_together() -> None:
    pods = Pods(jobset([replicated("a", job=job(activeDeadlineSeconds=60))]))
    pods.up(0, 1).end(0, after=30.0).up(2)
    assert pods.state == "IN_PROGRESS"
    pods.tick(after=30.0).end_stopping()
    assert pods.state == "FAILED"
    assert "the attempt has not ended after 60 s" in pods.status.details


def test_J26_pods_know_their_index() -> None:
    plan = Pods(jobset([replicated("a", job=job())])).plan
    (group,) = plan.groups
    assert group.node_env == {"JOB_COMPLETION_INDEX": "${replica}"}
    assert [node.hostname for node in plan.nodes] == ["demo-a-0-0", "demo-a-0-1"]


# --- what JobSet makes of a failed Job

LIMITED = {"backoffLimitPerIndex": 0}
REASONS = "onJobFailureReasons"


@pytest.mark.parametrize(
    ("listed", "fields", "codes", "state", "restarts"),
    [
        pytest.param([], LIMITED, {1: (1, 0)}, "SUCCEEDED", 1, id="J30 the default"),
        pytest.param(
            [{"action": "FailJobSet", REASONS: ["FailedIndexes"]}],
            LIMITED,
            {1: (1, 0)},
            "FAILED",
            0,
            id="J31 FailedIndexes",
        ),
        pytest.param(
            [{"action": "FailJobSet", REASONS: ["MaxFailedIndexesExceeded"]}],
            LIMITED,
            {1: (1, 0)},
            "SUCCEEDED",
            1,
            id="J32 another reason",
        ),
        pytest.param(
            [{"action": "FailJobSet", REASONS: ["MaxFailedIndexesExceeded"]}],
            {**LIMITED, "maxFailedIndexes": 0},
            {1: (1, 0)},
            "FAILED",
            0,
            id="J33 MaxFailedIndexesExceeded",
        ),
        pytest.param(
            [{"action": "FailJobSet", REASONS: ["BackoffLimitExceeded"]}],
            {"backoffLimit": 0},
            {1: (1, 0)},
            "FAILED",
            0,
            id="J34 BackoffLimitExceeded",
        ),
        pytest.param(
            [
                {
                    "action": "FailJobSet",
                    "onJobFailureMessagePatterns": ["^Job has failed indexes$"],
                }
            ],
            LIMITED,
            {1: (1, 0)},
            "FAILED",
            0,
            id="J35 a message",
        ),
    ],
)
def test_a_failed_array_is_a_failed_job(
    listed: list[dict[str, Any]],
    fields: dict[str, Any],
    codes: Codes,
    state: str,
    restarts: int,
) -> None:
    """Rules apply when the Job has failed, and a restart starts all indexes again."""
    manifest = jobset([replicated("a", job=job(**fields))], **rules(*listed, most=2))
    pods = Pods(manifest).play(codes)
    assert (pods.state, pods.status.spent.run) == (state, restarts)
    if restarts:
        assert [pods.count[index] for index in range(5)] == [2] * 5


def test_J36_RestartJob_restarts_all_indexes_of_one_job() -> None:
    jobs = [replicated("a", 2, job=job(**LIMITED)), replicated("b", command=["sleep", "9"])]
    pods = Pods(jobset(jobs, **rules({"action": "RestartJob"}, most=1)))
    assert [group.name for group in pods.policy.groups] == ["a_0", "a_1", "b"]
    pods.play({1: (1, 0)}, first=5)
    assert pods.state == "SUCCEEDED"
    assert [pods.count[rank] for rank in range(11)] == [1] * 5 + [2] * 5 + [1]


def test_J37_a_job_fails_while_others_run() -> None:
    """Its indexes have ended, and one has failed; the other Job still runs."""
    jobs = [replicated("a", job=job(completions=2, **LIMITED)), replicated("b")]
    pods = Pods(jobset(jobs))
    pods.up(0, 1, 2).end(0, 1).end(1)
    assert pods.stops() == [2]
    assert pods.end_stopping().state == "FAILED"


def test_J38_success_of_any_job_is_that_of_all_its_indexes() -> None:
    jobs = [replicated("a", job=job(completions=2, parallelism=1)), replicated("b")]
    pods = Pods(jobset(jobs, successPolicy={"operator": "Any"}))
    pods.end(0)
    assert pods.state != "SUCCEEDED" and pods.starts() == [1]
    assert pods.end(1).end_stopping().state == "SUCCEEDED"


def test_J39_a_job_is_ready_when_as_many_pods_as_run_at_once_are() -> None:
    jobs = [
        replicated("a", job=job(), probe={"tcpSocket": {"port": 1}}),
        replicated("b", dependsOn=[{"name": "a", "status": "Ready"}]),
    ]
    pods = Pods(jobset(jobs))
    assert pods.starts() == [0, 1]
    assert pods.up(0).starts() == []
    assert pods.up(1).starts() == [5]
