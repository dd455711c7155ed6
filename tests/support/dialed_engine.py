"""`engine: dialed`: as `servers`, but the node servers are started with a command and an
environment, as by Slurm or Kubernetes, and dial the supervisor over TCP with TLS.

The infrastructure starts a server again that has failed. It is described by a file
(`Infrastructure`), unless all is on this machine.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.hosts import Host, Hosts, HostsOwner
from muster.node.files import replace_file
from muster.node.serve import SETTINGS, TOKEN
from support.remote_engine import Machine, Servers

#: Seconds between looks at the servers.
_PERIOD = 0.2


class Infrastructure(msgspec.Struct):
    """Where nodes are, and what they are started with."""

    #: The address of the supervisor's machine.
    listen: str = "127.0.0.1"
    #: For each machine what runs a command there, and its name; nodes take turns. Empty: here.
    machines: list[tuple[list[str], str]] = []
    #: What nodes are started with in place of their token, and of the certificate of the run's
    #: authority; "": nothing.
    token: str = ""
    authority: str = ""

    @classmethod
    def of(cls, home: Path) -> Infrastructure:
        """That of a MUSTER_HOME."""
        path = home / _FILE
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, home: Path) -> None:
        """Have nodes of this MUSTER_HOME start there from now on."""
        replace_file(home / _FILE, msgspec.json.encode(self))

    def prefix(self, rank: int) -> list[str]:
        """What runs a command on the machine of a node."""
        return self.machines[rank % len(self.machines)][0] if self.machines else []

    def name(self, rank: int) -> str:
        """The name of the machine of a node."""
        if self.machines:
            return self.machines[rank % len(self.machines)][1]
        return socket.gethostname()


_FILE = "infrastructure.json"


class Dialed(Servers):
    name = "dialed"

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> Hosts:
        return Started(Machine.at(context.home.root / "host"), context, loop, owner)


class Started:
    """Each node has a folder of the run as its host, and a process that serves it."""

    def __init__(
        self, machine: Machine, context: RunContext, loop: RunLoop, owner: HostsOwner
    ) -> None:
        from muster.engines.remote.dialing import Dialing

        run_dir = context.home.run_dir(context.plan.run_id)
        self._machine, self._loop, self._owner = machine, loop, owner
        self._run_id, self._folder = context.plan.run_id, run_dir.path / "hosts"
        self._home = context.home.root
        listen = Infrastructure.of(self._home).listen
        self._dialing = Dialing(context, loop, listen, run_dir.contact / "address")
        self._servers: dict[int, subprocess.Popen[bytes] | None] = {}  # by rank
        self._participant = loop.add(self._step)

    def allocate(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._servers[rank] = None
            self._loop.post(partial(self._place, rank))
        self._participant.notify()

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        self.allocate([slot for part in parts for slot in part])

    def _place(self, rank: int) -> None:
        # as over a network, though it is none
        name = Infrastructure.of(self._home).name(rank)
        host = Host(self._dialing.of(rank), name, compress=True)
        self._owner.placed(rank, host)

    def place_ended(self) -> None:
        found = (int(one.name) for one in self._folder.glob("*") if one.name.isdigit())
        for rank in set(found) - self._servers.keys():
            self._servers[rank] = None
            self._place(rank)
        self._participant.notify()

    def give_up(self, rank: int) -> None:
        server = self._servers.pop(rank, None)
        if server is not None:
            server.terminate()  # it may have taken the place of that of an earlier session
            server.wait(240)

    def close(self) -> None:
        self._dialing.close()
        self._participant.close()

    def _step(self, _ready: Mapping[int, int]) -> None:
        for rank, server in self._servers.items():
            if server is None or server.poll():  # else it runs, or has left
                self._servers[rank] = self._start(rank)
        self._participant.wake_at(self._loop.now() + _PERIOD)

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        """Start a server. It leaves at once if that of an earlier session runs."""
        there = Infrastructure.of(self._home)
        settings = self._dialing.settings(rank) | {"archives": str(self._machine.archives)}
        settings["supervisor"]["authority"] = there.authority or self._dialing.authority
        told = {SETTINGS: json.dumps(settings), TOKEN: there.token or self._dialing.token(rank)}
        folder = self._folder / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        serve = [str(self._machine.python), str(self._machine.program), "serve", str(folder)]
        with open(self._log(rank), "ab") as log:
            return subprocess.Popen(
                [*there.prefix(rank), *serve],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._machine.environ, **told},
                cwd="/",
                start_new_session=True,
            )

    def _log(self, rank: int) -> Path:
        return self._folder / f"{rank}.log"
