"""One database with many users: forks, threads, processes, a full disk."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from muster.errors import StoreError
from muster.store.records import RunFilter
from muster.store.sqlite import flush
from muster.store.sqlite.database import Database
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT

TABLE = ["CREATE TABLE t (who, n)"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "m.db", migrations=TABLE)
    yield database
    database.close()


def write(db: Database, who: str, n: int = 0) -> None:
    with db.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (?, ?)", (who, n))


def written(db: Database) -> list[str]:
    return [row["who"] for row in db.read("SELECT who FROM t ORDER BY rowid")]


def read_and_close(path: Path) -> None:
    """Read like another muster command; the last process to close a file deletes its WAL."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM t')"
    subprocess.run([sys.executable, "-c", f"{code}; c.close()", str(path)], check=True)


def in_child(work: Callable[[], None]) -> int:
    """Fork; the child does `work` and ends with 0, or with 1 if it raised."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # in case it waits forever
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


# --- forks


def fork_child_that_outlives(
    path: Path, open_store: Callable[[], Database], release: Callable[[], None]
) -> int:
    """Fork a child that uses the store before and after `release`, and after all other processes
    have closed the file, which deletes the WAL unless the child holds its locks."""
    proceed, child_wrote = os.pipe(), os.pipe()

    def child() -> None:
        db = open_store()
        write(db, "child")
        os.write(child_wrote[1], b"!")
        os.read(proceed[0], 1)
        write(db, "child, later")

    pid = in_child(child)
    os.read(child_wrote[0], 1)
    release()
    read_and_close(path)
    os.write(proceed[1], b"!")
    return pid


def test_commits_of_a_child_survive_when_the_parent_closes(db: Database) -> None:
    write(db, "parent")
    assert ended_well(fork_child_that_outlives(db.path, lambda: db, db.close))
    assert written(db) == ["parent", "child", "child, later"]


def test_commits_of_a_child_survive_when_the_parent_drops_its_database(tmp_path: Path) -> None:
    """The parent drops it without closing; like the command line, it collects no garbage."""
    path = tmp_path / "m.db"

    def own() -> Database:
        return Database.open(path, migrations=TABLE)

    def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        write(own(), "parent")
        pid = fork_child_that_outlives(path, own, collect)
    finally:
        gc.enable()
    assert ended_well(pid)
    with closing(own()) as db:
        assert written(db) == ["parent", "child", "child, later"]


def test_parent_keeps_its_locks_when_a_child_uses_the_store(db: Database) -> None:
    write(db, "parent")
    assert ended_well(in_child(lambda: write(db, "child")))
    read_and_close(db.path)
    write(db, "parent, later")
    db.close()
    assert written(db) == ["parent", "child", "parent, later"]


def test_inherited_connections_are_dropped_in_every_generation(db: Database) -> None:
    """Each child drops all inherited connections; otherwise the table of locks is not empty."""
    second = Database.open(db.path, migrations=TABLE)
    write(second, "parent")

    def grandchild() -> None:
        write(second, "grandchild")
        second.close()
        read_and_close(db.path)
        write(db, "grandchild, later")

    def child() -> None:
        write(db, "child")
        assert ended_well(in_child(grandchild))
        write(db, "child, later")

    assert ended_well(in_child(child))
    second.close()
    assert written(db) == [
        "parent",
        "child",
        "grandchild",
        "grandchild, later",
        "child, later",
    ]


def test_child_forked_while_a_thread_writes_cannot_use_the_store(db: Database) -> None:
    """The child cannot finish the thread's transaction, and must not wait for it."""
    inside, done = Event(), Event()

    def long_transaction() -> None:
        with db.transaction() as connection:
            connection.execute("INSERT INTO t VALUES ('thread', 0)")
            inside.set()
            done.wait()

    thread = Thread(target=long_transaction)
    thread.start()
    assert inside.wait(20)

    def child() -> None:
        with pytest.raises(RuntimeError, match="forked during a transaction"):
            db.read("SELECT 1")

    pid = in_child(child)
    ok = ended_well(pid)
    done.set()
    thread.join()
    assert ok
    assert written(db) == ["thread"]


