"""Storing folders: versions that share unchanged files, and what is read again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import LargeCode, StoreError
from muster.storage import code_trees, digest_cache, large_code
from muster.storage.artifacts import load_ref, place_artifact, store_artifact
from muster.storage.code_trees import FolderScan, code_folder, objects, remove_artifact
from muster.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.py").write_text("print(1)\n")
    (folder / "lib" / "a").write_text("same")
    (folder / "lib" / "b").write_text("same")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("lib/a")
    return folder


@pytest.fixture(autouse=True)
def _small_folders_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_trees, "MIN_CACHED", 0)


NAMES = ["lib/a", "lib/b", "link", "main.py", "run.sh"]


def store(home: Home, code: Path) -> str:
    return store_artifact(home, code, "main.py").sha256


def placed(home: Home, sha256: str, target: Path) -> dict[str, str]:
    target.mkdir()
    place_artifact(home, load_ref(home, sha256, "code.tar"), target)
    files = (path for path in sorted(target.rglob("*")) if not path.is_dir())
    return {str(path.relative_to(target)): path.read_text() for path in files}


def age(folder: Path) -> None:
    """Wait until changes of the folder's files are older than the clock's tick."""
    newest = max(os.lstat(path).st_ctime_ns for path in folder.rglob("*"))
    while time.time_ns() <= newest + digest_cache._TICK:
        time.sleep(0.01)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files that were read to be identified."""
    found: list[str] = []
    digest_of = code_trees.digest_of

    def spy(file: object, copy: object = None) -> tuple[bytes, int]:
        if copy is None:
            found.append(os.path.basename(file.name))  # type: ignore[attr-defined]
        return digest_of(file, copy)  # type: ignore[arg-type]

    monkeypatch.setattr(code_trees, "digest_of", spy)
    monkeypatch.setattr(code_trees, "clone", lambda source, target: False)
    yield found


def test_a_stored_folder_is_placed_as_it_was(home: Home, code: Path, tmp_path: Path) -> None:
    found = placed(home, store(home, code), tmp_path / "w")
    assert found == {name: (code / name).read_text() for name in NAMES}
    assert os.readlink(tmp_path / "w" / "link") == "lib/a"
    assert os.access(tmp_path / "w" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "w" / "main.py", os.X_OK)


def test_versions_share_the_files_that_did_not_change(home: Home, code: Path) -> None:
    first = store(home, code)
    (code / "main.py").write_text("print(2)\n")
    second = store(home, code)
    one, two = code_folder(home, first), code_folder(home, second)
    assert one is not None and two is not None
    assert (one / "run.sh").samefile(two / "run.sh")
    assert (one / "main.py").read_text() == "print(1)\n"
    assert (two / "main.py").read_text() == "print(2)\n"


def test_files_of_one_version_with_the_same_content_are_different_files(
    home: Home, code: Path
) -> None:
    """Otherwise `shutil.copy(a, b)` would refuse to copy one of them to the other."""
    stored = code_folder(home, store(home, code))
    assert stored is not None
    assert not (stored / "lib" / "a").samefile(stored / "lib" / "b")


def test_names_permissions_and_links_are_part_of_the_version(home: Home, code: Path) -> None:
    versions = [store(home, code)]
    (code / "main.py").chmod(0o755)
    versions.append(store(home, code))
    (code / "link").unlink()
    (code / "link").symlink_to("lib/b")
    versions.append(store(home, code))
    (code / "lib" / "a").rename(code / "lib" / "c")
    versions.append(store(home, code))
    assert len(set(versions)) == 4


def test_unchanged_files_are_not_read_again(home: Home, code: Path, reads: list[str]) -> None:
    age(code)
    first = store(home, code)
    assert sorted(reads) == ["a", "b", "main.py", "run.sh"]
    reads.clear()
    assert store(home, code) == first
    assert reads == []
    (code / "lib" / "a").write_text("else")  # the same size
    assert store(home, code) != first
    assert reads == ["a"]


def test_a_file_changed_a_moment_before_it_was_read_is_read_again(
    home: Home, code: Path, reads: list[str]
) -> None:
    age(code)
    (code / "main.py").write_text("print(3)\n")
    store(home, code)
    reads.clear()
    store(home, code)
    assert reads == ["main.py"]


