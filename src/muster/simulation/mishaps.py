"""Random fault plans."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random
from typing import Literal

from muster.engines.simulated.life import KILLED, End
from muster.lifecycle.policy import Policy
from muster.lifecycle.status import Reason
from muster.simulation.faults import (
    Aftermath,
    AnyFault,
    Asked,
    AskedMeanwhile,
    ControllerDies,
    LateCommand,
    LateEvent,
    Moment,
    NodeFails,
    Plan,
    RepeatedCommand,
    RepeatedEvent,
    Scaled,
    SeveralFail,
    SlowStart,
    StoreIsBusy,
)

#: Virtual seconds within which nodes fail and people ask for things.
SPAN = 90.0
_STEPS = 25
_AFTERMATHS: tuple[Aftermath, ...] = (*("live",) * 3, *("die",) * 3, "die_unknown", "broken")
_MOMENTS = tuple(moment for moment in Moment if moment is not Moment.SAVING)
_LOST = End(None, 0, Reason.NODE_LOST, "its agent was not heard of any more")
_KINDS_OF_END = (_LOST, KILLED, End(139, int(signal.SIGSEGV)), End(21, message="ValueError: boom"))
_ENDS = (_LOST, *_KINDS_OF_END)
_OUT_OF_MEMORY = End(137, int(signal.SIGKILL), Reason.OUT_OF_MEMORY)


def draw_plan(dice: Random, nodes: int, *, suspended: bool) -> Plan:
    """Between nothing and a lot that goes wrong. suspended: the run begins so."""
    plan = [dice.choice(_KINDS)(dice, nodes) for _ in range(dice.choice((0, 1, 2, 3, 5, 8, 14)))]
    if dice.random() < 0.02:  # over and over, before anything could begin
        moment = dice.choice((Moment.BEFORE_RECORD, Moment.AFTER_RECORD))
        plan += [ControllerDies(0, moment, "die", 0.0)] * 5
    if any(isinstance(fault, AskedMeanwhile) and fault.pausing for fault in plan):
        plan.append(Asked(_when(dice), "suspend"))
    asked = any(isinstance(fault, Asked) and fault.what == "suspend" for fault in plan)
    if suspended or (asked and dice.random() < 0.8):
        plan.append(Asked(_when(dice), "resume"))
    return tuple(plan)


def draw_scaling(dice: Random, policy: Policy) -> Plan:
    """People who want other numbers of replicas, some of which cannot be."""
    plan: list[AnyFault] = []
    for _ in range(dice.randint(1, 5)):
        group = dice.choice(policy.groups)
        replicas = dice.randint(0, group.replicas + 1)
        if dice.random() < 0.3:
            step, late = dice.randrange(_STEPS), dice.random() < 0.5
            plan.append(Scaled(group.name, replicas, step=step, late=late))
        else:
            plan.append(Scaled(group.name, replicas, _when(dice)))
    return tuple(plan)


def draw_incident(dice: Random) -> Plan:
    """Several nodes that fail in one moment, twice perhaps."""
    kinds = (*_KINDS_OF_END, _OUT_OF_MEMORY)
    whens = (_when(dice) / 3 for _ in range(dice.randint(1, 2)))
    return tuple(
        SeveralFail(at, tuple(dice.sample(kinds, dice.randint(2, 4)))) for at in sorted(whens)
    )


def draw_saving(dice: Random) -> Plan:
    """The run is suspended, its controller dies before it has told nodes to save."""
    at, aftermath = _when(dice), dice.choice(_AFTERMATHS)
    died = ControllerDies(0, Moment.SAVING, aftermath, dice.choice((0.0, 1.0, 15.0)))
    return (Asked(at, "suspend"), died, Asked(at + 60.0, "resume"))


def _when(dice: Random) -> float:
    """Rather early than late: much is over soon."""
    return round(SPAN * dice.random() ** 2, 2)


def _node_fails(dice: Random, nodes: int) -> AnyFault:
    end = dice.choice((*_ENDS, _OUT_OF_MEMORY))
    told = round(dice.choice((0.0, 0.0, 5.0, 20.0)) * dice.random(), 2)
    return NodeFails(_when(dice), dice.randrange(nodes), end, told)


def _slow_start(dice: Random, nodes: int) -> AnyFault:
    return SlowStart(dice.randrange(nodes), dice.randint(1, 2), dice.choice((5.0, 40.0)))


def _late_event(dice: Random, nodes: int) -> AnyFault:
    return LateEvent(dice.randrange(nodes), dice.randint(1, 4), dice.choice((0.5, 5.0, 30.0)))


def _repeated_event(dice: Random, nodes: int) -> AnyFault:
    return RepeatedEvent(dice.randrange(nodes), dice.randint(1, 5), dice.choice((0.0, 3.0, 20.0)))


def _late_command(dice: Random, nodes: int) -> AnyFault:
    return LateCommand(dice.randrange(nodes), dice.randint(1, 3), dice.choice((0.5, 5.0, 30.0)))


def _repeated_command(dice: Random, nodes: int) -> AnyFault:
    seconds = dice.choice((0.0, 2.0, 20.0))
    return RepeatedCommand(dice.randrange(nodes), dice.randint(1, 3), seconds)


def _controller_dies(dice: Random, nodes: int) -> AnyFault:
    aftermath = dice.choice(_AFTERMATHS)
    jump = dice.choice((0.0, 0.0, 0.0, 3600.0, 20.0, -20.0, -3600.0))
    down = dice.choice((0.0, 1.0, 15.0))
    moment = dice.choice(_MOMENTS)
    return ControllerDies(dice.randrange(_STEPS), moment, aftermath, down, jump)


def _store_busy(dice: Random, nodes: int) -> AnyFault:
    return StoreIsBusy(dice.randrange(_STEPS), dice.randint(1, 5))


def _asked(dice: Random, nodes: int) -> AnyFault:
    return Asked(_when(dice), dice.choice(("cancel", "suspend", "suspend", "resume")))


def _asked_meanwhile(dice: Random, nodes: int) -> AnyFault:
    what: Literal["cancel", "suspend"] = dice.choice(("cancel", "suspend"))
    late, pausing = dice.random() < 0.5, dice.random() < 0.4
    return AskedMeanwhile(0 if pausing else dice.randrange(_STEPS), what, late, pausing)


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
    _asked,
    _asked,
    _asked_meanwhile,
)
