"""Which files are code, compared with git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.storage import ignore
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


def test_the_files_agree_with_git(folder: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    command = [*git, "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert files_of(folder, tmp_path / "home") == sorted(listed.splitlines())


def test_musterignore_takes_precedence_over_gitignore(folder: Path, tmp_path: Path) -> None:
    (folder / ".musterignore").write_text("sub/\n*.md\n.*ignore\n")
    found = files_of(folder, tmp_path / "home")
    assert "data/x.csv" in found
    assert not [name for name in found if name.startswith(("sub", ".", "docs"))]


def test_caches_environments_and_the_home_are_not_code(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/a.pyc", ".venv/bin/python", "home/muster.db", "a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert files_of(tmp_path, tmp_path / "home") == ["a.py"]


def test_links_to_the_outside_are_refused_unless_ignored(tmp_path: Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    (root / "a.py").write_text("x")
    (root / "inside").symlink_to("a.py")
    assert files_of(root, tmp_path / "home") == ["a.py", "inside"]
    (root / "outside").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="the link outside points outside"):
        files_of(root, tmp_path / "home")
    (root / ".musterignore").write_text("outside\n.musterignore\n")
    assert files_of(root, tmp_path / "home") == ["a.py", "inside"]


def test_negated_rules_do_not_include_caches_or_environments(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("!__pycache__/\n!.git\n!.venv/\n!odd/\n")
    for name in ("__pycache__/a.pyc", ".venv/x", "odd/pyvenv.cfg", "odd/x.py", "env/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".git").write_text("gitdir: elsewhere")  # as in a worktree
    assert files_of(tmp_path, tmp_path / "home") == [".gitignore", "env/x.py"]


def test_the_home_is_left_out_whichever_path_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "code" / "state").mkdir(parents=True)
    (tmp_path / "code" / "state" / "muster.db").write_text("x")
    (tmp_path / "code" / "a.py").write_text("x")
    (tmp_path / "link").symlink_to("code")
    for folder in ("code", "link"):
        for home in ("code/state", "link/state"):
            assert files_of(tmp_path / folder, tmp_path / home) == ["a.py"]


def test_loops_and_dangling_links_are_kept_and_links_up_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loop").symlink_to("loop")
    (tmp_path / "code" / "self").symlink_to(".")
    (tmp_path / "code" / "dangling").symlink_to("nope")
    assert files_of(tmp_path / "code", tmp_path) == ["dangling", "loop", "self"]
    (tmp_path / "code2").mkdir()
    (tmp_path / "code" / "sibling").symlink_to("../code2")
    with pytest.raises(InvalidInput, match="the link sibling points outside"):
        files_of(tmp_path / "code", tmp_path)


def test_pipes_are_not_code(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.py").write_text("x")
    assert files_of(tmp_path, tmp_path / "home") == ["a.py"]


def test_deeply_nested_folders_are_searched(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(1500):  # more than Python's recursion limit
        deep = deep / "d"
        os.mkdir(deep)
    (deep / "f").write_text("x")
    try:
        (found,) = files_of(tmp_path, tmp_path / "home")
        assert found.count("/") == 1500
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignore, "MAX_FILES", 2)
    for name in "ab":
        (tmp_path / name).write_text("x")
    assert len(files_of(tmp_path, tmp_path / "home")) == 2
    (tmp_path / "c").write_text("x")
    with pytest.raises(InvalidInput, match=r"more than 2 files .*\.musterignore, or mount them"):
        files_of(tmp_path, tmp_path / "home")


TREE = ["a", "b.py", "c c", "a.d/a", "a.d/b.py", "a.d/e/a", "a.d/e/f.log", "e/a.d/x", "e/b.py", "#"]
WORDS = ["a", "b.py", "a.d", "e", "*", "**", "*.py", "?", "a*", "[ab]", "[!a]*", "x", "f.log", "#"]
LINES = st.one_of(
    st.builds(
        lambda bang, lead, parts, tail: bang + lead + "/".join(parts) + tail,
        st.sampled_from(["", "", "!", "\\"]),
        st.sampled_from(["", "/", "**/"]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
        st.sampled_from(["", "/", "/**", " ", "\\ ", "\r"]),
    ),
    st.text("a*?[]!/#\\ b.-:^", max_size=7),
    st.sampled_from(
        [
            "[[:alpha:]]*",
            "[![:alpha:]]",
            "[[:nope:]]",
            "[[:",
            "a.d/e**/f.log",
            "**.py",
            "[b-a]",
            "[!b-a]*",
        ]
    ),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git on this machine")
@settings(max_examples=150, deadline=None)
@given(top=st.lists(LINES, max_size=4), nested=st.lists(LINES, max_size=2), bom=st.booleans())
@example(top=[], nested=["*", "![!a]*"], bom=False)
@example(top=["*.py", "!a.d"], nested=[], bom=False)
@example(top=["a.d/*", "!a.d/e"], nested=["f.log"], bom=False)
@example(top=["a[", "\\"], nested=[], bom=True)
def test_any_rules_agree_with_git(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], nested: list[str], bom: bool
) -> None:
    root = tmp_path_factory.mktemp("git")
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    mark = b"\xef\xbb\xbf" if bom else b""
    (root / ".gitignore").write_bytes(mark + "\n".join(top).encode())
    (root / "a.d" / ".gitignore").write_bytes("\n".join(nested).encode())
    subprocess.run(["git", "-C", root, "init", "-q"], check=True)
    names = [*TREE, ".gitignore", "a.d/.gitignore"]
    request = "\0".join(names).encode()
    # without the rules of the user (`core.excludesFile`)
    command = ["git", "-C", root, "-c", "core.excludesFile=", "check-ignore", "-z", "--stdin"]
    done = subprocess.run(command, input=request, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    ignored = set(done.stdout.decode().split("\0"))
    assert files_of(root, root / "home") == sorted(set(names) - ignored), (top, nested)
