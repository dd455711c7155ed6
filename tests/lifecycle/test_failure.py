"""Failures: which rule decides, and what happens then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle.effects import StartNodes, StopNodes
from muster.lifecycle.failure import choose, fits
from muster.lifecycle.failure_details import describe
from muster.lifecycle.policy import Action, Backoff, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, Reason
from muster.spec import patterns
from support.run_driver import policy, refs, running, starting

N = NodeState
FAIL = Action.FAIL
KILLED = Failure(3, "workers", Reason.EXIT, 137, 9, "step 10\nCUDA error: Xid 79", 5.0)


@pytest.mark.parametrize(
    ("conditions", "fit"),
    [
        ({}, True),
        ({"groups": ("workers",)}, True),
        ({"groups": ("data", "workers")}, True),
        ({"groups": ("data",)}, False),
        ({"exit_codes": (1, 137)}, True),
        ({"exit_codes": (1, 136)}, False),
        ({"signals": (9,)}, True),
        ({"signals": (15, 2)}, False),
        ({"reasons": (Reason.HANG, Reason.EXIT)}, True),
        ({"reasons": (Reason.NODE_LOST,)}, False),
        ({"messages": (r"Xid \d+$",)}, True),
        ({"messages": ("ECC", "step")}, True),
        ({"messages": ("^CUDA",)}, False),
        ({"messages": ("failed with exit code 137",)}, True),
        ({"messages": (r"rank 3\)",)}, True),
        ({"messages": ("Xid", "ECC"), "exit_codes": (137,), "groups": ("workers",)}, True),
        ({"messages": ("Xid",), "exit_codes": (1,)}, False),
        ({"messages": ("ECC",), "exit_codes": (137,)}, False),
    ],
)
def test_all_conditions_of_a_rule_must_match(conditions: dict[str, Any], fit: bool) -> None:
    assert fits(Rule("r", FAIL, **conditions), KILLED) is fit


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("pattern", "message", "fit"),
    [
        ("(a+)+$", "a" * 5000 + "b", False),
        ("(a|a)*$", "a" * 5000 + "b", True),  # $ alone matches
        ("exit code [[:digit:]]+", "", True),
        (r"^\pL+: \x{e9}", "boom: é", False),
        (r"(?m)^\pL+: \x{e9}", "boom: é", True),
    ],
)
def test_patterns_are_matched_without_backtracking(pattern: str, message: str, fit: bool) -> None:
    assert fits(Rule("r", FAIL, messages=(pattern,)), replace(KILLED, message=message)) is fit


def test_a_failure_without_an_exit_code_matches_no_exit_code() -> None:
    lost = replace(KILLED, reason=Reason.NODE_LOST, exit_code=None, signal=0)
    assert not fits(Rule("r", FAIL, exit_codes=(1,)), lost)
    assert not fits(Rule("r", FAIL, signals=(9,)), lost)
    assert fits(Rule("r", FAIL, reasons=(Reason.NODE_LOST,)), lost)


ONE = Rule("one", FAIL, exit_codes=(1,))
EARLY = replace(ONE, name="early", before_retries=True)
TWO = Rule("two", FAIL, exit_codes=(2, 1))
FIRST = replace(KILLED, exit_code=2)
SECOND = replace(KILLED, rank=4, exit_code=1)


@pytest.mark.parametrize(
    ("rules", "failures", "chosen"),
    [
        pytest.param((), [FIRST, SECOND], (None, FIRST), id="no rules"),
        pytest.param((ONE,), [FIRST], (None, FIRST), id="no rule matches"),
        pytest.param((ONE,), [FIRST, SECOND], (ONE, SECOND), id="the failure that matches"),
        pytest.param((ONE, TWO), [FIRST, SECOND], (ONE, SECOND), id="rules before failures"),
        pytest.param((TWO, ONE), [FIRST, SECOND], (TWO, FIRST), id="then the first failure"),
        pytest.param((TWO, EARLY), [FIRST, SECOND], (EARLY, SECOND), id="before retries first"),
        pytest.param((EARLY, TWO), [FIRST], (TWO, FIRST), id="only rules that match"),
    ],
)
def test_the_order_of_rules_takes_precedence_over_the_order_of_failures(
    rules: tuple[Rule, ...], failures: list[Failure], chosen: tuple[Rule | None, Failure]
) -> None:
    assert choose(policy((9, 1, None), rules=rules), failures) == chosen


def test_each_rule_searches_each_message_once_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when many failures are handled one by one."""
    searched = []

    def found(messages: tuple[str, ...], text: str) -> bool:
        searched.append((messages, text.partition(" ")[0]))
        return bool(real(messages, text))

    real = patterns.any_matches
    monkeypatch.setattr(patterns, "any_matches", found)
    rules = (Rule("one", FAIL, messages=("nothing",)), Rule("two", FAIL, messages=("else",)))
    run = running(policy((1, 9, 9), rules=rules, max_restarts=9, action=Action.RESTART_NODE))
    run.step(*(run.ended(rank, 1) for rank in range(9)))
    assert len(searched) == 18
    assert len(set(searched)) == 18


