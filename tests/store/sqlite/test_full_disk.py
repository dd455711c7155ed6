"""Muster on a disk that fills up while runs run: required records are written, and everything that
frees space works."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.store.sqlite.disk_reserve import Reserve
from support.disks import on_a_disk

FILLS_UP = """
exec 2>&1
muster run -d --name canceled -- sleep 1000 >/dev/null 2>&1
muster run -d --name suspended -- sleep 1000 >/dev/null 2>&1
mkfifo $DISK/go
muster run --name ends -- sh -c "cat $DISK/go; exit 3" > $DISK/output 2>&1 &
while ! muster runs show ends-1 2>/dev/null | grep -Eq 'RUNNING +yes'; do :; done
[ $(muster runs list --state in-progress 2>&1 | grep -c IN_PROGRESS) = 3 ] || exit 1
fill
echo > $DISK/go
wait $!
echo "ends: $?"
"""
#: A program that continues to write.
TAKE_FREED_SPACE = "fill\nfill\n"
USE = """
[ $(df --output=avail $DISK | tail -1) = 0 ] && echo "still full"
check() { timeout 60 "$PYTHON" -m muster "$@" > /dev/shm/output.$$ 2>&1; echo "$*: $?"; }
check runs list
muster runs show ends-1 2>/dev/null | head -1 | cut -d' ' -f1-3
muster runs show ends-1 2>&1 | grep -c ^warning
check run -- true
grep -c 'the disk is full' /dev/shm/output.$$
check runs cancel canceled-1
check runs suspend suspended-1
check runs delete canceled-1
check env prune
check runs cancel suspended-1
check runs delete ends-1
check jobs list
rm $DISK/ballast /dev/shm/output.$$
muster runs list 2>&1 | grep -c ^warning
ls $DISK/home/reserve
muster runs list 2>/dev/null | tail -n +2 | cut -c-12
"""


@pytest.mark.subject("full disk", kind="local-namespaces")
@pytest.mark.parametrize("taken", [pytest.param(False, marks=pytest.mark.slow), True])
def test_disk_fills_up_while_runs_run(tmp_path: Path, taken: bool) -> None:
    """taken: another program takes the space freed by the reserve."""
    script = FILLS_UP + (TAKE_FREED_SPACE + USE if taken else USE)
    found = on_a_disk(tmp_path, "size=40m", script)
    assert found == [
        "ends: 1",
        *(["still full"] if taken else []),
        "runs list: 0",
        "ends-1  FAILED",
        "1",
        "run -- true: 2",
        "1",
        "runs cancel canceled-1: 0",
        "runs suspend suspended-1: 0",
        "runs delete canceled-1: 0",
        "env prune: 0",
        "runs cancel suspended-1: 0",
        "runs delete ends-1: 0",
        "jobs list: 0",
        "0",
        *"0123",
        "suspended-1 ",
    ]


END = """
rm $DISK/ballast
muster runs cancel canceled-1 >/dev/null
muster runs cancel suspended-1 >/dev/null
cat $DISK/output
"""


@pytest.mark.slow
def test_a_follower_is_warned_of_a_full_disk(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=40m", FILLS_UP + END)
    warnings = [line for line in found if line.startswith("warning:")]
    assert len(warnings) == 1, found
    assert "is full" in warnings[0]
    assert "`muster prune`" in warnings[0]


NO_RESERVE = """
exec 2>&1
muster run --name one -- seq 60000 >/dev/null 2>&1
muster run --name two -- true >/dev/null 2>&1
# two processes that close the database at once both leave its log to the next one
while [ -e $MUSTER_HOME/muster.db-wal ]; do muster runs list >/dev/null; done
fill; rm -r $MUSTER_HOME/reserve; fill
ls $MUSTER_HOME
muster runs list 2>/dev/null | tail -n +2 | cut -c-5
muster runs show one-1 2>/dev/null | head -1 | cut -c-16
muster runs delete one-1
muster runs list 2>/dev/null | tail -n +2 | cut -c-5
"""


def test_deleting_works_without_reserve_and_wal(tmp_path: Path) -> None:
    """Even to read, SQLite must create files; deleting frees the space for them."""
    found = on_a_disk(tmp_path, "size=40m", NO_RESERVE)
    assert found[:3] == ["artifacts", "muster.db", "runs"]
    assert [line for line in found[3:] if not line.startswith("warning")] == [
        "two-1",
        "one-1",
        "one-1  SUCCEEDED",
        "one-1 is deleted",
        "two-1",
    ]


NO_INODES = """
exec 2>&1
muster run -d --name active -- sleep 1000 >/dev/null 2>&1
muster run -d --set suspend=true --name waiting -- true >/dev/null 2>&1
while ! muster runs show active-1 | grep -Eq 'RUNNING +yes'; do :; done
mkdir $DISK/many
number=0
while : > $DISK/many/$number; do number=$((number + 1)); done 2>/dev/null
muster run -- true
echo $?
muster runs list 2>&1 | grep -c ^active-1
muster runs resume waiting-1 >/dev/null 2>&1
echo $?
muster runs list 2>&1 | grep ^waiting-1 | grep -c SUSPENDED
muster runs cancel active-1
muster runs delete active-1
"""


@pytest.mark.slow
def test_a_disk_without_inodes(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=60m,nr_inodes=120", NO_INODES)
    found = [line for line in found if not line.startswith("warning")]
    assert "inodes left" in found[0], found
    # a run that cannot start now can be resumed later
    assert found[1:] == ["2", "1", "2", "1", "active-1 is CANCELED", "active-1 is deleted"]


LOGS_ELSEWHERE = """
exec 2>&1
mkdir $DISK/logs /dev/shm/home.$$
export MUSTER_HOME=/dev/shm/home.$$
fill
muster run --name full --set logging.directory=$DISK/logs -- sh -c 'echo hello; exit 3'
echo $?
rm -r $MUSTER_HOME
"""


def test_a_run_fails_if_the_disk_of_its_output_is_full(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=1m", LOGS_ELSEWHERE)
    assert found[-1] == "4", "the machine failed, not the program"
    assert "full-1 FAILED" in " ".join(found)


# --- the reserve itself


def test_the_reserve_is_allocated_space(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve")
    assert not reserve.is_complete
    reserve.restore()
    assert reserve.is_complete
    files = list((tmp_path / "reserve").iterdir())
    assert sum(file.stat().st_blocks * 512 for file in files) >= 4 << 20
    reserve.give_up(tmp_path / "wal")
    assert not reserve.is_complete
    assert not reserve.lacks_space, "enough space is free"
    reserve.give_up(tmp_path / "wal")
    reserve.restore()
    assert reserve.is_complete


def test_the_reserve_becomes_space_of_the_wal(tmp_path: Path) -> None:
    wal = tmp_path / "wal"
    wal.write_bytes(b"first")
    reserve = Reserve(tmp_path / "reserve")
    reserve.restore()
    reserve.give_up(wal)
    assert wal.read_bytes() == b"first"
    if wal.stat().st_blocks == 8:
        pytest.skip("this file system cannot allocate space beyond a file's end")
    assert wal.stat().st_blocks * 512 >= 4 << 20


def test_small_disk_has_no_reserve(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from muster.store.sqlite.disk_reserve import Reserve; "
        "Reserve(Path(sys.argv[1])).restore()"
    )
    script = f'"$PYTHON" -c "{code}" $DISK/reserve; ls $DISK; df --output=used $DISK | tail -1'
    assert on_a_disk(tmp_path, "size=10m", script) == ["    0"]
