"""What a node needs to know about itself and its cluster."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from muster.bootstrap.agent_process import AgentProcess, StopReason, launch_of
from muster.bootstrap.job import GROUPS, arranged_job
from muster.bootstrap.network import ReservedPorts
from muster.bootstrap.outcome import policy_of, required_ranks
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import Member, Roster
from muster.bootstrap.workdir import WorkDir
from muster.errors import EngineError
from muster.frameworks.base import RoleSetup
from muster.lifecycle.policy import Policy
from muster.node.machine import own_address
from muster.plan.arrange import Arranged

#: The exit code of a node that was ended by SIGTERM.
TERMINATED = 128 + signal.SIGTERM


class Context(Struct, frozen=True):
    """A node and its cluster."""

    parameters: Parameters
    arranged: Arranged
    workdir: WorkDir
    ports: ReservedPorts
    #: The node's own folder, on its own disk.
    folder: Path
    environ: Mapping[str, str]
    #: Prints a message about progress.
    log: Callable[[str], None]

    @property
    def policy(self) -> Policy:
        """The policy of the cluster."""
        return policy_of(self.arranged)

    def member(self) -> Member:
        """This node."""
        parameters = self.parameters
        return Member(
            run=parameters.run,
            mode=parameters.mode,
            address=parameters.address or own_address(),
            hostname=socket.gethostname(),
            ports=self.ports.numbers,
            rank=parameters.rank,
        )

    def role(self, member: Member) -> RoleSetup:
        """What nodes of this member's group run."""
        return self.arranged.role(GROUPS[member.mode])

    def required(self, roster: Roster) -> list[Member]:
        """The required members except the main node: the cluster fails if one of them fails."""
        return [roster.members[rank] for rank in required_ranks(self.policy) if rank > 0]

    def start(self, roster: Roster, *checks: Callable[[], StopReason | None]) -> AgentProcess:
        """Start this node's processes. checks: called at every poll; each may return a reason to
        stop the node."""
        command, launch = launch_of(
            self.parameters,
            self.arranged,
            roster,
            self.folder,
            self.environ,
            sys.executable,
        )
        return AgentProcess(command, launch, lambda: first_reason(checks), self.workdir.interval)

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Print an EngineError instead of raising it. For the last steps of a node: its exit code
        stays the same if they fail."""
        try:
            yield
        except EngineError as error:
            self.log(str(error))


@contextmanager
def open_context(
    environ: Mapping[str, str],
    workdir: WorkDir,
    folder: Path,
    log: Callable[[str], None],
    parameters: Parameters,
) -> Iterator[Context]:
    """The context of a node with these parameters, whose ports stay reserved inside. Raises
    InvalidInput."""
    arranged = arranged_job(parameters, environ)
    with closing(ReservedPorts(arranged.setup.ports, log, main=parameters.mode == "MAIN")) as ports:
        yield Context(parameters, arranged, workdir, ports, folder, environ, log)


def first_reason(checks: tuple[Callable[[], StopReason | None], ...]) -> StopReason | None:
    """The first reason that a check returns. A check that raises EngineError is skipped, and called
    again at the next poll: the store may be back by then."""
    for check in checks:
        try:
            reason = check()
        except EngineError:
            continue
        if reason is not None:
            return reason
    return None
