"""`muster server` as a process of its own, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from support.faults import until

MUSTER = Path(sys.executable).with_name("muster")


class ServerProcess:
    """A server that can be killed."""

    def __init__(self, home: Path, prefix: Sequence[str] = ()) -> None:
        """prefix: precedes the command."""
        self.home, self._prefix = home, prefix
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.log = home.parent / f"server-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environ = {**os.environ, "MUSTER_HOME": str(self.home)}
        with open(self.log, "ab") as log:
            argv = [*self._prefix, str(MUSTER), "server", "--port", str(self.port)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=environ)

    def wait_until_ready(self) -> None:
        until(self._is_ready, f"server {self.port} is ready", 60)

    def _is_ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()[
            -2000:
        ]
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), 5)) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End it. Its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(60)
