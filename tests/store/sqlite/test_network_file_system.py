"""MUSTER_HOME on a file system that two hosts share, and on ones whose locks do not work."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.network_disks import on_a_shared_disk

#: Bytes 18 and 19 of a database: 1 with a rollback journal, 2 with a write-ahead log.
MODE = 'mode() { od -An -tu1 -j18 -N2 "$1/muster.db" | tr -s " "; }\n'
#: A MUSTER_HOME that was filled while its disk was a local one.
FILLED = (
    MODE + "MUSTER_HOME=$DISK/data/home muster run --name local -- echo hello > /dev/null 2>&1\n"
)

TWO_HOSTS = """
muster run --name here -- echo hello 2>&1 | grep -v " starts "
elsewhere run --name there -- hostname 2>&1 | grep -v " starts "
muster ps --quiet
mode $MUSTER_HOME
ls $MUSTER_HOME | grep -e -wal -e -shm
"""


def test_two_hosts(tmp_path: Path) -> None:
    found = on_a_shared_disk(tmp_path, MODE + TWO_HOSTS)
    assert [line.partition(" in ")[0] for line in found] == [
        "workers/0 | hello",
        "here-1 SUCCEEDED",
        "workers/0 | node-0",
        "there-1 SUCCEEDED",
        "there-1",
        "here-1",
        " 1 1",
    ]


RUN_OF_ANOTHER_HOST = """
muster run -d --name long -- sh -c 'echo hello; exec sleep 1000' > /dev/null 2>&1
ready long-1
for command in "cancel --force last" "exec last -- true" "stacks last" "top last --once"; do
  elsewhere $command
  echo "$?"
done
elsewhere runs adopt last
echo "$?"
elsewhere ps --quiet
elsewhere logs last --stream stdout
elsewhere prune --keep 0 --yes > /dev/null 2>&1
muster cancel last
"""


@pytest.mark.slow
def test_a_run_of_another_host(tmp_path: Path) -> None:
    """It is not taken for one whose supervisor was killed, and its processes are out of reach."""
    *refused, adopt, code, listed, output, canceled = on_a_shared_disk(
        tmp_path, RUN_OF_ANOTHER_HOST
    )
    assert (listed, output, canceled) == ("long-1", "workers/0 | hello", "long-1 is CANCELED")
    assert refused[1::2] == ["2"] * 4, refused
    for text in refused[::2]:
        assert re.fullmatch(
            r"error: long-1 runs on the host (\S+), not on this one \(run the command on \1; if "
            r"that host is gone for good, `muster runs adopt long-1` continues the run here\)",
            text,
        ), text
    assert re.fullmatch(
        r"error: a process on (\S+) still drives long-1: it holds \S+ \(if \1 is gone, its file "
        r"server releases the lock after a while; try again\)",
        adopt,
    ), adopt
    assert code == "2"


REQUESTS_OF_ANOTHER_HOST = """
muster run -d --name long --set node_groups.workers.max_replicas=2 -- \
  sh -c 'echo hello; exec sleep 1000' \
  > /dev/null 2>&1
ready long-1
elsewhere logs long-1 --follow --stream stdout > $DISK/logs 2>&1 &
logs=$!
elsewhere events long-1 --follow > $DISK/events 2>&1 &
events=$!
elsewhere wait long-1 > $DISK/wait 2>&1 &
wait=$!
elsewhere runs scale long-1 workers=2
while ! grep -q 'workers/1 | hello' $DISK/logs; do sleep 0.1; done
elsewhere cancel long-1
wait $logs $events $wait
cat $DISK/logs $DISK/wait
grep -c 'node 1 is ready' $DISK/events
tail -1 $DISK/events | grep -o 'the run was canceled.*'
"""


@pytest.mark.slow
def test_requests_of_another_host(tmp_path: Path) -> None:
    """The supervisor finds them, and a follower on the other host what follows."""
    scaled, *rest = on_a_shared_disk(tmp_path, REQUESTS_OF_ANOTHER_HOST)
    assert "long-1" in scaled
    assert rest == [
        "long-1 is CANCELED",
        "workers/0 | hello",
        "workers/1 | hello",
        "long-1 CANCELED",
        "1",
        "the run was canceled by user",
    ]


CONTINUED_ELSEWHERE = """
muster run -d --name long -- sh -c 'hostname; uname -n > $MUSTER_OUTPUTS/where; exec sleep 1000' \
  > /dev/null 2>&1
