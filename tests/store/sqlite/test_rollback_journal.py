"""A database with a rollback journal; on real file systems of other hosts, see
test_network_file_system.py."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from muster import file_locks
from muster.errors import StoreBusy
from muster.file_locks import NoLocks
from muster.file_system import FileSystem
from muster.store.sqlite import connection, rollback_journal
from muster.store.sqlite.database import Database

TABLES = ["CREATE TABLE t (x)"]
NFS, NO_LOCKS = FileSystem("nfs4", "nas:/home"), FileSystem("nfs", "nas:/home", ("nolock",))


def put_on(monkeypatch: pytest.MonkeyPatch, where: FileSystem) -> None:
    monkeypatch.setattr(connection, "file_system_of", lambda _: where)
    monkeypatch.setattr(file_locks, "file_system_by_device", lambda _: where)


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    put_on(monkeypatch, NFS)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Database]:
    """A database with a write-ahead log and one row."""
    with closing(Database.open(tmp_path / "m.db", migrations=TABLES)) as db:
        db.write(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
        yield db


def mode_of(db: Database) -> tuple[str, int]:
    """Journal and `synchronous`: 1 = NORMAL, 2 = FULL."""
    return db.read("PRAGMA journal_mode")[0][0], db.read("PRAGMA synchronous")[0][0]


@pytest.mark.usefixtures("on_nfs")
def test_every_transaction_is_synced(tmp_path: Path) -> None:
    with closing(Database.open(tmp_path / "m.db", migrations=TABLES)) as db:
        assert mode_of(db) == ("delete", 2)
        for durable in (True, False):
            db.write(lambda c: c.execute("INSERT INTO t VALUES (1)"), durable=durable)
            assert mode_of(db) == ("delete", 2)
        assert [file.name for file in tmp_path.iterdir()] == ["m.db"]


def test_the_write_ahead_log_is_left_without_its_index(
    local: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mode_of(local) == ("wal", 1)
    copied = local.path.with_name("copy.db")
    for end in ("", "-wal"):
        Path(f"{copied}{end}").write_bytes(Path(f"{local.path}{end}").read_bytes())
    put_on(monkeypatch, NFS)
    Path(f"{copied}-shm").mkdir()  # SQLite cannot map it
    with closing(Database.open(copied, migrations=TABLES)) as db:
        assert mode_of(db) == ("delete", 2)
        assert len(db.read("SELECT * FROM t")) == 1
    assert not Path(f"{copied}-wal").exists()


def test_a_write_ahead_log_that_another_process_has_open(
    local: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on(monkeypatch, NFS)
    monkeypatch.setattr(rollback_journal, "_SWITCH_TIMEOUT", 50)
    with pytest.raises(StoreBusy, match=r"write-ahead log, which is unsafe on nfs4 \(nas:/home\)"):
        Database.open(local.path, migrations=TABLES)
    local.close()
    with closing(Database.open(local.path, migrations=TABLES)) as db:
        assert mode_of(db)[0] == "delete"


def test_back_on_a_local_disk(local: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    local.close()
    with monkeypatch.context() as moved:
        put_on(moved, NFS)
        Database.open(local.path, migrations=TABLES).close()
    assert mode_of(local) == ("wal", 1)
    assert len(local.read("SELECT * FROM t")) == 1


# --- readers and writers


@pytest.mark.usefixtures("on_nfs")
def test_a_transaction_does_not_keep_readers_waiting(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with (
        closing(Database.open(path, migrations=TABLES)) as writer,
        closing(Database.open(path, migrations=TABLES)) as reader,
    ):
        with writer.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            assert reader.read("SELECT * FROM t") == []
        assert len(reader.read("SELECT * FROM t")) == 1


@pytest.mark.usefixtures("on_nfs")
def test_writers_get_their_turn_among_readers(tmp_path: Path) -> None:
    """Readers that never pause: SQLite lets no new one begin while a writer waits."""
    path = tmp_path / "m.db"
    with closing(Database.open(path, migrations=TABLES)) as writer:
        ended: list[bool] = []

        def read() -> None:
            with closing(Database.open(path, migrations=TABLES)) as reader:
                while not ended:
                    reader.read("SELECT * FROM t")

        readers = [Thread(target=read) for _ in range(3)]
        for thread in readers:
            thread.start()
        for number in range(100):
            writer.write(lambda c, n=number: c.execute("INSERT INTO t VALUES (?)", (n,)))
        ended.append(True)
        for thread in readers:
            thread.join()
        assert len(writer.read("SELECT * FROM t")) == 100


# --- after a crash, and where nothing may be written

KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE t SET x = 'torn'")
connection.execute("CREATE TABLE filler (x)")
connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 500)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database that a killed process has partly overwritten."""
    path = tmp_path / "m.db"
    with monkeypatch.context() as there:
        put_on(there, NFS)
        with closing(Database.open(path, migrations=TABLES)) as db:
            db.write(lambda connection: connection.execute("INSERT INTO t VALUES ('whole')"))
    killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.with_name("m.db-journal").stat().st_size > 0
    assert path.stat().st_size > 1_000_000
    return path


@pytest.mark.parametrize("where", [NFS, FileSystem("ext4")])
def test_what_a_killed_process_has_overwritten_is_restored(
    torn: Path, monkeypatch: pytest.MonkeyPatch, where: FileSystem
) -> None:
    put_on(monkeypatch, where)
    with closing(Database.open(torn, migrations=TABLES)) as db:
        assert db.read("SELECT x FROM t")[0][0] == "whole"
        assert db.read("PRAGMA integrity_check")[0][0] == "ok"


def test_it_is_read_whole_where_nothing_may_be_written(
    torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on(monkeypatch, NO_LOCKS)
    before = torn.read_bytes()
    with closing(Database.open(torn, migrations=TABLES)) as db:
        assert db.read("SELECT x FROM t")[0][0] == "whole"
        with pytest.raises(NoLocks, match=r"mounted with nolock.*set MUSTER_HOME"):
            db.write(lambda connection: connection.execute("DELETE FROM t"))
    assert torn.read_bytes() == before
    assert torn.with_name("m.db-journal").exists()


def test_an_older_schema_is_not_migrated_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.db"
    Database.open(path, migrations=TABLES).close()
    put_on(monkeypatch, NO_LOCKS)
    with pytest.raises(NoLocks):
        Database.open(path, migrations=[*TABLES, "CREATE TABLE u (x)"])


def test_a_lock_that_fails_later_is_explained(tmp_path: Path) -> None:
    from muster.store.sqlite.errors import explain

    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_RDLOCK
    text = explain(tmp_path / "m.db", error)
    assert text is not None
    assert text.startswith(f"cannot lock {tmp_path}/m.db: its file system has no locks")
