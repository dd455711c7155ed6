"""Folders of nodes: cleared for a new node, and used by one agent at a time."""

from __future__ import annotations

import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.engines.local.node_folders import clear, make_private, make_scratch


def tree(folder: Path) -> Path:
    """Create what a program may leave: folders without permissions, links to other folders."""
    work = folder / "work"
    (work / "a" / "b" / "c").mkdir(parents=True)
    for place in (work, work / "a" / "b", work / "a" / "b" / "c", folder):
        (place / "file").touch()
    (work / "a" / "link").symlink_to(folder)
    (folder / "tmp").mkdir()
    (folder / "tmp" / "file").touch()
    (folder / "scratch" / "cache" / "deep").mkdir(parents=True)
    for name, mode in (("a/b/c", 0o500), ("a/b", 0), ("a", 0o500), ("", 0o555)):
        os.chmod(work / name, mode)
    return work


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_clear_removes_all_but_the_node_s_own_files(tmp_path: Path) -> None:
    clear(tmp_path, tree(tmp_path))
    assert left(tmp_path) == ["file", "scratch", "scratch/cache"]
    make_scratch(tmp_path / "life" / "tmp", 0o1777)
    (tmp_path / "life" / "tmp" / "file").touch()
    clear(tmp_path, tmp_path / "work")
    assert left(tmp_path) == ["file", "life", "life/tmp", "scratch", "scratch/cache"]
    assert stat.S_IMODE((tmp_path / "life" / "tmp").stat().st_mode) == 0o1777
    shutil.rmtree(tmp_path / "life")
    clear(tmp_path, tmp_path / "work")
    assert left(tmp_path) == ["file", "scratch", "scratch/cache"]


@pytest.fixture
def world_writable() -> Iterator[Path]:
    """A folder that all users may write to."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_clear_works_without_root(world_writable: Path) -> None:
    """A child without root's privileges clears it: root may remove anything."""
    folder = world_writable
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            clear(folder, tree(folder))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert left(folder) == ["file", "scratch", "scratch/cache"]


def test_a_node_folder_is_locked_by_one_agent_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from muster.engines.local.node_folders import lock\n"
        "print('here', flush=True); lock(Path(sys.argv[1])); print('mine', flush=True)\n"
        "time.sleep(1000)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    # unbuffered, so that select sees all output that was not read
    agents = [subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0) for _ in range(2)]
    try:
        for agent in agents:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"here\n"
        ready = select.select([agent.stdout for agent in agents], [], [], 30)[0]
        (holder,) = (agent for agent in agents if agent.stdout in ready)
        (waiting,) = (agent for agent in agents if agent is not holder)
        holder.kill()
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"mine\n"
    finally:
        for agent in agents:
            agent.kill()
            agent.communicate()


def test_a_private_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "0"
    make_private(folder)
    (folder / "file").touch()
    make_private(folder)
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    if os.geteuid() != 0:
        pytest.skip("only root can change the owner")
    os.chown(folder.parent, 4242, 4242)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_private(folder)