ready long-1
elsewhere runs suspend long-1
elsewhere runs resume long-1 > /dev/null 2>&1
ready long-1
muster cancel --force long-1 2>&1 | grep -o 'runs on the host elsewhere'
muster cancel long-1
"""


def test_a_run_is_resumed_on_another_host(tmp_path: Path) -> None:
    assert on_a_shared_disk(tmp_path, CONTINUED_ELSEWHERE) == [
        "long-1 is SUSPENDED",
        "runs on the host elsewhere",
        "long-1 is CANCELED",
    ]


HOST_IS_GONE = """
cat > $DISK/program.sh <<'END'
echo attempt $MUSTER_ATTEMPT
[ $MUSTER_ATTEMPT = 1 ] || exec sleep 1000
END
muster run -d --name long --max-restarts 1 -- sh $DISK/program.sh > /dev/null 2>&1
muster run -d --name once -- sleep 1000 > /dev/null 2>&1
ready long-1; ready once-1
kill -9 $(supervisor $(id_of long-1)) $(supervisor $(id_of once-1))
elsewhere ps --json | "$PYTHON" -c \
  'import json, sys; print(*sorted(run["state"] for run in json.load(sys.stdin)))'
elsewhere status once-1 | grep -o 'no process there holds its lock'
elsewhere wait once-1 --timeout 8s 2>&1 | grep -om1 'but no process there holds its lock'
elsewhere runs adopt once-1 2>&1 | grep -o 'once-1 is [A-Z]*'
elsewhere runs adopt long-1 2>&1 | grep -o 'long-1 is'
elsewhere wait long-1
elsewhere logs long-1 --attempt all --stream stdout
elsewhere events once-1 | grep -o 'a user adopted the run.*' | sort -u |
  sed "s/$(uname -n)/here/"
