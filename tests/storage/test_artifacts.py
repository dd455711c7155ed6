"""Storing and placing code, and the code that is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.errors import InvalidInput, StoreError
from muster.storage import artifacts, code_checks
from muster.storage.artifacts import (
    ArtifactRef,
    entry_command,
    load_ref,
    place_artifact,
    store_artifact,
)
from muster.storage.code_trees import remove_artifact
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
    (folder / "main.py").write_text("from lib import x\n")
    (folder / "lib" / "__init__.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def stored_files(home: Home) -> list[Path]:
    return [path for path in home.artifacts.rglob("*") if path.is_file()]


def run_here(home: Home, ref: ArtifactRef, entry: str | None, folder: Path) -> str:
    folder.mkdir()
    place_artifact(home, ref, folder)
    argv = entry_command(ref, entry, sys.executable, folder)
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.shows("jobs/artifact-immutable")
def test_same_content_is_stored_once_and_never_changed(home: Home, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("print(1)\n")
    first = store_artifact(home, tmp_path / "a.py", None)
    second = store_artifact(home, tmp_path / "b.py", None)
    assert first.sha256 == second.sha256
    assert (first.file_name, second.file_name) == ("a.py", "b.py")
    (path,) = stored_files(home)
    assert path == home.artifact(first.sha256)
    assert path.stat().st_mode & 0o777 == 0o400
    assert load_ref(home, first.sha256, "a.py") == first


def test_code_stored_by_many_threads_is_stored_once(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n" * 100_000)
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda _: store_artifact(home, path, None), range(16)))
    assert len(set(refs)) == 1
    assert len(stored_files(home)) == 1


@pytest.mark.shows("jobs/artifact-python", "jobs/use-outside-notebooks")
def test_a_python_file_is_run(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('hi', __file__)\n")
    ref = store_artifact(home, tmp_path / "a.py", None)
    assert ref.kind == "python"
    assert run_here(home, ref, None, tmp_path / "w").startswith("hi")


@pytest.mark.shows("jobs/artifact-shell")
def test_a_shell_script_is_run(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo hi from $0\n")
    ref = store_artifact(home, tmp_path / "a.sh", None)
    assert run_here(home, ref, None, tmp_path / "w") == "hi from a.sh\n"


def test_a_program_with_any_interpreter_is_run(home: Home, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/usr/bin/env perl\nprint 'hi';\n")
    ref = store_artifact(home, tmp_path / "tool", None)
    assert run_here(home, ref, None, tmp_path / "w") == "hi"


@pytest.mark.shows("distributed-jobs/bring-code-and-artifacts")
def test_a_folder_is_packed_by_content(home: Home, tmp_path: Path, code: Path) -> None:
    ref = store_artifact(home, code, "main.py")
    assert (ref.kind, ref.file_name) == ("archive", "code.tar")
    (code / "main.py").touch()
    assert store_artifact(home, code, "main.py").sha256 == ref.sha256, "times do not count"
    assert run_here(home, ref, "main.py", tmp_path / "w") == ""
    assert os.access(tmp_path / "w" / "run.sh", os.X_OK)
    (code / "main.py").write_text("changed\n")
    assert store_artifact(home, code, "main.py").sha256 != ref.sha256


@pytest.mark.shows(
    "distributed-jobs/bring-code-and-artifacts", "jobs/artifact-tar", "jobs/artifact-zip"
)
@pytest.mark.parametrize("form", ["zip", "tar", "gztar", "bztar", "xztar"])
@pytest.mark.parametrize("layout", ["flat", "rooted"])
def test_archives_with_and_without_a_root_folder_are_run(
    home: Home, tmp_path: Path, code: Path, form: str, layout: str
) -> None:
    (code / "main.py").write_text("from lib import x\nprint(x)\n")
    root, base = (code, None) if layout == "flat" else (code.parent, "code")
    path = Path(shutil.make_archive(str(tmp_path / "pack"), form, root, base))
    entry = "main.py"
    ref = store_artifact(home, path, entry)
    assert run_here(home, ref, entry, tmp_path / "w") == "1\n"
    if layout == "rooted":
        assert run_here(home, ref, "code/main.py", tmp_path / "w2") == "1\n"


@pytest.mark.shows("jobs/artifact-java")
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler on this machine")
def test_java_classes_and_jars_are_run(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(
        "class Hello { public static void main(String[] a) { System.out.println(42); } }"
    )
    subprocess.run(["javac", source], check=True)
    ref = store_artifact(home, tmp_path / "Hello.class", None)
    assert run_here(home, ref, None, tmp_path / "w1") == "42\n"
    jar = tmp_path / "hello.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        packed.write(tmp_path / "Hello.class", "Hello.class")
        packed.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMain-Class: Hello\n")
    ref = store_artifact(home, jar, None)
    assert run_here(home, ref, None, tmp_path / "w2") == "42\n"
    assert run_here(home, ref, "Hello", tmp_path / "w3") == "42\n"


def refused(home: Home, path: Path, entry: str | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        store_artifact(home, path, entry)
    assert stored_files(home) == [], "refused code leaves no file"
    return str(caught.value).replace(str(path.parent), "DIR")


def test_unusable_code_is_refused(home: Home, tmp_path: Path, code: Path) -> None:
    assert "artifact: DIR/nope.py not found" in refused(home, tmp_path / "nope.py")
    (tmp_path / "train.py").write_text("")
    assert '(did you mean "train.py"?)' in refused(home, tmp_path / "trian.py")
    (tmp_path / "notes.txt").write_text("hello")
    assert "do not know how to run notes.txt" in refused(home, tmp_path / "notes.txt")
    shutil.copy("/bin/true", tmp_path / "prog")
    assert "run it as a command: muster run -- DIR/prog" in refused(home, tmp_path / "prog")
    (tmp_path / "a.py").write_text("")
    assert "entrypoint: a.py is a single file" in refused(home, tmp_path / "a.py", "b.py")
    assert (
        "choose the file to run: --entrypoint main.py; it holds lib/__init__.py, main.py, run.sh"
        in refused(home, code)
    )
    assert "entrypoint: mian.py is not in" in refused(home, code, "mian.py")
    assert "(it holds main.py, lib/__init__.py, ...)" in refused(home, code, "mian.py")
    (tmp_path / "a.zip").write_text("garbage")
    assert "a.zip is damaged or not an archive" in refused(home, tmp_path / "a.zip", "x.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_code_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "a.py").chmod(0)
    assert "cannot be read: permission denied" in refused(home, tmp_path / "a.py")


def test_missing_code_is_reported(home: Home) -> None:
    with pytest.raises(InvalidInput, match="the stored code abcdef012345 is missing"):
        load_ref(home, "abcdef0123456789", "a.py")


def test_missing_code_is_reported_when_it_is_placed(home: Home, tmp_path: Path, code: Path) -> None:
    (tmp_path / "a.py").write_text("")
    for ref in (
        store_artifact(home, tmp_path / "a.py", None),
        store_artifact(home, code, "main.py"),
    ):
        remove_artifact(home, ref.sha256)
        with pytest.raises(InvalidInput, match=r"is missing from .*run the job's file again"):
            place_artifact(home, ref, tmp_path)


def test_truncated_code_is_stored_again(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('complete')\n")
    ref = store_artifact(home, tmp_path / "a.py", None)
    path = home.artifact(ref.sha256)
    path.chmod(0o600)
    path.write_text("pri")
    assert store_artifact(home, tmp_path / "a.py", None) == ref
    assert path.read_text() == "print('complete')\n"
    assert path.stat().st_mode & 0o777 == 0o400


def test_known_code_is_not_written_again(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    path = home.artifact(store_artifact(home, tmp_path / "a.py", None).sha256)
    before = path.stat()
    store_artifact(home, tmp_path / "a.py", None)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_pipes_loops_and_dangling_links_are_refused(home: Home, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert "DIR/pipe.py is neither a file nor a folder" in refused(home, tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert "loop.py cannot be stored: Too many levels" in refused(home, tmp_path / "loop.py")
    (tmp_path / "dangling.py").symlink_to("nope.py")
    assert "DIR/dangling.py not found" in refused(home, tmp_path / "dangling.py")


def test_code_that_is_too_large_is_refused(
    home: Home, tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "big.py", "wb") as file:
        file.truncate((4 << 30) + (200 << 20))
    assert "big.py has 4.2GiB; at most 4GiB are allowed" in refused(home, tmp_path / "big.py")
    monkeypatch.setattr(code_checks, "MAX_SIZE", 10)
    assert "at most 10B" in refused(home, code, "main.py")


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS"])
def test_a_full_disk_is_reported(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    def full(fd: int) -> None:
        code = getattr(artifacts.errno, number)
        raise OSError(code, os.strerror(code))

    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"cannot store code in .*free some space") as caught:
        store_artifact(home, tmp_path / "a.py", None)
    assert str(home.artifacts) in str(caught.value)
    assert stored_files(home) == []


def test_a_home_that_was_removed_is_reported(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    shutil.rmtree(home.artifacts)
    with pytest.raises(StoreError, match=r"cannot store code in .*: No such file"):
        store_artifact(home, tmp_path / "a.py", None)


def test_programs_in_a_zip_are_made_executable(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("tool", "#!/bin/sh\necho ran\n")
        packed.writestr("data.bin", "x")
    assert "do not know how to run data.bin" in refused(home, path, "data.bin")
    ref = store_artifact(home, path, "tool")
    assert run_here(home, ref, "tool", tmp_path / "w") == "ran\n"


def test_an_entry_point_of_an_unknown_kind_is_refused(home: Home, code: Path) -> None:
    (code / "data.bin").write_text("x")
    assert "do not know how to run data.bin" in refused(home, code, "data.bin")


def test_an_entry_point_may_start_with_the_name_of_the_folder(
    home: Home, tmp_path: Path, code: Path
) -> None:
    """OCI writes it that way; a folder is packed without its own name."""
    (code / "main.py").write_text("print('ran')\n")
    ref = store_artifact(home, code, "code/main.py")
    assert run_here(home, ref, "code/main.py", tmp_path / "w") == "ran\n"


def test_an_entry_point_outside_is_refused(home: Home, tmp_path: Path, code: Path) -> None:
    (tmp_path / "w").mkdir()
    for entry in ("../code/main.py", str(code / "main.py")):
        assert f"entrypoint: {entry} is not in".replace(str(tmp_path), "DIR") in refused(
            home, code, entry
        )
        ref = ArtifactRef("0" * 64, "code.tar", "archive", 0)
        with pytest.raises(InvalidInput, match="is not in the unpacked code"):
            entry_command(ref, entry, sys.executable, tmp_path / "w")


def test_jars_that_cannot_be_run_are_refused(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.jar"
    path.write_text("garbage")
    assert "a.jar is damaged or not a JAR" in refused(home, path)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    assert "a.jar does not name a main class (give the main class" in refused(home, path)


def test_a_file_that_is_not_a_java_class_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "A.class").write_text("garbage")
    assert "A.class is damaged or not a Java class" in refused(home, tmp_path / "A.class")


def test_single_files_import_no_archive_modules() -> None:
    """Every run stores code; importing the readers of archives would take longer than the run."""
    code = (
        "import sys, muster.storage.artifacts\n"
        "heavy = {'tarfile', 'zipfile', 'pathspec', 'shutil', 'tempfile', 'hashlib', 'fsspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
