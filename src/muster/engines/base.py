"""The engine contract: how Muster starts nodes on a kind of infrastructure and watches them.

An `Engine` checks a plan and opens a `Session` for one run. The session starts, stops and kills
nodes as the controller asks, and reports what happens to them as lifecycle events. It makes no
decision: restarts, order and outcomes belong to `lifecycle.decide`. Engines are found by name
(`engines.registry`), and each passes the contract tests in `tests/engines`.

One process may drive many runs: their sessions share its thread and its loop (`engines.loop`).
Only where an engine uses what a process has once, such as its children, its namespaces or its
standard output, must it have a process for each run, as the local engine does.

A node is identified by its rank in the plan. One start of a node's programs is an incarnation;
incarnations of a rank are numbered from 0 and only ever grow. A `NodeRef` is a pair of both.

Programs write what is to be kept to the directories $MUSTER_OUTPUTS, the node's own, and
$MUSTER_RUN_OUTPUTS, which nodes share. The engine creates both before a program starts, keeps them
for later incarnations, and collects their files into `RunDir.output` and `RunDir.outputs`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from muster.errors import Problem
from muster.lifecycle.events import EngineEvent
from muster.lifecycle.status import NodeRef
from muster.plan.model import RunPlan
from muster.storage.home import Home, RunDir

if TYPE_CHECKING:
    from muster.describe.stacks import ThreadStack
    from muster.engines.admission import Shortage
    from muster.engines.findings import Finding
    from muster.engines.loop import RunLoop
    from muster.frameworks.base import Network
    from muster.plan.model import ResourcePlan
    from muster.storage.usage import Counters


class Capabilities(Struct, frozen=True, kw_only=True):
    """What an engine can do. `engines.capabilities` refuses what it cannot."""

    #: Restart programs on nodes that stay (`failure.strategy: in_place`, and its default).
    in_place: bool = False
    #: Replace one node while the others continue (`retries`, `action: restart_node`).
    replace_node: bool = False
    #: Run a command inside a node (`muster exec`, `shell`, `cp`): `Engine.run_in_node`.
    exec: bool = False
    #: Connect to a port of a node (`muster open`): `Engine.forward`.
    forward: bool = False
    #: Read the stacks of Python threads (`muster stacks`): `Engine.stacks`.
    stacks: bool = False
    #: Measure what nodes use now (`muster top`): `Engine.counters`.
    counters: bool = False
    #: Suspend a run, and resume it later with the files of its nodes.
    suspend: bool = False
    #: Add and remove replicas while a run is in progress (`max_replicas`, `muster runs scale`).
    resize: bool = False
    #: Nodes see the files below MUSTER_HOME.
    shared_files: bool = False
    #: Nodes keep running when the process that drives the run ends.
    detached: bool = False
    #: A run waits (QUEUED) for resources that other runs hold.
    queueing: bool = False
    #: Nodes see other directories (`mounts`).
    mounts: bool = False
    #: Nodes have no more than their `resources` or `shape`, and GPUs of their own.
    limits: bool = False


class RunContext(Struct, frozen=True):
    """What an engine needs to know about the run that it opens."""

    plan: RunPlan
    #: Where the run's folder, artifacts and volumes are.
    home: Home
    #: The submitter's environment. Nodes on this machine inherit it.
    environ: Mapping[str, str]
    #: The Python interpreter that runs `python` jobs.
    python: str
    #: Whether nodes may restart in place. If so, a node that has ended is kept without its
    #: processes until its next incarnation starts, `Session.release` is called, or the session
    #: closes.
    keep: bool = False
    #: How many attempts of the run started with a resume, up to and including this one.
    resumes: int = 0
    #: When the run first started (seconds since the epoch). Restarts do not change it.
    started: float = field(default_factory=time.time)


class Claim(Struct, frozen=True):
    """A run that needs resources."""

    plan: RunPlan
    #: Group -> its desired number of replicas.
    replicas: Mapping[str, int]
    #: The run's name; "" while it is not recorded.
    name: str = ""
    #: When it was submitted or resumed (epoch seconds); 0 if that is now.
    since: float = 0.0
    #: Whether it still waits for resources.
    queued: bool = False


#: Returns the runs in progress, read from the store.
InProgress = Callable[[], Iterable[Claim]]

#: Records a run. Gets what the run lacks, empty if it may start, and returns the run's name.
RecordRun = Callable[[Sequence["Shortage"]], str]


#: Passes events of a run to whoever drives it, oldest first. Called in the loop's thread (from
#: others: `RunLoop.post`), also while a method of the session is running. They are recorded before
#: the session's participants are called in the next round of the loop, unless the store is busy.
Report = Callable[[Sequence[EngineEvent]], None]


class RunningNode(Struct, frozen=True):
    """A node of a run in progress, for a process other than the one that drives the run."""

    #: The run's folder.
    folder: RunDir
    rank: int
    #: The pid of the process that drives the run.
    supervisor: int
    #: The name of the run's engine.
    engine: str


class NodeCommand(Struct, frozen=True):
    """A command to run inside a node, next to its program."""

    #: The program is looked up on the node.
    argv: tuple[str, ...]
    #: Variables on top of those of the node's first process.
    env: Mapping[str, str] = {}
    #: Where it starts; "": where the node's program did.
    cwd: str = ""
    #: Whether its standard input is a terminal of its own, which is to send it signals: those of
    #: keys, and SIGHUP when the caller closes the other end.
    terminal: bool = False


class OpenFile(Protocol):
    """A file, pipe, socket or terminal that is open in this process, as for `subprocess.Popen`."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


