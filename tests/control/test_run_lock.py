"""The lock on a run's folder."""

from __future__ import annotations

import os
from pathlib import Path

from muster.control import run_lock


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = run_lock.acquire(path)
    assert held is not None
    assert run_lock.acquire(path) is None
    assert run_lock.is_held(path)
    os.close(held)
    assert not run_lock.is_held(path)


def test_a_lock_passes_to_a_child_without_being_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = run_lock.acquire(path)
    assert held is not None
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os._exit(0)
    os.close(held)
    assert run_lock.is_held(path), "the child holds it"
    os.write(writing, b"x")
    os.waitpid(pid, 0)
    assert not run_lock.is_held(path)
    os.close(reading)
    os.close(writing)


def test_the_last_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert run_lock.last_holder(path) is None
    path.write_text("")
    assert run_lock.last_holder(path) is None
    path.write_text("42\n")
    assert run_lock.last_holder(path) == 42


def test_a_short_pid_overwrites_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = run_lock.acquire(path)
    assert held is not None
    for pid in (1234567, 2345):
        run_lock.record_holder(held, pid)
        assert run_lock.last_holder(path) == pid
    os.pwrite(held, b"1" * 100, 0)  # a program of the run may write there
    run_lock.record_holder(held, 7)
    assert run_lock.last_holder(path) == 7
    os.close(held)
