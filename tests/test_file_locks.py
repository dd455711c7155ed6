"""Locks, and the proof that they work; file systems whose locks fail are in
tests/store/sqlite/test_network_file_system.py."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from muster import file_locks
from muster.file_locks import NoLocks, check_locks, flock
from muster.file_system import FileSystem

NETWORK = FileSystem("nfs4", "nas:/export")


@pytest.fixture(autouse=True)
def on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "file_system_by_device", lambda _: NETWORK)


def test_locks_that_work(tmp_path: Path) -> None:
    check_locks(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_locks_that_only_this_host_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = FileSystem("nfs", "nas:/x", ("rw", "nolock"))
    monkeypatch.setattr(file_locks, "file_system_by_device", lambda _: mounted)
    with pytest.raises(NoLocks, match=r"is on nfs \(nas:/x\), mounted with nolock, .*MUSTER_HOME"):
        check_locks(tmp_path)


def test_locks_that_are_granted_to_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(NoLocks, match=r"ignores locks of files \(flock\)"):
        check_locks(tmp_path)


def test_a_folder_without_write_permission_has_no_verdict(tmp_path: Path) -> None:
    check_locks(tmp_path / "missing")
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    check_locks(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_lock_that_fails_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with (tmp_path / "lock").open("w") as file, pytest.raises(NoLocks) as refused:
        flock(file.fileno(), fcntl.LOCK_EX, file.name)
    assert str(refused.value) == (
        f"cannot lock {tmp_path}/lock on nfs4 (nas:/export): {os.strerror(number)}; "
        "set MUSTER_HOME to a folder on a local disk of this host"
    )


def test_a_lock_that_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as ours, path.open("w") as theirs:
        flock(ours.fileno(), fcntl.LOCK_EX, path)
        with pytest.raises(BlockingIOError):
            flock(theirs.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB, path)
