"""A server with real accounts for tests, and requests to it as they are on the wire."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from random import randrange
from typing import Any

import pytest
from msgspec import Struct

from muster.caller import Caller, Role
from muster.control.launcher import Launcher
from muster.server.settings import Settings
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.store.account_records import UserKind, UserRecord
from support.api_runs import end_all
from support.launchers import spawn
from support.owners import open_home
from support.server_thread import ServerThread, running_server, users_of

#: Headers that ask for a WebSocket.
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
_DEFAULT = Settings()
#: User -> project -> role.
ROLES = {
    "anouk": {"vision": Role.ADMIN},
    "sam": {"vision": Role.SUBMITTER},
    "oscar": {"sound": Role.ADMIN},
    "nora": {},
}


class Reply(Struct, frozen=True):
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The type of the error."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json["type"]).removeprefix("muster:")


def ask(
    port: int,
    verb: str,
    path: str,
    token: str = "",
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    source: str = "127.0.0.1",
) -> Reply:
    """The answer to a request. body: bytes, or a value to be sent as JSON; None for none. source:
    the address that it comes from."""
    given = dict(headers or {})
    if token:
        given["Authorization"] = f"Bearer {token}"
    data = body if isinstance(body, bytes) else None
    if body is not None and data is None:
        data = json.dumps(body).encode()
        given["Content-Type"] = "application/json"
    with closing(http.client.HTTPConnection("127.0.0.1", port, 30, (source, 0))) as connection:
        connection.request(verb, path, data, given)
        answer = connection.getresponse()
        content = b"" if answer.status == 101 else answer.read()
        found = {name.lower(): text for name, text in answer.headers.items()}
        return Reply(answer.status, found, content)


class Teams:
    """The server of two projects, `vision` and `sound`, and of an administrator, `root`."""

    def __init__(self, backend: Backend, server: ServerThread) -> None:
        self.backend, self.server, self.port = backend, server, server.port
        self.accounts = EmbeddedAccounts(backend)

    @property
    def log(self) -> io.StringIO:
        """The server's log so far."""
        return self.server.log

    def create(self) -> None:
        """Create users and projects."""
        self.accounts.create_user(UserRecord("root", UserKind.PERSON, 0.0, admin=True))
        self.accounts.create_project("vision", "word-of-vision")
        self.accounts.create_project("sound")
        for user, roles in ROLES.items():
            self.accounts.create_user(UserRecord(user, UserKind.PERSON, 0.0))
            for project, role in roles.items():
                self.accounts.set_member(project, user, role)

    def token(self, user: str, **limits: Any) -> str:
        """A new token of a user."""
        return self.accounts.create_token("test", user=user, **limits).text

    def caller(self, token: str, project: str | None = None) -> Caller:
        """Who shows a token."""
        return users_of(self.backend)(token, project)

    def api(self, user: str, project: str | None = None) -> EmbeddedAPI:
        """Muster for a user, in this process."""
        return EmbeddedAPI(caller=self.caller(self.token(user), project), backend=self.backend)

    def request(
        self,
        verb: str,
        path: str,
        token: str = "",
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """See `ask`. Each request comes from another address, so that wrong tokens are not taken
        for guesses."""
        source = f"127.{randrange(1, 255)}.{randrange(255)}.{randrange(1, 255)}"
        return ask(self.port, verb, path, token, body, headers=headers, source=source)

    def end_runs(self) -> None:
        """End all runs."""
        for project in ("vision", "sound", "default"):
            end_all(EmbeddedAPI(caller=Caller("root", project), backend=self.backend))


@contextmanager
def serving_teams(settings: Settings = _DEFAULT) -> Iterator[Teams]:
    """The server, with a MUSTER_HOME of its own; all its runs are ended afterwards."""
    with open_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_HOME", str(home.root))
        patch.setattr(Launcher, "spawn", spawn)  # not in the namespace of other tests
        with _serving(Backend(home), settings) as teams:
            yield teams


@contextmanager
def _serving(backend: Backend, settings: Settings) -> Iterator[Teams]:
    with running_server(backend, users_of(backend), settings) as server:
        teams = Teams(backend, server)
        teams.create()
        try:
            yield teams
        finally:
            teams.end_runs()
