"""Copying between a URL and a folder, with fsspec's own file system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.storage.mounts import check_sources, classify_source
from muster.storage.sync import pull, push


@pytest.fixture
def url(tmp_path: Path) -> str:
    remote = tmp_path / "remote"
    (remote / "deep" / "er").mkdir(parents=True)
    (remote / "a").write_text("a")
    (remote / "deep" / "er" / "b").write_text("b")
    return f"file://{remote}"


def remote(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def test_what_is_there_comes_in_once(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    assert pull(url, folder) == 2
    assert (folder / "deep" / "er" / "b").read_text() == "b"
    assert pull(url, folder) == 0, "nothing has changed"
    (remote(url) / "a").write_text("changed")
    assert pull(url, folder) == 1
    assert (folder / "a").read_text() == "changed"


def test_only_what_has_changed_goes_out(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    pull(url, folder)
    (folder / "new").mkdir()
    (folder / "new" / "c").write_text("c")
    (folder / "a").write_text("more")
    os.utime(remote(url) / "deep" / "er" / "b", (1, 1))
    assert push(url, folder) == 2
    assert (remote(url) / "new" / "c").read_text() == "c"
    assert (remote(url) / "a").read_text() == "more"
    assert (remote(url) / "deep" / "er" / "b").stat().st_mtime == 1, "not written again"
    assert push(url, folder) == 0


def test_nothing_is_ever_deleted_at_the_url(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    pull(url, folder)
    (folder / "a").unlink()
    push(url, folder)
    assert (remote(url) / "a").exists()


def test_a_url_with_nothing_there_yet(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/later"
    assert pull(url, tmp_path / "local") == 0
    (tmp_path / "local" / "x").write_text("x")
    assert push(url, tmp_path / "local") == 1
    assert (tmp_path / "later" / "x").read_text() == "x"


def test_the_process_says_what_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    argv = [sys.executable, "-m", "muster.storage.sync", "in", "nope://x", str(tmp_path / "l")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("nope://x: ValueError: Protocol not known")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("/data", "directory"),
        ("/da:ta/x", "directory"),
        ("nfs://host/path", "nfs"),
        ("host:/path", "nfs"),
        ("s3://b/c", "url"),
        ("memory://x", "url"),
    ],
)
def test_kinds_of_sources(source: str, kind: str) -> None:
    assert classify_source(source) == kind


def test_what_is_wrong_with_sources(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sources = [str(tmp_path), str(tmp_path / "nope"), str(tmp_path / "file"), "zz://x", "file:///x"]
    told = [str(problem).replace(str(tmp_path), "DIR") for problem in check_sources(sources)]
    assert told[:2] == [
        "mounts: there is no DIR/nope (make it, or check the path)",
        "mounts: DIR/file is no directory (give the folder it is in)",
    ]
    assert told[2].startswith("mounts: zz://x: nothing knows how to read zz://")
    assert len(told) == 3
