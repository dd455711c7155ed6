"""Random fault plans."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random
from typing import Literal

from muster.lifecycle.policy import Policy
from muster.lifecycle.status import Reason
from simulation.harness.behavior import KILLED, Exit
from simulation.harness.faults import (
    Aftermath,
    AnyFault,
    ContactBreaksWithCommand,
    ContactIsLost,
    ControllerDies,
    ControllerLeaves,
    EngineRestarts,
    FaultPlan,
    LateCommand,
    LateEvent,
    Moment,
    NodeFails,
    NodeWaits,
    RepeatedCommand,
    RepeatedEvent,
    SeveralFail,
    SlowStart,
    StoreIsBusy,
    UserRequests,
    UserRequestsDuringStep,
    UserScales,
)

#: Virtual seconds within which nodes fail and users send requests.
SPAN = 90.0
_STEPS = 25
_AFTERMATHS: tuple[Aftermath, ...] = (*("live",) * 3, *("die",) * 3, "die_unknown", "broken")
_MOMENTS = tuple(one for one in Moment if one not in (Moment.SAVING, Moment.CLOSING))
_LOST = Exit(None, 0, Reason.NODE_LOST, "its agent stopped responding")
_EXIT_KINDS = (
    _LOST,
    KILLED,
    Exit(139, int(signal.SIGSEGV)),
    Exit(21, message="ValueError: boom"),
)
_EXITS = (_LOST, *_EXIT_KINDS)
_OUT_OF_MEMORY = Exit(137, int(signal.SIGKILL), Reason.OUT_OF_MEMORY)
#: Its infrastructure takes the node away.
_TAKEN = (
    Exit(None, 0, Reason.PREEMPTED, "its job was preempted"),
    Exit(None, 0, Reason.CANCELED, "its job was canceled"),
)


def draw_plan(rng: Random, nodes: int, *, suspended: bool) -> FaultPlan:
    """A random plan, from no fault to many. suspended: the run is submitted suspended."""
    plan = [rng.choice(_KINDS)(rng, nodes) for _ in range(rng.choice((0, 1, 2, 3, 5, 8, 14)))]
    if rng.random() < 0.02:  # again and again before any node starts
        moment = rng.choice((Moment.BEFORE_RECORD, Moment.AFTER_RECORD))
        plan += [ControllerDies(0, moment, "die", 0.0)] * 5
    if any(isinstance(fault, UserRequestsDuringStep) and fault.suspending for fault in plan):
        plan.append(UserRequests(_when(rng), "suspend"))
    suspends = any(isinstance(fault, UserRequests) and fault.what == "suspend" for fault in plan)
    if suspended or (suspends and rng.random() < 0.8):
        plan.append(UserRequests(_when(rng), "resume"))
    if rng.random() < 0.15:
        plan.append(ControllerLeaves(_when(rng), rng.choice((0.0, 1.0, 15.0))))
    return tuple(plan)


def draw_scaling(rng: Random, policy: Policy) -> FaultPlan:
    """Requests to scale groups, some to sizes that are not allowed."""
    plan: list[AnyFault] = []
    for _ in range(rng.randint(1, 5)):
        group = rng.choice(policy.groups)
        replicas = rng.randint(0, group.replicas + 1)
        if rng.random() < 0.3:
            step, late = rng.randrange(_STEPS), rng.random() < 0.5
            plan.append(UserScales(group.name, replicas, step=step, late=late))
        else:
            plan.append(UserScales(group.name, replicas, _when(rng)))
    return tuple(plan)


def draw_contacts(rng: Random, nodes: int) -> FaultPlan:
    """Contact with nodes is lost, and comes back; and perhaps the controller dies meanwhile."""
    plan: list[AnyFault] = []
    for _ in range(rng.choice((0, 1, 2, 4, 8))):
        seconds = rng.choice((0.5, 5.0, 20.0, 120.0))
        if rng.random() < 0.3:
            rank, nth = rng.randrange(nodes), rng.randint(1, 4)
            plan.append(ContactBreaksWithCommand(rank, nth, seconds, rng.random() < 0.5))
            continue
        affected = rng.randrange(nodes) if rng.random() < 0.7 else None
        noticed = rng.choice((0.0, 0.0, 1.0, 8.0))
        plan.append(ContactIsLost(_when(rng), seconds, affected, noticed))
    if rng.random() < 0.3:  # a host dies, which is known before there is contact again
        rank, at = rng.randrange(nodes), _when(rng) / 2
        plan.append(ContactIsLost(at, 120.0, rank))
        plan.append(NodeFails(at + 1.0, rank, _LOST, rng.choice((0.0, 30.0))))
    if rng.random() < 0.3:  # what it has decided is not carried out for a while
        moment = rng.choice((Moment.AFTER_RECORD, Moment.AFTER_EFFECTS))
        plan += [
            ControllerDies(rng.randrange(12), moment, "live", rng.choice((5.0, 30.0))),
            SlowStart(rng.randrange(nodes), 1, 60.0),
        ]
    if rng.random() < 0.1:
        moment = rng.choice((Moment.AFTER_EFFECTS, Moment.WAITING))
        plan += [ControllerDies(rng.randrange(8), moment, "live", 0.0)] * 5
    if rng.random() < 0.4:
        for rank in rng.sample(range(nodes), rng.randint(1, nodes)):
            plan.append(NodeWaits(rank, rng.randint(1, 2), rng.choice((1.0, 15.0, 100.0))))
    if rng.random() < 0.5:  # what has started its nodes has forgotten them
        plan.append(ControllerDies(0, Moment.CLOSING, "live", rng.choice((0.0, 15.0))))
    return tuple(plan)


def draw_native_restarts(rng: Random) -> FaultPlan:
    """Nobody drives the run for so long that what has started its nodes restarts it; it may also do
    so otherwise, as when a run is preempted."""
    plan: list[AnyFault] = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        moment, down = rng.choice(_MOMENTS), rng.choice((5.0, 30.0, 120.0))
        plan.append(ControllerDies(rng.randrange(_STEPS), moment, "live", down))
    if rng.random() < 0.3:
        plan.append(EngineRestarts(_when(rng), rng.random() < 0.7))
    return tuple(plan)


def draw_incident(rng: Random) -> FaultPlan:
    """Several nodes fail at one moment; once or twice."""
    kinds = (*_EXIT_KINDS, _OUT_OF_MEMORY)
    whens = (_when(rng) / 3 for _ in range(rng.randint(1, 2)))
    return tuple(
        SeveralFail(at, tuple(rng.sample(kinds, rng.randint(2, 4)))) for at in sorted(whens)
    )


def draw_saving(rng: Random) -> FaultPlan:
    """The run is suspended, and its controller dies before it sends the checkpoint signal."""
    at, aftermath = _when(rng), rng.choice(_AFTERMATHS)
    died = ControllerDies(0, Moment.SAVING, aftermath, rng.choice((0.0, 1.0, 15.0)))
    return (UserRequests(at, "suspend"), died, UserRequests(at + 60.0, "resume"))


def _when(rng: Random) -> float:
    """A random time, more often early than late: many runs end soon."""
    return round(SPAN * rng.random() ** 2, 2)


def _node_fails(rng: Random, nodes: int) -> AnyFault:
    end = rng.choice((*_EXITS, _OUT_OF_MEMORY, *_TAKEN))
    delay = round(rng.choice((0.0, 0.0, 5.0, 20.0)) * rng.random(), 2)
    return NodeFails(_when(rng), rng.randrange(nodes), end, delay)


def _slow_start(rng: Random, nodes: int) -> AnyFault:
    return SlowStart(rng.randrange(nodes), rng.randint(1, 2), rng.choice((5.0, 40.0)))


def _late_event(rng: Random, nodes: int) -> AnyFault:
    return LateEvent(rng.randrange(nodes), rng.randint(1, 4), rng.choice((0.5, 5.0, 30.0)))


def _repeated_event(rng: Random, nodes: int) -> AnyFault:
    return RepeatedEvent(rng.randrange(nodes), rng.randint(1, 5), rng.choice((0.0, 3.0, 20.0)))


def _late_command(rng: Random, nodes: int) -> AnyFault:
    return LateCommand(rng.randrange(nodes), rng.randint(1, 3), rng.choice((0.5, 5.0, 30.0)))


def _repeated_command(rng: Random, nodes: int) -> AnyFault:
    seconds = rng.choice((0.0, 2.0, 20.0))
    return RepeatedCommand(rng.randrange(nodes), rng.randint(1, 3), seconds)


def _controller_dies(rng: Random, nodes: int) -> AnyFault:
    aftermath = rng.choice(_AFTERMATHS)
    jump = rng.choice((0.0, 0.0, 0.0, 3600.0, 20.0, -20.0, -3600.0))
    down = rng.choice((0.0, 1.0, 15.0))
    moment = rng.choice(_MOMENTS)
    return ControllerDies(rng.randrange(_STEPS), moment, aftermath, down, jump)


def _store_busy(rng: Random, nodes: int) -> AnyFault:
    return StoreIsBusy(rng.randrange(_STEPS), rng.randint(1, 5))


def _user_requests(rng: Random, nodes: int) -> AnyFault:
    return UserRequests(_when(rng), rng.choice(("cancel", "suspend", "suspend", "resume")))


def _user_requests_during_step(rng: Random, nodes: int) -> AnyFault:
    what: Literal["cancel", "suspend"] = rng.choice(("cancel", "suspend"))
    late, suspending = rng.random() < 0.5, rng.random() < 0.4
    return UserRequestsDuringStep(
        0 if suspending else rng.randrange(_STEPS), what, late, suspending
    )


_KINDS: tuple[Callable[[Random, int], AnyFault], ...] = (
    _node_fails,
    _node_fails,
    _slow_start,
    _late_event,
    _repeated_event,
    _late_command,
    _repeated_command,
    _controller_dies,
    _controller_dies,
    _controller_dies,
    _store_busy,
    _user_requests,
    _user_requests,
    _user_requests_during_step,
)
