"""A MUSTER_HOME that can be read and not written."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

import pytest

from muster.errors import StoreError
from muster.store.sqlite.database import Database
from support.disks import on_a_disk

#: A program without dependencies; storing it is refused.
SCRIPT = sysconfig.get_path("stdlib") + "/this.py"
CREATE_RUN = """
exec 2>&1
muster run --name one -- echo hello >/dev/null 2>&1
"""
USE = """
try() { "$PYTHON" -m muster "$@" > /dev/shm/output.$$ 2>&1; echo "$*: $?"; }
muster runs list | tail -n +2 | cut -c-5
muster runs show one-1 | head -1 | cut -c-16
for command in "logs one-1" "events one-1 --json" "jobs list" "jobs show one" "env list" \\
  "cluster list" "runs show last --json" "runs wait last" "logs last --follow" \\
  "events last --follow" doctor; do
  try $command
done
muster logs last --stream stdout
for command in "runs delete last" "runs cancel last" "jobs edit one --set description=x" \\
  "run -- true" "check -- true" "run SCRIPT" "prune --yes"; do
  try $command
  cat /dev/shm/output.$$
done
rm /dev/shm/output.$$
muster doctor | grep MUSTER_HOME
""".replace("SCRIPT", SCRIPT)
REFUSED = (
    "runs delete last",
    "runs cancel last",
    "jobs edit one --set description=x",
    "run -- true",
    "check -- true",
    f"run {SCRIPT}",
    "prune --yes",
)
AS_READ_ONLY_USER = """
chown -R 12345:12345 $DISK
chmod -R go+rX $DISK
without=-dac_override,-dac_read_search,-fowner
PYTHON="$DISK/python"
printf '#!/bin/sh\\nexec setpriv --bounding-set=%s --inh-caps=%s -- %s "$@"\\n' \\
  $without $without "$2" > $PYTHON
chmod 755 $PYTHON
"""


def expect(found: list[str]) -> None:
    runs, shown, *rest, doctor, advice = found
    assert (runs, shown) == ("one-1", "one-1  SUCCEEDED")
    read, written = rest[:11], rest[12:]
    assert [line.rpartition(": ")[2] for line in read] == ["0"] * 11, read
    assert rest[11] == "workers/0 | hello"
    output = "\n".join(written)
    for command in REFUSED:
        assert re.search(rf"^{re.escape(command)}: 2\nerror: .*MUSTER_HOME", output, re.M), output
    assert len(written) == 2 * len(REFUSED), output
    for command in ("runs delete last", "runs cancel last", "prune --yes"):
        assert "read-only" in written[2 * REFUSED.index(command) + 1], output
    assert doctor.startswith("no  MUSTER_HOME: "), doctor
    assert "read-only: nothing can be started or changed" in doctor
    assert advice == "    for more: set MUSTER_HOME to a folder you can write to"


def test_a_read_only_disk_allows_reading(tmp_path: Path) -> None:
    # a supervisor closes its files a moment after its run has ended
    remount = "until mount -o remount,ro $DISK 2>/dev/null; do :; done\n"
    expect(on_a_disk(tmp_path, "size=60m", CREATE_RUN + remount + USE))


def test_a_user_without_write_permission(tmp_path: Path) -> None:
    expect(on_a_disk(tmp_path, "size=60m", CREATE_RUN + AS_READ_ONLY_USER + USE))


CRASHED = """
exec 2>&1
muster run --name one -- echo hello >/dev/null 2>&1
muster run -d --name two -- sh -c 'echo hello; exec sleep 1000' >/dev/null 2>&1
while ! muster runs show two-1 2>/dev/null | grep -Eq 'RUNNING +yes'; do :; done
cp -a $MUSTER_HOME $DISK/crashed
muster runs cancel two-1 >/dev/null
export MUSTER_HOME=$DISK/crashed
rm -f $LOST
until mount -o remount,ro $DISK 2>/dev/null; do :; done
muster runs list | tail -n +2 | cut -c-23
muster logs two-1 --follow --stream stdout
muster events two-1 | grep -c 'in progress'
muster jobs list | wc -l
muster runs wait two-1
echo $?
muster runs delete one-1
"""


@pytest.mark.parametrize("lost", ["nothing", "muster.db-shm"])
def test_a_read_only_disk_allows_reading_after_a_crash(tmp_path: Path, lost: str) -> None:
    """The WAL is read even if its index is missing."""
    script = f"LOST=$DISK/crashed/{lost}\n{CRASHED}"
    *found, wait, code, delete = on_a_disk(tmp_path, "size=60m", script)
    assert [line[:5] for line in found[:2]] == ["two-1", "one-1"]
    assert found[2:] == ["workers/0 | hello", "1", "3"]
    assert wait.startswith("error: two-1 is IN_PROGRESS, but its supervisor has ended, and ")
    assert code == "2"
    assert delete.startswith("error: cannot open or write ")


def test_an_older_database_cannot_be_migrated_read_only(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from muster.store.sqlite.database import Database;"
        "Database.open(Path(sys.argv[1]), migrations=['CREATE TABLE t (x)']).close()"
    )
    script = (
        f'"$PYTHON" -c "{code}" $DISK/muster.db; mount -o remount,ro $DISK\n'
        "MUSTER_HOME=$DISK muster runs list 2>&1; true"
    )
    (output,) = on_a_disk(tmp_path, "size=10m", script)
    assert output.startswith("error: cannot open or write "), output


def test_reading_does_not_lock_the_file(tmp_path: Path) -> None:
    """Data written by others meanwhile are read."""
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    path = tmp_path / "m.db"
    tables = ["CREATE TABLE t (x)"]
    Database.open(path, migrations=tables).close()
    tmp_path.chmod(0o500)
    reader = Database.open(path, create=False, migrations=tables)
    assert reader.read("SELECT * FROM t") == []
    with pytest.raises(StoreError):
        reader.write(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
    tmp_path.chmod(0o700)
    writer = Database.open(path, migrations=tables)
    writer.write(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
    writer.close()
    assert len(reader.read("SELECT * FROM t")) == 1
