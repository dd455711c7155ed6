"""Run the server: listen; beside it, recover runs, start those of schedules and send the events of
notifications; stop without ending any run."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

import uvicorn

from muster.errors import EngineError, Problem
from muster.server.app import App
from muster.server.deliverer import Deliverer
from muster.server.http_protocol import HttpProtocol
from muster.server.job_run_metrics import JobRunMetrics
from muster.server.log import ServerLog, logging_to
from muster.server.recovery import Recovery
from muster.server.run_observer import RunObserver
from muster.server.scheduler import Scheduler
from muster.server.settings import Settings
from muster.server.state import Authenticate, ServerState
from muster.service.backend import Backend
from muster.storage.key_pool import KeyPool

#: Seconds that requests have to end when the server stops; streams are told to end.
_STOP_TIMEOUT = 5
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Connections that wait to be accepted.
_BACKLOG = 1024


class PortInUse(EngineError):  # noqa: N818
    """The server's address cannot be used."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises PortInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = "choose another one with --port, or end the program that uses it"
        why = f"cannot listen on {host}:{port}: {error.strerror}"
        raise PortInUse(str(Problem("", why, hint))) from None
    return listener


class Server:
    """A server in this process."""

    def __init__(
        self, settings: Settings, backend: Backend, authenticate: Authenticate, log: ServerLog
    ) -> None:
        backend.recovers_apart = True
        backend.keys = KeyPool()
        self.state = ServerState(settings, backend, authenticate, log)
        config = uvicorn.Config(
            App(self.state),
            loop="uvloop",
            http=HttpProtocol,
            ws="websockets-sansio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.file.trusted_proxies),
            forwarded_allow_ips=[*settings.file.trusted_proxies],
            timeout_graceful_shutdown=_STOP_TIMEOUT,
            timeout_keep_alive=75,
            # a client that is slow to read or to write answers late, and is not gone
            ws_ping_timeout=None,
            backlog=_BACKLOG,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        self._server = _Uvicorn(config, self.state)
        self._recovery = Recovery(backend, RunObserver(backend, self.state.metrics), log)
        self._scheduler = Scheduler(self.state)
        self._metrics = JobRunMetrics(backend, log)
        self._deliverer = Deliverer(self.state)
        self.state.recovery_age = lambda: time.monotonic() - self._recovery.last

    def run(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT. listener: see `listen`; it is closed."""
        self._recovery.start()
        self._scheduler.start()
        self._metrics.start()
        self._deliverer.start()
        try:
            with logging_to(self.state.log, "uvicorn", "asyncio"):
                self._server.run([listener])
        finally:
            self._metrics.stop()
            self._deliverer.stop()
            self._scheduler.stop()
            self._recovery.stop()
            self.state.close()

    def stop(self) -> None:
        """Have `run` return. For other threads."""
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Streams end when it stops: they would last for as long as their runs."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but the signals are not raised again when it has stopped, which would
        end this process before everything is closed."""
        if current_thread() is not main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in _STOP_SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.stopping.set()
        await super().shutdown(sockets)
