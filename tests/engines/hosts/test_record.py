"""The record of where the nodes of a run are."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from muster.engines.hosts.profile import Machine
from muster.engines.hosts.record import Record
from muster.engines.remote.record import read_record, write_record


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "hosts.json"
    assert read_record(path, Record) is None
    machines = {0: Machine("::1", "ana", 2222, 8, 2, "~/v/bin/python"), 10: Machine("gpu1")}
    for found in (machines, {}, machines):
        record = Record("~/my nodes", found)
        write_record(path, record)
        assert read_record(path, Record) == record
        assert record.folder_of("r1", 2) == "~/my nodes/r1-2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"machines": {}}',
        b'{"folder": "/f", "machines": {"0": "gpu1"}}',
        b'{"folder": "/f", "machines": {"zero": {"host": "gpu1"}}}',
        b'{"folder": "/f", "machines": {"0": {"host": "gpu1", "port": "22"}}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_record(tmp_path: Path, data: bytes) -> None:
    """It is not taken for an empty one: nodes may run on machines that nobody knows then."""
    path = tmp_path / "hosts.json"
    path.write_bytes(data)
    with pytest.raises(OSError, match=r"hosts\.json is damaged: "):
        read_record(path, Record)


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_record(tmp_path, Record)
