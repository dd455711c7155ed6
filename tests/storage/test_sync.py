"""Copying between a URL and a folder, with fsspec's own file systems."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.storage import sync
from muster.storage.mounts import SYNC_URL, check_sources, classify_source
from muster.storage.sync import SyncError, main, pull, push


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
    done = process("in", "nope://x", tmp_path / "l")
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
    found = check_sources(dict.fromkeys(sources, "mounts"))
    told = [str(problem).replace(str(tmp_path), "DIR") for problem in found]
    assert told[:2] == [
        "mounts: there is no DIR/nope (make it, or check the path)",
        "mounts: DIR/file is no directory (give the folder it is in)",
    ]
    assert told[2].startswith("mounts: zz://x: nothing knows how to read zz://")
    assert len(told) == 3


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }


def write(folder: Path, **content: str) -> None:
    for name, text in content.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def process(direction: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "muster.storage.sync", direction, str(folder)]
    environ = {**os.environ, SYNC_URL: url}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    write(folder, a="1", deep__er__b="2")
    return folder


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def test_in_and_out_as_processes(tmp_path: Path, there: Path) -> None:
    """As the engine does it."""
    url, local = f"file://{there}", tmp_path / "run" / "0"
    done = process("in", url, local)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert files(local) == {"a": "1", "deep/er/b": "2"}
    write(local, a="changed", new__c="3")
    (local / "deep" / "er" / "b").unlink()
    assert process("out", url, local).returncode == 0
    assert files(there) == {"a": "changed", "deep/er/b": "2", "new/c": "3"}, "never deletes"
    assert files(local) == {"a": "changed", "new/c": "3"}, "no file of ours in the job's folder"


@pytest.mark.parametrize(
    ("argv", "url", "code", "text"),
    [
        (["in"], "file:///a", 2, "usage:"),
        (["in", "b"], "", 2, "usage:"),
        (["sideways", "b"], "file:///a", 2, "usage:"),
        (["in", "f"], "blub://me:hunter2@host/a", 1, "blub://me@host/a: ValueError: Protocol"),
    ],
)
def test_what_is_said(
    argv: list[str],
    url: str,
    code: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SYNC_URL, url)
    assert main(argv) == code
    error = capsys.readouterr().err
    assert text in error
    assert "hunter2" not in error
    assert "Traceback" not in error


def test_nothing_there_yet(tmp_path: Path) -> None:
    url, local = f"file://{tmp_path}/not-yet", tmp_path / "local"
    assert pull(url, local) == 0
    assert local.is_dir()
    write(local, a="1")
    assert push(url, local) == 1
    assert files(tmp_path / "not-yet") == {"a": "1"}


def test_a_file_is_no_mount(tmp_path: Path, there: Path) -> None:
    with pytest.raises(NotADirectoryError, match="give the folder it is in"):
        pull(f"file://{there}/a", tmp_path / "local")


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(direction, name) of every file the back end is asked to copy."""
    log: list[tuple[str, str]] = []
    for method, direction, index in (("get_file", "in", 0), ("put_file", "out", 1)):
        own = getattr(LocalFileSystem, method)

        def spy(
            self: Any, a: str, b: str, *, _own: Any = own, _d: str = direction, _i: int = index
        ) -> Any:
            log.append((_d, Path((a, b)[_i]).name))
            return _own(self, a, b)

        monkeypatch.setattr(LocalFileSystem, method, spy)
    return log


def test_only_changes_are_copied(
    tmp_path: Path, there: Path, copied: list[tuple[str, str]]
) -> None:
    url, local = f"file://{there}", tmp_path / "local"
    assert pull(url, local) == 2
    assert push(url, local) == 0, "what came in need not go out"
    assert pull(url, local) == 0
    copied.clear()

    write(there, a="other")
    assert pull(url, local) == 1
    write(local, deep__er__b="mine")
    assert push(url, local) == 1
    assert pull(url, local) == 0, "what went out need not come in"
    (local / "a").unlink()
    assert push(url, local) == 0
    assert pull(url, local) == 1, "what is gone here is fetched again"
    assert copied == [("in", "a"), ("out", "b"), ("in", "a")]


def test_same_size_and_another_time_is_a_change(tmp_path: Path, there: Path) -> None:
    url, local = f"file://{there}", tmp_path / "local"
    pull(url, local)
    write(local, a="9")
    assert push(url, local) == 1
    assert files(there)["a"] == "9"


def test_another_size_at_the_same_time_is_a_change(tmp_path: Path, there: Path) -> None:
    """Clocks of some file systems tick once in two seconds."""
    url, local = f"file://{there}", tmp_path / "local"
    os.utime(there / "a", (1, 1))
    pull(url, local)
    write(there, a="longer")
    os.utime(there / "a", (1, 1))
    assert pull(url, local) == 1
    assert files(local)["a"] == "longer"