elsewhere runs adopt long-1
"""


@pytest.mark.slow
def test_a_run_is_adopted_whose_host_is_gone(tmp_path: Path) -> None:
    states, status, waiting, once, long, *rest = on_a_shared_disk(tmp_path, HOST_IS_GONE)
    assert status == "no process there holds its lock"
    assert waiting == "but no process there holds its lock"
    assert states == "IN_PROGRESS IN_PROGRESS", "they are left alone"
    assert (once, long) == ("once-1 is FAILED", "long-1 is")
    assert rest == [
        "long-1 SUCCEEDED",
        "workers/0 | attempt 0",
        "-- attempt 1 --",
        "workers/0 | attempt 1",
        "a user adopted the run, because host here is gone",
        "error: long-1 has ended: it is SUCCEEDED (`muster run long` starts its job again)",
    ]


LEASE_IS_LOST = """
muster run -d --name long -- sleep 1000 > /dev/null 2>&1
ready long-1
id=$(id_of long-1)
supervisor=$(supervisor $id)
"$PYTHON" - $MUSTER_HOME/muster.db <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30)
connection.execute(
    "UPDATE leases SET owner = 'another', host = 'elsewhere', boot = '', token = token + 1"
)
connection.commit()
END
while [ -e /proc/$supervisor ]; do sleep 0.1; done
tail -1 $MUSTER_HOME/runs/$id/supervisor.log | sed "s/$id/ID/"
muster runs show long-1 --json | grep -o '"IN_PROGRESS"' | sort -u
"""


@pytest.mark.slow
def test_a_supervisor_whose_lease_was_taken_ends(tmp_path: Path) -> None:
    assert on_a_shared_disk(tmp_path, LEASE_IS_LOST) == [
        "a process on elsewhere drives run ID now: this one records nothing more of it",
        '"IN_PROGRESS"',
    ]


RESERVED = """
muster run -d --name here --set resources.cpus=0.5 -- sleep 1000 > /dev/null 2>&1
elsewhere run --name there --set resources.cpus=0.5 -- true > /dev/null 2>&1
ls $MUSTER_HOME | grep ^reservations.json | sort | sed "s/$(uname -n)/here/"
grep -c '"here-1"' $MUSTER_HOME/reservations.json.$(uname -n)
muster cancel here-1 > /dev/null 2>&1
"""


@pytest.mark.slow
def test_each_host_has_its_own_reservations(tmp_path: Path) -> None:
    found = on_a_shared_disk(tmp_path, RESERVED)
    assert found == ["reservations.json.elsewhere", "reservations.json.here", "1"]


USE = """
muster run --name new -- true
echo $?
muster ps --quiet
muster logs last --stream stdout
muster rm last
echo $?
muster prune --keep 0 --yes
echo $?
muster doctor | grep MUSTER_HOME
ls $DISK/data/home/runs | wc -l
"""


@pytest.mark.parametrize(
    ("locks", "kind", "why"),
    [
        ("ENOLCK", "nfstest", "which has no byte-range locks (fcntl): No locks available"),
        ("ENOSYS", "nfstest", "which has no byte-range locks (fcntl): Function not implemented"),
        ("EOPNOTSUPP", "nfstest", "which has no byte-range locks (fcntl): Operation not supported"),
        ("ignored", "nfstest", "which ignores byte-range locks (fcntl): two processes held the"),
        ("host", "sshfs", "which has no locks between hosts, so that two hosts that write at once"),
    ],
)
def test_without_locks_nothing_is_written(tmp_path: Path, locks: str, kind: str, why: str) -> None:
    found = on_a_shared_disk(tmp_path, FILLED + USE, locks=locks, kind=kind)
    home = f"{tmp_path}/here/home"
    problem = f"cannot write to {home}: it is on fuse.{kind} (server:/export), {why}"
    advice = "set MUSTER_HOME to a folder on a local disk of this host"
    assert [found[number] for number in (1, 5, 7)] == ["2"] * 3, found
    assert found[0].startswith(f"error: {problem}"), found[0]
    for number in (0, 4, 6):
        assert found[number].startswith("error: cannot "), found[number]
        assert found[number].endswith(advice), found[number]
    assert found[2:4] == ["local-1", "workers/0 | hello"]
    assert found[8].startswith(f"no  MUSTER_HOME: {problem}")
    assert found[9:] == [f"    for more: {advice}", "1"]


def test_an_empty_folder_without_locks_stays_empty(tmp_path: Path) -> None:
    script = "muster run -- true\nmuster ps\nls -A $MUSTER_HOME"
    found = on_a_shared_disk(tmp_path, script, locks="ENOLCK")
    assert len(found) == 2, found
    assert all("has no byte-range locks" in text for text in found)


@pytest.mark.slow
def test_a_file_system_without_fifos(tmp_path: Path) -> None:
    script = "muster run -- true\necho $?\nmuster ps --quiet\n"
    doctor = "muster doctor | grep MUSTER_HOME"
    run, code, *rest = on_a_shared_disk(tmp_path, script + doctor, fifos=False)
    assert re.fullmatch(
        r"error: cannot create the FIFO \S+ on fuse.testnfs \(server:/export\): Operation not "
        "permitted; set MUSTER_HOME to a folder on a local disk of this host",
        run,
    )
    assert code == "2"
    assert rest[0].startswith("no  MUSTER_HOME: cannot create the FIFO "), rest
    assert len(rest) == 2


# --- a database that was filled on a local disk

MOVED = """
mode $DISK/data/home
muster ps --quiet
mode $DISK/data/home
ls $DISK/data/home | grep -e -wal -e -shm
MUSTER_HOME=$DISK/data/home muster run --name back -- true > /dev/null 2>&1
mode $DISK/data/home
muster ps --quiet
"""


def test_a_database_is_moved_there_and_back(tmp_path: Path) -> None:
    found = on_a_shared_disk(tmp_path, FILLED + MOVED)
    assert found == [" 2 2", "local-1", " 1 1", " 2 2", "back-1", "local-1"]


CRASHED = """
mkdir $DISK/crash
MUSTER_HOME=$DISK/crash muster run --name one -- true > /dev/null 2>&1
MUSTER_HOME=$DISK/crash muster run -d --name two -- sleep 1000 > /dev/null 2>&1
while ! MUSTER_HOME=$DISK/crash muster status two-1 | grep -Eq 'RUNNING +yes'; do :; done
cp -a $DISK/crash $DISK/here/home
MUSTER_HOME=$DISK/crash muster cancel two-1 > /dev/null 2>&1
[ -s $MUSTER_HOME/muster.db-wal ] && [ -e $MUSTER_HOME/muster.db-shm ] && echo "has a WAL"
muster ps --quiet
muster wait two-1
mode $MUSTER_HOME
ls $MUSTER_HOME | grep -e -wal -e -shm
"""


def test_a_database_with_a_write_ahead_log_loses_nothing(tmp_path: Path) -> None:
    found = on_a_shared_disk(tmp_path, MODE + CRASHED)
    assert found[:3] == ["has a WAL", "two-1", "one-1"]
    assert found[3].startswith("two-1 FAILED")
    assert found[-1] == " 1 1"


#: A connection with a write-ahead log and no index in shared memory, which this file system lacks.
HELD = """
cat > $DISK/hold.py <<'END'
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("PRAGMA locking_mode=EXCLUSIVE")
held.execute("UPDATE runs SET id = id")
print("held", flush=True)
open(sys.argv[2]).read()
END
mkfifo $DISK/held $DISK/go
"$PYTHON" $DISK/hold.py $DISK/there/home/muster.db $DISK/go > $DISK/held & holder=$!
read -r line < $DISK/held
muster ps
echo $?
mode $DISK/data/home
echo > $DISK/go
wait $holder
muster ps --quiet
mode $DISK/data/home
"""


def test_a_write_ahead_log_that_is_in_use(tmp_path: Path) -> None:
    """By an earlier version of Muster, which knew no other mode."""
    refused, code, before, *after = on_a_shared_disk(tmp_path, FILLED + HELD)
    assert "has a write-ahead log, which is unsafe on fuse.testnfs (server:/export), and" in refused
    assert refused.startswith("error: ")
    assert (code, before, after) == ("2", " 2 2", ["local-1", " 1 1"])


# --- two hosts write at once

WRITER = """
import sys
from pathlib import Path
from muster.store.sqlite.database import Database

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
table = "CREATE TABLE t (writer TEXT, number INTEGER, total INTEGER, UNIQUE (writer, number))"
db = Database.open(path, migrations=[table])

