"""Errors about an unusable file, and whether their advice helps."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from muster.errors import EXIT_BAD_INPUT, StoreError
from muster.store.records import JobRecord
from muster.store.sql.jobs import insert_job
from muster.store.sqlite.database import Database
from muster.store.sqlite.errors import explain
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT, job

PAGE = 4096
#: Of Jobs. So many that those in the middle of the file are of them.
ROWS = 1500


def filled(path: Path, count: int = ROWS) -> None:
    db = Database.open(path)
    with db.transaction() as connection:
        for number in range(count):
            record = job(id=f"job{number:07}", spec={"command": ["x" * 300]})
            insert_job(connection, record)
    db.close()


def noise(size: int) -> bytes:
    return random.Random(5).randbytes(size)


def listing(path: Path) -> list[JobRecord]:
    with closing(SqliteStore.open(path)) as store:
        return store.jobs.listing(PROJECT)


def whole_header(data: bytes) -> bytes:
    return noise(100) + data[100:]


def with_pages(data: bytes, pages: bytes) -> bytes:
    """The data with other pages in the middle, where there are rows of Jobs."""
    start = len(data) // PAGE // 2 * PAGE
    return data[:start] + pages + data[start + len(pages) :]


def middle(data: bytes) -> bytes:
    return with_pages(data, noise(2 * PAGE))


def zeros_in_the_middle(data: bytes) -> bytes:
    return with_pages(data, bytes(2 * PAGE))


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_within_the_header(data: bytes) -> bytes:
    return data[:60]


def text(data: bytes) -> bytes:
    return b"muster: database\n" * 100


def negative_version(data: bytes) -> bytes:
    return data[:60] + (0xFFFFFFFF).to_bytes(4, "big") + data[64:]


DAMAGES = [
    whole_header,
    middle,
    zeros_in_the_middle,
    cut_in_half,
    cut_within_the_header,
    text,
    negative_version,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_clear_error_and_the_file_is_unchanged(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "m.db"
    filled(path)
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        listing(path)
    message = str(caught.value)
    assert message.startswith(f"the database {path} is corrupt (")
    assert "\n" not in message
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert path.read_bytes() == before


def test_empty_file_is_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.touch()
    assert listing(path) == []


def commands(message: str) -> dict[str, str]:
    """The commands in a message, by the words before each."""
    found = re.findall(r"([^:`]+): `([^`]+)`", message)
    return {words.strip(" ,.").rsplit(", ", 1)[-1]: command for words, command in found}


def shell(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)


def complaint(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        listing(path)
    return str(caught.value)


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 command is not installed")
@pytest.mark.parametrize("name", ["m.db", "my runs' store.db"])
def test_the_advised_commands_rescue_readable_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    filled(path)
    path.write_bytes(middle(path.read_bytes()))
    before = path.read_bytes()
    advice = commands(complaint(path))
    shell(advice["run before moving it"])
    shell(advice["move it away"])
    shell(advice["and after moving it"])

    rescued = listing(path)
    assert 1400 < len(rescued) < ROWS
    assert (tmp_path / "broken" / name).read_bytes() == before


@pytest.mark.parametrize("damage", [whole_header, text])
def test_no_rescue_is_advised_if_nothing_can_be_read(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "m.db"
    filled(path)
    path.write_bytes(damage(path.read_bytes()))
    assert commands(complaint(path)).keys() == {"move it away"}


def test_a_database_without_tables_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert "is corrupt (it has no tables)" in complaint(path)


def test_advice_for_a_fresh_start(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    filled(path)
    path.write_bytes(middle(path.read_bytes()))
    before = path.read_bytes()
    shell(commands(complaint(path))["move it away"])
    assert listing(path) == []
    assert (tmp_path / "broken" / "m.db").read_bytes() == before


def test_advice_moves_the_wal_too(tmp_path: Path) -> None:
    """If it were left behind, its content would be replayed into the next database."""
    path = tmp_path / "m.db"
    filled(path)
    writer = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from muster.store.sqlite.database import Database\n"
        "db = Database.open(Path(sys.argv[1]))\n"
        "with db.transaction() as connection:\n"
        "    connection.execute('UPDATE jobs SET description = 1')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", writer, str(path)], check=False)
    wal = path.with_name("m.db-wal").read_bytes()
    assert wal
    path.write_bytes(text(b""))
    shell(commands(complaint(path))["move it away"])
    assert [file.name for file in tmp_path.iterdir()] == ["broken"]


def test_database_of_another_program_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is the database of another program"):
        Database.open(path)
    assert path.read_bytes() == before


def test_newer_database_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE later (x)")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer Muster \(schema 99, .*upgrade Muster"):
        Database.open(path)
    assert path.read_bytes() == before


def test_pipes_broken_links_and_missing_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe is not a regular file"):
        Database.open(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="No such file"):
        Database.open(tmp_path / "link")
    with pytest.raises(StoreError, match=r"No such file.*MUSTER_HOME"):
        Database.open(tmp_path / "missing" / "m.db")


def test_missing_file_is_not_created_for_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        Database.open(tmp_path / "m.db", create=False)
    assert list(tmp_path.iterdir()) == []


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from muster.errors import StoreError
from muster.store.sqlite.database import Database
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    db = Database.open(Path(sys.argv[1]))
    with db.transaction() as connection:
        connection.execute("UPDATE jobs SET description = 1")
except StoreError as error:
    print(error)
"""

FORBIDDEN = {
    "unreadable file": ((0o755, 0o600), "cannot open or write .*check that the file"),
    "read-only file": ((0o755, 0o644), "cannot open or write .*: its folder is read-only; check"),
    "file of another user": ((0o777, 0o644), "cannot open or write .*: it is read-only; check"),
    "inaccessible folder": ((0o700, 0o666), "cannot open the database .*Permission denied"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_file_without_permission_is_explained(case: str) -> None:
    (folder_mode, file_mode), expected = FORBIDDEN[case]
    # not under pytest's folder, which other users may not enter
    folder = Path("/tmp") / f"muster-test-{os.getpid()}"
    folder.mkdir()
    try:
        path = folder / "m.db"
        filled(path, 1)
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        before = path.read_bytes()
        argv = [sys.executable, "-c", AS_ANOTHER_USER, str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert re.match(expected, done.stdout), done
        assert path.read_bytes() == before
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "statement",
    ["SELECT no_such_column FROM jobs", "SELECT * FROM no_such_table", "NONSENSE"],
)
def test_a_programming_error_is_not_blamed_on_the_file(tmp_path: Path, statement: str) -> None:
    with closing(Database.open(tmp_path / "m.db")) as db:
        with pytest.raises(sqlite3.OperationalError):
            db.read(statement)
        with pytest.raises(sqlite3.ProgrammingError):
            db.read("SELECT ?")
        with pytest.raises(sqlite3.IntegrityError), db.transaction() as connection:
            connection.execute("INSERT INTO events VALUES ('missing', 1, 1, '', '')")


def test_every_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for code, words in {
        sqlite3.SQLITE_BUSY_SNAPSHOT: "locked by another process",
        sqlite3.SQLITE_IOERR_READ: "cannot read or write",
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_READONLY_DBMOVED: "cannot open or write",
        sqlite3.SQLITE_CORRUPT_INDEX: "is corrupt",
    }.items():
        error = sqlite3.OperationalError("raised by SQLite")
        error.sqlite_errorcode = code
        output = explain(path, error)
        assert output is not None
        assert words in output
        assert str(path) in output
    assert explain(path, sqlite3.ProgrammingError("Python's own")) is None