def test_back_ends_that_tell_no_change_are_believed_nothing(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, local = f"file://{there}", tmp_path / "local"
    monkeypatch.setattr(sync, "_mark", lambda info: "")
    assert (pull(url, local), pull(url, local)) == (2, 2)


def test_one_bad_file_does_not_keep_the_others(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = LocalFileSystem.get_file

    def fail(self: Any, path: str, target: str) -> None:
        if path.endswith("/a"):
            Path(target).write_text("hal")
            raise OSError("the line is dead")
        own(self, path, target)

    url, local = f"file://{there}", tmp_path / "local"
    with monkeypatch.context() as patch, pytest.raises(SyncError) as caught:
        patch.setattr(LocalFileSystem, "get_file", fail)
        pull(url, local)
    assert str(caught.value) == f"{there}/a: OSError: the line is dead"
    assert files(local) == {"deep/er/b": "2"}
    assert push(url, local) == 0, "half a file is nobody's change"
    assert files(there)["a"] == "1"
    assert {path.name for path in tmp_path.iterdir()} == {"remote", "local", "local.seen"}
    assert pull(url, local) == 1, "only what is missing"


def test_a_file_the_job_deletes_meanwhile(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs keep their last three checkpoints or so."""
    local = tmp_path / "local"
    write(local, old="x", new="y")
    own = sync._local_files

    def listing(folder: Path) -> list[Any]:
        found = list(own(folder))
        (folder / "old").unlink()
        return found

    monkeypatch.setattr(sync, "_local_files", listing)
    push(f"file://{there}", local)
    assert files(there) == {"a": "1", "deep/er/b": "2", "new": "y"}


def test_a_file_written_to_while_it_is_copied_is_copied_again(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    write(local, c="first")
    own = LocalFileSystem.put_file

    def slow(self: Any, path: str, target: str) -> None:
        own(self, path, target)
        Path(path).write_text("second, longer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", slow)
        push(f"file://{there}", local)
    assert push(f"file://{there}", local) == 1
    assert files(there)["c"] == "second, longer"


def test_links(tmp_path: Path, there: Path) -> None:
    local = tmp_path / "local"
    write(local, ckpt__5="five")
    (local / "latest").symlink_to("ckpt/5")
    (local / "dangling").symlink_to("nope")
    (local / "folder").symlink_to("ckpt")
    assert push(f"file://{there}", local) == 2
    assert files(there)["latest"] == "five"
    assert not (there / "folder").exists()


def test_object_store_names(tmp_path: Path, memory: MemoryFileSystem) -> None:
    """Where `a` and `a/b` can both be, and `..` is a name like any other."""
    for path, data in {"/m/ok": b"1", "/m/sub/c": b"2", "/m/x y/ö": b"3"}.items():
        memory.pipe_file(path, data)
    local = tmp_path / "local"
    assert pull("memory://m", local) == 3
    assert files(local) == {"ok": "1", "sub/c": "2", "x y/ö": "3"}
    memory.pipe_file("/m/../evil", b"x")
    stored = {k: v for k, v in memory.store.items() if "evil" in k}
    assert stored, "the back end keeps the name as it is"
    with pytest.raises(SyncError, match="it would land outside of the mount"):
        pull("memory://m", local)
    assert not (tmp_path / "evil").exists()


def test_folder_and_file_of_one_name(tmp_path: Path, memory: MemoryFileSystem) -> None:
    for path in ("/m/a", "/m/a/b"):  # past its own check, as object stores have none
        memory.store[path] = MemoryFile(memory, path, b"x")
    memory.pipe_file("/m/c", b"y")
    with pytest.raises(SyncError):
        pull("memory://m", tmp_path / "local")
    assert files(tmp_path / "local")["c"] == "y"


NAMES = st.lists(
    st.text("ab.- ü", min_size=1, max_size=3).filter(lambda n: n.strip(".") and n == n.strip()),
    min_size=1,
    max_size=3,
).map("/".join)
TREES = st.dictionaries(NAMES, st.text(max_size=4), max_size=5).filter(
    lambda tree: not any(b.startswith(f"{a}/") for a in tree for b in tree)
)


@settings(max_examples=60, deadline=None)
@given(before=TREES, after=TREES)
def test_what_goes_out_comes_back(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], after: dict[str, str]
) -> None:
    """The URL holds the union, newest first; a second machine sees just that."""
    both = {**before, **after}
    if any(b.startswith(f"{a}/") for a in both for b in both):
        return  # a file cannot become a folder where nothing is deleted
    top = tmp_path_factory.mktemp("sync")
    url = f"file://{top}/remote"
    for number, tree in enumerate((before, after)):
        local = top / str(number)
        local.mkdir()
        for name, text in tree.items():
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_bytes(text.encode())
        assert push(url, local) == len(tree)
        assert push(url, local) == 0
    assert pull(url, top / "third") == len(both)
    assert files(top / "third") == both


def test_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back ends that wait for the network are asked for several files at a time."""
    monkeypatch.setattr(LocalFileSystem, "async_impl", True)
    wanted = {f"{number % 7}/{number}": str(number) for number in range(200)}
    for name, text in wanted.items():
        write(tmp_path / "remote", **{name.replace("/", "__"): text})
    assert pull(f"file://{tmp_path}/remote", tmp_path / "local") == len(wanted)
    assert files(tmp_path / "local") == wanted
    assert push(f"file://{tmp_path}/remote", tmp_path / "local") == 0