def step(connection):
    sql = "SELECT coalesce(max(number), 0), (SELECT count(*) FROM t) FROM t WHERE writer = ?"
    last, total = connection.execute(sql, (name,)).fetchone()
    if last < count:
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", (name, last + 1, total + 1))
    return last

last = 0
while last < count:
    last = db.write(step)
    print(f"{last:4000}", flush=True)  # few of these lines fit into the pipe: it is not far ahead
"""
KILLER = """
import random, subprocess, sys

seed, python, writer, count = sys.argv[1:5]
rng, ended, killed = random.Random(seed), set(), 0

def start(path, name):
    argv = [python, writer, path, name, count]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, pipesize=4096)

places = dict(zip("ab", sys.argv[5:7]))
running = {name: start(path, name) for name, path in places.items()}
known = dict.fromkeys(places, 0)
while running:
    for name, process in list(running.items()):
        for _ in range(rng.randint(1, int(count) // 8)):
            line = process.stdout.readline()
            if not line:
                break
            assert int(line) >= known[name], f"{name} lost {known[name]}: {line}"
            known[name] = int(line)
        if line:
            process.kill()
            killed += 1
        code = process.wait()
        process.stdout.close()
        if line:
            running[name] = start(places[name], name)
        else:
            assert code in (0, -9), code
            del running[name]
print(killed > 8)
"""
CHECK = """
"$PYTHON" $DISK/killer.py $SEED "$PYTHON" $DISK/writer.py $COUNT $DISK/here/m.db $DISK/there/m.db
ls $DISK/data
"""


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_two_hosts_write_and_are_killed(tmp_path: Path, rng: random.Random, count: int) -> None:
    """No transaction that was acknowledged is lost, none is half there."""
    (tmp_path / "writer.py").write_text(WRITER)
    (tmp_path / "killer.py").write_text(KILLER)
    seed = rng.randrange(10**6)
    script = f"SEED={seed}; COUNT={count}\n{CHECK}"
    found = on_a_shared_disk(tmp_path, script)
    assert found[0] == "True", found
    with closing(sqlite3.connect(tmp_path / "data" / "m.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = db.execute("SELECT writer, number, total FROM t ORDER BY total").fetchall()
    assert [total for *_, total in rows] == list(range(1, 2 * count + 1))
    for writer in "ab":
        assert [number for one, number, _ in rows if one == writer] == list(range(1, count + 1))
