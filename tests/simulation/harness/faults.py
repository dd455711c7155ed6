"""The faults of a simulated run. A plan of faults can be printed, read from JSON, and reduced.

Times are virtual seconds since the run was accepted. A fault that comes too late has no effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct

from simulation.harness.behavior import Exit


class Fault(Struct, frozen=True, tag_field="fault", omit_defaults=True):
    """One fault."""

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(f'{k}={_text(v)}' for k, v in fields)})"


class NodeFails(Fault, frozen=True):
    """At some time a node ends: it crashes, runs out of memory, or is lost."""

    at: float
    rank: int
    end: Exit
    noticed_after: float = 0.0


class SeveralFail(Fault, frozen=True):
    """At some time the running nodes with the lowest ranks end together, each in another way."""

    at: float
    ends: tuple[Exit, ...]


class SlowStart(Fault, frozen=True):
    """The nth start of a node takes longer."""

    rank: int
    nth: int
    seconds: float


class NodeWaits(Fault, frozen=True):
    """The nth start of a node waits in a queue. Only where nodes outlive their controller."""

    rank: int
    nth: int
    seconds: float


class LateEvent(Fault, frozen=True):
    """The nth event of a node is lost and delivered later, after a reconnect."""

    rank: int
    nth: int
    seconds: float


class RepeatedEvent(Fault, frozen=True):
    """The nth event of a node is delivered again later."""

    rank: int
    nth: int
    seconds: float


class LateCommand(Fault, frozen=True):
    """The nth command to a node arrives later, and the following ones not before it."""

    rank: int
    nth: int
    seconds: float


class RepeatedCommand(Fault, frozen=True):
    """The nth command to a node arrives again later."""

    rank: int
    nth: int
    seconds: float


class ContactIsLost(Fault, frozen=True):
    """At some time contact with the agent of a node, or of all (no `rank`), is lost for some
    seconds. A session that has contact notices it `noticed_after` seconds later. Only where nodes
    outlive their controller."""

    at: float
    seconds: float
    rank: int | None = None
    noticed_after: float = 0.0


class ContactBreaksWithCommand(Fault, frozen=True):
    """Contact with the agent of a node is lost for some seconds as the nth command is sent to it,
    which arrives or does not. Only where nodes outlive their controller."""

    rank: int
    nth: int
    seconds: float
    arrives: bool


class Moment(StrEnum):
    """The moments at which a controller may die."""

    BEFORE_RECORD = "before_record"
    AFTER_RECORD = "after_record"  # before the first effect
    BETWEEN_EFFECTS = "between_effects"
    AFTER_EFFECTS = "after_effects"
    WAITING = "waiting"
    SAVING = "saving"  # before it sends the checkpoint signal
    CLOSING = "closing"  # while the session closes


#: What happens to the nodes: they stay alive, as those that outlive their controller do in any case
#: but the last; they die, and it is known which had started; they die, and it is not known; they
#: die, and the run is recorded as broken.
Aftermath = Literal["live", "die", "die_unknown", "broken"]


class EngineRestarts(Fault, frozen=True):
    """At some time what has started the nodes restarts the whole run by itself, whether or not a
    controller drives it; unless that counts, and no restart is left. Only where it may."""

    at: float
    counted: bool


class ControllerDies(Fault, frozen=True):
    """From a step of the run on, the first controller to reach a moment dies.
    Another one takes over `down` seconds later, after the wall clock has been set forward by
    `jump` seconds."""

    step: int
    moment: Moment
    aftermath: Aftermath
    down: float = 1.0
    jump: float = 0.0


class ControllerLeaves(Fault, frozen=True):
    """At some time the process of the controller is asked to end, and hands the run over. Another
    one takes over `down` seconds after it has ended."""

    at: float
    down: float = 1.0


class StoreIsBusy(Fault, frozen=True):
    """From a step of the run on, a number of attempts to record fail."""

    step: int
    times: int


class UserRequests(Fault, frozen=True):
    """The user cancels, suspends or resumes the run."""

    at: float
    what: Literal["cancel", "suspend", "resume"]


class UserRequestsDuringStep(Fault, frozen=True):
    """Just before a step is recorded, the user looks at the run. The user cancels or suspends it
    before the step is recorded or, with `late`, after. `suspending`: only a step that suspends the
    run."""

    step: int
    what: Literal["cancel", "suspend"]
    late: bool = False
    suspending: bool = False


class UserScales(Fault, frozen=True):
    """The user scales a group: at some time, or, with `step`, just before a step is recorded, and
    with `late` just after that."""

    group: str
    replicas: int
    at: float = 0.0
    step: int | None = None
    late: bool = False


AnyFault = (
    NodeFails
    | SeveralFail
    | SlowStart
    | NodeWaits
    | LateEvent
    | RepeatedEvent
    | LateCommand
    | RepeatedCommand
    | ContactIsLost
    | ContactBreaksWithCommand
    | EngineRestarts
    | ControllerDies
    | ControllerLeaves
    | StoreIsBusy
    | UserRequests
    | UserRequestsDuringStep
    | UserScales
)
FaultPlan = tuple[AnyFault, ...]


def to_json(plan: FaultPlan) -> str:
    """The inverse of `from_json`."""
    return msgspec.json.encode(plan).decode()


def from_json(text: str) -> FaultPlan:
    """Read a plan. Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=FaultPlan)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
