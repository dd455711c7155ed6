"""Sessions of engines that a test drives as a controller does: `support.session_host` has them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from muster.engines.container.bodies import SERVER_FOLDER as IN_CONTAINER
from muster.engines.container.volumes import remove_files
from muster.engines.registry import engine_named
from muster.frameworks.base import RoleSetup
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef
from muster.node import leftovers
from muster.node.processes import children
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.storage.home import Home
from support import forked_programs
from support.faults import until
from support.node_servers import server_pid_if_any

#: The program of the process that has the session.
_HOST = Path(__file__).parent / "session_host.py"
#: What it imports, with all engines and what they use.
_NEEDED = (
    "muster.engines",
    "support.session_host",
    *(("oci.data_science", "oci.logging", "oci.loggingsearch") if find_spec("oci") else ()),
)
Event = dict[str, Any]

#: The engine to test instead, from another package; "" for those of Muster.
_PLUG_IN = os.environ.get("CONTRACT_ENGINE", "")
#: Where it has the files of a node, below MUSTER_HOME, if its nodes outlive a session.
_PLUG_IN_FOLDER = os.environ.get("CONTRACT_FOLDER", "hosts/{run_id}-{rank}")
#: An engine's name, and how it is prepared.
KINDS = ["local-namespaces", "local-plain", "local-shared", "processes"]
#: Those whose nodes have namespaces.
NAMESPACES = ("local-namespaces", "local-shared")
#: Those whose nodes outlive the session.
_REMOTE = ("servers", "dialed", "hosts", "container", "slurm", "oci", "kubernetes")
#: Those whose nodes are in jobs or pods, which may wait.
_BATCH = ("slurm", "oci", "kubernetes")
DETACHED = (*_REMOTE, _PLUG_IN)
SIMULATED = ("simulated", "simulated-agents")
#: Those whose nodes are real, and all.
REAL_KINDS = [_PLUG_IN] if _PLUG_IN else [*KINDS, *_REMOTE]
ALL_KINDS = [*REAL_KINDS, *(() if _PLUG_IN else SIMULATED)]


def engine_of(kind: str) -> str:
    """The name of the engine of a kind."""
    return "local" if kind.startswith("local-") else kind


class DrivenSession(ABC):
    """A session that a test drives as a controller does. Its nodes are real or simulated."""

    def __init__(self) -> None:
        #: The incarnations that have not ended, and how they are, as a controller has recorded it.
        self.recorded: dict[NodeRef, NodeState] = {}
        self._newest: dict[int, int] = {}  # rank -> incarnation

    # --- calls

    def start(self, *ranks: int, incarnation: int = 0, attempt: int = 0) -> None:
        for rank in ranks:
            if incarnation > self._newest.get(rank, -1):
                self._newest[rank] = incarnation
                self.recorded.setdefault(NodeRef(rank, incarnation), NodeState.STARTING)
        self._call("start", ranks, incarnation, before=[attempt])

    def records_a_start(self, rank: int) -> None:
        """Record a start that is not called: the controller is killed before."""
        self.recorded[NodeRef(rank, 0)] = NodeState.STARTING

    def stop(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("stop", ranks, incarnation)

    def kill(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("kill", ranks, incarnation)

    def release(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("release", ranks, incarnation)

    def signal(self, number: int, *ranks: int, incarnation: int = 0) -> None:
        self._call("signal", ranks, incarnation, after=[number])

    @abstractmethod
    def _call(
        self, name: str, ranks: Iterable[int], incarnation: int, before: Any = (), after: Any = ()
    ) -> None: ...

    @abstractmethod
    def lose(self, rank: int) -> None:
        """Have a node end as if its machine had lost power."""

    @abstractmethod
    def replaced(self) -> DrivenSession:
        """Kill the process of the session, and open the next one, which attaches to the nodes."""

    @abstractmethod
    def close(self) -> int:
        """End the session. No unread events may be left. Returns its exit code."""

    # --- events

    def event(self) -> Event:
        """The next event. Fails if the session may not report it."""
        event = self._next()
        assert "wrong" not in event, event
        state = _STATES.get(event["event"])
        ref = NodeRef(event.get("rank", -1), event.get("incarnation", -1))
        if state is not None:
            self.recorded[ref] = state
        elif event["event"] == "NodeEnded":
            self.recorded.pop(ref, None)
        return event

    @abstractmethod
    def _next(self) -> Event: ...

    def until(self, kind: str, *ranks: int, incarnation: int = 0) -> dict[int, Event]:
        """Events until one of this kind has arrived for this incarnation of each of these ranks."""
        found: dict[int, Event] = {}
        while set(found) != set(ranks):
            event = self.event()
            if event.get("rank") not in ranks:  # of another node, or of the run
                continue
            assert event["incarnation"] == incarnation, event
            if event["event"] == kind:
                found[event["rank"]] = event
            assert event["event"] in (kind, "NodeLocated", "NodeStarted", "NodeReady"), event
        return found

    def ended(self, *ranks: int, incarnation: int = 0) -> dict[int, Event]:
        return self.until("NodeEnded", *ranks, incarnation=incarnation)

    def ended_after_all(self, *ranks: int, incarnation: int = 0) -> dict[int, Event]:
        """As `ended`, whatever else has happened to these nodes, and to others, before."""
        found: dict[int, Event] = {}
        while set(found) != set(ranks):
            event = self.event()
            ref = event.get("rank"), event.get("incarnation")
            if event["event"] == "NodeEnded" and ref in {(rank, incarnation) for rank in ranks}:
                found[event["rank"]] = event
        return found

    def ready(self, *ranks: int, incarnation: int = 0) -> None:
        self.until("NodeReady", *ranks, incarnation=incarnation)

    def up(self, *ranks: int, incarnation: int = 0) -> None:
        """Return when these nodes are ready, and their programs (`support.programs`) listen to
        signals."""
        self.ready(*ranks, incarnation=incarnation)


_STATES = {
    "NodeQueued": NodeState.QUEUED,
    "NodeScheduled": NodeState.STARTING,
    "NodeStarted": NodeState.RUNNING,
    "NodeReady": NodeState.READY,
}


class Session(DrivenSession):
    """A session with real nodes, in a process of its own; `pid` is that process."""

    def __init__(
        self, kind: str, home: Path, plan: RunPlan, *, keep: bool = False, turn: int = 1
    ) -> None:
        super().__init__()
        self.home, self.plan, self.engine = home, plan, engine_of(kind)
        self._kind, self._keep, self._turn = kind, keep, turn
        self._others = 1 if kind == "local-shared" else 0  # nodes of other runs
        self._open()

    def _open(self) -> None:
        alive = [[*ref, state] for ref, state in self.recorded.items()]
        keep = "keep" if self._keep else ""
        words = [json.dumps(self.plan.to_json()), keep, json.dumps(alive), str(self._turn)]
        argv = [str(_HOST), self._kind, str(self.home), *words]
        self.process = forked_programs.start(argv, _NEEDED)
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())
        self._unread: list[str] = []
        while (line := self.process.stdout.readline()) != "ready\n":
            assert line, "the session could not be opened"
            self._unread.append(line)  # reported while it was opened

    def _call(
        self, name: str, ranks: Iterable[int], incarnation: int, before: Any = (), after: Any = ()
    ) -> None:
        assert self.process.stdin is not None
        refs = [[rank, incarnation] for rank in ranks]
        self.process.stdin.write(json.dumps([name, before, refs, after]) + "\n")
        self.process.stdin.flush()

    def _next(self) -> Event:
        assert self.process.stdout is not None
        while True:
            line = self._unread.pop(0) if self._unread else self.process.stdout.readline()
            assert line, "the session ended"
            event: Event = json.loads(line)
            waits = event.get("event") in ("NodeQueued", "NodeScheduled")
            if not waits or self.engine not in _BATCH:
                return event  # nodes of others may wait or not

    def up(self, *ranks: int, incarnation: int = 0) -> None:
        """See `DrivenSession.up`."""
        super().up(*ranks, incarnation=incarnation)
        for rank in ranks:
            self.wait_for_output(f"up {incarnation}\n", rank)

    def lose(self, rank: int) -> None:
        """See `DrivenSession.lose`. rank: that of the node in the order of starts."""
        os.kill(self.agents()[rank], signal.SIGKILL)

    def replaced(self) -> Session:
        """See `DrivenSession.replaced`."""
        self._kill()
        self._turn += 1
        self._open()
        return self

    def leave(self) -> None:
        """Have the session leave its nodes (`DetachedSession.leave`), and its process end."""
        self._call("leave", (), 0)
        assert self._read_rest() == "", "no event is left"

    def close(self) -> int:
        """See `DrivenSession.close`."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self._read_rest() == "", "no event is left"
        return self.process.wait(240)

    def _read_rest(self) -> str:
        """What the process prints until it ends."""
        assert self.process.stdout is not None
        rest = "".join([*self._unread, self.process.stdout.read()])
        self.process.stdout.close()
        return rest

    def _kill(self) -> str:
        """Kill the process. Returns what was not read of it."""
        if self.process.poll() is None:
            self.process.kill()
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(240)
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return "" if self.process.stdout.closed else self._read_rest()

    def abandon(self) -> None:
        """End everything of the session that a test has left. Fails if it has reported what it may
        not."""
        rest = self._kill()
        if self.engine in _BATCH:  # which would start servers again
            engine_named(self.engine, Home(self.home)).clean_up(self.plan.run_id)
        for server in self.servers():
            os.kill(server, signal.SIGKILL)  # its agent ends the node
        if self.engine == "container":  # what was in memory
            remove_files(self.plan.run_id)
        assert '"wrong":' not in rest, rest

    # --- observation

    def servers(self) -> list[int]:
        """The pids of the servers of nodes that outlive a session, by rank."""
        folders = [self.host_folder(node.rank) for node in self.plan.nodes]
        found = [server_pid_if_any(folder) for folder in folders if folder.is_dir()]
        return [pid for pid in found if pid is not None]

    @property
    def folder(self) -> Path:
        return self.home / "runs" / self.plan.run_id

    @property
    def cluster_file(self) -> Path:
        """The cluster metadata file of the node of rank 0."""
        of_host = self.host_folder(0) / "cluster" / "cluster.json"
        return of_host if self.engine in DETACHED else self.folder / "cluster.json"

    def host_folder(self, rank: int) -> Path:
        """The folder of the server of a node that outlives a session."""
        if self.engine in ("servers", "dialed"):  # see `support.remote_engine`
            return self.folder / "hosts" / str(rank)
        if self.engine == "container":
            return self.folder / "containers" / str(rank) / "node"
        if self.engine == "kubernetes":
            from support import kube_engine  # which no session needs

            cluster = kube_engine.shared_cluster()
            return kube_engine.node_folder(cluster, Home(self.home), self.plan, rank)
        if self.engine in _BATCH:
            # each job has servers of its own; the newest has the highest number
            nodes = self.home / self.engine
            folders = nodes.glob(f"{self.plan.run_id}-*-{rank}")
            newest = max(folders, key=lambda one: int(one.name.split("-")[-2]), default=None)
            return newest or nodes / f"{self.plan.run_id}-0-{rank}"
        name = _PLUG_IN_FOLDER.format(run_id=self.plan.run_id, rank=rank)
        return self.home / name  # for `hosts`, see `support.ssh_hosts`

    def seen_folder(self, rank: int) -> Path:
        """Where the node sees the folder of its server."""
        return Path(IN_CONTAINER) if self.engine == "container" else self.host_folder(rank)

    def output(self, rank: int = 0, stream: str = "out", attempt: int = 0) -> str:
        return (self.folder / f"logs/{attempt}/workers-{rank}.{stream}").read_text()

    def wait_for_output(self, text: str, rank: int = 0, attempt: int = 0) -> None:
        """Return when the output of a node contains the text."""

        def is_written() -> bool:
            assert self.process.poll() is None, "the session ended"
            try:
                return text in self.output(rank, attempt=attempt)
            except FileNotFoundError:  # the node was not started yet
                return False

        until(is_written, f"{text!r} in the output of node {rank}", pause=0.005)

    def agents(self) -> list[int]:
        """The pids of the nodes' agents, in the order they were started."""
        if self.engine in DETACHED:
            folders = [self.host_folder(node.rank) for node in self.plan.nodes]
            return [pid for folder in folders if folder.is_dir() for pid in _agents_in(folder)]
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()][self._others :]


