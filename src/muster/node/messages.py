"""Messages between the processes of a run: typed records here, JSON objects on a `channel.Channel`.

A message is encoded as an object with the fields of its record and a `type`. Both ends run the same
version of Muster, so a missing or an unknown field is an error. A message may come from another
machine, so fields of wrong types are errors, too (`records`).
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Sequence, Type, Union

from muster.node import records
from muster.node.launch_message import (
    LaunchMessage,
    OutputFiles,
    Preflight,
    Probe,
    ProcessLaunch,
    ServiceLaunch,
)


class InvalidMessage(ValueError):  # noqa: N818
    """A message has an unknown type, or lacks a field, or has an unknown one, or one of a wrong
    type."""


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
    #: What the program left as its results (`node.metrics`), as JSON; "" if nothing.
    metrics: str = ""


# --- from the supervisor to an agent


class Start(NamedTuple):
    """Start the first incarnation: every node that starts with this one is on the roster."""

    incarnation: int


class Restart(NamedTuple):
    """Start another incarnation in place."""

    launch: LaunchMessage
    outputs: Outputs | None = None

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


# --- from the supervisor to a node server (`node.server`), which passes the ones above on


class Code(NamedTuple):
    """The job's code for a node (see `node.code`)."""

    #: Of the archive.
    sha256: str
    #: Where to unpack it: the folder that it contains gets this name.
    folder: str


class Mount(NamedTuple):
    """A directory that the job mounts, for a node (see `node.mounts`)."""

    #: Where it is on the host.
    path: str
    #: Of the folder, if it is created; 0: the host has it.
    mode: int = 0
    #: Of the archive with what a new node finds in it; "": it begins empty, or the host has it.
    sha256: str = ""
    #: The path of a link to it; "": none.
    link: str = ""
    #: The file in it to which the link leads; "": to the directory itself.
    file: str = ""


class Environment(NamedTuple):
    """The packages that a job requires (see `node.environments`)."""

    #: Lines of a requirements file.
    requirements: Sequence[str]
    #: The path of the Python that the environment extends.
    python: str
    #: Where programs find the environment.
    link: str


class Outputs(NamedTuple):
    """Files that a node is to find in its output directories, and lacks (see `node.outputs`)."""

    #: The output directory of the run on the host.
    folder: str
    #: Path in it -> SHA-256 of the archive that is unpacked there.
    archives: Mapping[str, str]


class SlotNode(NamedTuple):
    """The node of an array that a launch in a slot is for. The slot's server numbers launches, not
    the incarnations of a rank: `incarnation` in other messages is the number of the launch."""

    rank: int
    #: Its incarnation, as the supervisor numbers them.
    incarnation: int


class Launch(NamedTuple):
    """Start an incarnation of the node, which joins then: on the node that was kept, else on a new
    one. Ignored while another one runs, and for one that is not newer than the newest."""

    launch: LaunchMessage
    #: The program's command line.
    command: Sequence[str]
    #: Folders to create.
    folders: Sequence[str]
    #: Path -> content of files to write before the node joins; only their owner can read them.
    files: Mapping[str, str]
    #: The job's code, for a new node; None if there is none.
    code: Code | None = None
    #: The attempt of the run that it belongs to.
    attempt: int = 0
    #: Output file -> its least size in bytes: as much of it was written on another host, and is
    #: where it is copied to. It begins with a hole, so that offsets are the same in both.
    sizes: Mapping[str, int] = {}
    #: What the job mounts. A node that is restarted in place keeps what it has.
    mounts: Sequence[Mount] = ()
    #: For a new node; None if the job requires no packages.
    environment: Environment | None = None
    #: Also for a node that is restarted in place; None: it lacks nothing.
    outputs: Outputs | None = None
    #: None: the server is that of one node only.
    node: SlotNode | None = None
    #: Folders to empty first: what a node that has had the slot before has left, and which the
    #: supervisor has.
    empty: Sequence[str] = ()
    #: Path -> content of further files, as `packed_text` packs it: large texts that many nodes get.
    packed: Mapping[str, str] = {}

    @property
    def incarnation(self) -> int:
        """The new incarnation."""
        return self.launch.incarnation


class PortRequest(NamedTuple):
    """A port that a node needs, or a row of ports."""

    name: str
    #: Its usual number: of a row, the first.
    number: int
    #: How many in a row.
    length: int
    #: Whether the usual number is used if it is free; otherwise any.
    preferred: bool
    #: Whether it stays reserved until the server ends.
    held: bool


class ReservePorts(NamedTuple):
    """Find free ports of this host. The answer is `PortsReserved`. Those of a name that was
    reserved before keep their numbers."""

    ports: Sequence[PortRequest]


class FindFolders(NamedTuple):
    """Which of these are on the host? The answer is `FoldersFound`."""

    #: Of directories.
    paths: Sequence[str]
    #: NFS exports, as `HOST:/PATH`.
    exports: Sequence[str] = ()


class WriteFiles(NamedTuple):
    """Replace files of the node, such as its roster."""

    #: Path -> content.
    files: Mapping[str, str]
    #: The same of large texts that many nodes get, as `packed_text` packs them.
    packed: Mapping[str, str] = {}


class Release(NamedTuple):
    """Give up the node if it was kept: its next incarnation gets a new one."""


class Leave(NamedTuple):
    """End every process of the node, and the node server, which removes its folder."""

    #: Whether the folder stays: the supervisor could not copy what is in it.
    keep: bool = False


