"""Failure: which rule decides, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle.describe import describe
from muster.lifecycle.effects import StartNodes, StopNodes
from muster.lifecycle.failure import choose, fits
from muster.lifecycle.policy import Action, Backoff, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, Reason
from muster.spec import patterns
from support.life import policy, refs, running

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
def test_everything_a_rule_says_must_fit(conditions: dict[str, Any], fit: bool) -> None:
    assert fits(Rule("r", FAIL, **conditions), KILLED) is fit


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("pattern", "message", "fit"),
    [
        ("(a+)+$", "a" * 5000 + "b", False),
        ("(a|a)*$", "a" * 5000 + "b", True),  # $ alone fits
        ("exit code [[:digit:]]+", "", True),
        (r"^\pL+: \x{e9}", "boom: é", False),
        (r"(?m)^\pL+: \x{e9}", "boom: é", True),
    ],
)
def test_patterns_are_matched_without_backtracking(pattern: str, message: str, fit: bool) -> None:
    assert fits(Rule("r", FAIL, messages=(pattern,)), replace(KILLED, message=message)) is fit


def test_what_has_no_exit_code_fits_no_exit_code() -> None:
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
        pytest.param((ONE,), [FIRST], (None, FIRST), id="none fits"),
        pytest.param((ONE,), [FIRST, SECOND], (ONE, SECOND), id="the failure that fits"),
        pytest.param((ONE, TWO), [FIRST, SECOND], (ONE, SECOND), id="rules before failures"),
        pytest.param((TWO, ONE), [FIRST, SECOND], (TWO, FIRST), id="then the first failure"),
        pytest.param((TWO, EARLY), [FIRST, SECOND], (EARLY, SECOND), id="before retries first"),
        pytest.param((EARLY, TWO), [FIRST], (TWO, FIRST), id="where it fits"),
    ],
)
def test_the_order_of_rules_beats_the_order_of_failures(
    rules: tuple[Rule, ...], failures: list[Failure], chosen: tuple[Rule | None, Failure]
) -> None:
    assert choose(policy((9, 1, None), rules=rules), failures) == chosen


def test_each_rule_looks_at_each_text_once_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many failures are dealt with one by one."""
    looked = []

    def found(messages: tuple[str, ...], text: str) -> bool:
        looked.append((messages, text.partition(" ")[0]))
        return bool(real(messages, text))

    real = patterns.found
    monkeypatch.setattr(patterns, "found", found)
    rules = (Rule("one", FAIL, messages=("nothing",)), Rule("two", FAIL, messages=("else",)))
    life = running(policy((1, 9, 9), rules=rules, max_restarts=9, action=Action.RESTART_NODE))
    life.tell(*(life.ended(rank, 1) for rank in range(9)))
    assert len(looked) == 18
    assert len(set(looked)) == 18


def test_a_rule_looks_at_the_texts_of_the_first_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 1000
    failures = [replace(KILLED, rank=rank, message=text) for rank in range(9)]
    last = failures[-1] = replace(failures[-1], message=f"{text} Xid")
    rules = (Rule("one", FAIL, messages=("nothing",)), Rule("two", FAIL, messages=("Xid",)))
    policy_ = policy((1, 9, None), rules=rules)
    assert choose(policy_, failures) == (rules[1], last)
    monkeypatch.setattr(patterns, "allowance", lambda _: 5000)
    assert choose(policy_, failures) == (None, failures[0])
    assert choose(policy_, failures[-5:]) == (rules[1], last), "each rule has its own allowance"
    monkeypatch.setattr(patterns, "allowance", lambda _: 1)
    assert choose(policy_, [last]) == (rules[1], last), "the first is always looked at"
    monkeypatch.setattr(patterns, "allowance", lambda _: len(describe(failures[0])))
    assert choose(policy_, failures[-2:]) == (None, failures[-2]), "no more than it allows"


def test_a_rule_with_a_text_of_its_own_looks_at_that() -> None:
    """JobSet: onJobFailureMessagePatterns see what the Job controller says, not the program."""
    text = "${group}/${replica}/${index}: rank ${rank} ended with ${exit_code}${other}."
    failure = replace(KILLED, rank=6, group="g1", exit_code=42, message="no data")
    rule = Rule("r", FAIL, messages=("^g1/1/2: rank 6 ended with 42[.]$",), text=text)
    shapes = (1, 1, None), (2, 3, None)
    assert choose(policy(*shapes, rules=(rule,)), [failure]) == (rule, failure)
    about_it = replace(rule, messages=("no data",))
    assert choose(policy(*shapes, rules=(about_it,)), [failure]) == (None, failure)


# --- what follows