def test_a_rule_searches_the_messages_of_the_first_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 1000
    failures = [replace(KILLED, rank=rank, message=text) for rank in range(9)]
    last = failures[-1] = replace(failures[-1], message=f"{text} Xid")
    rules = (Rule("one", FAIL, messages=("nothing",)), Rule("two", FAIL, messages=("Xid",)))
    policy_ = policy((1, 9, None), rules=rules)
    assert choose(policy_, failures) == (rules[1], last)
    monkeypatch.setattr(patterns, "max_text_length", lambda _: 5000)
    assert choose(policy_, failures) == (None, failures[0])
    assert choose(policy_, failures[-5:]) == (rules[1], last), "each rule has its own allowance"
    monkeypatch.setattr(patterns, "max_text_length", lambda _: 1)
    assert choose(policy_, [last]) == (rules[1], last), "the first is always searched"
    monkeypatch.setattr(patterns, "max_text_length", lambda _: len(describe(failures[0])))
    assert choose(policy_, failures[-2:]) == (None, failures[-2]), "no more than the allowance"


def test_a_rule_with_its_own_text_searches_that_text() -> None:
    """JobSet: onJobFailureMessagePatterns match the message of the Job controller."""
    text = "${group}/${replica}/${index}: rank ${rank} ended with ${exit_code}${other}."
    failure = replace(KILLED, rank=6, group="g1", exit_code=42, message="no data")
    rule = Rule("r", FAIL, messages=("^g1/1/2: rank 6 ended with 42[.]$",), text=text)
    shapes = (1, 1, None), (2, 3, None)
    assert choose(policy(*shapes, rules=(rule,)), [failure]) == (rule, failure)
    about_message = replace(rule, messages=("no data",))
    assert choose(policy(*shapes, rules=(about_message,)), [failure]) == (None, failure)


# --- after a failure


def test_a_failure_without_rules_fails_the_run() -> None:
    run = running(policy((1, 2, None), (1, 1, None))).end(1, 3, message="boom")
    assert run.effects == (StopNodes(refs(0, 2)),)
    assert run.status.stopping is not None
    assert run.status.stopping.note == ""
    assert run.entries[-1].kind == "stopping"
    assert run.entries[-1].data["towards"] == RunState.FAILED
    assert run.entries[-1].data["why"] == run.status.stopping.details
    assert run.status.stopping.details.endswith("failed with exit code 3:\nboom")
    run.end_stopping()
    assert run.status.details == "node-1 (group g0, rank 1) failed with exit code 3:\nboom"
    assert run.status.exit_code == 3


def test_a_rule_that_fails_the_run_is_named() -> None:
    rules = (Rule("bad-arguments", FAIL, exit_codes=(64,)),)
    run = running(policy((1, 2, None), max_restarts=5, rules=rules))
    run.end(0, 64).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.endswith("failed with exit code 64\nrule bad-arguments")
    assert run.status.spent.run == 0


def test_without_a_matching_rule_restarts_are_used() -> None:
    rules = (Rule("bad-arguments", FAIL, exit_codes=(64,)),)
    run = running(policy((1, 2, None), max_restarts=5, rules=rules, action=Action.RESTART_NODE))
    assert run.end(0, 1).effects == (StartNodes(0, refs(0, incarnation=1)),)
    assert run.notes("restart")[-1]["why"] == "node-0 (group g0, rank 0) failed with exit code 1"


def test_a_rule_that_restarts_is_named() -> None:
    rules = (Rule("lost-node", Action.RESTART_NODE, counted=False),)
    run = running(policy((1, 2, None), rules=rules)).end(0, 1)
    why = "node-0 (group g0, rank 0) failed with exit code 1; rule lost-node"
    assert run.notes("restart") == [
        {"restart": 1, "what": "node-0", "why": why, "wait": 0.0},
    ]


@pytest.mark.parametrize("rules", [(), (Rule("r", Action.RESTART_RUN),)])
def test_a_preempted_node_is_restarted_without_a_budget(rules: tuple[Rule, ...]) -> None:
    run = running(policy((1, 2, None), rules=rules))
    for attempt in (1, 2):
        run.end(0, None, reason=Reason.PREEMPTED, message="it was preempted")
        run.end_stopping().up(0, 1)
        assert (run.status.state, run.status.attempt) == (RunState.IN_PROGRESS, attempt)
    assert run.status.spent.run == 0


