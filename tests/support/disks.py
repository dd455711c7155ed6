"""Small disks for tests: bash scripts that run `muster` on a tmpfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_BEGIN = """
mount -t tmpfs -o "$3" none "$1" || exit 77
export MUSTER_HOME="$1/home"
cd /
fill() { cat /dev/zero >> "$DISK/ballast" 2>/dev/null; return 0; }
DISK=$1; PYTHON=$2
muster() { "$PYTHON" -m muster "$@"; }
"""


def on_a_disk(folder: Path, options: str, script: str) -> list[str]:
    """Run a script with a tmpfs mounted at `folder` ($DISK); return its lines of output and errors.
    options: those of the tmpfs."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small disk")
    argv = ["unshare", "-m", "bash", "-c", _BEGIN + script, "bash", str(folder), sys.executable]
    done = subprocess.run(
        [*argv, options], check=False, capture_output=True, text=True, timeout=200
    )
    if done.returncode == 77:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    assert done.stderr == "", done.stderr
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout.splitlines()
