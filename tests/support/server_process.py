"""`muster server` as a process of its own, for tests that stop or kill it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import closing

from muster.client.contexts import Address
from muster.service.backend import Backend
from muster.service.logins import create_first_admin
from muster.storage.home import Home
from support.command import MUSTER
from support.faults import until


def admin_token(home: Home) -> str:
    """The token of the first administrator of a new MUSTER_HOME."""
    with closing(Backend(home)) as backend:
        token = create_first_admin(backend.store)
    assert token is not None, "the home is not new"
    return token.text


class ServerProcess:
    """A server for a MUSTER_HOME, always at the same port of loopback."""

    def __init__(self, home: Home) -> None:
        self._home = home
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        #: Where it writes to.
        self.log = home.root.parent / f"server-{self.port}.log"
        #: None until it is started.
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting until it answers."""
        environ = {**os.environ, "MUSTER_HOME": str(self._home.root)}
        environ.pop("MUSTER_URL", None)
        with open(self.log, "ab") as log:
            argv = [*MUSTER, "server", "--port", str(self.port)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=environ)

    def wait_until_ready(self) -> None:
        """Wait until it answers that it is ready."""
        until(self._is_ready, f"server {self.port} is ready", 60)

    def _is_ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self._end_of_log()
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), 5)) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
        except OSError:
            return False

    def _end_of_log(self) -> str:
        return self.log.read_text()[-2000:]

    def stop(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal, and wait until it has ended. Its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(60)

    def address(self, token: str) -> Address:
        """Where it is, for a client."""
        return Address(f"http://127.0.0.1:{self.port}", token)

    def __enter__(self) -> ServerProcess:
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
