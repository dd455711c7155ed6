"""Muster on a disk that fills up while runs run: what has to be recorded is, and everything that
frees space works."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.store.reserve import Reserve
from support.disks import on_a_disk

FILLS_UP = """
exec 2>&1
muster run -d --name canceled -- sleep 1000 >/dev/null 2>&1
muster run -d --name suspended -- sleep 1000 >/dev/null 2>&1
mkfifo $DISK/go
muster run --name ends -- sh -c "cat $DISK/go; exit 3" > $DISK/said 2>&1 &
while ! muster runs show ends-1 2>/dev/null | grep -q READY; do :; done
[ $(muster runs list --state in-progress 2>&1 | grep -c IN_PROGRESS) = 3 ] || exit 1
fill
echo > $DISK/go
wait $!
echo "ends: $?"
"""
#: As a program does that goes on writing.
TAKE_WHAT_IS_FREED = "fill\nfill\n"
USE = """
[ $(df --output=avail $DISK | tail -1) = 0 ] && echo "still full"
check() { timeout 60 "$PYTHON" -m muster "$@" > /dev/shm/said.$$ 2>&1; echo "$*: $?"; }
check runs list
muster runs show ends-1 2>/dev/null | head -1 | cut -d' ' -f1-3
muster runs show ends-1 2>&1 | grep -c ^warning
check run -- true
grep -c 'the disk is full' /dev/shm/said.$$
check runs cancel canceled-1
check runs suspend suspended-1
check runs delete canceled-1
check env prune
check runs cancel suspended-1
check runs delete ends-1
check jobs list
rm $DISK/ballast /dev/shm/said.$$
muster runs list 2>&1 | grep -c ^warning
ls $DISK/home/reserve
muster runs list 2>/dev/null | tail -n +2 | cut -c-12
"""


@pytest.mark.parametrize("taken", [False, True])
def test_disk_fills_up_while_runs_run(tmp_path: Path, taken: bool) -> None:
    """taken: something takes the space that the reserve has freed."""
    script = FILLS_UP + (TAKE_WHAT_IS_FREED + USE if taken else USE)
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
cat $DISK/said
"""


def test_follower_is_told(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=40m", FILLS_UP + END)
    warnings = [line for line in found if line.startswith("warning:")]
    assert len(warnings) == 1, found
    assert "is full" in warnings[0]
    assert "`muster env prune`" in warnings[0]


NOBODY_HAS_IT_OPEN = """
exec 2>&1
muster run --name one -- seq 60000 >/dev/null 2>&1
muster run --name two -- true >/dev/null 2>&1
fill; rm -r $MUSTER_HOME/reserve; fill
ls $MUSTER_HOME
muster runs list 2>/dev/null | tail -n +2 | cut -c-5
muster runs show one-1 2>/dev/null | head -1 | cut -c-16
muster runs delete one-1
muster runs list 2>/dev/null | tail -n +2 | cut -c-5
"""


def test_no_reserve_and_no_wal(tmp_path: Path) -> None:
    """Even to read, SQLite would have to make files; and what deletes makes room for them."""
    found = on_a_disk(tmp_path, "size=40m", NOBODY_HAS_IT_OPEN)
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
muster run -d --name going -- sleep 1000 >/dev/null 2>&1
muster run -d --set suspend=true --name waits -- true >/dev/null 2>&1
while ! muster runs show going-1 | grep -q READY; do :; done
mkdir $DISK/many
number=0
while : > $DISK/many/$number; do number=$((number + 1)); done 2>/dev/null
muster run -- true
echo $?
muster runs list 2>&1 | grep -c ^going-1
muster runs resume waits-1 >/dev/null 2>&1
echo $?
muster runs list 2>&1 | grep ^waits-1 | grep -c SUSPENDED
muster runs cancel going-1
muster runs delete going-1
"""


def test_no_inodes(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=60m,nr_inodes=120", NO_INODES)
    found = [line for line in found if not line.startswith("warning")]
    assert "inodes left" in found[0], found
    # a run that cannot start now can be resumed later
    assert found[1:] == ["2", "1", "2", "1", "going-1 is CANCELED", "going-1 is deleted"]


LOGS_ELSEWHERE = """
exec 2>&1
mkdir $DISK/logs /dev/shm/home.$$
export MUSTER_HOME=/dev/shm/home.$$
fill
muster run --name full --set logging.directory=$DISK/logs -- sh -c 'echo hello; exit 3'
echo $?
rm -r $MUSTER_HOME
"""


def test_disk_of_the_output_is_full(tmp_path: Path) -> None:
    found = on_a_disk(tmp_path, "size=1m", LOGS_ELSEWHERE)
    assert found[-1] == "1"
    assert "full-1 FAILED" in " ".join(found)


# --- the reserve itself


def test_reserve_is_space_that_is_allotted(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve")
    assert not reserve.whole
    reserve.restore()
    assert reserve.whole
    files = list((tmp_path / "reserve").iterdir())
    assert sum(file.stat().st_blocks * 512 for file in files) >= 4 << 20
    reserve.give_up(tmp_path / "wal")
    assert not reserve.whole
    assert not reserve.lacks_space, "there is plenty: nobody needs a warning"
    reserve.give_up(tmp_path / "wal")
    reserve.restore()
    assert reserve.whole


def test_space_goes_to_the_wal(tmp_path: Path) -> None:
    wal = tmp_path / "wal"
    wal.write_bytes(b"begun")
    reserve = Reserve(tmp_path / "reserve")
    reserve.restore()
    reserve.give_up(wal)
    assert wal.read_bytes() == b"begun"
    if wal.stat().st_blocks == 8:
        pytest.skip("this file system cannot allot space beyond a file's end")
    assert wal.stat().st_blocks * 512 >= 4 << 20


def test_small_disk_has_no_reserve(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys; from muster.store.reserve import Reserve;"
        "Reserve(Path(sys.argv[1])).restore()"
    )
    script = f'"$PYTHON" -c "{code}" $DISK/reserve; ls $DISK; df --output=used $DISK | tail -1'
    assert on_a_disk(tmp_path, "size=10m", script) == ["    0"]
