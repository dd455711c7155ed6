"""The control groups of a node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.node import control_groups, machine
from muster.node.control_groups import Amounts, CannotLimit, Hierarchy, NodeGroups

needs_groups = pytest.mark.skipif(
    len(control_groups.usable_limits()) < 2, reason="control groups are not writable here"
)


def tree(root: Path, own: str, *folders: str) -> tuple[str, str]:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "own").write_text(own)
    return str(root), str(root / "own")


def test_hierarchies_of_control_groups_version_1(tmp_path: Path) -> None:
    own = "4:memory:/a\n3:cpu,cpuacct:/b\n2:freezer:/\n0::/\n"
    found = control_groups.hierarchies(*tree(tmp_path, own, "memory/a", "cpu/b"))
    assert found["memory"] == Hierarchy("memory", f"{tmp_path}/memory/a", 1)
    assert found["cpu"].parent == f"{tmp_path}/cpu/b"


def test_hierarchies_of_control_groups_version_2(tmp_path: Path) -> None:
    root, own = tree(tmp_path, "0::/user/me\n", "user/me")
    assert control_groups.hierarchies(root, own) == {}
    (tmp_path / "user/me/cgroup.subtree_control").write_text("cpu memory pids")
    found = control_groups.hierarchies(root, own)
    assert {one.version for one in found.values()} == {2}
    assert set(found) == {"cpu", "memory"}


def test_groups_are_made_where_most_limits_can_be(tmp_path: Path) -> None:
    """The group of a login has processes, so that none below it can have limits."""
    root, own = tree(tmp_path, "0::/user/me/login\n", "user/me/login")
    (tmp_path / "user/me/cgroup.subtree_control").write_text("memory pids")
    assert control_groups.hierarchies(root, own) == {
        "memory": Hierarchy("memory", f"{root}/user/me", 2)
    }
    (tmp_path / "user/cgroup.subtree_control").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    found = control_groups.hierarchies(root, own)
    assert {name: one.parent for name, one in found.items()} == {
        "cpu": f"{root}/user",
        "memory": f"{root}/user",
    }


def test_no_hierarchies_without_control_groups(tmp_path: Path) -> None:
    assert control_groups.hierarchies(str(tmp_path), str(tmp_path / "nothing")) == {}


@pytest.fixture
def groups() -> Iterator[NodeGroups]:
    made = NodeGroups(f"test-{os.getpid()}", cpus=0.5, memory=64 << 20)
    yield made
    made.end()


@needs_groups
def test_the_memory_limit_kills_a_process(groups: NodeGroups) -> None:
    pid = os.fork()
    if pid == 0:
        groups.join()
        bytearray(256 << 20)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert groups.oom_kill_count() == 1
    paths = [*groups.paths]
    groups.remove()
    assert [path for path in paths if os.path.exists(path)] == []


@needs_groups
def test_the_end_of_groups_is_that_of_all_their_processes(groups: NodeGroups) -> None:
    """Also of those in groups that the programs have made."""
    paths = [*groups.paths]
    inner = Path(paths[0]) / "inner"
    inner.mkdir()
    script = f"sleep 1000 & echo $! > {inner}/cgroup.procs; echo; exec sleep 1000"
    join = "".join(f"echo $$ > {path}/cgroup.procs; " for path in paths)
    program = subprocess.Popen(["sh", "-c", join + script], stdout=subprocess.PIPE)
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"\n"
    assert (inner / "cgroup.procs").read_text() != ""
    assert groups.end() == []
    assert program.wait(10) == -signal.SIGKILL
    assert [path for path in paths if os.path.exists(path)] == []


@needs_groups
def test_only_groups_of_nodes_are_ended(tmp_path: Path) -> None:
    other = Path(control_groups.hierarchies()["memory"].parent) / f"other-{os.getpid()}"
    other.mkdir()
    try:
        assert control_groups.end_groups([str(other), str(tmp_path / "muster-gone")]) == []
        assert other.exists()
    finally:
        other.rmdir()


@pytest.mark.parametrize(
    ("amounts", "cpus", "memory"),
    [
        (Amounts(2.0, 1 << 30), 2.0, 1 << 30),
        (Amounts(4.0, 4 << 30), None, None),
        (Amounts(9.0, 9 << 30), None, None),
        (Amounts(4.0, 4 << 30, ["cpu", "memory"]), 4.0, 4 << 30),
        (Amounts(9.0, 1 << 30, ["memory"]), None, 1 << 30),
        (Amounts(), None, None),
    ],
)
def test_what_is_not_required_is_reduced(
    amounts: Amounts, cpus: float | None, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "count_cpus", lambda: 4)
    monkeypatch.setattr(machine, "count_memory", lambda: 4 << 30)
    both = {name: Hierarchy(name, "/", 1) for name in ("cpu", "memory")}
    monkeypatch.setattr(control_groups, "hierarchies", lambda: both)
    found = control_groups.reduced(amounts)
    assert (found.cpus, found.memory) == (cpus, memory)


def test_what_cannot_be_limited_is_reduced_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "hierarchies", dict)
    assert control_groups.reduced(Amounts(0.5, 1 << 20)) == Amounts()
    control_groups.check(Amounts(0.5, 1 << 20))
    control_groups.check(Amounts(None, None, ["cpu", "memory"]))
    text = r"^it cannot limit the memory of nodes \(no control groups that this user may change\)$"
    with pytest.raises(CannotLimit, match=text):
        control_groups.check(Amounts(None, 1 << 20, ["cpu", "memory"]))


def test_more_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "count_memory", lambda: 4 << 30)
    text = r"^it has 4 GiB of memory, and a node needs 4\.5 GiB of memory$"
    with pytest.raises(CannotLimit, match=text):
        control_groups.check(Amounts(None, 9 << 29, ["memory"]))
    monkeypatch.setattr(machine, "count_cpus", lambda: 1)
    with pytest.raises(CannotLimit, match=r"^it has 1 CPU, and a node needs 1\.5 CPUs$"):
        control_groups.check(Amounts(1.5, None, ["cpu"]))
