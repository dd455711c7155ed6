"""The work directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from muster.bootstrap.workdir import STOP, WorkDir
from muster.errors import EngineError
from support.object_store import ObjectStore


class UnavailableStore:
    """A store that is unavailable until `waits` waits have passed."""

    def __init__(self, folder: Path, waits: int) -> None:
        self._folder, self._left = folder, waits
        self.waited: list[float] = []
        self.workdir = WorkDir(str(folder), "job", self._wait)
        self.workdir.make()
        folder.rename(folder.with_name("elsewhere"))

    def _wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        if len(self.waited) == self._left:
            self._folder.with_name("elsewhere").rename(self._folder)


def test_retrying_repeats_an_operation(tmp_path: Path) -> None:
    store = UnavailableStore(tmp_path / "shared", 3)
    with pytest.raises(EngineError, match="cannot be written to"):
        store.workdir.write(STOP, {"why": "first"})
    assert store.waited == []
    store.workdir.retrying.write(STOP, {"why": "second"})
    assert len(store.waited) == 3
    assert store.workdir.read(STOP) == {"why": "second"}


def test_retrying_ends_after_some_time(tmp_path: Path) -> None:
    store = UnavailableStore(tmp_path / "shared", -1)
    with pytest.raises(EngineError, match="cannot be written to"):
        store.workdir.retrying.write(STOP, {})
    assert 10 <= sum(store.waited) <= 60


def test_the_secret_is_private_in_an_existing_folder(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    folder.chmod(0o755)
    umask = os.umask(0o022)
    try:
        workdir = WorkDir(str(tmp_path), "job")
        workdir.make()
        workdir.write("cluster.json", {"token": "secret"})
    finally:
        os.umask(umask)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "cluster.json").stat().st_mode & 0o777 == 0o600


def test_a_file_is_written_atomically(tmp_path: Path) -> None:
    workdir = WorkDir(str(tmp_path), "job")
    workdir.make()
    workdir.write(STOP, {"why": "first"})
    with open(tmp_path / "job" / STOP) as reader:
        workdir.write(STOP, {"why": "second"})
        assert json.load(reader) == {"why": "first"}  # the open file was replaced, not overwritten
    with pytest.raises(TypeError):
        workdir.write(STOP, {"why": object()})
    assert workdir.read(STOP) == {"why": "second"}
    assert os.listdir(tmp_path / "job") == [STOP]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    workdir = WorkDir(str(tmp_path), "job")
    (tmp_path / "job" / STOP).mkdir(parents=True)
    with pytest.raises(EngineError):
        workdir.write(STOP, {})
    assert os.listdir(tmp_path / "job") == [STOP]


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


def test_files_are_read_from_an_object_store(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty object has no byte range to request."""
    where = {
        "endpoint_url": store.environ["FSSPEC_S3_ENDPOINT_URL"],
        "key": "test",
        "secret": "test",
    }
    fs = fsspec.filesystem("s3", **where)
    fs.mkdir("things")
    monkeypatch.setitem(fsspec.config.conf, "s3", where)
    workdir = WorkDir("s3://things/at", "job")
    workdir.make()
    assert workdir.read(STOP) is None
    fs.touch("things/at/job/stop")
    assert workdir.read(STOP) == {"why": ""}
    workdir.write("a", {"n": 1})
    workdir.write("b", [2])
    assert workdir.read_many(["a", "b", "c"]) == {"a": {"n": 1}, "b": [2], "c": None}
    store.refuse("GET", "/b", 1)
    assert workdir.read_many(["a", "b", "c"]) == {"a": {"n": 1}, "c": None}
    store.refuse("GET", "/a", 1)
    with pytest.raises(EngineError):
        workdir.read("a")


def test_several_files_are_read_at_once(tmp_path: Path) -> None:
    workdir = WorkDir(str(tmp_path), "job")
    workdir.make()
    workdir.write("a", {"n": 1})
    (tmp_path / "job" / "folder").mkdir()
    assert workdir.read_many(["a", "b", "folder"]) == {"a": {"n": 1}, "b": None}
    assert workdir.read_many([]) == {}
