"""The message with which an agent starts its node's programs. `node.messages` encodes it."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Sequence

#: A check as JSON: the fields of `frameworks.base.Check` with its placeholders filled.
Check = Mapping[str, Any]


class OutputFiles(NamedTuple):
    """The files that a process appends its output to (or `processes.INHERITED`)."""

    stdout: str
    stderr: str


class ProcessLaunch(NamedTuple):
    """One process of the program."""

    #: Variables of this process alone, on top of `LaunchMessage.env`.
    env: Mapping[str, str]
    stdout: str
    stderr: str
    #: The file in which the process may record why it failed (see `error_file`).
    error_file: str | None = None


class ServiceLaunch(NamedTuple):
    """A program of the framework that runs on the node next to the job's program."""

    #: For people.
    name: str
    argv: Sequence[str]
    #: Variables on top of those of the program's first process.
    env: Mapping[str, str]
    stdout: str
    stderr: str
    #: Must hold before the service is started.
    after: Check | None
    #: Must hold before the next service or the program is started.
    ready: Check | None
    #: Seconds between SIGTERM and SIGKILL.
    grace: float


class Probe(NamedTuple):
    """A check that is repeated. Exactly one of `command`, `port` and `file` is set."""

    #: Seconds between two tries.
    period: float
    #: Seconds that one try may take.
    timeout: float
    #: Failed tries after which the node has failed; of a liveness probe, in a row.
    threshold: int
    #: Seconds before the first try.
    initial_delay: float
    #: Succeeds when this command exits with 0.
    command: Sequence[str] | None = None
    #: Succeeds when the node's address accepts connections on this port.
    port: int | None = None
    #: Succeeds when GET of this path on `port` is answered with a status from 200 to 399.
    http: str | None = None
    #: Succeeds when this file exists.
    file: str | None = None


class Preflight(NamedTuple):
    """What has to succeed before anything of the node starts."""

    command: Sequence[str]
    #: Seconds.
    timeout: float


class GivenFile(NamedTuple):
    """A file with given content (see `node.given_files`)."""

    path: str
    content: str
    mode: int
    #: Whether `content` is in base64.
    is_base64: bool = False
    #: Whether it may be mounted by itself: then it is emptied instead of removed.
    is_mounted: bool = False


class LaunchMessage(NamedTuple):
    """Everything an agent needs to start one incarnation of its node.

    The program's command is not part of it: it is found where the code is unpacked, on the node,
    and stays the same for all incarnations of a node.
    """

    #: Which incarnation of the node this is.
    incarnation: int
    #: Variables that all processes of the program share.
    env: Mapping[str, str]
    #: The processes of the program, by local rank. One that stands for the services if `program`
    #: is false.
    processes: Sequence[ProcessLaunch]
    #: Output files of the ranks that a launcher starts, by local rank; empty if these ranks write
    #: to the launcher's own output.
    ranks: Sequence[OutputFiles]
    #: Arguments of this node, after the program's command.
    node_args: Sequence[str]
    #: Words in front of the program's command.
    launcher: Sequence[str]
    #: Whether the program runs on this node; if not, the services run in its place.
    program: bool
    #: The framework's services, in the order in which they start.
    services: Sequence[ServiceLaunch]
    #: Must hold before the program starts, after all services are up.
    gather: Check | None
    #: Ranks that checks do not wait for, of those that they name.
    absent: Sequence[int]
    #: Seconds until the services must be up and `gather` must hold.
    services_timeout: float
    #: The startup probe; without one, a node is ready once its program has started.
    probe: Probe | None
    #: Tried once the node is ready; past its threshold, the node has failed.
    liveness: Probe | None
    #: None: nothing is checked.
    preflight: Preflight | None
    #: A command that runs once the program has started; the node is ready, and its probes are
    #: tried, when it has succeeded. If it fails, so has the node. None: there is none.
    after_start: Sequence[str] | None
    #: A command that runs before SIGTERM is sent to a program that is to end. Its time is part of
    #: the grace period. None: there is none.
    before_stop: Sequence[str] | None
    #: Seconds without output after which the node counts as hung; None: never.
    hang_timeout: float | None
    #: Seconds between SIGTERM and SIGKILL.
    grace_period: float
    #: Where the processes start.
    cwd: str
    #: The node's own folder.
    folder: str
    #: Folders to empty before the processes start.
    fresh: Sequence[str]
    #: The node's output directory, in that of the run; created unless it exists.
    output_folder: str
    #: The node's IP address, at which the probe looks for ports.
    address: str
    #: The node's host name, if it has namespaces.
    hostname: str
    #: Bytes that the node's folder may use before the run is warned; None: not measured.
    disk: int | None
    #: The failure message if the node's own disk is full when it fails; None if it has none.
    disk_full: str | None
    #: Whether the agent is PID 1 of a PID namespace, which then holds all processes of the node.
    contained: bool
    #: Whether the agent stays after the incarnation has ended, for a restart in place.
    keep: bool
    #: The node's rank in the run.
    rank: int
    #: Whether the node belongs to an array: its output directory is removed at the end if it is
    #: empty, as there may be 100,000.
    of_array: bool
    #: Whether another replica of the array may have run in the slot before: nothing of it may be
    #: left.
    reuses_slot: bool
    #: Files to write before the processes start.
    given: Sequence[GivenFile]
    #: Whether a restart in place, too, waits for `messages.Start`, as something else runs before.
    waits: bool

    def environment_of(self, local_rank: int) -> Dict[str, str]:
        """All variables of one process of the program."""
        return {**self.env, **self.processes[local_rank].env}
