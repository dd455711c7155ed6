"""The limits of nodes on CPUs and memory by control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.engines.local import limits


def tree(root: Path, own: str, *folders: str) -> tuple[Path, Path]:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "own").write_text(own)
    return root, root / "own"


def test_hierarchies_of_control_groups_version_1(tmp_path: Path) -> None:
    own = "4:memory:/a\n3:cpu,cpuacct:/b\n2:freezer:/\n0::/\n"
    found = limits.hierarchies(*tree(tmp_path, own, "memory/a", "cpu/b"))
    assert found["memory"] == limits.Hierarchy("memory", tmp_path / "memory/a", 1)
    assert found["cpu"].parent == tmp_path / "cpu/b"


def test_hierarchies_of_control_groups_version_2(tmp_path: Path) -> None:
    root, own = tree(tmp_path, "0::/user/me\n", "user/me")
    assert limits.hierarchies(root, own) == {}
    (root / "user/me/cgroup.subtree_control").write_text("cpu memory pids")
    found = limits.hierarchies(root, own)
    assert {h.version for h in found.values()} == {2}
    assert set(found) == {"cpu", "memory"}


def test_no_hierarchies_without_control_groups(tmp_path: Path) -> None:
    assert limits.hierarchies(tmp_path, tmp_path / "nothing") == {}


@pytest.mark.skipif(len(limits.hierarchies()) < 2, reason="control groups are not writable here")
def test_the_memory_limit_kills_a_process() -> None:
    made = limits.NodeLimits(f"test-{os.getpid()}", cpus=0.5, memory=64 << 20)
    pid = os.fork()
    if pid == 0:
        made.join()
        bytearray(256 << 20)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert made.oom_kill_count() == 1
    made.remove()
    for hierarchy in limits.hierarchies().values():
        assert not list(hierarchy.parent.glob(f"muster-test-{os.getpid()}"))
