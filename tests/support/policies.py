"""Policies of every kind, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from muster.lifecycle.policy import (
    Action,
    Backoff,
    Checkpoint,
    Dependency,
    EarlySuccess,
    GroupFailure,
    GroupPolicy,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason

CODES = (1, 2, 143)
REASONS = (
    Reason.EXIT,
    Reason.NODE_LOST,
    Reason.PREEMPTED,
    Reason.CANCELED,
    Reason.OUTPUT_LOST,
    Reason.HANG,
    Reason.UNHEALTHY,
    Reason.PREFLIGHT,
    Reason.NOT_STARTED,
)
TIMES = st.sampled_from([None, None, 5.0, 20.0])


@st.composite
def groups(draw: st.DrawFn, *, in_order: bool) -> tuple[GroupPolicy, ...]:
    made: list[GroupPolicy] = []
    rank = 0
    for number in range(draw(st.integers(1, 3))):
        replicas, nodes = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (0, 1)]))
        array = draw(arrays(replicas)) if draw(st.sampled_from([False, False, True])) else {}
        before = [] if in_order else list(range(number))
        needed = draw(st.lists(st.sampled_from(before), unique=True)) if before else []
        group = GroupPolicy(
            name=f"g{number}",
            first_rank=rank,
            replicas=replicas,
            nodes=nodes,
            min_success=draw(st.integers(0, replicas)),
            depends_on=tuple(Dependency(n, draw(st.booleans())) for n in needed),
            max_restarts=draw(st.sampled_from([None, None, 0, 1, 2])),
            retries=draw(st.sampled_from([0, 0, 1, 2])),
            timeout=draw(TIMES),
            ready_timeout=draw(TIMES),
            desired=draw(st.sampled_from([None, None, 1])) if replicas > 1 and not array else None,
            **array,
        )
        made.append(group)
        rank += group.size
    return tuple(made)


@st.composite
def arrays(draw: st.DrawFn, replicas: int) -> dict[str, Any]:
    """The settings of an array."""
    some = st.sampled_from
    chosen = st.sampled_from([None, None, *(f"0-{n}" for n in range(replicas))])
    early = [(), (), (EarlySuccess(count=1),), (EarlySuccess("0"), EarlySuccess(count=2))]
    return {
        "parallelism": draw(st.integers(1, 2)),
        "only": draw(chosen),
        "max_failed": draw(some([None, 0, 1, 3])),
        "total_retries": draw(some([None, None, 1, 2])),
        "early_success": draw(some(early)) if replicas else (),
    }


@st.composite
def rules(draw: st.DrawFn, number: int) -> Rule:
    some = st.sampled_from
    return Rule(
        name=f"rule-{number}",
        action=draw(some(Action)),
        groups=draw(some([(), (), ("g0",), ("g1", "g2")])),
        exit_codes=draw(some([(), (), (1,), (2, 143)])),
        reasons=draw(some([(), (), (Reason.NODE_LOST,), (Reason.DEADLINE, Reason.HANG)])),
        counted=draw(st.booleans()),
        max_restarts=draw(some([None, 0, 1, 2])),
        before_retries=draw(some([False, False, True])),
        group_failed=draw(some([(), (), (GroupFailure.MIN_SUCCESS,), tuple(GroupFailure)])),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    in_order = draw(st.booleans())
    made = draw(groups(in_order=in_order))
    places = list(range(len(made)))
    chosen = draw(st.lists(st.sampled_from(places), unique=True, min_size=1))
    return Policy(
        groups=made,
        success=Success(tuple(sorted(chosen)), draw(st.booleans()), draw(st.booleans())),
        in_order=in_order,
        max_runtime=draw(st.sampled_from([60.0, 1e6])),
        grace_period=draw(st.sampled_from([0.0, 3.0, 10.0])),
        attempt_timeout=draw(st.sampled_from([None, None, 40.0])),
        max_restarts=draw(st.integers(0, 4)),
        action=draw(st.sampled_from([action for action in Action if action.startswith("restart")])),
        rules=tuple(draw(rules(number)) for number in range(draw(st.integers(0, 2)))),
        strategy=draw(st.sampled_from(Strategy)),
        backoff=draw(
            st.sampled_from([Backoff(), Backoff(initial=4, jitter=0.5, reset_after=30, seed=7)])
        ),
        checkpoint=draw(st.sampled_from([None, Checkpoint(10, 6.0)])),
    )
