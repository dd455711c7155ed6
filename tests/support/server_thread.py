"""A server in a thread of this process, for tests."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from msgspec.structs import replace

from muster.caller import Caller, local_caller
from muster.client.contexts import Address
from muster.errors import NotAuthenticated
from muster.iam.authenticate import Authenticator
from muster.server.log import ServerLog
from muster.server.serve import Server, listen
from muster.server.settings import FileSettings, Settings
from muster.server.state import Authenticate
from muster.service.backend import Backend

#: As root, too, programs run as the user of the test, whom Python is readable for.
#: What is mounted by URL is on this machine.
ONE_USER = Settings(file=FileSettings(separate_owners=False, allow_private_addresses=True))
TOKEN = "a-token-of-a-test"


def one_user(token: str, project: str | None) -> Caller:
    """Knows one token."""
    if token != TOKEN:
        raise NotAuthenticated("this token is not known")
    caller = local_caller()
    return Caller(caller.user, project or caller.project)


def users_of(backend: Backend) -> Authenticate:
    """Knows the tokens of the backend's users."""
    authenticator = Authenticator(backend.store.accounts, backend.policies)
    return lambda token, project: authenticator.authenticate(token, time.time(), project)


class ServerThread:
    """A server that runs."""

    def __init__(self, backend: Backend, authenticate: Authenticate, settings: Settings) -> None:
        #: Its log so far.
        self.log = io.StringIO()
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        settings = replace(settings, port=self.port)  # runs are told where it is
        self.server = Server(settings, backend, authenticate, ServerLog(self.log))
        self._thread = Thread(target=self.server.run, args=(self._listener,), daemon=True)
        self._thread.start()

    def address(self, token: str = TOKEN, project: str | None = None) -> Address:
        """Where it is, for a client."""
        return Address(f"http://127.0.0.1:{self.port}", token, project)

    def stop(self) -> None:
        """End it, and wait for that."""
        self.server.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server has not stopped"


@contextmanager
def running_server(
    backend: Backend, authenticate: Authenticate = one_user, settings: Settings = ONE_USER
) -> Iterator[ServerThread]:
    """A server for a backend, which it closes at the end."""
    server = ServerThread(backend, authenticate, settings)
    try:
        yield server
    finally:
        server.stop()
