"""Two servers of one MUSTER_HOME, which tests kill."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from muster.storage.home import Home
from support.owners import open_home
from support.postgres import PostgresServer
from support.server_process import ServerProcess

#: For fixtures: a MUSTER_HOME with each kind of database.
KINDS = ("sqlite", "postgres")


@contextmanager
def home_with(kind: str) -> Iterator[Home]:
    """A MUSTER_HOME that all accounts may use, with a database of this kind."""
    with open_home() as home:
        if kind == "sqlite":
            yield home
            return
        database = PostgresServer()
        try:
            home.database_url.write_text(f"{database.url(database.create())}\n")
            home.database_url.chmod(0o600)
            yield home
        finally:
            database.remove()


class ServerPair:
    """See the module."""

    def __init__(self, home: Home) -> None:
        self._servers = [ServerProcess(home), ServerProcess(home)]

    def start(self) -> None:
        """Start both, and wait until they answer."""
        for server in self._servers:
            server.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        for server in self._servers:
            server.wait_until_ready()

    def strike(self, rng: random.Random) -> None:
        """Kill one of them, or both, and start them again, without waiting until they answer."""
        struck = rng.choice([self._servers, self._servers[:1], self._servers[1:]])
        for server in struck:
            server.stop()
        for server in struck:
            server.start()

    def end(self) -> None:
        """End both as they should end. None may have had a defect."""
        self.wait_until_ready()
        for server in self._servers:
            assert server.stop(signal.SIGTERM) == 0, server.log.read_text()[-2000:]
            defects = [line for line in server.log.read_text().splitlines() if "traceback" in line]
            assert not defects, "\n".join(defects)[:5000]

    def kill(self) -> None:
        """Kill those that run."""
        for server in self._servers:
            if server.process is not None and server.process.poll() is None:
                server.stop()


@contextmanager
def server_pair(home: Home) -> Iterator[ServerPair]:
    """Two servers that run and answer. They are killed at the end, unless they have ended."""
    made = ServerPair(home)
    try:
        made.start()
        yield made
    finally:
        made.kill()
