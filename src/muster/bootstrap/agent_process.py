"""Runs this node's agent in a child process and watches it."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from muster.bootstrap.job import code_dir, plan_of, ports_of
from muster.bootstrap.main_config import exported
from muster.bootstrap.network import interface_of
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import Roster
from muster.engines.base import RunContext
from muster.engines.launch import NodePaths, NodeStart, launch_message
from muster.engines.logs import NodeOutputs
from muster.node import messages
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.launch_message import LaunchMessage
from muster.node.machine import count_cpus, count_memory
from muster.node.processes import INHERITED
from muster.node.roster import member, write_hostfile, write_roster
from muster.plan.arrange import Arranged
from muster.plan.environment import EngineValues
from muster.plan.model import RunPlan
from muster.spec.formats.ads.variables import SYNC_DIR, SYNCED
from muster.storage.home import Home

#: Variables that the service sets for each node take precedence over ours.
_FROM_SERVICE = ("JOB_", "PROJECT_", "TENANCY_", "OCI_")


class StopReason(Struct, frozen=True):
    """Why this node was stopped before its program ended."""

    why: str
    #: Whether the cluster had not done its work.
    failed: bool
    #: Whether another member of the cluster failed.
    by_member: bool = False


#: SIGTERM, from the service or a user.
TERMINATION = StopReason("it was terminated by a signal", failed=True)


class NodeExit(Struct, frozen=True):
    """How this node ended."""

    #: None if its program never started.
    exit_code: int | None
    #: What the node's agent reports about a failure.
    details: str = ""
    #: None if it ended by itself.
    stopped: StopReason | None = None
    #: Whether its program, or the service that it runs instead, had become ready.
    ready: bool = False
    #: The signal that ended it; 0 for none.
    signal: int = 0
    #: Epoch seconds.
    at: float = 0.0

    @property
    def message(self) -> str:
        """A sentence for people."""
        if self.exit_code == 0:
            return "the program has ended: exit code 0"
        code = "it never started" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"the node failed: {code}{': ' + self.details if self.details else ''}"


def launch_of(
    parameters: Parameters,
    arranged: Arranged,
    roster: Roster,
    folder: Path,
    environ: Mapping[str, str],
    python: str,
) -> tuple[list[str], LaunchMessage]:
    """The program's command line and the launch message for this node's agent. folder: the node's
    own, on its own disk."""
    plan = plan_of(arranged, roster, parameters.job)
    rank = roster.rank_of(parameters.run)
    assert rank is not None, "only members are launched"
    node = plan.nodes[rank]
    paths = NodePaths(
        folder=folder,
        cluster_file=_write_cluster_file(plan, folder),
        work=code_dir(parameters) if parameters.ephemeral else folder,
        outputs=_outputs(plan.processes_of(rank), folder),
        tls=folder / "tls",
        short=folder,
    )
    paths.temporary.mkdir(exist_ok=True)
    start = NodeStart(
        attempt=0,
        incarnation=0,
        ports=ports_of(arranged, roster),
        values=EngineValues(
            token=roster.token,
            interface=interface_of(node.address),
            gpus="",
            extra=_environment(parameters, folder, environ),
        ),
        cpus=count_cpus(),
        memory=count_memory(),
        contained=False,
        error_files=False,
    )
    context = RunContext(plan, Home(folder), environ, python)
    message = launch_message(context, node, paths, start)
    return list(plan.group(node.group).command or ()), message


def _write_cluster_file(plan: RunPlan, folder: Path) -> Path:
    """Write the roster and MPI's list of hosts. Returns the path of the roster."""
    path = folder / "cluster.json"
    members = [member(n.rank, n.address, n.fqdn, n.group, n.node_id) for n in plan.nodes]
    write_roster(str(path), members)
    addresses = [n.address for n in plan.nodes]
    write_hostfile(str(path), addresses, plan.processes_per_node)
    return path


def _environment(
    parameters: Parameters, folder: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The service's variables, and those that programs for ADS read."""
    variables = {name: text for name, text in environ.items() if name.startswith(_FROM_SERVICE)}
    variables |= exported(parameters)
    # ADS: PYTHONPATH=/code, for programs in subfolders and for services
    path = [str(code_dir(parameters)), environ.get("PYTHONPATH")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    variables["tmpdir"] = f"{parameters.work_dir.rstrip('/')}/{parameters.job}"
    if SYNC_DIR not in environ:
        # the folder of images for ADS; otherwise one that is removed with the node
        place = Path(SYNCED) if os.access(SYNCED, os.W_OK) else folder / "sync"
        place.mkdir(exist_ok=True)
        variables[SYNC_DIR] = str(place)
    return variables


def _outputs(processes: int, folder: Path) -> NodeOutputs:
    """The node writes to our own output, where the service expects it."""
    return NodeOutputs(((INHERITED, INHERITED),) * processes, folder, "service")


class AgentProcess:
    """The child process that runs the node's agent.

    check: called every `interval` seconds; may return a reason to stop the node.
    """

    def __init__(
        self,
        command: Sequence[str],
        launch: LaunchMessage,
        check: Callable[[], StopReason | None],
        interval: float,
    ) -> None:
        self._check = check
        self._interval = interval
        #: Whether the program, or the service that the node runs instead, has become ready.
        self.ready = False
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _run_agent(theirs, command, launch)
        theirs.close()
        self._channel = Channel(ours)

    def run(self, on_success: Callable[[], None]) -> NodeExit:
        """Wait for the end of the node. SIGTERM to this process stops the node.

        on_success: called when the program has succeeded, before its services end.
        """
        signals: list[int] = []
        previous = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
        try:
            return self._watch(on_success, signals)
        finally:
            signal.signal(signal.SIGTERM, previous)
            self._channel.close()  # an agent that is still alive then ends everything
            os.waitpid(self._pid, 0)

    def _watch(self, on_success: Callable[[], None], signals: list[int]) -> NodeExit:
        stopped: StopReason | None = None
        next_check = time.monotonic()
        while True:
            left = max(0.0, next_check - time.monotonic())
            readable, _, _ = select.select([self._channel], [], [], left)
            if readable:
                for message in self._channel.receive():
                    if isinstance(message, messages.ProgramDone):
                        on_success()
                    elif isinstance(message, messages.Ready):
                        self.ready = True
                    elif isinstance(message, messages.Ended):
                        report = message.report
                        how = (report.exit_code, report.message, stopped, self.ready, report.signal)
                        return NodeExit(*how, time.time())
                if self._channel.closed:
                    invalid = self._channel.invalid
                    ended = f"sent an invalid message: {invalid}" if invalid else "was killed"
                    text = f"the node's agent {ended}"
                    return NodeExit(None, text, stopped, self.ready, signal.SIGKILL, time.time())
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + self._interval
                reason = TERMINATION if signals else self._check()
                if reason is not None and stopped is None:
                    stopped = reason
                    self._channel.send(messages.Stop(0))


def _run_agent(sock: socket.socket, command: Sequence[str], launch: LaunchMessage) -> None:
    """Run the agent in the child process and exit."""
    code = 1
    try:
        os.setsid()  # out of reach of the terminal's signals, which this process passes on
        run_agent(Channel(sock), command, launch)
        code = 0
    finally:
        os._exit(code)