class Stdio(Struct, frozen=True):
    """What a command gets as its standard streams. The caller may close its own when the command
    has been started."""

    stdin: OpenFile
    stdout: OpenFile
    stderr: OpenFile


class NodeProcess(Protocol):
    """A command that was started inside a node. Its methods may be called from several threads."""

    @property
    def in_process_group(self) -> bool:
        """Whether it is in the caller's process group. If so, the kernel sends it the signals of
        keys that are pressed on the caller's terminal, such as SIGINT for Ctrl-C."""
        ...

    def wait(self) -> int:
        """Wait until it has ended. Returns its exit code: 128 + N for signal N; 127 and 126, with a
        message on its standard error, as in a shell, if the program does not exist or cannot be
        executed. May be repeated. Raises EngineError if the connection to it is lost."""
        ...

    def send_signal(self, number: int) -> None:
        """Send a signal to it; nothing if it has ended."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """The terminal that it was given (`NodeCommand.terminal`) has a new size, which the caller
        has set on its end."""
        ...


class PortForward(Protocol):
    """Connects a listening socket with a port of a node."""

    def wait(self) -> None:
        """Wait until the node has ended, or `close` was called. Raises EngineError if connections
        cannot be forwarded."""
        ...

    def close(self) -> None:
        """End all connections, and accept no more. May be repeated."""
        ...


class Session(Protocol):
    """The connection between a controller and the nodes of one run.

    All calls come from the loop's thread, and none may block on a node, a server or the network:
    what takes time is done when the loop calls the session's participants, or by threads.

    At most one incarnation of each rank exists at a time. Every call may be repeated: a controller
    that recovers a run repeats what its predecessor may not have done. References to incarnations
    that have ended, or that never started here, are ignored.

    Calls about nodes do not raise when a node cannot do what was requested. The session reports the
    failure as an event of that node. An exception, in a call or in a participant, means that the
    session itself cannot continue: the driver closes it, and the run is broken.

    For each incarnation that `start` accepted, or that existed when it was opened, the session
    reports

    * NodeStarted, at most once: its processes run.
    * NodeReady, at most once and after NodeStarted: its startup probe succeeded.
    * DiskExceeded: it uses more disk than its limit; nothing else happens to it.
    * NodeEnded, exactly once and last: no process of it is left, however it ended.

    If the run has to wait for resources that other runs have, the first event is RunQueued; until
    RunAdmitted, no node starts, and incarnations passed to `start` are ignored.

    When a program has succeeded and the services of its node stop, programs of other nodes may fail
    for want of them. Failures after that are reported after the node's end (`engines.end_order`).
    """

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """Start these incarnations as part of an attempt of the run, now or later.

        A rank whose previous node was kept (`RunContext.keep`) reuses it: same address and files,
        new processes. Otherwise the node is created from scratch. Ignored for an incarnation that
        is not newer than the newest one started, and while an incarnation of the rank is running.

        A node that cannot start gets a NodeEnded with `Reason.NOT_STARTED` and a message for the
        user.
        """
        ...

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """Send a signal to the programs of these nodes, but not to their child processes.

        Ignored for nodes whose programs have not started.
        """
        ...

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """Ask the processes of these nodes to end (SIGTERM). Does not wait for them.

        Nodes whose programs have not started end at once, as if SIGTERM had ended them.
        """
        ...

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """End all processes of these nodes (SIGKILL), including detached ones."""
        ...

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """Give up nodes that were kept for a restart in place, and remove them from the roster.

        Their ranks may be started again later; that creates new nodes.
        """
        ...

    def notified(self) -> None:
        """Another process has notified this one. It may have changed what the session waits for."""
        ...

    def close(self) -> None:
        """Begin to end all processes of the run, kept nodes included, and to free what the session
        holds. Reports SessionClosed, as the last event, when no process is left; that may be
        before this returns.

        May be repeated; after the first time it does nothing. No other call but `finish_logs` may
        follow.
        """
        ...

    def finish_logs(self) -> None:
        """Mark the run's logs as complete, so that readers who follow them stop.

        Called after the run's outcome is recorded: a reader that sees the end of the logs finds
        the outcome.
        """
        ...


class Engine(Protocol):
    """A kind of infrastructure that can run nodes.

    Methods for which an engine lacks the capability are not called. An engine object is cheap to
    make: many commands only ask for a name or a sentence. It is made without arguments.
    """

    #: The engine's name in specs, in the store and in output.
    name: str
    capabilities: Capabilities

    def available(self) -> str:
        """Why the engine cannot be used on this machine, as in "cannot be used here: ..."; "" if it
        can. Cheap: called for each run that is planned."""
        ...

    def findings(self) -> list[Finding]:
        """What the engine can do here, found by trying it, for `muster doctor`. Leaves nothing
        behind."""
        ...

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        """An address for each of `nodes` nodes of a new run. Raises InvalidInput if the network has
        too few."""
        ...

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """Everything that makes this plan impossible here, such as a directory to be used in place
        (`GroupPlan.in_place`) that the nodes do not see; empty if it can run.

        Called before anything is stored or started, and changes nothing. root: MUSTER_HOME.
        replicas: how many of each group there are to be.
        """
        ...

    def notes(self, plan: RunPlan) -> list[str]:
        """Sentences about how this engine runs the plan differently than a user may expect.

        Not errors: the run is started, and the notes are shown with it.
        """
        ...

    def check_added(
        self, plan: RunPlan, root: Path, replicas: Mapping[str, int], group: str, added: int
    ) -> list[Problem]:
        """What makes it impossible to add replicas to a run that has passed `check`: the GPUs of
        all nodes together, and the free disk for the added ones.

        replicas: how many of each group there are then, with the `added` ones of `group`.
        """
        ...

    def limits(self, resources: Mapping[str, ResourcePlan]) -> dict[str, str]:
        """Group -> what each of its nodes gets, as a phrase; without groups that have no limits.

        resources: those of each group.
        """
        ...

    def shares_of_memory(self, plan: RunPlan) -> dict[str, int]:
        """Group -> how many bytes of memory each of its nodes should use: its limit or, without
        one, an equal share of what there is."""
        ...

    def may_queue(self, plan: RunPlan) -> bool:
        """Whether a run may need resources that no other run can have at the same time; cheap.

        If not, nothing is reserved for it.
        """
        ...

    def reserve(self, home: Home, claim: Claim, in_progress: InProgress, record: RecordRun) -> None:
        """Reserve for a run that is submitted or resumed, behind all others.

        The reservation lasts while the run's liveness pipe is open. in_progress: called if the
        engine has no table of reservations. record: called once, with what the run lacks, before
        any other run is considered; nothing is reserved if it raises.
        """
        ...

    def reserve_again(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """Reserve for a run whose supervisor was killed, in its former place. Returns what it
        lacks; empty if it may start."""
        ...

    def reserve_scaled(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """Reserve for a run that is scaled. One that waits then waits for what it needs now. One
        that has started keeps what it has, and is given more at once; if that is not free, nothing
        changes and what it lacks is returned."""
        ...

    def drop_lapsed_reservations(self, home: Home) -> None:
        """Drop reservations of runs that have ended: for a run that is to reserve anew, before its
        liveness pipe is opened again."""
        ...

    def waiting(self, home: Home) -> dict[str, str]:
        """The id of each run that waits -> what it waits for by now, in numbers."""
        ...

    def started_ranks(self, folder: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
        """The ranks of those incarnations whose programs may have started, though the session
        that started them has ended."""
        ...

    def clean_up(self, run_id: str) -> None:
        """Remove what a killed supervisor of this run left outside the run's folder."""
        ...

    def warm(self) -> None:
        """Import what `open` needs. Called in a process that then forks supervisors, which thereby
        start sooner."""
        ...

    def prepare_parent(self, *, plain: bool) -> None:
        """Prepare the process that forks a supervisor, waits for it to be ready, and exits: for
        instance, create the namespaces in which its child will be.

        plain: whether to do without, because `prepare_supervisor` has failed after it. Raises
        OSError.
        """
        ...

    def prepare_supervisor(self) -> None:
        """Prepare the supervisor's process, on the same object, before it calls `open`. Its output
        goes to the run's `supervisor.log` already. Raises OSError."""
        ...

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> Session:
        """Open the session of a run, to start its nodes or to recover the run.

        Called in the process that drives the run, after `prepare_supervisor`. Processes of an
        earlier session whose process was killed may still be ending; a new node never runs at the
        same time as an old one.

        What is known at once, such as RunQueued, is reported before this returns. Where nodes
        outlive a session (`Capabilities.detached`), the next one first reports the present state of
        every incarnation that exists, also of those that have ended. It does not know what was
        recorded; the controller ignores what is.

        Raises EngineError if the run cannot get what it needs.
        """
        ...

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """What the nodes of a run in progress use now, by rank; without nodes that do not run.

        folder: the run's. supervisor: the pid of the process that drives it. Raises EngineError if
        that cannot be read here.
        """
        ...

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """The stacks of the Python threads of a run in progress, and a sentence for each process
        that could not be read.

        folder, supervisor: as for `counters`. ranks: the nodes to read; empty for all. Raises
        InvalidInput if what reads them is not installed.
        """
        ...

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """Connect every connection of a listening socket with a port of a node, until the node
        ends. Returns at once; the caller may then close its listener.

        hosts: the node's addresses to try, in order. Raises EngineError if the node cannot be
        reached.
        """
        ...

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """Start a command as the node's program runs: with its user, environment, files, network
        and limits. It ends with the node, and with the calling process.

        Raises EngineError if the node runs no processes or cannot be entered.
        """
        ...
