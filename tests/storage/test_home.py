"""MUSTER_HOME: its path, and errors if it cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.errors import EXIT_BAD_INPUT, InvalidInput
from muster.storage.home import Home, default_home


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({"MUSTER_HOME": "/a/b"}, "/a/b"),
        ({"MUSTER_HOME": "/a/b", "XDG_STATE_HOME": "/x"}, "/a/b"),
        ({"MUSTER_HOME": "~/m"}, "/home/u/m"),
        ({"MUSTER_HOME": "", "XDG_STATE_HOME": "/x"}, "/x/muster"),
        ({"XDG_STATE_HOME": "relative"}, "/home/u/.local/state/muster"),
        ({"XDG_STATE_HOME": ""}, "/home/u/.local/state/muster"),
        ({}, "/home/u/.local/state/muster"),
    ],
)
def test_the_home_follows_from_variables(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], root: str
) -> None:
    for name in ("MUSTER_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/u", **env}.items():
        monkeypatch.setenv(name, value)
    assert default_home().root == Path(root)


def test_a_relative_home_is_relative_to_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_HOME", "state")
    home = default_home()
    monkeypatch.chdir("/")
    assert home.root == tmp_path / "state"


def test_an_unknown_user_in_the_path_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_HOME", "~no-such-user/m")
    with pytest.raises(InvalidInput, match=r"MUSTER_HOME: .*set it to a full path"):
        default_home()


def test_paths_of_a_run_are_distinct(tmp_path: Path) -> None:
    run = Home(tmp_path).run_dir("abc")
    assert run.path == tmp_path / "runs" / "abc"
    paths = [run.lock, run.wakeup, run.supervisor_log, run.mounts, run.node(0), run.logs(0)]
    assert len(set(paths)) == len(paths)
    assert all(run.path in path.parents for path in paths)
    assert run.work(3).parent == run.node(3) != run.node(4)
    assert run.logs(0) != run.logs(1)


def test_only_the_owner_can_read_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        home.prepare()
        home.prepare()
    finally:
        os.umask(before)
    for folder in (home.root, home.artifacts, home.runs):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_file_in_place_of_the_home_is_reported(tmp_path: Path, below: str) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(InvalidInput, match="is a file; a folder is needed there") as caught:
        Home(tmp_path / "f" / below).prepare()
    assert "set MUSTER_HOME to a folder you can write to" in str(caught.value)
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_a_read_only_file_system_is_reported() -> None:
    with pytest.raises(InvalidInput, match="cannot use /proc/muster: "):
        Home(Path("/proc/muster")).prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user id")
def test_an_unwritable_home_is_reported(tmp_path: Path) -> None:
    """Root may write anywhere, so that the test changes its user id."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from muster.storage.home import Home\n"
        "from muster.errors import InvalidInput\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for root in sys.argv[1:]:\n"
        "    try: Home(Path(root)).prepare()\n"
        "    except InvalidInput as error: print(error)\n"
    )
    argv = [sys.executable, "-c", code, str(locked), str(locked / "new")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Permission denied") == 2
