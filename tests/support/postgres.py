"""A private PostgreSQL server for tests: a cluster of its own, as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

#: Where Debian puts the programs of each version.
_DEBIAN = Path("/usr/lib/postgresql")
_USER = "muster"
#: For tests of logic: what is written needs not survive a power cut.
_FAST = ("fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")
#: Waits for a line, or until the process of the tests has ended, even if it was killed; then ends
#: the server and removes its folder.
_GUARDIAN = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
until rm -rf "$1"; do sleep 0.1; done  # while the server ends, it writes
"""


@cache
def _programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs; None if there is none."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    other = shutil.which("initdb")
    return found[-1].parent if found else Path(other).resolve().parent if other else None


def require_postgres() -> Path:
    """The folder of PostgreSQL's programs. Skips the test if it is not installed, unless the
    environment says that it has to be."""
    programs = _programs()
    if programs is None:
        assert not os.environ.get("REQUIRE_PROGRAMS"), "PostgreSQL is not installed"
        pytest.skip("PostgreSQL is not installed")
    return programs


class PostgresServer:
    """A server that listens on loopback and on a socket. It ends with this process, even if that is
    killed. fsync: whether what it has committed survives a power cut."""

    def __init__(self, *, fsync: bool = False, settings: tuple[str, ...] = ()) -> None:
        self._programs = require_postgres()
        self.folder = Path(tempfile.mkdtemp(prefix="muster-pg-"))
        self._data = self.folder / "data"
        self._settings = (*(() if fsync else _FAST), *settings)
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:  # the server refuses to run as root
            user = next(u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody"))
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian = subprocess.Popen(
            ["sh", "-c", _GUARDIAN, "sh", self.folder],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # no signal for the tests ends it
            **self._user,
        )
        self._numbers = count(1)
        self._call(
            "initdb",
            *("--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"),
            *(f"--username={_USER}", f"--pgdata={self._data}"),
        )
        self.start()

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = (
            *("listen_addresses=127.0.0.1", f"port={self.port}"),
            *(f"unix_socket_directories={self.folder}", "max_connections=100"),
            *("shared_buffers=64MB", *self._settings),
        )
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *(f"-c{s}" for s in settings)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,
            )
        import psycopg  # few processes that run tests need it

        deadline = time.monotonic() + 60
        while True:
            try:
                self._connect("postgres").close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends its connections, SIGQUIT lets it recover at its next
        start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop(signal.SIGQUIT)
        self._guardian.communicate(b"\n")

    def _connect(self, name: str) -> psycopg.Connection[Any]:
        import psycopg

        return psycopg.connect(self.url(name, driver=""), autocommit=True)

    def url(self, name: str, *, driver: str = "+psycopg") -> str:
        """The URL of a database, as users write it."""
        return f"postgresql{driver}://{_USER}@127.0.0.1:{self.port}/{name}"

    def create(self, template: str = "template0") -> str:
        """A new database, a copy of another one. Returns its name."""
        name = f"test_{next(self._numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        """Delete a database, and close its connections."""
        self.execute("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, name: str, sql: str) -> list[Any]:
        """Run a statement in a database. Returns its rows, if it has any."""
        with closing(self._connect(name)) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    @cache  # noqa: B019  as long as the server
    def _template(self) -> str:
        from muster.store.postgres.store import PostgresStore

        name = self.create()
        PostgresStore.open(self.url(name)).close()
        return name

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database with the store's tables, which are empty."""
        name = self.create(self._template())
        try:
            yield self.url(name)
        finally:
            self.drop(name)


_shared: list[PostgresServer] = []


def shared_server() -> PostgresServer:
    """The server of this process's tests, started at the first call."""
    if not _shared:
        _shared.append(PostgresServer())
    return _shared[0]


def end_shared_server() -> None:
    """Remove it, if it was started."""
    while _shared:
        _shared.pop().remove()
