"""Runs whose records are in PostgreSQL: hosts that share a MUSTER_HOME, and a server that fails."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.control import run_lock
from muster.control.open_store import open_store
from muster.control.recover import recover
from muster.errors import StoreBusy, StoreError
from muster.storage.home import Home
from muster.storage.liveness import wait_for_process
from muster.store.postgres.store import PostgresStore
from muster.store.records import EventRecord, RunFilter
from support.embedded import embedded
from support.faults import until
from support.postgres import PostgresServer, shared_server
from support.runs import until_ready

MUSTER = Path(sys.executable).with_name("muster")
#: Its kernel has another id, so that processes of both hosts do not know each other's.
OTHER_HOST = """
hostname {name}
mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id
exec "$@"
"""


def use_database(home: Path, url: str) -> None:
    """Keep the records of a MUSTER_HOME in a database."""
    file = Home(home).database_url
    file.write_text(f"{url}\n")
    file.chmod(0o600)


@pytest.fixture
def database_home(own_home: Path) -> Iterator[Path]:
    """A MUSTER_HOME whose records are in PostgreSQL."""
    with shared_server().database() as url:
        use_database(own_home, url)
        yield own_home


@pytest.fixture
def on_other_host(tmp_path: Path) -> Callable[..., str]:
    """Calls a command as on another host that shares MUSTER_HOME. Returns its output."""
    if os.getuid() != 0:
        pytest.skip("another host name takes root")
    (tmp_path / "boot_id").write_text("0f0e0d0c-0000-4000-8000-000000000000\n")
    script = OTHER_HOST.format(name="host-b", folder=tmp_path)

    def call(*arguments: str) -> str:
        own = ["unshare", "--uts", "--mount", "sh", "-ec", script, "sh", str(MUSTER)]
        done = subprocess.run(
            [*own, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        return done.stdout

    return call


def start(client: Client, *command: str, **fields: object) -> str:
    job, new = client.job(command=list(command), **fields)
    run = client.start(client.prepare_run(job, new_job=new))
    until_ready(run)
    return run.id


def supervisor_of(home: Path, run_id: str) -> int:
    pid = run_lock.holder_pid(Home(home).run_dir(run_id).lock)
    assert pid is not None
    return pid


def test_the_records_are_in_the_database(database_home: Path, client: Client) -> None:
    job, new = client.job(command=["true"])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    assert run.state == "SUCCEEDED"
    assert not Home(database_home).database.exists()
    store = embedded(client).store
    assert isinstance(store, PostgresStore)
    until(lambda: store.leases.get(run.id) is None, "its lease is released", 60)


def test_a_killed_supervisor_is_replaced_at_once_on_its_host(
    database_home: Path, client: Client
) -> None:
    run_id = start(client, "sleep", "1000", failure={"max_restarts": 3})
    service = embedded(client)
    store, pid = service.store, supervisor_of(database_home, run_id)
    lease = store.leases.get(run_id)
    assert lease is not None and lease.expires_at is not None
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    store.leases.renew([lease], lease.expires_at + 3600)
    recovered = recover(store, service.home, service._backend.start_supervisor)
    assert recovered == [run_id], "the lease has not expired"
    taken = store.leases.get(run_id)
    assert taken is not None and taken.token == lease.token + 1
    client.run(run_id).cancel()
    assert client.run(run_id).wait(60).state == "CANCELED"


def test_a_run_of_another_host_is_left_alone_until_its_lease_expires(
    database_home: Path, client: Client, on_other_host: Callable[..., str]
) -> None:
    args = ("--max-restarts", "3", "--", "sleep", "1000")
    on_other_host("run", "--detach", "--name", "far", *args)
    run = client.run("far-1")
    until_ready(run)
    service = embedded(client)
    lease = service.store.leases.get(run.id)
    assert lease is not None and lease.host == "host-b"
    pid = supervisor_of(database_home, run.id)
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    while not recover(service.store, service.home, service._backend.start_supervisor):
        time.sleep(0.2)
    expired = service.store.leases.now()
    assert lease.expires_at is not None and expired >= lease.expires_at
    taken = service.store.leases.get(run.id)
    assert taken is not None and (taken.host, taken.token) == (os.uname().nodename, 2)
    run.cancel()
    assert run.wait(60).state == "CANCELED"


def test_a_request_reaches_the_supervisor_on_another_host(
    database_home: Path, client: Client, on_other_host: Callable[..., str]
) -> None:
    run_id = start(client, "sleep", "1000")
    # it cannot open the FIFO of a supervisor that it does not share a kernel with
    wakeup = Home(database_home).run_dir(run_id).wakeup
    wakeup.rename(wakeup.with_name("kept"))
    on_other_host("cancel", run_id)
    assert client.run(run_id).wait(60).state == "CANCELED"


def test_another_home_may_not_use_the_database(
    database_home: Path, client: Client, tmp_path: Path
) -> None:
    """The files of its runs are not there: they would all be ended."""
    client.runs()
    other = Home(tmp_path / "other")
    other.root.mkdir()
    use_database(other.root, Home(database_home).database_url.read_text())
    with pytest.raises(StoreError, match="has the records of another MUSTER_HOME"):
        open_store(other)
    found = re.search(r"write (\S+) to ", _message(other))
    assert found is not None
    other.database_id.write_text(found[1])
    with closing(open_store(other)) as store:
        assert store.runs.live() == []


def _message(home: Home) -> str:
    with pytest.raises(StoreError) as error:
        open_store(home)
    return str(error.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://x", "not a URL of PostgreSQL"),
        (
            "postgresql://u:secret@127.0.0.1:1/x",
            r"cannot reach .* x at 127.0.0.1:1: Connection refused; ",
        ),
        ("postgresql://u:secret%@127.0.0.1:1/x", "cannot be read .percent-encode"),
    ],
)
def test_an_unusable_url_is_explained(own_home: Path, url: str, message: str) -> None:
    use_database(own_home, url)
    with pytest.raises(Exception, match=message) as error:
        open_store(Home(own_home))
    assert "secret" not in str(error.value)


# --- a server that fails

#: Seconds of the test, and what a node of a run does meanwhile.
LOAD_SECONDS = 12.0
PROGRAM = "sleep 0.$(date +%N | cut -c1); test $(date +%N | cut -c2) -gt 3"


@pytest.fixture
def own_server(own_home: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(fsync=True)
    try:
        use_database(own_home, server.url(server.create()))
        yield server
    finally:
        server.remove()


@pytest.mark.slow
def test_a_supervisor_without_the_server_for_a_term_ends_its_nodes(
    own_server: PostgresServer, own_home: Path, client: Client, alive: Callable[[str], list[str]]
) -> None:
    """Another host may drive the run then. When the server is back, the run is restarted."""
    mark = f"of-a-lost-server-{os.urandom(8).hex()}"
    run_id = start(
        client, "sleep", "1000", env={"MARK": mark}, failure={"max_restarts": 3}, name="kept"
    )
    pid = supervisor_of(own_home, run_id)
    own_server.stop(signal.SIGQUIT)
    stopped = time.monotonic()
    wait_for_process(pid, 60)
    assert 8 < time.monotonic() - stopped < 30
    assert alive(mark) == []
    log = Home(own_home).run_dir(run_id).supervisor_log.read_text()
    assert "the lease is lost, it has expired: cannot reach the PostgreSQL database" in log
    assert "Traceback" not in log
    own_server.start()
    run = client.run(run_id)
    until_ready(run)
    assert len(alive(mark)) == 1
    run.cancel()
    assert run.wait(60).state == "CANCELED"


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_the_server_is_killed(
    own_server: PostgresServer, client: Client, rng: random.Random
) -> None:
    """Runs are started and canceled while PostgreSQL is stopped at once, and started again. Each
    run that was accepted is there, once, with an event log that its node lived through."""
    accepted: list[str] = []
    canceled: list[str] = []
    refused: list[float] = []
    stop = threading.Event()
    unexpected: list[BaseException] = []
    names = count()

    def submit() -> None:
        api = embedded(client)
        while not stop.is_set():
            try:
                job, new = client.job(
                    command=["sh", "-c", PROGRAM],
                    name=f"load-{next(names) % 3}",
                    failure={"max_restarts": 3},
                )
                run = client.start(client.prepare_run(job, new_job=new))
                accepted.append(run.id)
                if rng.random() < 0.3:
                    api.cancel(run.id, "enough")
                    canceled.append(run.id)
            except StoreBusy:
                refused.append(time.monotonic())
                time.sleep(0.05)
            except BaseException as error:
                unexpected.append(error)
                raise

    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.3, 1.5))
        own_server.stop(rng.choice([signal.SIGQUIT, signal.SIGINT]))
        time.sleep(rng.uniform(0.0, 3.0))
        own_server.start()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not unexpected
    assert len(accepted) > 20
    assert refused, "the server was away when it was needed, or the test tests nothing"
    print(f"{len(accepted)} runs were accepted, {len(refused)} were not")
    for run_id in accepted:
        client.run(run_id).wait(120)
    store = embedded(client).store
    known = {run.id for run in store.runs.listing(None, RunFilter())}
    assert known.issuperset(accepted)
    names_given = [run.name for run in store.runs.listing(None, RunFilter())]
    assert len(set(names_given)) == len(names_given)
    for run_id in known:
        run = client.run(run_id)
        assert run.state in ("SUCCEEDED", "FAILED", "CANCELED"), (run.state, run.details)
        check_log(store.events.since(run_id))
    for run_id in canceled:
        kinds = [entry.kind for entry in store.events.since(run_id)]
        assert kinds.count("cancel_requested") == 1 or client.run(run_id).state != "CANCELED"


def check_log(entries: Sequence[EventRecord]) -> None:
    """An event log has no gap, and says nothing twice in a row."""
    assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
    states = [entry.data for entry in entries if entry.kind == "run"]
    assert all(one != another for one, another in pairwise(states)), states