def test_child_forked_in_a_transaction_cannot_commit_it(db: Database) -> None:
    """The child leaves the block too, and must not commit its parent's transaction."""
    parent = os.getpid()
    try:
        with db.transaction() as connection:
            connection.execute("INSERT INTO t VALUES ('parent', 0)")
            pid = os.fork()
    except BaseException as error:
        if os.getpid() != parent:
            os._exit(0 if "by a forked child" in str(error) else 1)
        raise
    if pid == 0:
        os._exit(2)
    assert ended_well(pid)
    assert written(db) == ["parent"]


def test_nothing_is_lost_among_parents_and_children(db: Database) -> None:
    """Children start and end while the parent writes; no commit is lost."""
    pids = []
    for number in range(20):
        write(db, "parent", number)
        pids.append(in_child(lambda number=number: write(db, "child", number)))
        write(db, "parent", number)
    assert [ended_well(pid) for pid in pids] == [True] * 20
    db.close()
    assert sorted(written(db)) == ["child"] * 20 + ["parent"] * 40
    assert db.read("PRAGMA integrity_check")[0][0] == "ok"


# --- threads


def test_threads_take_turns(db: Database) -> None:
    def work(who: int) -> None:
        for n in range(50):
            write(db, str(who), n)
            assert db.read("SELECT count(*) FROM t WHERE who = ?", (str(who),))[0][0] == n + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(written(db)) == 400


# --- processes

ACCEPT = """
import sys
from pathlib import Path
from msgspec.structs import replace
from muster.identity import new_id
from muster.identity import new_owner
from muster.store.sqlite.store import SqliteStore
from muster.store.records import JobRecord, Lease, RunRecord, RunStep

owner = new_owner()
store = SqliteStore.open(Path(sys.argv[1]))
job = JobRecord(new_id(), "train", 0, "same content", {}, None, None, "", {}, 1.0, 1.0)
rest = ["ACCEPTED", "", "local", 0, 1.0, None, None, None, 0, {}, {}, {}, {}, {}, [], None, None]
for _ in range(int(sys.argv[2])):
    build = lambda kept, n, name: (RunRecord(new_id(), name, n, kept.id, kept.name, *rest), [])
    run = store.runs.insert(job, build, owner)
    for step in range(3):
        lease, changes = Lease.first(run.id, owner), {"attempt": step}
        store.runs.save(RunStep(lease, changes, [], [("step", {"n": step})], 2.0))
"""


def test_processes_accept_runs_concurrently(tmp_path: Path) -> None:
    """They create the file, its tables and the Job concurrently: one Job, each number once."""
    path = tmp_path / "m.db"
    argv = [sys.executable, "-c", ACCEPT, str(path), "40"]
    processes = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate(timeout=100)[1] for process in processes] == [""] * 6

    store = SqliteStore.open(path)
    assert [job.name for job in store.jobs.listing(PROJECT)] == ["train"]
    listed = store.runs.listing(PROJECT, RunFilter())
    assert sorted(run.name for run in listed) == sorted(f"train-{n}" for n in range(1, 241))
    for run in listed:
        assert [entry.seq for entry in store.events.since(run.id)] == [1, 2, 3, 4]
        assert store.runs.get(run.id).attempt == 2
    store.close()


OPEN = """
import os, sys
from pathlib import Path
from muster.store.sqlite import flush
from muster.store.sqlite.database import Database
for line in sys.stdin:
    Database.open(Path(line.strip())).close()
    print(flush=True)
"""


def test_processes_create_a_database_at_the_same_moment(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OPEN]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(6)
    ]
    for n in range(40):
        for process in processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it failed; its error is compared below
                process.stdin.write(f"{tmp_path / str(n)}\n")
                process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
    assert [process.communicate(timeout=100)[1] for process in processes] == [""] * 6


IN_MID_TRANSACTION = """
import os, sys
from pathlib import Path
from muster.store.sqlite import flush
from muster.store.sqlite.database import Database
db = Database.open(Path(sys.argv[1]), migrations=["CREATE TABLE t (who, n)"])
with db.transaction(durable=True) as connection:
    connection.execute("INSERT INTO t VALUES ('whole', 0)")
with db.transaction(durable=True) as connection:
    # more than the page cache holds, so that half of it is in the WAL already
    connection.execute("PRAGMA cache_size = 10")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [("half" * 500, n) for n in range(500)])
    os.kill(os.getpid(), 9)
"""