def _agents_in(folder: Path) -> list[int]:
    """The pid of the agent of a node whose server has this folder, if there is one. A server has
    other children for a moment: they dial its supervisor, or measure the node."""
    server = server_pid_if_any(folder)
    held = folder / leftovers._LOCK
    return [] if server is None else [pid for pid in children(server) if _has_open(pid, held)]


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    with contextlib.suppress(OSError):  # it has ended, or there is no such file
        wanted = path.stat()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(wanted, descriptor.stat()):
                    return True
    return False


def make_plan(command: str, nodes: int = 1, **more: Any) -> RunPlan:
    """One group, `workers`, whose nodes run a shell command."""
    run_id = f"t{os.urandom(5).hex()}"
    network = more.pop("network", "shared")
    mine = os.urandom(2)
    base = "10.77.0" if network == "isolated" else f"127.{mine[0] | 1}.{mine[1]}"
    group = GroupPlan(
        name="workers",
        first_rank=0,
        replicas=1,
        nodes=nodes,
        command=("sh", "-c", command),
        args=(),
        env=more.pop("env", {}),
        framework_env={
            "RANK": "${process.rank}",
            "HEAD": "${roster.0.address}",
            **more.pop("framework_env", {}),
        },
        resources=more.pop("resources", ResourcePlan()),
        probe=more.pop("probe", None),
        hang_timeout=more.pop("hang_timeout", None),
        role=more.pop("role", RoleSetup()),
        mounts=more.pop("mounts", ()),
        **{
            name: more.pop(name)
            for name in ("image", "container", "extra_containers")
            if name in more
        },
    )
    policy = Policy(
        groups=(GroupPolicy("workers", 0, 1, nodes, 1),),
        success=Success((0,)),
        max_runtime=3600.0,
        grace_period=more.pop("grace_period", 0.2),
    )
    return RunPlan(
        run_id=run_id,
        run_name="demo-1",
        job_id="job",
        job_name="demo",
        framework="generic",
        processes_per_node=more.pop("processes_per_node", 1),
        network=network,
        network_reason="",
        node_outputs=True,
        policy=policy,
        groups=(group,),
        nodes=tuple(
            NodePlan(
                rank,
                "workers",
                0,
                rank,
                f"{run_id}-{rank}",
                f"node-{rank}",
                f"{base}.{rank + 1}",
                f"node-{rank}",
            )
            for rank in range(nodes)
        ),
        **more,
    )
