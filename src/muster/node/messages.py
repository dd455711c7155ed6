"""Messages between the processes of a run: typed records here, JSON objects on a `channel.Channel`.

A message is encoded as an object with the fields of its record and a `type`. Both ends run the same
version of Muster, so a missing or an unknown field is an error.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Type, Union

from muster.node.launch_message import (
    LaunchMessage,
    OutputFiles,
    Probe,
    ProcessLaunch,
    ServiceLaunch,
)


class InvalidMessage(ValueError):  # noqa: N818
    """A message has an unknown type, or lacks a field, or has an unknown one."""


class ExitReport(NamedTuple):
    """How an incarnation of a node ended."""

    #: None if a process never started or did not exit by itself.
    exit_code: int | None
    #: The signal that ended the process, or 0.
    signal: int
    #: A value of `lifecycle.status.Reason`.
    reason: str
    #: What explains the failure: the recorded error or the end of stderr, or "".
    message: str = ""
    #: When the error was raised, in epoch seconds; None if unknown.
    raised_at: float | None = None


# --- from the supervisor to an agent


class Start(NamedTuple):
    """Start the first incarnation: every node that starts with this one is on the roster."""

    incarnation: int


class Restart(NamedTuple):
    """Start another incarnation in place."""

    launch: LaunchMessage

    @property
    def incarnation(self) -> int:
        """The new incarnation."""
        return self.launch.incarnation


class Stop(NamedTuple):
    """End the node: SIGTERM, and SIGKILL after the grace period."""

    incarnation: int


class Kill(NamedTuple):
    """End the node with SIGKILL."""

    incarnation: int


class Signal(NamedTuple):
    """Send a signal to the processes of the program."""

    incarnation: int
    number: int


class Absent(NamedTuple):
    """Nodes of these ranks were removed from the run: checks no longer wait for them."""

    incarnation: int
    ranks: Sequence[int]


# --- from an agent to the supervisor


class Joined(NamedTuple):
    """The node is set up and may be put on the roster."""

    incarnation: int


class Started(NamedTuple):
    """The first process of the incarnation, or its first service, is about to start."""

    incarnation: int


class Ready(NamedTuple):
    """The node is ready: its probe succeeded, or its program or services are up."""

    incarnation: int


class DiskExceeded(NamedTuple):
    """The node's folder uses more than it may."""

    incarnation: int
    #: Bytes.
    used: int
    #: Bytes.
    allowed: int


class ProgramDone(NamedTuple):
    """The program succeeded, and the services that served it are about to end."""

    incarnation: int


class Ended(NamedTuple):
    """The incarnation ended, and all its processes with it."""

    incarnation: int
    report: ExitReport
    #: Whether the agent stays for a restart in place.
    kept: bool


# --- to a relay, and back


class RunCommand(NamedTuple):
    """Run a command on the relay's node. Exactly one of `argv` and `shell` is set."""

    argv: Sequence[str] | None
    #: Text for the user's shell.
    shell: str | None
    #: Variables on top of the node's.
    env: Mapping[str, str]
    #: Variables for which the node may have other values.
    defaults: Mapping[str, str]
    #: Where to start; None: where the relay runs.
    cwd: str | None
    #: Send SIGTERM to the ranks below the command only; the command ends after them.
    shield: bool


class ShutDown(NamedTuple):
    """End the relay and every command it runs, and fail the node."""

    exit_code: int
    #: For people; written to the node's stderr.
    reason: str
    #: Write `reason` only if nothing else was written to the node's stderr.
    only_if_silent: bool


class SignalCommand(NamedTuple):
    """Send a signal to the command's process group, or only to the ranks below the command."""

    number: int
    ranks_only: bool


class CancelCommand(NamedTuple):
    """End the command: SIGTERM, and SIGKILL after the relay's grace period."""


class CommandStarted(NamedTuple):
    """The command runs."""

    pid: int


class RankEnded(NamedTuple):
    """A rank below the command ended."""

    rank: int
    exit_code: int


