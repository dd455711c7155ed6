"""Threads that commit at the same time wait for one flush."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from muster.errors import StoreError
from muster.store.sqlite import flush
from muster.store.sqlite.flush import Flush


def test_threads_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "log").touch()
    one, flushes, first_goes_on = Flush(file), [], Event()

    def flush_file(descriptor: int) -> None:
        flushes.append(descriptor)
        if len(flushes) == 1:
            assert first_goes_on.wait(30)

    monkeypatch.setattr(flush, "_flush_file", flush_file)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(one.wait) for _ in range(8)]
        while one._calls < 8:
            time.sleep(0.001)
        assert not any(each.done() for each in waiting)
        first_goes_on.set()
        for each in waiting:
            each.result(30)
    # the first one began before others had called
    assert len(flushes) == 2


def test_a_failure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "log").touch()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(flush, "_flush_file", fail)
    one = Flush(file)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"cannot write {file} to the disk: Input/output"):
            one.wait()


def test_nothing_to_flush_in_a_deleted_file(tmp_path: Path) -> None:
    Flush(tmp_path / "log").wait()