def test_a_rule_for_preempted_nodes_counts_their_restarts() -> None:
    named = Rule("r", Action.RESTART_RUN, reasons=(Reason.PREEMPTED,))
    run = running(policy((1, 1, None), rules=(named,), max_restarts=1))
    run.end(0, None, reason=Reason.PREEMPTED).up(0)
    assert run.status.spent.run == 1
    assert run.end(0, None, reason=Reason.PREEMPTED).status.state is RunState.FAILED


def test_what_somebody_has_canceled_is_not_restarted() -> None:
    run = running(policy((1, 2, None, {"retries": 3}), max_restarts=3))
    run.end(0, None, reason=Reason.CANCELED, message="it was canceled").end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.endswith("canceled from outside:\nit was canceled")
    array = policy((3, 1, 0, {"parallelism": 2, "max_failed": 3, "retries": 3}))
    run = starting(array).up(0, 1).end(0, None, reason=Reason.CANCELED)
    assert run.status.nodes[0].state is N.FAILED and run.status.state is RunState.IN_PROGRESS


def test_retries_come_before_rules() -> None:
    rules = (Rule("never", FAIL),)
    run = running(policy((1, 1, None, {"retries": 1}), rules=rules)).end(0, 1)
    assert run.starts() == [0]
    assert run.up(0).end(0, 1).status.state is RunState.FAILED


def test_rules_marked_before_retries_come_before_retries() -> None:
    """Kubernetes: podFailurePolicy. Other failures are retried, then left to the other rules."""
    rules = (
        Rule("otherwise", Action.RESTART_RUN, counted=False),
        Rule("final", FAIL, exit_codes=(64,), before_retries=True),
        Rule("free", Action.RESTART_NODE, exit_codes=(3,), counted=False, before_retries=True),
    )
    run = running(policy((1, 2, None, {"retries": 1}), rules=rules))
    for _ in range(3):
        run.end(1, 3).up(1)
    assert (run.retries(), run.status.spent.rules) == ({}, {"free": 3})
    run.end(0, 1).up(0)
    assert run.retries() == {"g0/0": 1}
    run.end(0, 1).end_stopping().up(0, 1)
    assert run.status.attempt == 1
    assert run.notes("restart")[-1]["why"].endswith("; rule otherwise")
    run.end(0, 64).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.endswith("failed with exit code 64\nrule final")


def test_a_rule_before_retries_that_has_no_restart_left_is_final() -> None:
    rule = Rule("once", Action.RESTART_NODE, counted=False, max_restarts=1, before_retries=True)
    run = running(policy((1, 1, None, {"retries": 5}), rules=(rule,)))
    run.end(0, 1).up(0).end(0, 1)
    assert run.status.details.endswith("the only restart is used up (max_restarts of rule once)")


def test_what_would_fail_again_is_neither_retried_nor_tolerated() -> None:
    rules = (Rule("again", Action.RESTART_NODE, before_retries=True),)
    run = running(policy((1, 2, 1, {"retries": 5}), rules=rules, max_restarts=5))
    run.step(replace(run.ended(0, 1), reason=Reason.NOT_STARTED, final=True)).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.endswith("\nanother start would fail until this is corrected")
    assert run.status.spent.run == 0


def test_rules_come_before_tolerated_failures() -> None:
    rules = (Rule("never", FAIL, exit_codes=(64,)),)
    run = running(policy((3, 1, 1), rules=rules)).end(0, 1)
    assert run.status.stopping is None
    assert run.end(1, 64).stops() == [2]


def test_tolerated_failures_come_before_restarts() -> None:
    run = running(policy((3, 2, 2), max_restarts=9)).end(0, 1)
    assert (run.stops(), run.status.last_incarnation) == ([1], 0)
    run.end(2, 1)
    assert (run.stops(), run.status.last_incarnation) == ([3, 4, 5], 1)
    assert [node.next_incarnation for node in run.status.nodes] == [None, 1, None, 1, 1, 1]
    assert run.node(0).incarnation == run.node(2).incarnation == 1


def test_a_tolerated_failure_is_its_own_incident() -> None:
    """The next failure is not blamed on it."""
    run = running(policy((3, 1, 1))).end(0, 1)
    assert run.status.failures == ()
    assert (run.status.cause is not None) and run.status.cause.rank == 0
    run.end(1, 2).end(2, 3)
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 3)