def test_a_change_with_the_old_time_and_size_is_found(home: Home, code: Path) -> None:
    age(code)
    first = store(home, code)
    before = (code / "main.py").stat()
    (code / "main.py").write_text("print(9)\n")
    os.utime(code / "main.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store(home, code) != first


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "rubbish"])
def test_a_damaged_cache_only_takes_time(home: Home, code: Path, damage: str) -> None:
    age(code)
    first = store(home, code)
    (cache,) = home.digests.iterdir()
    data = cache.read_bytes()
    changed = {
        "flip": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        "truncate": data[: len(data) // 2],
        "empty": b"",
        "rubbish": os.urandom(300),
    }
    cache.write_bytes(changed[damage])
    assert store(home, code) == first
    assert cache.read_bytes() == data


def test_digests_of_small_and_temporary_folders_are_not_kept(
    home: Home, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(code)
    FolderScan(home, code.rename(home.checkouts), NAMES).store()
    assert not home.digests.exists()
    home.checkouts.rename(code)
    monkeypatch.setattr(code_trees, "MIN_CACHED", 100)
    store(home, code)
    assert not home.digests.exists()


def test_a_version_that_was_removed_is_stored_again(home: Home, code: Path, tmp_path: Path) -> None:
    age(code)
    first = store(home, code)
    remove_artifact(home, first)
    assert [*objects(home)] == []
    assert store(home, code) == first
    assert placed(home, first, tmp_path / "w")["main.py"] == "print(1)\n"


def test_removing_a_version_keeps_what_others_share(home: Home, code: Path, tmp_path: Path) -> None:
    first = store(home, code)
    (code / "main.py").write_text("print(2)\n")
    second = store(home, code)
    remove_artifact(home, first)
    assert not home.artifact(first).exists()
    found = placed(home, second, tmp_path / "w")
    assert found["main.py"] == "print(2)\n" and found["lib/b"] == "same"
    assert len([*objects(home)]) == 3  # same, print(2), run.sh


def test_a_file_that_changes_while_it_is_stored_gets_the_name_of_what_was_stored(
    home: Home, code: Path, tmp_path: Path
) -> None:
    scan = FolderScan(home, code, NAMES)
    (code / "main.py").write_text("print('changed')\n")
    stored = scan.store()
    assert placed(home, stored.sha256, tmp_path / "w")["main.py"] == "print('changed')\n"
    assert stored.sha256 == FolderScan(home, code, NAMES).store().sha256


def test_without_hard_links_nothing_is_shared_and_all_works(
    home: Home, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert placed(home, store(home, code), tmp_path / "w")["lib/b"] == "same"
    assert [*objects(home)] == []


def test_a_working_directory_on_a_full_disk_is_reported_and_emptied(
    home: Home, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store(home, code)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(StoreError, match=r"cannot copy code\.tar into .*: No space left"):
        placed(home, first, tmp_path / "w")
    assert [*(tmp_path / "w").iterdir()] == []


def test_links_that_lead_through_the_outside_are_made_direct(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "f").write_text("x")
    (folder / "absolute").symlink_to(folder / "f")
    (folder / "sub" / "detour").symlink_to("../../code/f")
    (folder / "sub" / "plain").symlink_to("../f")
    (folder / "loop").symlink_to("loop")
    names = ["absolute", "f", "loop", "sub/detour", "sub/plain"]
    stored = code_folder(home, FolderScan(home, folder, names).store().sha256)
    assert stored is not None
    folder.rename(tmp_path / "moved")
    assert (stored / "absolute").read_text() == (stored / "sub" / "detour").read_text() == "x"
    assert os.readlink(stored / "sub" / "plain") == "../f"
    assert os.readlink(stored / "loop") == "loop"


def test_a_large_folder_is_warned_about_before_it_is_stored(
    home: Home, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_code, "LARGE", 10)
    with pytest.warns(LargeCode) as caught:
        store(home, code)
    assert str(caught[0].message) == (
        f"storing 27B of code from {code}: run.sh 10B, main.py 9B, lib/ 8B; name what is not code "
        f"in {code}/.musterignore, or mount it"
    )
    with pytest.warns() as again:  # of another kind only
        store(home, code)
        import warnings

        warnings.warn("end", UserWarning, stacklevel=1)
    assert [str(one.message) for one in again] == ["end"]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_digests_that_are_not_a_file_are_made_again(home: Home, code: Path, kind: str) -> None:
    age(code)
    stored = store(home, code)
    (cache,) = home.digests.iterdir()
    cache.unlink()
    if kind == "pipe":
        os.mkfifo(cache)
    else:
        cache.symlink_to("/dev/zero")
    assert store(home, code) == stored
    assert cache.is_file() and not cache.is_symlink()
