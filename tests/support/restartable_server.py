"""`muster server` as a process of its own, for tests that kill it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

from muster.client.contexts import Address
from support.faults import until

_TOKEN = re.compile(r"muster_[0-9a-z]{10}_[0-9A-Za-z]+")


class ServerProcess:
    """A server for a MUSTER_HOME, always at the same port. log: where it writes."""

    def __init__(self, home: Path, log: Path) -> None:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self._home, self._log = home, log
        self._token = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environ = {**os.environ, "MUSTER_HOME": str(self._home)}
        environ.pop("MUSTER_URL", None)
        words = [sys.executable, "-m", "muster", "server", "--port", str(self._port)]
        with open(self._log, "a") as log:
            process = subprocess.Popen(
                words, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._process = process
        assert process.stdout is not None
        self._token = self._token or _token_in(process.stdout)
        until(self._answers)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port)).close()
        except ConnectionRefusedError:
            return False
        return True

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def address(self) -> Address:
        """Where it is, for a client that administers it."""
        return Address(f"http://127.0.0.1:{self._port}", self._token)

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()


def _token_in(output: IO[str]) -> str:
    """The first token that a new server shows."""
    for line in output:
        if found := _TOKEN.search(line):
            return found[0]
    raise AssertionError("the server has ended, or shown no token")
