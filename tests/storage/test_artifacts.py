"""Storing code, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.storage.artifacts import (
    ArtifactRef,
    entry_command,
    load_ref,
    place_artifact,
    store_artifact,
    stored_path,
)
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


def test_same_content_is_stored_once_and_never_changed(home: Home, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("print(1)\n")
    first = store_artifact(home, tmp_path / "a.py", None)
    second = store_artifact(home, tmp_path / "b.py", None)
    assert first.sha256 == second.sha256
    assert (first.file_name, second.file_name) == ("a.py", "b.py")
    (path,) = stored_files(home)
    assert path == stored_path(home, first.sha256)
    assert path.stat().st_mode & 0o777 == 0o400
    assert load_ref(home, first.sha256, "a.py") == first


def test_many_at_once(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n" * 100_000)
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda _: store_artifact(home, path, None), range(16)))
    assert len(set(refs)) == 1
    assert len(stored_files(home)) == 1


def test_python_file(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('hi', __file__)\n")
    ref = store_artifact(home, tmp_path / "a.py", None)
    assert ref.kind == "python"
    assert run_here(home, ref, None, tmp_path / "w").startswith("hi")


def test_shell_script(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo hi from $0\n")
    ref = store_artifact(home, tmp_path / "a.sh", None)
    assert run_here(home, ref, None, tmp_path / "w") == "hi from a.sh\n"


def test_program_of_any_language(home: Home, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/usr/bin/env perl\nprint 'hi';\n")
    ref = store_artifact(home, tmp_path / "tool", None)
    assert run_here(home, ref, None, tmp_path / "w") == "hi"


def test_folder(home: Home, tmp_path: Path, code: Path) -> None:
    ref = store_artifact(home, code, "main.py")
    assert (ref.kind, ref.file_name) == ("archive", "code.tar")
    (code / "main.py").touch()
    assert store_artifact(home, code, "main.py").sha256 == ref.sha256, "times do not count"
    assert run_here(home, ref, "main.py", tmp_path / "w") == ""
    assert os.access(tmp_path / "w" / "run.sh", os.X_OK)
    (code / "main.py").write_text("changed\n")
    assert store_artifact(home, code, "main.py").sha256 != ref.sha256


@pytest.mark.parametrize("form", ["zip", "tar", "gztar", "bztar", "xztar"])
@pytest.mark.parametrize("layout", ["flat", "rooted"])
def test_archives_in_both_layouts(
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


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler on this machine")
def test_java(home: Home, tmp_path: Path) -> None:
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


def bad(home: Home, path: Path, entry: str | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        store_artifact(home, path, entry)
    assert stored_files(home) == [], "nothing is left of what was refused"
    return str(caught.value).replace(str(path.parent), "DIR")


def test_refusals(home: Home, tmp_path: Path, code: Path) -> None:
    assert "artifact: there is no DIR/nope.py" in bad(home, tmp_path / "nope.py")
    (tmp_path / "notes.txt").write_text("hello")
    assert "cannot tell how to run notes.txt" in bad(home, tmp_path / "notes.txt")
    shutil.copy("/bin/true", tmp_path / "prog")
    assert "run it as a command: muster run -- DIR/prog" in bad(home, tmp_path / "prog")
    (tmp_path / "a.py").write_text("")
    assert "entrypoint: a.py is a single file" in bad(home, tmp_path / "a.py", "b.py")
    assert "say which file to run; it holds lib/__init__.py, main.py, run.sh" in bad(home, code)
    assert "entrypoint: mian.py is not in" in bad(home, code, "mian.py")
    assert "it holds main.py" in bad(home, code, "mian.py")
    (tmp_path / "a.zip").write_text("garbage")
    assert "a.zip is damaged or no archive" in bad(home, tmp_path / "a.zip", "x.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "a.py").chmod(0)
    assert "cannot be read: permission denied" in bad(home, tmp_path / "a.py")


def test_code_that_is_gone(home: Home) -> None:
    with pytest.raises(InvalidInput, match="the stored code abcdef012345 is gone"):
        load_ref(home, "abcdef0123456789", "a.py")
