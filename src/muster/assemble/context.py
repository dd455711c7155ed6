"""What a node that assembles itself knows of itself and its cluster."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from muster.assemble.address import own_address
from muster.assemble.job import GROUPS, arranged_job
from muster.assemble.members import Assembly, Member
from muster.assemble.parameters import Parameters
from muster.assemble.ports import OwnPorts
from muster.assemble.running import Running, Told, launch_of
from muster.assemble.workdir import WorkDir
from muster.errors import EngineError
from muster.frameworks.base import RoleSetup
from muster.plan.arrange import Arranged

#: The exit code of a node that was told to end.
TERMINATED = 128 + signal.SIGTERM


class Context(Struct, frozen=True):
    """folder: the node's own, on its own disk. say: for progress."""

    parameters: Parameters
    arranged: Arranged
    workdir: WorkDir
    ports: OwnPorts
    folder: Path
    environ: Mapping[str, str]
    say: Callable[[str], None]

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
        """What the framework says of its like."""
        return self.arranged.role(GROUPS[member.mode])

    def deciding(self, assembly: Assembly) -> list[Member]:
        """The members beside the main one by whose end the run is judged."""
        return [member for member in assembly.members[1:] if self.role(member).decides]

    def needed(self, assembly: Assembly) -> list[Member]:
        """The members beside the main one without whom the others cannot go on."""
        return [member for member in assembly.members[1:] if not self.role(member).replaceable]

    def start(self, assembly: Assembly, *watchers: Callable[[], Told | None]) -> Running:
        """Begin this node's work. watchers: asked at every look whether it has to end."""
        launch = launch_of(
            self.parameters,
            self.arranged,
            assembly,
            self.folder,
            self.environ,
            sys.executable,
        )
        return Running(launch, lambda: first_told(watchers), self.workdir.interval)

    @contextmanager
    def if_possible(self) -> Iterator[None]:
        """For what is done in the end: how the node has ended does not change if it fails."""
        try:
            yield
        except EngineError as error:
            self.say(str(error))


@contextmanager
def open_context(
    environ: Mapping[str, str],
    workdir: WorkDir,
    folder: Path,
    say: Callable[[str], None],
    parameters: Parameters,
) -> Iterator[Context]:
    """What a node with these parameters knows, while it holds its ports. Raises InvalidInput."""
    arranged = arranged_job(parameters, environ)
    with closing(OwnPorts(arranged.setup.ports, say, main=parameters.mode == "MAIN")) as ports:
        yield Context(parameters, arranged, workdir, ports, folder, environ, say)


def first_told(watchers: tuple[Callable[[], Told | None], ...]) -> Told | None:
    """What the first says that says something. One that fails keeps no other from being asked; it
    is asked again the next time: the store may be back by then."""
    for watcher in watchers:
        try:
            told = watcher()
        except EngineError:
            continue
        if told is not None:
            return told
    return None
