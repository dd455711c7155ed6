"""What goes wrong in a simulated run: a plan, which can be printed, kept as JSON and made smaller.

Times are virtual seconds since the run was accepted. What comes too late to matter does nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct

from muster.engines.simulated.life import End


class Fault(Struct, frozen=True, tag_field="fault", omit_defaults=True):
    """One thing that goes wrong."""

    def __str__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(f'{k}={_shown(v)}' for k, v in fields)})"


class NodeFails(Fault, frozen=True):
    """What runs on a node at a time ends: it crashes, is out of memory, or the node is lost."""

    at: float
    rank: int
    end: End
    told_after: float = 0.0


class SeveralFail(Fault, frozen=True):
    """Of what runs at a time, the lowest ranks end in one moment, each of something else."""

    at: float
    ends: tuple[End, ...]


class SlowStart(Fault, frozen=True):
    """The nth time a node starts takes so many seconds longer."""

    rank: int
    nth: int
    seconds: float


class LateEvent(Fault, frozen=True):
    """The nth thing a node has to tell is lost, and told later, after a reconnect."""

    rank: int
    nth: int
    seconds: float


class RepeatedEvent(Fault, frozen=True):
    """The nth thing a node has to tell is told again later."""

    rank: int
    nth: int
    seconds: float


class LateCommand(Fault, frozen=True):
    """The nth thing a node is asked reaches it later; what it is asked next not before that."""

    rank: int
    nth: int
    seconds: float


class RepeatedCommand(Fault, frozen=True):
    """The nth thing a node is asked reaches it again later."""

    rank: int
    nth: int
    seconds: float


class Moment(StrEnum):
    """Where in a controller's life."""

    BEFORE_RECORD = "before_record"
    AFTER_RECORD = "after_record"  # and before the first effect
    BETWEEN_EFFECTS = "between_effects"
    AFTER_EFFECTS = "after_effects"
    WAITING = "waiting"
    SAVING = "saving"  # and has yet to tell nodes to save


#: What becomes of the nodes: they live on; they die, and it is known which had begun; they die,
#: and it is not known; they die, and the run is given up as one that Muster broke.
Aftermath = Literal["live", "die", "die_unknown", "broken"]


class ControllerDies(Fault, frozen=True):
    """The first time, from a step of the run on, that a controller comes to such a moment, it
    dies. Another takes over `down` seconds later, by when the clock on the wall has been set
    `jump` seconds forward."""

    step: int
    moment: Moment
    aftermath: Aftermath
    down: float = 1.0
    jump: float = 0.0


class StoreIsBusy(Fault, frozen=True):
    """From a step of the run on, so many attempts to record fail."""

    step: int
    times: int


class Asked(Fault, frozen=True):
    """Somebody cancels, suspends or resumes the run."""

    at: float
    what: Literal["cancel", "suspend", "resume"]


class AskedMeanwhile(Fault, frozen=True):
    """Somebody cancels or suspends the run who looks at it just before a step is recorded. late:
    and whose wish is recorded just after it. pausing: it is a step that suspends the run."""

    step: int
    what: Literal["cancel", "suspend"]
    late: bool = False
    pausing: bool = False


class Scaled(Fault, frozen=True):
    """Somebody wants a group to have so many replicas: at a time; or, where `step` is said, just
    before a step is recorded, and with `late` just after it."""

    group: str
    replicas: int
    at: float = 0.0
    step: int | None = None
    late: bool = False


AnyFault = (
    NodeFails
    | SeveralFail
    | SlowStart
    | LateEvent
    | RepeatedEvent
    | LateCommand
    | RepeatedCommand
    | ControllerDies
    | StoreIsBusy
    | Asked
    | AskedMeanwhile
    | Scaled
)
Plan = tuple[AnyFault, ...]


def to_json(plan: Plan) -> str:
    """The inverse of `from_json`."""
    return msgspec.json.encode(plan).decode()


def from_json(text: str) -> Plan:
    """Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=Plan)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
