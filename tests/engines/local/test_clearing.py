"""Nodes that are made anew: nothing of the one before, and never two in one place."""

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

from muster.engines.local.clearing import clear, have_empty, make_scratch


def tree(folder: Path) -> Path:
    """What a program may leave: folders that nobody may write to or look into, links elsewhere."""
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


def test_all_is_removed_but_what_is_the_node_s(tmp_path: Path) -> None:
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
def anybody_s() -> Iterator[Path]:
    """A folder that anybody may write to."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_without_root_too(anybody_s: Path) -> None:
    """Root may remove anything; so a child gives root up, where we are that."""
    folder = anybody_s
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


def test_one_agent_at_a_time_has_a_place(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from muster.engines.local.clearing import take_place\n"
        "print('here', flush=True); take_place(Path(sys.argv[1])); print('mine', flush=True)\n"
        "time.sleep(1000)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    # unbuffered, so that what is read is gone and what is not can be waited for
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


def test_a_folder_that_is_somebody_else_s_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "0"
    have_empty(folder)
    (folder / "file").touch()
    have_empty(folder)
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    if os.geteuid() != 0:
        pytest.skip("only root can give it away")
    os.chown(folder.parent, 4242, 4242)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        have_empty(folder)
