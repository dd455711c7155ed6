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
from muster.storage.sync import SyncError, main, pull, push
from muster.storage.sync_process import SYNC_URL


@pytest.fixture
def url(tmp_path: Path) -> str:
    remote = tmp_path / "remote"
    (remote / "deep" / "er").mkdir(parents=True)
    (remote / "a").write_text("a")
    (remote / "deep" / "er" / "b").write_text("b")
    return f"file://{remote}"


def remote(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def test_existing_files_are_pulled_once(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    assert pull(url, folder) == 2
    assert (folder / "deep" / "er" / "b").read_text() == "b"
    assert pull(url, folder) == 0, "nothing has changed"
    (remote(url) / "a").write_text("changed")
    assert pull(url, folder) == 1
    assert (folder / "a").read_text() == "changed"


def test_only_changed_files_are_pushed(url: str, tmp_path: Path) -> None:
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


def test_a_missing_url_is_created_by_the_first_push(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/later"
    assert pull(url, tmp_path / "local") == 0
    assert (tmp_path / "local").is_dir()
    (tmp_path / "local" / "x").write_text("x")
    assert push(url, tmp_path / "local") == 1
    assert files(tmp_path / "later") == {"x": "x"}


def test_the_process_prints_one_line_about_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = process("in", "nope://x", tmp_path / "l")
    assert done.returncode == 1
    assert done.stderr.startswith("nope://x: ValueError: Protocol not known")
    assert len(done.stderr.splitlines()) == 1


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
def remote_folder(tmp_path: Path) -> Path:
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


def test_pull_and_push_as_processes(tmp_path: Path, remote_folder: Path) -> None:
    """The engine runs them as processes."""
    url, local = f"file://{remote_folder}", tmp_path / "run" / "0"
    done = process("in", url, local)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert files(local) == {"a": "1", "deep/er/b": "2"}
    write(local, a="changed", new__c="3")
    (local / "deep" / "er" / "b").unlink()
    assert process("out", url, local).returncode == 0
    assert files(remote_folder) == {"a": "changed", "deep/er/b": "2", "new/c": "3"}, "never deletes"
    assert files(local) == {"a": "changed", "new/c": "3"}, "Muster has no file in the job's folder"


@pytest.mark.parametrize(
    ("argv", "url", "code", "text"),
    [
        (["in"], "file:///a", 2, "usage:"),
        (["in", "b"], "", 2, "usage:"),
        (["sideways", "b"], "file:///a", 2, "usage:"),
        (["in", "f"], "blub://me:hunter2@host/a", 1, "blub://me@host/a: ValueError: Protocol"),
    ],
)
def test_errors_of_the_process_show_no_secrets(
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


def test_a_file_cannot_be_mounted(tmp_path: Path, remote_folder: Path) -> None:
    with pytest.raises(NotADirectoryError, match="give its folder"):
        pull(f"file://{remote_folder}/a", tmp_path / "local")


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(direction, name) of every file that the back end copies."""
    log: list[tuple[str, str]] = []
    for method, direction, index in (("get_file", "in", 0), ("put_file", "out", 1)):
        original = getattr(LocalFileSystem, method)

        def spy(
            self: Any,
            a: str,
            b: str,
            *,
            _original: Any = original,
            _d: str = direction,
            _i: int = index,
        ) -> Any:
            log.append((_d, Path((a, b)[_i]).name))
            return _original(self, a, b)

        monkeypatch.setattr(LocalFileSystem, method, spy)
    return log


def test_only_changes_are_copied(
    tmp_path: Path, remote_folder: Path, copied: list[tuple[str, str]]
) -> None:
    url, local = f"file://{remote_folder}", tmp_path / "local"
    assert pull(url, local) == 2
    assert push(url, local) == 0, "pulled files are not pushed"
    assert pull(url, local) == 0
    copied.clear()

    write(remote_folder, a="other")
    assert pull(url, local) == 1
    write(local, deep__er__b="mine")
    assert push(url, local) == 1
    assert pull(url, local) == 0, "pushed files are not pulled"
    (local / "a").unlink()
    assert push(url, local) == 0
    assert pull(url, local) == 1, "files deleted locally are pulled again"
    assert copied == [("in", "a"), ("out", "b"), ("in", "a")]


def test_same_size_and_another_time_is_a_change(tmp_path: Path, remote_folder: Path) -> None:
    url, local = f"file://{remote_folder}", tmp_path / "local"
    pull(url, local)
    write(local, a="9")
    assert push(url, local) == 1
    assert files(remote_folder)["a"] == "9"


def test_another_size_at_the_same_time_is_a_change(tmp_path: Path, remote_folder: Path) -> None:
    """Clocks of some file systems tick once in two seconds."""
    url, local = f"file://{remote_folder}", tmp_path / "local"
    os.utime(remote_folder / "a", (1, 1))
    pull(url, local)
    write(remote_folder, a="longer")
    os.utime(remote_folder / "a", (1, 1))
    assert pull(url, local) == 1
    assert files(local)["a"] == "longer"


def test_files_without_a_change_mark_are_always_copied(
    tmp_path: Path, remote_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, local = f"file://{remote_folder}", tmp_path / "local"
    monkeypatch.setattr(sync, "_mark", lambda info: "")
    assert (pull(url, local), pull(url, local)) == (2, 2)


def test_one_failed_file_does_not_prevent_the_others(
    tmp_path: Path, remote_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = LocalFileSystem.get_file

    def fail(self: Any, path: str, target: str) -> None:
        if path.endswith("/a"):
            Path(target).write_text("hal")
            raise OSError("connection lost")
        original(self, path, target)

    url, local = f"file://{remote_folder}", tmp_path / "local"
    with monkeypatch.context() as patch, pytest.raises(SyncError) as caught:
        patch.setattr(LocalFileSystem, "get_file", fail)
        pull(url, local)
    assert str(caught.value) == f"{remote_folder}/a: OSError: connection lost"
    assert files(local) == {"deep/er/b": "2"}
    assert push(url, local) == 0, "a partial file is not a change"
    assert files(remote_folder)["a"] == "1"
    assert {path.name for path in tmp_path.iterdir()} == {"remote", "local", "local.seen"}
    assert pull(url, local) == 1, "only the missing file is pulled"


def test_a_file_deleted_during_a_push_is_skipped(
    tmp_path: Path, remote_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs delete old checkpoints at any time."""
    local = tmp_path / "local"
    write(local, old="x", new="y")
    original = sync._local_files

    def listing(folder: Path) -> list[Any]:
        found = list(original(folder))
        (folder / "old").unlink()
        return found

    monkeypatch.setattr(sync, "_local_files", listing)
    push(f"file://{remote_folder}", local)
    assert files(remote_folder) == {"a": "1", "deep/er/b": "2", "new": "y"}


def test_a_file_changed_during_its_copy_is_copied_again(
    tmp_path: Path, remote_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    write(local, c="first")
    original = LocalFileSystem.put_file

    def slow(self: Any, path: str, target: str) -> None:
        original(self, path, target)
        Path(path).write_text("second, longer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", slow)
        push(f"file://{remote_folder}", local)
    assert push(f"file://{remote_folder}", local) == 1
    assert files(remote_folder)["c"] == "second, longer"


def test_links_to_files_are_followed_and_others_skipped(
    tmp_path: Path, remote_folder: Path
) -> None:
    local = tmp_path / "local"
    write(local, ckpt__5="five")
    (local / "latest").symlink_to("ckpt/5")
    (local / "dangling").symlink_to("nope")
    (local / "folder").symlink_to("ckpt")
    assert push(f"file://{remote_folder}", local) == 2
    assert files(remote_folder)["latest"] == "five"
    assert not (remote_folder / "folder").exists()


def test_names_of_an_object_store_stay_in_the_mount(
    tmp_path: Path, memory: MemoryFileSystem
) -> None:
    """An object store can have both `a` and `a/b`, and treats `..` like any other name."""
    for path, data in {"/m/ok": b"1", "/m/sub/c": b"2", "/m/x y/ö": b"3"}.items():
        memory.pipe_file(path, data)
    local = tmp_path / "local"
    assert pull("memory://m", local) == 3
    assert files(local) == {"ok": "1", "sub/c": "2", "x y/ö": "3"}
    memory.pipe_file("/m/../evil", b"x")
    stored = {k: v for k, v in memory.store.items() if "evil" in k}
    assert stored, "the back end keeps the name as it is"
    with pytest.raises(SyncError, match="it would be outside the mount"):
        pull("memory://m", local)
    assert not (tmp_path / "evil").exists()


def test_a_folder_and_a_file_of_one_name_are_an_error(
    tmp_path: Path, memory: MemoryFileSystem
) -> None:
    for path in ("/m/a", "/m/a/b"):  # without the check of the back end, which object stores lack
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
def test_pushed_files_are_pulled_elsewhere(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], after: dict[str, str]
) -> None:
    """The URL has the union of all files, each in its newest version."""
    both = {**before, **after}
    if any(b.startswith(f"{a}/") for a in both for b in both):
        return  # a file cannot become a folder, as nothing is deleted
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


def test_several_files_are_copied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous back ends copy several files concurrently."""
    monkeypatch.setattr(LocalFileSystem, "async_impl", True)
    expected = {f"{number % 7}/{number}": str(number) for number in range(200)}
    for name, text in expected.items():
        write(tmp_path / "remote", **{name.replace("/", "__"): text})
    assert pull(f"file://{tmp_path}/remote", tmp_path / "local") == len(expected)
    assert files(tmp_path / "local") == expected
    assert push(f"file://{tmp_path}/remote", tmp_path / "local") == 0
