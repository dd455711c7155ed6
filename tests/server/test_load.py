"""Mixed load on two servers of one MUSTER_HOME, while servers, supervisors and PostgreSQL die.

What was accepted is there, once, and every run ends as its policy says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.control import run_lock
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.service.submissions import has_code
from muster.storage.home import Home
from muster.store.records import RunFilter
from support.faults import until
from support.owners import open_home
from support.postgres import PostgresServer
from support.server_process import ServerProcess, admin_token

CLIENT = Path(__file__).parents[1] / "support" / "load_client.py"
CLIENTS = 3
#: What a run says that has lost too many supervisors.
LOST = "supervisors within"


class Killer:
    """Kills servers, supervisors and the database, one at a time, and starts them again."""

    def __init__(
        self,
        rng: random.Random,
        home: Home,
        servers: list[ServerProcess],
        database: PostgresServer | None,
    ) -> None:
        self._rng, self._home, self._servers, self._database = rng, home, servers, database
        self.killed: Counter[str] = Counter()

    def strike(self) -> None:
        kinds: list[Callable[[], None]] = [self._server, self._supervisor]
        if self._database is not None:
            kinds.append(self._postgres)
        self._rng.choice(kinds)()

    def _server(self) -> None:
        server = self._rng.choice(self._servers)
        server.stop()
        self.killed["server"] += 1
        time.sleep(self._rng.uniform(0, 0.5))
        server.start()

    def _supervisor(self) -> None:
        folders = [*self._home.runs.iterdir()] if self._home.runs.exists() else []
        self._rng.shuffle(folders)
        for folder in folders:
            with suppress(OSError):
                # not the pid that was recorded last, which another process may have by now
                pid = run_lock.holder_pid(self._home.run_dir(folder.name).lock)
                if pid and b"muster" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    if any(pid == server.process.pid for server in self._servers if server.process):
                        continue
                    os.kill(pid, signal.SIGKILL)
                    self.killed["supervisor"] += 1
                    return

    def _postgres(self) -> None:
        assert self._database is not None
        self._database.stop(signal.SIGQUIT)
        self.killed["postgres"] += 1
        time.sleep(self._rng.uniform(0, 1.0))
        self._database.start()


@pytest.fixture
def home() -> Iterator[Home]:
    """A MUSTER_HOME that programs of every user can reach."""
    with open_home() as made:
        yield made


@pytest.fixture
def database(home: Home, request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """The PostgreSQL server of MUSTER_HOME; None for a SQLite file."""
    if request.param == "sqlite":
        yield None
        return
    server = PostgresServer()
    try:
        file = home.database_url
        file.write_text(f"{server.url(server.create())}\n")
        file.chmod(0o600)
        yield server
    finally:
        server.remove()


@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"], indirect=True
)
def test_nothing_is_lost_or_doubled(
    home: Home,
    database: PostgresServer | None,
    rng: random.Random,
    alive: Callable[[str], list[str]],
) -> None:
    check(home, database, rng, alive, 10.0)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_nothing_is_lost_or_doubled_in_ten_minutes(
    home: Home,
    database: PostgresServer | None,
    rng: random.Random,
    alive: Callable[[str], list[str]],
) -> None:
    check(home, database, rng, alive, float(os.environ.get("LOAD_SECONDS", "600")))


def check(
    home: Home,
    database: PostgresServer | None,
    rng: random.Random,
    alive: Callable[[str], list[str]],
    seconds: float,
) -> None:
    token = admin_token(home)
    backend, root = Backend(home), home.root
    with ServerProcess(home) as one, ServerProcess(home) as two:
        servers = [one, two]
        notes, killed = _under_load(home, servers, database, rng, token, seconds)
        for server in servers:
            server.wait_until_ready()
        _check_effects(backend, notes)
        print(f"in {seconds:.0f} s: {Counter(one['kind'] for one in notes)}, killed: {killed}")
        for server in servers:
            assert server.stop(signal.SIGTERM) == 0, server.log.read_text()[-2000:]
            defects = [line for line in server.log.read_text().splitlines() if "traceback" in line]
            assert not defects, "\n".join(defects)[:5000]
        backend.close()
        if database is not None:
            database.stop()
        until(lambda: alive(str(root)) == [], "no process is left", 60)
        assert str(root) not in Path("/proc/self/mountinfo").read_text()


def _under_load(
    home: Home,
    servers: list[ServerProcess],
    database: PostgresServer | None,
    rng: random.Random,
    token: str,
    seconds: float,
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """What the clients have noted, and what was killed meanwhile."""
    ports = [str(server.port) for server in servers]
    killer, end = Killer(rng, home, servers, database), time.monotonic() + seconds
    with ExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            argv = [sys.executable, str(CLIENT), f"c{number}", str(seconds), token, *ports]
            output = stack.enter_context(open(home.root.parent / f"client-{number}", "w+b"))
            client = stack.enter_context(subprocess.Popen(argv, stdout=output, stderr=output))
            stack.callback(client.kill)
            clients.append((client, output))
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.3, 2.0))
            killer.strike()
            if any(client.poll() for client, _ in clients):
                break  # it has failed
        notes = []
        for client, output in clients:
            client.wait(240)
            output.seek(0)
            text = output.read().decode()
            assert client.returncode == 0, text[-3000:]
            notes += [json.loads(line) for line in text.splitlines()]
    return notes, killer.killed


def _check_effects(backend: Backend, notes: list[dict[str, Any]]) -> None:
    api = EmbeddedAPI(backend=backend)
    runs = {one["id"]: one for one in notes if one["kind"] == "run"}
    canceled = {one["id"] for one in notes if one["kind"] == "canceled"}
    assert runs, "nothing was accepted"
    for run_id in runs:
        for _ in api.watch(run_id, 120):
            pass
    listed = api.runs(RunFilter())
    assert {run.id for run in listed} == set(runs), "each accepted run is there, and no other one"
    assert len({run.name for run in listed}) == len(listed)
    states = {run.id: (run.state, run.details) for run in listed}
    for run_id, one in runs.items():
        state, details = states[run_id]
        expected = one["ends"] or ("CANCELED" if run_id in canceled else "")
        assert state == expected or LOST in details, (run_id, one, state, details)
        entries = api.events(run_id)
        assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
        changes = [entry.data for entry in entries if entry.kind == "run"]
        assert all(before != after for before, after in pairwise(changes)), changes
    for one in notes:
        if one["kind"] == "code":
            assert has_code(backend, "default", one["sha256"])
    assert [one for one in notes if one["kind"] == "busy"] == []
