"""Which files are code: asked of git as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.storage.ignore import files_of

FILES = [
    "a.py",
    "a.log",
    "keep.log",
    "data/x.csv",
    "data/deep/y.csv",
    "sub/b.py",
    "sub/c.tmp",
    "sub/build/out.o",
    "build/out.o",
    "docs/build.md",
    "ünï/ö.py",
]
IGNORE = "*.log\n!keep.log\n/data/\nbuild/\n# a comment\n\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "sub" / ".gitignore").write_text("*.tmp\n")
    (root / ".gitignore").write_text(IGNORE)
    return root


def test_agrees_with_git(folder: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    command = [*git, "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert files_of(folder, tmp_path / "home") == sorted(listed.splitlines())


def test_own_file_goes_before_git_s(folder: Path, tmp_path: Path) -> None:
    (folder / ".musterignore").write_text("sub/\n*.md\n.*ignore\n")
    found = files_of(folder, tmp_path / "home")
    assert "data/x.csv" in found
    assert not [name for name in found if name.startswith(("sub", ".", "docs"))]


def test_what_is_never_code(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/a.pyc", ".venv/bin/python", "home/muster.db", "a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert files_of(tmp_path, tmp_path / "home") == ["a.py"]


def test_links(tmp_path: Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    (root / "a.py").write_text("x")
    (root / "inside").symlink_to("a.py")
    assert files_of(root, tmp_path / "home") == ["a.py", "inside"]
    (root / "outside").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="the link outside leads out of"):
        files_of(root, tmp_path / "home")
    (root / ".musterignore").write_text("outside\n.musterignore\n")
    assert files_of(root, tmp_path / "home") == ["a.py", "inside"]
