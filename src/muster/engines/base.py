"""The engine contract: how Muster starts nodes on a kind of infrastructure and watches them.

An `Engine` checks a plan and opens a `Session` for one run. The session starts, stops and kills
nodes as the controller asks, and reports what happens to them as lifecycle events. It makes no
decision: restarts, order and outcomes belong to `lifecycle.decide`. Engines are found by name
(`engines.registry`), and each passes the contract tests in `tests/engines`.

One process may drive many runs: their sessions share its thread and its loop (`engines.loop`).
Where an engine uses what a process has once, such as its children, its namespaces or its standard
output, a run has a process for itself (`Engine.may_share`).

A node is identified by its rank in the plan. One start of a node's programs is an incarnation;
incarnations of a rank are numbered from 0 and only ever grow. A `NodeRef` is a pair of both. The
controller numbers them, and leaves gaps: those that an infrastructure starts when it restarts a
whole run by itself have the number `incarnations.of_native_restart(restarts)`, which is higher than
all before it and lower than all that the controller gives out once it knows of the restart.

Programs write what is to be kept to the directories $MUSTER_OUTPUTS, the node's own, and
$MUSTER_RUN_OUTPUTS, which nodes share. The engine creates both before a program starts, keeps them
for later incarnations, and collects their files into `RunDir.output` and `RunDir.outputs`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from muster.errors import Problem
from muster.lifecycle.events import EngineEvent
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.plan.model import RunPlan
from muster.storage.home import Home, RunDir
from muster.unix_account import UnixAccount

if TYPE_CHECKING:
    from muster.describe.stacks import ThreadStack
    from muster.engines.admission import Shortage
    from muster.engines.findings import Finding
    from muster.engines.grantees import Grantees
    from muster.engines.loop import RunLoop
    from muster.frameworks.base import Network
    from muster.node.counters import Counters
    from muster.plan.model import ResourcePlan


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
    #: Nodes keep running when the process that drives the run ends: the next one attaches to them
    #: (`Engine.open`), and one that is terminated leaves them alone (`DetachedSession`).
    detached: bool = False
    #: When a program has failed and no process that drives the run answers, the infrastructure
    #: restarts the whole run by itself (`RunRestarted`), as often as `failure.max_restarts` allows.
    #: Only of an engine that is `detached`.
    native_restarts: bool = False
    #: A run, or its nodes, wait (QUEUED) for resources that other runs hold.
    queueing: bool = False
    #: Nodes see other directories (`mounts`).
    mounts: bool = False
    #: Nodes have no more than their `resources` or `shape`, and GPUs of their own.
    limits: bool = False
    #: Nodes have GPUs of their own (`resources.gpus`), also if they have no other `limits`.
    gpus: bool = False
    #: Run the replicas of a group a few at a time (`array`, `parallelism`). Each is a cluster of
    #: its own, and takes the slots of one that has ended (`RunPlan.nodes`).
    arrays: bool = False
    #: Nodes are made from images (`image`), whose ENTRYPOINT and CMD run where a job has neither
    #: code nor a command (`RunPlan.runs_image`).
    images: bool = False
    #: Nodes have a network of their run (`network: cluster`), unless the job says otherwise.
    run_network: bool = False
    #: Run other containers beside that of a node (`extra_containers`).
    extra_containers: bool = False
    #: Run a workload of the infrastructure as it is (`RunPlan.workload`), and find one that is
    #: there (`Engine.read_workload`).
    workloads: bool = False
    #: Nodes are pods of Kubernetes: a patch of these (`kubernetes.pod`) may have volumes in the
    #: place of mounts.
    pod_patches: bool = False
    #: Programs can act as their run at the server that has started it (`RunPlan.principal`): nodes
    #: have the run's credentials (`engines.credentials`) as files, which are replaced in time.
    principals: bool = False
    #: On a server that runs as root: runs of different owners cannot reach each other's files,
    #: processes and network, because each owner's have a Unix account (`RunContext.account`).
    separates_owners: bool = False


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
    #: With `Capabilities.detached`: the nodes that were given to an earlier session of the run and
    #: have not ended, as recorded. Empty if there are none, as at a first start and when a run is
    #: resumed.
    alive: Mapping[NodeRef, NodeStatus] = {}
    #: With `Capabilities.native_restarts`: how often the infrastructure has restarted the run by
    #: itself, as recorded.
    native_restarts: int = 0
    #: Grows with each process that drives the run: what an earlier one has sent is not done any
    #: more once a node has heard of a later one.
    turn: int = 1
    #: With `Capabilities.detached`: the run's newest attempt. Nodes of an earlier one may still be
    #: alive; their agents know theirs.
    attempt: int = 0
    #: Whether the process drives this run only. If not, what the session does to its process, such
    #: as to its children or its mounts, must not affect the sessions of other runs.
    alone: bool = True
    #: Why the run may not use an image with a name: a sentence; "" if it may. Called in any
    #: thread, before an engine uses one, pulled already or not, that Muster has not built for it.
    #: May raise StoreError. None: nothing is asked.
    check_image: Callable[[str], str] | None = None
    #: Why the run may not copy from a URL or, if the second argument is true, also to it, as far as
    #: policies say: as `check_image`, called when a copy has failed.
    check_url: Callable[[str, bool], str] | None = None
    #: Whom the nodes' programs run as, and whom the process that drives the run acts as; None: the
    #: user of that process.
    account: UnixAccount | None = None

    @property
    def owner_home(self) -> Home:
        """Where the environments and volumes are that runs of the same owner share."""
        from muster.storage.owners import owner_home  # few runs share anything

        return owner_home(self.home, self.account)


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
    * NodeQueued, before NodeStarted: it waits in the infrastructure's queue. Again if it waits for
      something else, or for another host. NodeScheduled when it waits no more, always before what
      follows the wait.
    * NodeLocated, before NodeStarted, where its host and address are not those of the plan. It
      may be repeated.
    * NodeUnreachable, which says why, when contact with its agent is lost. Again for another
      reason. NodeReachable when there is contact again, before what the agent has to tell. Calls
      about a node that cannot be reached are carried out when it can be again. It has ended when
      its infrastructure confirms that, or when its agent has been alone for so long that it has
      ended all processes by itself; until then, nothing takes its place. If it is known to have
      ended, and what it has left on its host cannot be copied for want of contact, it counts as
      unreachable as well. Then a failure is reported as its end at once. A success waits for its
      outputs, unless the node is stopped or killed: soon after that it has failed, as its outputs
      are lost.
    * DiskExceeded: it uses more disk than its limit; nothing else happens to it.
    * NodeEnded, exactly once and last: no process of it is left, however it ended.

    If the run has to wait for resources that other runs have, the first event is RunQueued, which
    may be repeated with what it waits for then; until RunAdmitted, no node starts, and incarnations
    passed to `start` are ignored. RunAdmitted may also be the first event: an earlier session may
    have reported that the run waits.

    Where the infrastructure restarts runs by itself (`Capabilities.native_restarts`), the session
    reports RunRestarted as soon as it knows of a restart, before anything about the new nodes. All
    older incarnations of the run have ended then: it reports no more about them, ignores calls
    about them, and nothing that was asked of them takes effect. (If it is known how one of them has
    ended, its NodeEnded comes first, in the same report.) It reports on the new nodes as if
    `start` had been called for them, as part of the newest attempt that it knows of, plus one for
    each restart. The controller calls `start` for desired nodes that are not in
    `RunRestarted.ranks`, in their order; for the others only when another process drives the run.

    A workload that is run as it is (`RunPlan.workload`) may be restarted by its infrastructure
    whatever the engine's capabilities are, and none of these restarts counts. RunEnded says that it
    has ended, after the ends of the nodes that have led to it, and in the same report. Nodes that
    are left then end by themselves; until it is reported, `stop` ends the whole workload. If a user
    ends the run by force, or keeps the workload (`Engine.prepare_cancel`), ResourcesLeft says what
    is left, and the ends of all nodes follow in the same report.

    A detached session that closes and cannot remove what the run has in its infrastructure reports
    ResourcesLeft with all of that while it tries again, and whenever that changes ("": nothing is
    left); what it has reported last is left when it has closed. It does not try for long if a user
    ends the run by force.

    An infrastructure ends all nodes of a run before it starts new ones. It restarts neither single
    nodes nor runs with arrays. It counts restarts over the run: an allocation is told, when it is
    made, how often earlier ones have restarted the run. Before the session makes another one, or
    starts nodes elsewhere, it knows that the former one has ended, and how often that has restarted
    the run.

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
        before this returns. A node that is known to have ended holds that up for some seconds only
        if its host cannot be reached.

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


class DetachedSession(Session, Protocol):
    """A session whose nodes outlive it (`Capabilities.detached`)."""

    def leave(self) -> None:
        """Begin to free what the session holds in this process, and to end its conversations with
        agents. Nodes, kept ones included, and their logs continue. Reports SessionClosed as the
        last event, perhaps before this returns; what else it reports from now on may not be
        recorded, and the next session has to report it.

        May be repeated, and does nothing after `close`. No other call may follow.
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

    def lacking_here(self, plan: RunPlan, replicas: Mapping[str, int]) -> str:
        """What this process lacks to start a supervisor for a run that has passed `check` in
        another one, such as open files: a sentence; "" if nothing.

        Called before a run is recovered. replicas: how many of each group there are.
        """
        ...

    def misconfigured(self, environ: Mapping[str, str]) -> str:
        """Why no run can be started with the engine's configuration, such as a file of credentials
        that does not exist: a sentence, as in `findings`; "" if that is not known. An
        infrastructure that does not answer is none: runs wait for it.

        Called for each run that is prepared; nothing is contacted. environ: the variables with
        which the run would be submitted.
        """
        ...

    def rights(self, grantees: Grantees) -> str:
        """What an administrator of the infrastructure gives to its own tools so that some may use
        the engine, such as a Role of Kubernetes; "" if nobody has to grant anything."""
        ...

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """How many replicas of an array to run at once if the job does not say; at least 1.
        resources: of each node. nodes: in each replica."""
        ...

    def notes(self, plan: RunPlan) -> list[str]:
        """Sentences about how this engine runs the plan differently than a user may expect.

        Not errors: the run is started, and the notes are shown with it.
        """
        ...

    def explain(self, plan: RunPlan) -> list[str]:
        """Sentences for `muster explain` only: what this engine does with the plan that others do
        differently, such as when a node without contact is replaced."""
        ...

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """For `muster explain` only: what this engine would create for a run with this plan, as
        title -> text, such as `sbatch script` -> the script; empty if there is nothing to show.

        It is made by what makes it when the run starts, without secrets. Contacts no
        infrastructure.
        """
        ...

    def images(self, plan: RunPlan) -> Sequence[str]:
        """The images that the infrastructure pulls for a run with this plan: policies are asked
        about them before it starts. Empty if nodes have none, and of an engine that uses images
        itself, which asks before it does (`RunContext.check_image`). Contacts no infrastructure.
        """
        ...

    def read_workload(self, reference: str, namespace: str | None) -> Mapping[str, Any]:
        """The manifest of a workload that is there, as it is in its infrastructure, for a plan with
        `RunPlan.workload`.

        reference: as the infrastructure's own commands name it, such as `jobset/NAME`. namespace:
        where it is; None: where the engine's runs are. Raises InvalidInput if there is none,
        EngineError if it cannot be read.
        """
        ...

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """Have the infrastructure validate what `preview` shows, without creating it, for
        `muster run --dry-run`; empty if it cannot."""
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
        """Remove what a killed supervisor of this run left outside the run's folder.

        With `Capabilities.detached`, called only for runs that are at rest, or are about to be
        recorded as failed because they cannot be driven, or deleted (`left_behind`). It ends all
        nodes that are left, and returns when they have ended. Raises EngineError if that cannot be
        confirmed.
        """
        ...

    def prepare_cancel(self, run_id: str, *, force: bool, keep: bool) -> None:
        """A user is about to cancel a run in progress, by force, or so that the workload that it
        has adopted is kept (`Capabilities.workloads`). What the engine cannot end or remove soon by
        force, or keeps, its session reports (ResourcesLeft). Raises OSError."""
        ...

    def left_behind(self, run_id: str) -> bool:
        """Whether a session that has closed could not remove all that nodes of this run had outside
        its folder: `clean_up` is called before the run is deleted."""
        ...

    def warm(self) -> None:
        """Import what `open` needs. Called in a process that then forks supervisors, which thereby
        start sooner."""
        ...

    def may_share(self, plan: RunPlan | None = None) -> bool:
        """Whether the process that drives this run may drive other runs, too; cheap.

        plan: None for whether this process, which was prepared, may drive several runs at all.
        """
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

        What is known at once, such as RunQueued, is reported before this returns.

        Where nodes outlive a session (`Capabilities.detached`), the next one attaches to those in
        `RunContext.alive`. If the infrastructure has restarted the run more often than
        `RunContext.native_restarts`, these have ended; it reports RunRestarted, now or when it
        knows that, and attaches to the nodes that the infrastructure has started. Before this
        returns, it reports NodeUnreachable for each of them that it has not reached yet. Then, in
        this order, for each of them

        * NodeReachable when there is contact with its agent, also if it was recorded as
          unreachable by an earlier session only;
        * NodeQueued if it waits; else NodeScheduled if it has waited;
        * NodeStarted and NodeReady again, if they have happened;
        * NodeEnded if it has ended, or if its infrastructure does not know it, though its record
          says that it has started, or waits.

        Facts that are recorded already change nothing. A node that is recorded as STARTING may
        never have been asked for: the controller calls `start` with it again, and the session
        starts it only if its infrastructure does not know it. One that is recorded as QUEUED was
        asked for, and `start` is not called again: the session launches it when it waits no more.
        What else an earlier session was asked for and may not have done, such as a stop, is called
        for again as well; a node that is to be stopped or killed, and was never asked for, has
        ended. Nodes of other ranks, or of other incarnations, are left only where they are kept
        (`RunContext.keep`). Nothing that an earlier session has sent may take effect after this
        returns.

        Raises EngineError if the run cannot get what it needs.
        """
        ...

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """What the nodes of a run in progress use now, by rank; without nodes that do not run, or
        that cannot be reached soon. One that runs and was not measured has no values.

        folder: the run's. supervisor: the pid of the process that drives it. Raises EngineError if
        that cannot be read here.
        """
        ...

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """The stacks of the Python threads of a run in progress, and a sentence for each process or
        node that could not be read.

        folder, supervisor: as for `counters`. ranks: the nodes to read; empty for all. Raises
        InvalidInput if what reads them is not installed here and has to be, or the run has no
        nodes in which it could; EngineError if the nodes cannot be reached.
        """
        ...

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """Connect every connection of a listening socket with a port of a node, until the node
        ends. Returns at once; the caller may then close its listener.

        hosts: the node's addresses to try, in order. Raises EngineError if the node cannot be
        reached, InvalidInput if those of the run are reached otherwise.
        """
        ...

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """Start a command as the node's program runs: with its user, environment, files, network
        and limits. It ends with the node, and with the calling process.

        What the command leaves of its standard input may be lost for others. Raises EngineError if
        the node runs no processes or cannot be entered.
        """
        ...