# --- from a node server to the supervisor


class Interface(NamedTuple):
    """A network interface."""

    name: str
    #: IPv4.
    address: str


class HostFacts(NamedTuple):
    """What a supervisor has to know of the node's host. The first message of each conversation;
    what the node has told of its newest incarnation follows."""

    #: For people.
    user: str
    #: The node's folder there.
    folder: str
    #: The address of the interface that packets to other machines leave by.
    address: str
    interfaces: Sequence[Interface]
    #: That the node should use: its limit or, without one, those of the host.
    cpus: int
    #: Bytes that the node should use, by the same rule.
    memory: int
    #: Numbers of its NVIDIA devices.
    gpus: Sequence[int]
    #: Version of the Python that runs the agent.
    python: str
    #: The host's clock (epoch seconds).
    time: float
    #: The newest incarnation of the node that was launched there; -1 if there was none.
    incarnation: int
    #: The Python that runs the server.
    executable: str
    #: The folder there from which any Python can import `muster.node` (`host_programs`).
    modules: str
    #: A short path of `folder`, for sockets.
    short: str
    #: What programs there inherit.
    environ: Mapping[str, str]
    #: Those that its requests may come from, see `machine.addresses`; empty if not known.
    addresses: Sequence[str] = ()
    #: See `machine.boot_id`.
    boot: str = ""


class PortsReserved(NamedTuple):
    """The answer to `ReservePorts`."""

    #: Name -> number: of a row, the first.
    numbers: Mapping[str, int]
    #: Why some are missing, for people; "" if none is.
    problem: str


class FoldersFound(NamedTuple):
    """The answer to `FindFolders`: those that are."""

    paths: Sequence[str]
    #: Export -> the directory with its files.
    exports: Mapping[str, str] = {}


class Launched(NamedTuple):
    """The node is being set up for this incarnation."""

    incarnation: int
    #: That of its launch.
    attempt: int = 0
    #: That of its launch.
    node: SlotNode | None = None


class Installing(NamedTuple):
    """Packages are being installed for this incarnation: its output files have what is printed."""

    incarnation: int


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
    #: From a node server: seconds of CPU time of all programs since the agent was started; None if
    #: that is not known.
    cpu: float | None = None
    #: From a node server: whether what has started it had it end, so that this knows why.
    terminated: bool = False


class Idle(NamedTuple):
    """The agent has left the node, of which nothing is left, and can run another one. What the
    agent and its programs have used until now, those of former nodes included."""

    incarnation: int
    #: Seconds of CPU time of the agent; of all its programs.
    agent_cpu: float
    programs_cpu: float
    #: Bytes.
    disk_read: int
    disk_written: int


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
    Launch,
    ReservePorts,
    FindFolders,
    WriteFiles,
    Release,
    Leave,
    HostFacts,
    PortsReserved,
    FoldersFound,
    Launched,
    Installing,
    Joined,
    Started,
    Ready,
    DiskExceeded,
    ProgramDone,
    Ended,
    Idle,
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
    "launch": Launch,
    "reserve_ports": ReservePorts,
    "find_folders": FindFolders,
    "write_files": WriteFiles,
    "release": Release,
    "leave": Leave,
    "host_facts": HostFacts,
    "ports_reserved": PortsReserved,
    "folders_found": FoldersFound,
    "launched": Launched,
    "installing": Installing,
    "joined": Joined,
    "started": Started,
    "ready": Ready,
    "disk": DiskExceeded,
    "done": ProgramDone,
    "ended": Ended,
    "idle": Idle,
    "run": RunCommand,
    "shut_down": ShutDown,
    "signal_command": SignalCommand,
    "cancel_command": CancelCommand,
    "command_started": CommandStarted,
    "rank_ended": RankEnded,
    "command_ended": CommandEnded,
}
_NAMES = {record: name for name, record in _TYPES.items()}


def prepare_agents() -> None:
    """Before a process forks agents: do once what each would do when it first restarts a node."""
    records.prepare(
        *(Restart, Outputs, LaunchMessage, ProcessLaunch, OutputFiles, ServiceLaunch, Probe),
        Preflight,
    )


def encode(message: Message) -> Dict[str, Any]:
    """The message as JSON-ready data."""
    return {"type": _NAMES[type(message)], **_to_json(message)}


def decode(data: Any) -> Message:
    """The inverse of `encode`. data: as `json.loads` returns it. Raises InvalidMessage."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidMessage("unknown message: %s" % records.shown(data))
    fields = {name: value for name, value in data.items() if name != "type"}
    message: Message = _read(_TYPES[kind], fields)
    return message


def encode_launch(launch: LaunchMessage) -> Dict[str, Any]:
    """A launch message by itself, as JSON-ready data."""
    data: Dict[str, Any] = _to_json(launch)
    return data


def decode_launch(data: Any) -> LaunchMessage:
    """The inverse of `encode_launch`. data: as `json.loads` returns it. Raises InvalidMessage."""
    launch: LaunchMessage = _read(LaunchMessage, data)
    return launch


def _read(record: Type[Any], data: Any) -> Any:
    try:
        return records.read(record, data)
    except records.InvalidRecord as error:
        raise InvalidMessage(str(error)) from None


def _to_json(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    if hasattr(value, "_asdict"):
        return {name: _to_json(part) for name, part in value._asdict().items()}
    return [_to_json(part) for part in value]