class CommandEnded(NamedTuple):
    """The command ended, and every process it left behind."""

    #: 128 + N if signal N ended the command.
    exit_code: int
    #: The end of what was written to the node's stderr meanwhile.
    stderr_tail: str


Message = Union[
    Start,
    Restart,
    Stop,
    Kill,
    Signal,
    Absent,
    Joined,
    Started,
    Ready,
    DiskExceeded,
    ProgramDone,
    Ended,
    RunCommand,
    ShutDown,
    SignalCommand,
    CancelCommand,
    CommandStarted,
    RankEnded,
    CommandEnded,
]

_TYPES: Dict[str, Type[Any]] = {
    "start": Start,
    "restart": Restart,
    "stop": Stop,
    "kill": Kill,
    "signal": Signal,
    "absent": Absent,
    "joined": Joined,
    "started": Started,
    "ready": Ready,
    "disk": DiskExceeded,
    "done": ProgramDone,
    "ended": Ended,
    "run": RunCommand,
    "shut_down": ShutDown,
    "signal_command": SignalCommand,
    "cancel_command": CancelCommand,
    "command_started": CommandStarted,
    "rank_ended": RankEnded,
    "command_ended": CommandEnded,
}
_NAMES = {record: name for name, record in _TYPES.items()}


def encode(message: Message) -> Dict[str, Any]:
    """The message as JSON-ready data."""
    return {"type": _NAMES[type(message)], **_to_json(message)}


def decode(data: Any) -> Message:
    """The inverse of `encode`. Raises InvalidMessage."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidMessage("unknown message: %.200r" % (data,))
    fields = {name: value for name, value in data.items() if name != "type"}
    message: Message = _record(_TYPES[kind], fields)
    return message


def encode_launch(launch: LaunchMessage) -> Dict[str, Any]:
    """A launch message by itself, as JSON-ready data."""
    data: Dict[str, Any] = _to_json(launch)
    return data


def decode_launch(data: Any) -> LaunchMessage:
    """The inverse of `encode_launch`. Raises InvalidMessage."""
    launch: LaunchMessage = _record(LaunchMessage, data)
    return launch


def _to_json(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "_asdict"):
        return {name: _to_json(part) for name, part in value._asdict().items()}
    return [_to_json(part) for part in value]


def _record(cls: Type[Any], data: Any) -> Any:
    """A record from its fields. Raises InvalidMessage, naming every missing and unknown one."""
    if not isinstance(data, dict):
        raise InvalidMessage("%s: not an object: %.200r" % (cls.__name__, data))
    optional = cls._field_defaults
    missing = [name for name in cls._fields if name not in data and name not in optional]
    unknown = data.keys() - set(cls._fields)
    if missing or unknown:
        wrong = ["%s is missing" % name for name in missing]
        wrong += ["unknown %s" % name for name in sorted(unknown)]
        raise InvalidMessage("%s: %s" % (cls.__name__, ", ".join(wrong)))
    records = {k: read(data[k]) for k, read in _PARTS.get(cls, {}).items() if k in data}
    return cls(**{**data, **records})


def _one(cls: Type[Any]) -> Callable[[Any], Any]:
    return lambda data: _record(cls, data)


def _optional(cls: Type[Any]) -> Callable[[Any], Any]:
    return lambda data: None if data is None else _record(cls, data)


def _list_of(cls: Type[Any]) -> Callable[[Any], List[Any]]:
    def read(items: Any) -> List[Any]:
        if not isinstance(items, list):
            raise InvalidMessage("%s: not a list: %.200r" % (cls.__name__, items))
        return [_record(cls, data) for data in items]

    return read


#: How to read the fields that hold records.
_PARTS: Dict[Type[Any], Dict[str, Callable[[Any], Any]]] = {
    Ended: {"report": _one(ExitReport)},
    Restart: {"launch": _one(LaunchMessage)},
    LaunchMessage: {
        "processes": _list_of(ProcessLaunch),
        "ranks": _list_of(OutputFiles),
        "services": _list_of(ServiceLaunch),
        "probe": _optional(Probe),
    },
}