def test_uncommitted_data_of_a_killed_writer_are_dropped(db: Database) -> None:
    """Others are not blocked, and see only committed data."""
    argv = [sys.executable, "-c", IN_MID_TRANSACTION, str(db.path)]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    assert db.path.with_name("m.db-wal").stat().st_size > 500_000
    write(db, "next")
    db.close()
    assert written(db) == ["whole", "next"]
    assert db.read("PRAGMA integrity_check")[0][0] == "ok"


# --- the file itself


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_deleted_while_in_use_is_reported(db: Database, replaced: bool) -> None:
    write(db, "before")
    for file in db.path.parent.iterdir():
        file.unlink()
    if replaced:
        Database.open(db.path, migrations=TABLE).close()
    with pytest.raises(StoreError, match="deleted or replaced while it was in use"):
        write(db, "lost")


def test_commit_that_fails_leaves_nothing_open(db: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError), db.transaction() as connection:
        connection.execute("CREATE TABLE p (id PRIMARY KEY)")
        connection.execute("CREATE TABLE c (p REFERENCES p DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO c VALUES (1)")  # refused at COMMIT
    other = Database.open(db.path, migrations=TABLE)
    write(other, "another")
    write(db, "same")
    assert written(db) == ["another", "same"]
    other.close()


def test_durable_is_for_one_transaction(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(flush, "_flush_file", lambda file: flushed.append(_path_of(file)))
    with db.transaction(durable=True) as connection:
        connection.execute("INSERT INTO t VALUES ('a', 0)")
        assert not flushed
    assert flushed == [f"{db.path}-wal"]
    with pytest.raises(ZeroDivisionError), db.transaction(durable=True):
        raise ZeroDivisionError
    write(db, "b")
    assert flushed == [f"{db.path}-wal"]


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def test_reads_do_not_wait_for_a_transaction(db: Database) -> None:
    write(db, "before")
    with ThreadPoolExecutor(1) as pool, db.transaction() as connection:
        connection.execute("INSERT INTO t VALUES ('after', 0)")
        assert pool.submit(written, db).result(30) == ["before"]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(written, db).result(30) == ["before", "after"]


FILL = """
import sys
from pathlib import Path
from muster.errors import StoreError
from muster.store.sqlite import flush
from muster.store.sqlite.database import Database
folder = Path(sys.argv[1])
db = Database.open(folder / "m.db", migrations=["CREATE TABLE t (who, n)"])
whole = 0
try:
    while True:
        with db.transaction(durable=True) as connection:
            connection.execute("INSERT INTO t VALUES (?, ?)", ("x" * 3000, whole))
        whole += 1
except StoreError as error:
    print(error)
assert whole > 10, whole
(folder / "ballast").unlink()
with db.transaction() as connection:  # space was freed: it works without being opened again
    connection.execute("INSERT INTO t VALUES ('after', ?)", (whole,))
assert [row["n"] for row in db.read("SELECT n FROM t")] == list(range(whole + 1))
assert db.read("PRAGMA integrity_check")[0][0] == "ok"
"""
START_FULL = """
import sys
from pathlib import Path
from muster.errors import StoreError
from muster.store.sqlite import flush
from muster.store.sqlite.database import Database
try:
    Database.open(Path(sys.argv[1]) / "m.db")
except StoreError as error:
    print(error)
"""
SMALL_DISK = """
mount -t tmpfs -o size=600k none "$1" || exit 77
head -c "$3" /dev/zero > "$1/ballast" 2>/dev/null
exec "$2" -c "$4" "$1"
"""


def on_small_disk(folder: Path, ballast: int, code: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    arguments = ["sh", str(folder), sys.executable, str(ballast), code]
    argv = ["unshare", "-m", "sh", "-c", SMALL_DISK, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no small disk: {done.stderr.strip()}")
    return done


def test_a_disk_that_fills_up_is_reported(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path, 200_000, FILL)
    assert done.stderr == ""
    assert done.stdout == (
        f"the disk is full: cannot write {tmp_path}/m.db; free some space and try again\n"
    )


@pytest.mark.parametrize("ballast", [1_000_000, 585_000, 575_000])
def test_a_disk_that_is_full_from_the_start_is_reported(tmp_path: Path, ballast: int) -> None:
    """No space at all, none for the index of the WAL, none for the WAL."""
    done = on_small_disk(tmp_path, ballast, START_FULL)
    assert done.stderr == ""
    assert f"the disk is full: cannot write {tmp_path}/m.db" in done.stdout
