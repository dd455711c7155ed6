"""Directories of this machine, which pods do not see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.kube_engine import add_engine, require_client, shared_cluster

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

#: What hides a folder from a program, as from one on another machine.
HIDING = """#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' {folder} {python} "$@"
"""


def test_a_directory_is_copied_into_pods_and_back(tmp_path: Path, own_home: Path) -> None:
    require_client()
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces are not possible here")
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    (mine / "data" / "given").write_text("something\n")
    python = tmp_path / "python3"
    python.write_text(HIDING.format(folder=mine, python=sys.executable))
    python.chmod(0o755)
    add_engine(own_home, shared_cluster(), python=str(python))
    script = f"ls -A {mine}; cat $MUSTER_MOUNT_DATA/given; echo > $MUSTER_MOUNT_DATA/of-$RANK"
    words = ["--nodes", "2", "--mount", str(mine / "data"), "--", "sh", "-c", script]
    done = subprocess.run(
        [sys.executable, "-m", "muster", "run", "--engine", "kubernetes", *words],
        env=os.environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == [
        "",
        *(f"workers/{rank} | something" for rank in (0, 1)),
    ]
    assert {one.name for one in (mine / "data").iterdir()} == {"given", "of-0", "of-1"}
