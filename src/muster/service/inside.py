"""Run commands inside the nodes of a run in progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from muster.control import lease, run_lock
from muster.engines.base import (
    Engine,
    NodeCommand,
    NodeProcess,
    PortForward,
    RunningNode,
    Stdio,
)
from muster.engines.capabilities import Ability, require
from muster.engines.registry import engine_named
from muster.errors import EngineError, InvalidInput, Problem
from muster.lifecycle.states import ALIVE, RunState
from muster.service.nodes import check_ranks, choose, not_running
from muster.storage.home import RunDir

if TYPE_CHECKING:
    import socket

    from muster.api.answers import Stacks
    from muster.node.counters import Counters
    from muster.service.context import Context
    from muster.store.records import RunSummary

#: What to do about a run that has no processes, by its state; others have ended.
_HINTS = {
    RunState.ACCEPTED: "try again when it has started: `muster status {name}`",
    RunState.QUEUED: "it starts when other runs have ended: `muster status {name}`",
    RunState.SUSPENDED: "`muster runs resume {name}` starts it again",
}
_ENDED = "`muster logs {name}` shows its output"


def supervisor_of(context: Context, run: RunSummary) -> int:
    """The pid of the process that drives a run in progress. Raises InvalidInput if the run is not
    in progress, and EngineError if the process is not visible here."""
    state = RunState(run.state)
    if state not in (RunState.IN_PROGRESS, RunState.CANCELING):
        hint = _HINTS.get(state, _ENDED).format(name=run.name)
        raise InvalidInput(Problem("", f"{run.name} has no processes: it is {state}", hint))
    lease.check_host(context.store, run.id, run.name)
    pid = run_lock.holder_pid(context.home.run_dir(run.id).lock)
    if pid is None:
        raise EngineError(
            f"the supervisor of {run.name} is not visible here; run the command as the user who "
            "started the run, or as root, and where it was started"
        )
    return pid


def running_node(context: Context, run: RunSummary, rank: int | None) -> RunningNode:
    """A node of a run; its only one if rank is None. Raises InvalidInput, EngineError."""
    supervisor = supervisor_of(context, run)
    node = choose(context.store, run, rank)
    if node.state not in ALIVE:
        raise InvalidInput(not_running(context.store, run, node))
    return RunningNode(context.home.run_dir(run.id), node.rank, supervisor, run.engine)


def counters(context: Context, run: RunSummary) -> dict[int, Counters]:
    """What the nodes of a run in progress use now, by rank. Raises InvalidInput, EngineError."""
    folder = context.home.run_dir(run.id)
    return _engine(folder, run.engine, "counters").counters(folder, supervisor_of(context, run))


def stacks(context: Context, run: RunSummary, ranks: Collection[int]) -> Stacks:
    """The stacks of the nodes' Python threads. See `Engine.stacks`. Also raises InvalidInput as
    `nodes.check_ranks`."""
    from muster.api.answers import Stacks

    folder = context.home.run_dir(run.id)
    engine, supervisor = _engine(folder, run.engine, "stacks"), supervisor_of(context, run)
    check_ranks(context.store, run, ranks)
    found, problems = engine.stacks(folder, supervisor, ranks)
    return Stacks(tuple(found), tuple(problems))


def forward(
    node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
) -> PortForward:
    """See `Engine.forward`. Also raises InvalidInput."""
    return _engine(node.folder, node.engine, "forward").forward(node, hosts, port, listener)


def run_in_node(node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
    """See `Engine.run_in_node`. Also raises InvalidInput."""
    return _engine(node.folder, node.engine, "exec").run_in_node(node, command, stdio)


def _engine(folder: RunDir, name: str, ability: Ability) -> Engine:
    """The engine of the run of a folder, which has the ability. Raises InvalidInput."""
    engine = engine_named(name, folder.home)
    require(engine, ability)
    return engine
