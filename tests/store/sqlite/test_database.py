"""The database file and its defects."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from muster.errors import StoreError
from muster.store.sqlite.database import Database
from muster.store.sqlite.schema import MIGRATIONS


def test_new_database_is_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    db = Database.open(path)
    assert db.read("PRAGMA journal_mode")[0][0] == "wal"
    assert path.stat().st_mode & 0o777 == 0o600
    db.close()


def corrupt_header(data: bytes) -> bytes:
    return os.urandom(100) + data[100:]


def corrupt_schema(data: bytes) -> bytes:
    return data[:100] + os.urandom(3996) + data[4096:]


def cut_short(data: bytes) -> bytes:
    return data[:5000]


@pytest.mark.parametrize("damage", [corrupt_header, corrupt_schema, cut_short])
def test_corrupt_file_is_explained_and_unchanged(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "m.db"
    Database.open(path).close()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        Database.open(path).read("SELECT * FROM runs, jobs, nodes, events")
    assert f"the database {path} is corrupt" in str(caught.value)
    assert "move it away: `mkdir" in str(caught.value)  # tested in test_sqlite_errors
    assert path.read_bytes() == before


def test_folder_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder, not a database"):
        Database.open(tmp_path)


def test_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    Database.open(path, migrations=[*MIGRATIONS, "CREATE TABLE later (x)"]).close()
    with pytest.raises(StoreError, match="was written by a newer Muster"):
        Database.open(path)


def test_older_database_is_migrated_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    old = Database.open(path, migrations=["CREATE TABLE t (a); INSERT INTO t VALUES (1)"])
    old.close()
    steps = ["", "ALTER TABLE t ADD b; UPDATE t SET b = a + 1", "CREATE TABLE u (x)"]
    new = Database.open(path, migrations=steps)
    assert [tuple(row) for row in new.read("SELECT * FROM t")] == [(1, 2)]
    assert new.read("PRAGMA user_version")[0][0] == 3
    new.close()


def test_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    db = Database.open(tmp_path / "m.db", migrations=["CREATE TABLE t (a)"])
    with pytest.raises(ZeroDivisionError), db.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError
    assert db.read("SELECT * FROM t") == []
    with db.transaction(durable=True) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    assert len(db.read("SELECT * FROM t")) == 1
    db.close()


def test_a_forked_process_opens_its_own_connection(tmp_path: Path) -> None:
    db = Database.open(tmp_path / "m.db", migrations=["CREATE TABLE t (a)"])
    with db.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    pid = os.fork()
    if pid == 0:
        with db.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (2)")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(db.read("SELECT * FROM t")) == 2
    db.close()


WRITER = """
    import sys
    from pathlib import Path
    from muster.store.sqlite.database import Database
    db = Database.open(Path(sys.argv[1]), migrations=["CREATE TABLE t (who, n)"])
    for n in range(int(sys.argv[3])):
        with db.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (?, ?)", (sys.argv[2], n))
"""


def writer(path: Path, who: int, rows: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(who), str(rows)]
    return subprocess.Popen(argv)


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """They also open the file and create its tables at the same time."""
    path = tmp_path / "m.db"
    writers = [writer(path, who, 200) for who in range(6)]
    assert [process.wait(60) for process in writers] == [0] * 6
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (1200,)
    connection.close()


def test_killed_writer_leaves_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    Database.open(path, migrations=["CREATE TABLE t (who, n)"]).close()
    process = writer(path, 0, 1_000_000)
    db = Database.open(path, migrations=["CREATE TABLE t (who, n)"])
    while not db.read("SELECT 1 FROM t LIMIT 1"):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = [row[0] for row in db.read("SELECT n FROM t ORDER BY n")]
    assert rows == list(range(len(rows)))
    assert db.read("PRAGMA integrity_check")[0][0] == "ok"
    db.close()


FULL = """
    mount -t tmpfs -o size=300k none "$1" && exec "$2" -c '
import sys
from pathlib import Path
from muster.errors import StoreError
from muster.store.sqlite.database import Database
db = Database.open(Path(sys.argv[1]) / "m.db", migrations=["CREATE TABLE t (a)"])
try:
    for n in range(1000):
        with db.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (?)", ("x" * 5000,))
except StoreError as error:
    sys.exit(0 if "the disk is full" in str(error) else str(error))
sys.exit("it never filled")
' "$1"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_full_disk_is_reported(tmp_path: Path) -> None:
    argv = ["unshare", "-m", "sh", "-c", FULL, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