def test_nothing_said_fails_the_run() -> None:
    life = running(policy((1, 2, None), (1, 1, None))).end(1, 3, message="boom")
    assert life.effects == (StopNodes(refs(0, 2)),)
    assert life.status.stopping is not None
    assert life.status.stopping.note == ""
    assert life.entries[-1].kind == "stopping"
    assert life.entries[-1].data["towards"] == RunState.FAILED
    assert life.entries[-1].data["why"] == life.status.stopping.details
    assert life.status.stopping.details.endswith("failed with exit code 3:\nboom")
    life.obey()
    assert life.status.details == "node-1 (group g0, rank 1) failed with exit code 3:\nboom"
    assert life.status.exit_code == 3


def test_a_rule_that_fails_the_run_is_named() -> None:
    rules = (Rule("bad-arguments", FAIL, exit_codes=(64,)),)
    life = running(policy((1, 2, None), max_restarts=5, rules=rules))
    life.end(0, 64).obey()
    assert life.status.state is RunState.FAILED
    assert life.status.details.endswith("failed with exit code 64\nrule bad-arguments")
    assert life.status.spent.run == 0


def test_no_rule_fits_and_restarts_are_left() -> None:
    rules = (Rule("bad-arguments", FAIL, exit_codes=(64,)),)
    life = running(policy((1, 2, None), max_restarts=5, rules=rules, action=Action.RESTART_NODE))
    assert life.end(0, 1).effects == (StartNodes(0, refs(0, incarnation=1)),)
    assert life.notes("restart")[-1]["why"] == "node-0 (group g0, rank 0) failed with exit code 1"


def test_a_rule_that_restarts_is_named() -> None:
    rules = (Rule("lost-node", Action.RESTART_NODE, counted=False),)
    life = running(policy((1, 2, None), rules=rules)).end(0, 1)
    said = "node-0 (group g0, rank 0) failed with exit code 1; rule lost-node"
    assert life.notes("restart") == [
        {"restart": 1, "what": "node-0", "why": said, "wait": 0.0},
    ]


def test_retries_come_before_rules() -> None:
    rules = (Rule("never", FAIL),)
    life = running(policy((1, 1, None, {"retries": 1}), rules=rules)).end(0, 1)
    assert life.starts() == [0]
    assert life.up(0).end(0, 1).status.state is RunState.FAILED


def test_some_rules_come_before_retries() -> None:
    """Kubernetes: podFailurePolicy. What they do not fit is retried, and then for the others."""
    rules = (
        Rule("otherwise", Action.RESTART_RUN, counted=False),
        Rule("final", FAIL, exit_codes=(64,), before_retries=True),
        Rule("free", Action.RESTART_NODE, exit_codes=(3,), counted=False, before_retries=True),
    )
    life = running(policy((1, 2, None, {"retries": 1}), rules=rules))
    for _ in range(3):
        life.end(1, 3).up(1)
    assert (life.status.spent.retries, life.status.spent.rules) == ({}, {"free": 3})
    life.end(0, 1).up(0)
    assert life.status.spent.retries == {"g0/0": 1}
    life.end(0, 1).obey().up(0, 1)
    assert life.status.attempt == 1
    assert life.notes("restart")[-1]["why"].endswith("; rule otherwise")
    life.end(0, 64).obey()
    assert life.status.state is RunState.FAILED
    assert life.status.details.endswith("failed with exit code 64\nrule final")


def test_a_rule_before_retries_that_has_no_restart_left_is_final() -> None:
    rule = Rule("once", Action.RESTART_NODE, counted=False, max_restarts=1, before_retries=True)
    life = running(policy((1, 1, None, {"retries": 5}), rules=(rule,)))
    life.end(0, 1).up(0).end(0, 1)
    assert life.status.details.endswith("the one restart is used up (max_restarts of rule once)")


def test_rules_come_before_what_can_be_done_without() -> None:
    rules = (Rule("never", FAIL, exit_codes=(64,)),)
    life = running(policy((3, 1, 1), rules=rules)).end(0, 1)
    assert life.status.stopping is None
    assert life.end(1, 64).stops() == [2]


def test_what_can_be_done_without_comes_before_restarts() -> None:
    life = running(policy((3, 2, 2), max_restarts=9)).end(0, 1)
    assert (life.stops(), life.status.restarts) == ([1], 0)
    life.end(2, 1)
    assert (life.stops(), life.status.restarts) == ([3, 4, 5], 1)
    assert [node.again for node in life.status.nodes] == [None, 1, None, 1, 1, 1]
    assert life.node(0).incarnation == life.node(2).incarnation == 1


def test_what_is_done_without_is_an_incident_of_its_own() -> None:
    """The next failure is not blamed on it."""
    life = running(policy((3, 1, 1))).end(0, 1)
    assert life.status.failures == ()
    assert (life.status.cause is not None) and life.status.cause.rank == 0
    life.end(1, 2).end(2, 3)
    assert (life.status.state, life.status.exit_code) == (RunState.FAILED, 3)