def test_nodes_of_a_failed_replica_that_never_started_are_not_started() -> None:
    shape = (2, 2, 1, {"retries": 2})
    run = running(policy(shape)).step(after=0)
    run.step(run.ended(0, 1), run.ended(1, 1))
    assert run.starts() == [0, 1]
    run.up(0).end(0, 1)
    assert run.states() == [N.FAILED, N.STARTING, N.READY, N.READY]
    assert run.stops() == [1]


def test_the_log_says_why_a_node_is_not_started() -> None:
    shape = (2, 2, 1, {"retries": 1})
    run = running(policy(shape, backoff=Backoff(initial=10))).end(2, 1).up(2).end(0, 1)
    assert run.node(0).not_before is not None
    run.end(1, 1)
    assert run.states()[:2] == [N.STOPPED, N.FAILED]
    assert run.node(0).not_before is None
    entry = {"ranks": "0", "state": "STOPPED", "restart": 2, "exit_code": None, "signal": 0}
    assert entry | {"why": "its replica has failed"} in run.notes("nodes")


def test_all_failures_of_one_step_are_handled() -> None:
    """Two of three replicas fail at once, and both failures are tolerated."""
    run = running(policy((3, 2, 1)))
    run.step(run.ended(0, 1), run.ended(2, 2))
    assert run.stops() == [1, 3]
    assert run.status.failures == ()
    assert run.status.cause is not None and run.status.cause.rank == 0


def test_a_restart_handles_all_failures_in_its_scope() -> None:
    run = running(policy((2, 2, None), max_restarts=9, action=Action.RESTART_REPLICA))
    run.step(*(run.ended(rank, 1) for rank in range(4)))
    assert run.status.last_incarnation == 2, "one for each replica"
    assert [node.incarnation for node in run.status.nodes] == [1, 1, 2, 2]
    assert run.status.spent.run == 2


def test_consequences_restart_with_the_cause() -> None:
    run = running(policy((1, 3, None), max_restarts=1))
    run.step(
        run.ended(0, 1, message="ConnectionResetError: [Errno 104]"), run.ended(1, 1, message="x")
    )
    assert run.status.last_incarnation == 1
    assert run.status.cause is not None and run.status.cause.rank == 1
    assert run.notes("restart")[0]["why"] == "node-1 (group g0, rank 1) failed with exit code 1"


def test_a_failure_outside_of_the_scope_of_a_restart_is_handled_too() -> None:
    """The first rule restarts a replica; the second decides on failures elsewhere."""
    rules = (
        Rule("mine", Action.RESTART_REPLICA, groups=("g1",), counted=False),
        Rule("fatal", FAIL, groups=("g0",)),
    )
    run = running(policy((1, 1, None), (1, 1, None), rules=rules))
    run.step(run.ended(0, 1), run.ended(1, 2))
    assert run.status.last_incarnation == 1
    assert run.status.state is RunState.FAILED
    assert run.status.details.startswith("node-0 (group g0, rank 0) failed with exit code 1")


def test_a_run_fails_with_the_first_cause_whichever_failure_the_rule_matched() -> None:
    rules = (Rule("second", FAIL, exit_codes=(2,)),)
    run = running(policy((1, 3, None), rules=rules))
    run.step(run.ended(0, 1), run.ended(1, 2)).end_stopping()
    assert run.status.exit_code == 1
    assert run.status.details.endswith("failed with exit code 1\nrule second")


def test_a_failure_while_the_run_ends_changes_nothing() -> None:
    run = running(policy((1, 3, None), max_restarts=0)).end(0, 1)
    assert run.end(1, 7).effects == ()
    assert [failure.rank for failure in run.status.failures] == [0, 1]
    run.end(2, 143, signal=15)
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 1)


def test_only_the_first_of_many_failures_are_recorded() -> None:
    run = running(policy((1, 50, None)))
    run.step(*(run.ended(rank, 1) for rank in range(50)))
    assert [failure.rank for failure in run.status.failures] == list(range(32))
    assert len(run.notes("failure")) == 32
    assert run.status.state is RunState.FAILED


@pytest.mark.parametrize("at_once", [True, False])
def test_the_cause_is_recorded_even_if_it_is_reported_late(at_once: bool) -> None:
    run = running(policy((1, 50, None)))
    events = [run.ended(rank, 1, message="Connection reset by peer") for rank in range(40)]
    cause = run.ended(45, 7, message="ValueError: boom")
    later = run.ended(46, 8, message="ValueError: bang")
    for batch in [[*events, cause, later]] if at_once else [events, [cause], [later]]:
        run.step(*batch)
    assert [failure.rank for failure in run.status.failures] == [*range(31), 45]
    run.end_stopping()
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 7)
    assert run.status.details.endswith("ValueError: boom")
