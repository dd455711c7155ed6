"""File systems that two hosts share, for tests: bash scripts that run `muster` on FUSE."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SERVER = Path(__file__).with_name("fuse_server.py")
_BEGIN = """
DISK=$1; PYTHON=$2; SERVER=$3; LOCKS=$4; FIFOS=$5; TYPE=$6
mkdir $DISK/data $DISK/here $DISK/there
echo another-boot > $DISK/boot
coproc "$PYTHON" "$SERVER" $LOCKS $FIFOS $TYPE $DISK/data $DISK/here $DISK/there
read -r line <&${COPROC[0]} || exit 77
trap 'umount -l $DISK/here $DISK/there; wait' EXIT
export MUSTER_HOME=$DISK/here/home
cd /
muster() { "$PYTHON" -m muster "$@"; }
elsewhere() {  # the command on another host, which started at another time
  MUSTER_HOME=$DISK/there/home unshare --uts --mount sh -c 'hostname elsewhere
    mount --bind $0/boot /proc/sys/kernel/random/boot_id; exec "$@"' $DISK \\
    "$PYTHON" -m muster "$@"
}
supervisor() {  # the pid of the process that drives a run
  read -r pid < $DISK/data/home/runs/$1/lease; echo $pid
}
id_of() {
  muster runs show $1 --json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["id"])'
}
ready() { while ! muster runs show $1 2>/dev/null | grep -Eq 'RUNNING +yes'; do :; done; }
"""


def on_a_shared_disk(
    folder: Path,
    script: str,
    *,
    locks: str = "shared",
    fifos: bool = True,
    kind: str = "testnfs",
) -> list[str]:
    """Run a script with a file system mounted twice below `folder` ($DISK): at `here`, where
    MUSTER_HOME is, and as if on another host at `there`. `$DISK/data` has its files.

    locks, kind: as `fuse_server.py` explains. Returns the lines of output and errors.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None or not os.path.exists("/dev/fuse"):
        pytest.skip("only root can mount a file system of FUSE")
    argv = ["unshare", "-m", "bash", "-c", _BEGIN + script, "bash", str(folder), sys.executable]
    argv += [str(_SERVER), locks, "yes" if fifos else "no", kind]
    done = subprocess.run(
        argv,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )
    if done.returncode == 77:
        pytest.skip(f"cannot mount a file system of FUSE: {done.stdout.strip()}")
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout.splitlines()