def test_what_never_started_of_a_replica_that_failed_never_does() -> None:
    shape = (2, 2, 1, {"retries": 2})
    life = running(policy(shape)).tell(after=0)
    life.tell(life.ended(0, 1), life.ended(1, 1))
    assert life.starts() == [0, 1]
    life.up(0).end(0, 1)
    assert life.states() == [N.FAILED, N.STARTING, N.READY, N.READY]
    assert life.stops() == [1]


def test_the_log_says_why_something_never_starts() -> None:
    shape = (2, 2, 1, {"retries": 1})
    life = running(policy(shape, backoff=Backoff(initial=10))).end(2, 1).up(2).end(0, 1)
    assert life.node(0).not_before is not None
    life.end(1, 1)
    assert life.states()[:2] == [N.STOPPED, N.FAILED]
    assert life.node(0).not_before is None
    told = {"ranks": "0", "state": "STOPPED", "restart": 2, "exit_code": None, "signal": 0}
    assert told | {"why": "its replica has failed"} in life.notes("nodes")


def test_all_failures_of_one_step_are_dealt_with() -> None:
    """Two of three replicas fail at once, and both can be done without."""
    life = running(policy((3, 2, 1)))
    life.tell(life.ended(0, 1), life.ended(2, 2))
    assert life.stops() == [1, 3]
    assert life.status.failures == ()
    assert life.status.cause is not None and life.status.cause.rank == 0


def test_a_restart_deals_with_all_failures_in_its_scope() -> None:
    life = running(policy((2, 2, None), max_restarts=9, action=Action.RESTART_REPLICA))
    life.tell(*(life.ended(rank, 1) for rank in range(4)))
    assert life.status.restarts == 2, "one for each replica"
    assert [node.incarnation for node in life.status.nodes] == [1, 1, 2, 2]
    assert life.status.spent.run == 2


def test_consequences_restart_with_the_cause() -> None:
    life = running(policy((1, 3, None), max_restarts=1))
    life.tell(
        life.ended(0, 1, message="ConnectionResetError: [Errno 104]"), life.ended(1, 1, message="x")
    )
    assert life.status.restarts == 1
    assert life.status.cause is not None and life.status.cause.rank == 1
    assert life.notes("restart")[0]["why"] == "node-1 (group g0, rank 1) failed with exit code 1"


def test_a_failure_that_a_restart_leaves_alone_is_decided_on() -> None:
    """The first rule restarts a replica; what failed elsewhere is for the second."""
    rules = (
        Rule("mine", Action.RESTART_REPLICA, groups=("g1",), counted=False),
        Rule("fatal", FAIL, groups=("g0",)),
    )
    life = running(policy((1, 1, None), (1, 1, None), rules=rules))
    life.tell(life.ended(0, 1), life.ended(1, 2))
    assert life.status.restarts == 1
    assert life.status.state is RunState.FAILED
    assert life.status.details.startswith("node-0 (group g0, rank 0) failed with exit code 1")


def test_a_run_fails_of_the_first_cause_whichever_failure_the_rule_saw() -> None:
    rules = (Rule("second", FAIL, exit_codes=(2,)),)
    life = running(policy((1, 3, None), rules=rules))
    life.tell(life.ended(0, 1), life.ended(1, 2)).obey()
    assert life.status.exit_code == 1
    assert life.status.details.endswith("failed with exit code 1\nrule second")


def test_a_failure_while_the_run_ends_changes_nothing() -> None:
    life = running(policy((1, 3, None), max_restarts=0)).end(0, 1)
    assert life.end(1, 7).effects == ()
    assert [failure.rank for failure in life.status.failures] == [0, 1]
    life.end(2, 143, signal=15)
    assert (life.status.state, life.status.exit_code) == (RunState.FAILED, 1)


def test_of_thousands_of_failures_some_are_remembered() -> None:
    life = running(policy((1, 50, None)))
    life.tell(*(life.ended(rank, 1) for rank in range(50)))
    assert [failure.rank for failure in life.status.failures] == list(range(32))
    assert len(life.notes("failure")) == 32
    assert life.status.state is RunState.FAILED


@pytest.mark.parametrize("at_once", [True, False])
def test_the_cause_is_remembered_however_late_it_is_told(at_once: bool) -> None:
    life = running(policy((1, 50, None)))
    events = [life.ended(rank, 1, message="Connection reset by peer") for rank in range(40)]
    cause = life.ended(45, 7, message="ValueError: boom")
    later = life.ended(46, 8, message="ValueError: bang")
    for told in [[*events, cause, later]] if at_once else [events, [cause], [later]]:
        life.tell(*told)
    assert [failure.rank for failure in life.status.failures] == [*range(31), 45]
    life.obey()
    assert (life.status.state, life.status.exit_code) == (RunState.FAILED, 7)
    assert life.status.details.endswith("ValueError: boom")
