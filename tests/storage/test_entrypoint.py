"""The file that is run, and the command that runs it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.spec.kinds import kind_of
from muster.storage.entrypoint import class_name, command, locate


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.py", "python"),
        ("A.PY", "python"),
        ("a.sh", "shell"),
        ("a.tar.gz", "archive"),
        ("a.b.TGZ", "archive"),
        ("a.Zip", "archive"),
        ("a.jar", "jar"),
        ("A.class", "class"),
        ("py", None),
        ("a.txt", None),
        ("a.gz", None),
    ],
)
def test_the_kind_of_code_follows_from_its_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("entry", "files", "found"),
    [
        ("main.py", ["main.py"], "main.py"),
        ("./main.py", ["main.py"], "main.py"),
        ("pack/main.py", ["pack/main.py"], "pack/main.py"),
        ("main.py", ["pack/main.py"], "pack/main.py"),
        ("main.py", ["pack/main.py", "README", "__MACOSX/pack/._main.py"], "pack/main.py"),
        ("main.py", ["main.py", "pack/main.py"], "main.py"),
        ("pack/main.py", ["main.py"], "main.py"),
        ("other/main.py", ["main.py"], None),
        ("main.py", ["a/main.py", "b/main.py"], None),
        ("../main.py", ["main.py"], None),
        ("pack/../main.py", ["main.py"], None),
        ("/main.py", ["main.py"], None),
        ("nope.py", ["main.py"], None),
    ],
)
def test_the_entry_point_is_located_in_an_archive(
    entry: str, files: list[str], found: str | None
) -> None:
    roots = {name.partition("/")[0] for name in files if "/" in name}
    assert locate(entry, "pack.tar.gz", roots, set(files).__contains__) == found


@pytest.mark.shows("jobs/artifact-shell")
@pytest.mark.parametrize(
    ("line", "shell"),
    [
        ("", ["bash"]),
        ("echo", ["bash"]),
        ("#!/bin/sh", ["sh"]),
        ("#!/bin/bash -eu", ["bash", "-eu"]),
        ("#! /usr/bin/env bash", ["bash"]),
        ("#!/usr/bin/env -S bash -e -u", ["bash", "-e", "-u"]),
        ("#!/opt/zsh/bin/zsh", ["zsh"]),
        ("#!/usr/bin/env", ["bash"]),
        ("#!", ["bash"]),
        ("#!/usr/bin/python3", ["bash"]),
    ],
)
def test_the_shell_follows_from_the_first_line(tmp_path: Path, line: str, shell: list[str]) -> None:
    (tmp_path / "a.sh").write_text(f"{line}\n")
    assert command("shell", "a.sh", None, "py", tmp_path) == [*shell, "a.sh"]


def test_options_of_the_first_line_apply_to_the_script(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("#!/bin/sh -e\nfalse\necho continued\n")
    argv = command("shell", "a.sh", None, "py", tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_names_that_look_like_options_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "-c.sh").write_text("")
    assert command("python", "-c.py", None, "py", tmp_path) == ["py", "./-c.py"]
    assert command("shell", "-c.sh", None, "py", tmp_path) == ["bash", "./-c.sh"]
    assert command("program", "-c", None, "py", tmp_path) == ["./-c"]


@pytest.mark.parametrize("main", [None, "com.example.Main"])
def test_jars_are_run_by_manifest_or_main_class(tmp_path: Path, main: str | None) -> None:
    expected = ["java", "-cp", "a.jar", main] if main else ["java", "-jar", "a.jar"]
    assert command("jar", "a.jar", main, "py", tmp_path) == expected


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_not_a_java_class(data: bytes, magic: bool) -> None:
    with pytest.raises(InvalidInput, match="damaged or not a Java class"):
        class_name("A.class", b"\xca\xfe\xba\xbe" + data if magic else data)


JAVA = """package com.example;
public class Main {
    static final long BIG = 1L << 40; static final double HALF = 0.1; static String s = "\\u00fc";
    public static void main(String[] a) { System.out.println(BIG + HALF + s.length()); }
}
"""


@pytest.mark.shows("jobs/artifact-java")
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler on this machine")
def test_java_classes_in_packages_are_run_from_their_root(tmp_path: Path) -> None:
    (tmp_path / "Main.java").write_text(JAVA)
    out = tmp_path / "out"
    subprocess.run(["javac", "-d", out, tmp_path / "Main.java"], check=True)
    for name in ("out/com/example/Main.class", "com/example/Main.class"):
        argv = command("class", name, None, "py", folder := tmp_path if name[0] == "o" else out)
        assert argv[-1] == "com.example.Main"
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("1.0995")
    shutil.copy(out / "com/example/Main.class", tmp_path)
    with pytest.raises(InvalidInput, match=r"put it at com/example/Main.class below the root"):
        command("class", "Main.class", None, "py", tmp_path)
    whole = (out / "com/example/Main.class").read_bytes()
    for length in range(0, whole.index(b"BIG"), 7):
        with pytest.raises(InvalidInput, match="damaged or not a Java class"):
            class_name("Main.class", whole[:length])
