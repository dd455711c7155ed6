"""One node of an assembled cluster at work: its agent in a process of its own, watched."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.assemble.address import interface_of
from muster.assemble.job import code_dir, plan_of, ports_of
from muster.assemble.main_config import exported
from muster.assemble.members import Assembly
from muster.assemble.parameters import Parameters
from muster.engines.base import RunContext
from muster.engines.local.launch import NodePaths, launch_message
from muster.engines.local.machine import count_cpus, count_memory
from muster.engines.local.outputs import NodeOutputs
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.processes import INHERITED
from muster.node.roster import member, write_hostfile, write_roster
from muster.plan.arrange import Arranged
from muster.spec.formats.ads_variables import SYNC_DIR, SYNCED
from muster.storage.home import Home

#: What the service says of a node itself goes before what we would say.
_THEIRS = ("JOB_", "PROJECT_", "TENANCY_", "OCI_")


class Told(Struct, frozen=True):
    """Why we ended a node. failed: whether what it was for is not done; of_others: whether that
    is because other members have failed."""

    why: str
    failed: bool
    of_others: bool = False


EVICTED = Told("it was told to end by a signal", failed=True)


class NodeEnd(Struct, frozen=True):
    """How the node ended. exit_code: None if its program never began; told: if we ended it; ready:
    whether its program, or what serves in its place, was up; signal: that ended it, or 0; at: epoch
    seconds."""

    exit_code: int | None
    message: str = ""
    told: Told | None = None
    ready: bool = False
    signal: int = 0
    at: float = 0.0

    @property
    def outcome(self) -> str:
        """For people."""
        if self.exit_code == 0:
            return "the program has ended: exit code 0"
        code = "it never began" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"the node failed: {code}{': ' + self.message if self.message else ''}"


def launch_of(
    parameters: Parameters,
    arranged: Arranged,
    assembly: Assembly,
    folder: Path,
    environ: Mapping[str, str],
    python: str,
) -> dict[str, Any]:
    """What this node's agent is told. folder: the node's own, on its own disk."""
    plan = plan_of(arranged, assembly, parameters.job)
    rank = assembly.rank_of(parameters.run)
    assert rank is not None, "only members are launched"
    node = plan.nodes[rank]
    cluster_file = folder / "cluster.json"
    write_roster(
        str(cluster_file),
        [member(n.rank, n.address, n.fqdn, n.group, n.node_id) for n in plan.nodes],
    )
    addresses = [n.address for n in plan.nodes]
    write_hostfile(str(cluster_file), addresses, plan.processes_per_node)
    paths = NodePaths(
        folder=folder,
        cluster_file=cluster_file,
        work=code_dir(parameters) if parameters.ephemeral else folder,
        outputs=_outputs(plan.processes_of(rank), folder),
        tls=folder / "tls",
        short=folder,
    )
    paths.temporary.mkdir(exist_ok=True)
    message = launch_message(
        RunContext(plan, Home(folder), environ, python),
        node,
        paths,
        attempt=0,
        restart=0,
        ports=ports_of(arranged, assembly),
        token=assembly.token,
        gpus=(),
        interface=interface_of(node.address),
        mounted={},
        extra=_told(parameters, folder, environ),
        contained=False,
        cpus=count_cpus(),
        memory=count_memory(),
    )
    command = plan.group(node.group).command or ()
    for process in message["processes"]:
        process["argv"] = list(command)
    return {**message, "folder": str(folder), "fresh": [], "incarnation": 0, "keep": False}


def _told(parameters: Parameters, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What the service says of the node, and what programs for ADS look for on it."""
    told = {name: text for name, text in environ.items() if name.startswith(_THEIRS)}
    told |= exported(parameters)
    # ADS: PYTHONPATH=/code, for programs in subfolders and for what only serves
    path = [str(code_dir(parameters)), environ.get("PYTHONPATH")]
    told["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    told["tmpdir"] = f"{parameters.work_dir.rstrip('/')}/{parameters.job}"
    if SYNC_DIR not in environ:
        # where images for ADS have it; else a folder that goes with the node
        place = Path(SYNCED) if os.access(SYNCED, os.W_OK) else folder / "sync"
        place.mkdir(exist_ok=True)
        told[SYNC_DIR] = str(place)
    return told


def _outputs(processes: int, folder: Path) -> NodeOutputs:
    """Our own output, so that it is where the service looks for it."""
    return NodeOutputs(((INHERITED, INHERITED),) * processes, folder, "service")


class Running:
    """The node's agent. look: called every `interval` seconds; a reason to end, or nothing.

    ready: whether its program, or what serves in its place, is up.
    """

    def __init__(
        self, launch: Mapping[str, Any], look: Callable[[], Told | None], interval: float
    ) -> None:
        self._look = look
        self._interval = interval
        self.ready = False
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _live(theirs, launch)
        theirs.close()
        self._channel = Channel(ours)

    def run(self, on_done: Callable[[], None]) -> NodeEnd:
        """Until the node has ended. on_done: its program has ended well, and what served it is
        about to. A SIGTERM to us is the node's."""
        asked: list[int] = []
        former = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
        try:
            return self._watch(on_done, asked)
        finally:
            signal.signal(signal.SIGTERM, former)
            self._channel.close()  # should the agent be there still, it ends everything
            os.waitpid(self._pid, 0)

    def _watch(self, on_done: Callable[[], None], asked: list[int]) -> NodeEnd:
        told: Told | None = None
        next_look = time.monotonic()
        while True:
            left = max(0.0, next_look - time.monotonic())
            readable, _, _ = select.select([self._channel], [], [], left)
            if readable:
                for message in self._channel.receive():
                    if message["event"] == "done":
                        on_done()
                    elif message["event"] == "ready":
                        self.ready = True
                    elif message["event"] == "ended":
                        code, number = message["exit_code"], message["signal"]
                        text = message["message"]
                        return NodeEnd(code, text, told, self.ready, number, time.time())
                if self._channel.closed:
                    text = "the node's agent was killed"
                    return NodeEnd(None, text, told, self.ready, signal.SIGKILL, time.time())
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + self._interval
                why = EVICTED if asked else self._look()
                if why is not None and told is None:
                    told = why
                    self._channel.send(op="stop", incarnation=0)


def _live(sock: socket.socket, launch: Mapping[str, Any]) -> None:
    """The agent's whole life."""
    code = 1
    try:
        os.setsid()  # what a terminal tells its programs, we pass on: the agent has to outlive them
        run_agent(Channel(sock), launch)
        code = 0
    finally:
        os._exit(code)
