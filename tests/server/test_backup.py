"""The backup of a server at work, and its restoration, as docs/server.md has readers type them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.contexts import Address
from muster.client.http.accounts import HttpAccounts
from muster.storage.home import Home
from support.faults import until
from support.pages import ROOT
from support.postgres import PostgresServer
from support.server_process import ServerProcess, admin_token

#: As root, too, programs run as the user of the test, whom Python is readable for.
SETTINGS = "separate_owners = false\n"


def typed(*starts: str) -> list[str]:
    """The commands of the page that start so, in this order."""
    text = (ROOT / "docs" / "server.md").read_text()
    lines = re.findall(r"^    (.+)$|`([^`\n]+)`", text, re.MULTILINE)
    found = [line or span for line, span in lines]
    return [next(one for one in found if one.startswith(start)) for start in starts]


class Place:
    """A server at work, and a folder for its backup."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._folder, self._environ = folder, environ
        self.home, self._backup = folder / "home", folder / "backup"
        self.home.mkdir(mode=0o700)
        self._backup.mkdir()
        (self.home / "server.toml").write_text(SETTINGS)
        self.server = ServerProcess(Home(self.home))
        self._token = ""

    def make_admin(self) -> None:
        """Make the administrator, whose token clients use."""
        self._token = admin_token(Home(self.home))

    def type(self, command: str) -> None:
        """Type a command on the server's machine."""
        text = command.replace("/backup/", f"{self._backup}/").replace("DATABASE", "muster")
        environ = {**os.environ, **self._environ, "MUSTER_HOME": str(self.home)}
        done = subprocess.run(
            ["sh", "-c", text], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (text, done.stderr)

    def address(self) -> Address:
        """Where the server is, for its administrator."""
        return self.server.address(self._token)

    def muster(self, *words: str, code: int = 0) -> str:
        """What a command of a client prints. code: what it exits with."""
        address = self.address()
        environ = {**os.environ, "MUSTER_URL": address.url, "MUSTER_TOKEN": address.token}
        argv = [sys.executable, "-m", "muster", *words]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, (done.returncode, done.stderr)
        return done.stdout

    def lose_home(self) -> None:
        """What the failure of a disk does."""
        self.home.rename(self._folder / "lost")
        self.home.mkdir(mode=0o700)


def fill(place: Place) -> None:
    """Have a run that has ended, one in progress, and a secret."""
    place.muster("run", "--name", "past", "--", "sh", "-c", "echo word; date >$MUSTER_OUTPUTS/f")
    accounts = HttpAccounts(place.address())
    accounts.set_secret("key", "a-value")
    accounts.close()
    place.muster("run", "--name", "present", "--detach", "--", "sleep", "600")
    # a run of which nothing has started at the time of the backup is started when it is restored
    until(lambda: state_of_node(place) in ("RUNNING", "READY"), "its program runs", pause=0.2)


def state_of_node(place: Place) -> str:
    """Of the run in progress."""
    (node,) = json.loads(place.muster("status", "present-1", "--json"))["nodes"]
    state: str = node["state"]
    return state


def check(place: Place) -> None:
    """What was there at the time of the backup is there, and no more; the server works."""
    listed = json.loads(place.muster("runs", "list", "--json"))
    assert {run["name"] for run in listed} == {"past-1", "present-1"}
    assert "word" in place.muster("logs", "past-1")
    assert "f" in place.muster("outputs", "past-1")
    # it has no process any more, and its policy is to fail: the server finds that out while it
    # already answers
    place.muster("wait", "--timeout", "2m", "present-1", code=1)
    assert json.loads(place.muster("status", "present-1", "--json"))["state"] == "FAILED"
    spec = '{name: x, node_groups: [{name: g, command: ["sh", "-c", "test $S = a-value"],'
    (place.home.parent / "x.yaml").write_text(spec + ' node_env: {S: "${secret.key}"}}]}')
    place.muster("run", str(place.home.parent / "x.yaml"))


@pytest.fixture
def _programs() -> None:
    for name in ("rsync", "sqlite3", "pg_dump"):
        if shutil.which(name) is None:
            assert not os.environ.get("REQUIRE_PROGRAMS"), f"{name} is not installed"
            pytest.skip(f"{name} is not installed")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.execute("postgres", "CREATE DATABASE muster")
    try:
        yield server
    finally:
        server.remove()


@pytest.mark.usefixtures("_programs")
def test_a_server_with_sqlite(tmp_path: Path) -> None:
    place = Place(tmp_path, {})
    copy_records, copy_files, restore = typed(
        "umask 077 && sqlite3 ", "rsync -aH --exclude", "rsync -aH /backup"
    )
    place.make_admin()
    with place.server as server:
        fill(place)
        place.type(copy_records)
        place.type(copy_files)
        place.muster("run", "--name", "later", "--", "true")
        place.muster("cancel", "present-1")
        server.stop()
        place.lose_home()
        place.type(restore)
        assert (place.home / "muster.db").stat().st_mode & 0o777 == 0o600
        server.start()
        server.wait_until_ready()
        check(place)


@pytest.mark.usefixtures("_programs")
@pytest.mark.slow
def test_a_server_with_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    environ = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "muster"}
    place = Place(tmp_path, environ)
    (place.home / "database_url").write_text(postgres.url("muster"))
    (place.home / "database_url").chmod(0o600)
    copy_records, copy_files = typed("pg_dump ", "rsync -aH --exclude")
    restore_files, restore_records = typed("rsync -aH /backup", "pg_restore ")
    place.make_admin()
    with place.server as server:
        fill(place)
        place.type(copy_records)
        place.type(copy_files)
        place.muster("run", "--name", "later", "--", "true")
        place.muster("cancel", "present-1")
        server.stop()
        place.lose_home()
        postgres.drop("muster")
        place.type(restore_files.partition(" && ")[0])
        place.type(restore_records)
        server.start()
        server.wait_until_ready()
        check(place)
