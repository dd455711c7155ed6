"""Hints about files that a program did not find because they were not stored with the job."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.describe.missing_files import hint_for
from muster.plan.model import UnsentFiles
from muster.storage import unsent_files as module
from muster.storage.artifacts import store_artifact
from muster.storage.home import Home
from muster.storage.script_modules import store_code
from muster.storage.unsent_files import unsent_files

UNSENT = UnsentFiles(
    "/home/me/my code", "dyn.py", ("cfg.py", "data", "data.csv", "other.py"), ("cfg.py",)
)
COMMAND = "`muster run '/home/me/my code' --entrypoint dyn.py` stores the whole folder"


@pytest.mark.parametrize(
    ("message", "entry"),
    [
        ("ModuleNotFoundError: No module named 'other'", "other.py"),
        ("ModuleNotFoundError: No module named 'other.deep'; 'other' is not a package", "other.py"),
        ("/usr/bin/python: No module named other", "other.py"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "data.csv"),
        ("FileNotFoundError: [Errno 2] No such file or directory: b'./data.csv'", "data.csv"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x/y.csv'", "data"),
        ("No such file or directory: '/h/runs/abc/nodes/0/work/data.csv'", "data.csv"),
        ("cat: data.csv: No such file or directory", "data.csv"),
        ("cat: 'data.csv': No such file or directory", "data.csv"),
        ("train.sh: line 1: ./data.csv: No such file or directory", "data.csv"),
        ("ModuleNotFoundError: No module named 'numpy'", ""),
        ("No such file or directory: '/data/x.csv'", ""),
        ("No such file or directory: '/elsewhere/data.csv'", ""),
        ("ValueError: data.csv", ""),
        ("", ""),
    ],
)
def test_a_missing_file_is_named(message: str, entry: str) -> None:
    text = f"{entry} is next to dyn.py and was not stored with the job: {COMMAND}" if entry else ""
    assert hint_for(UNSENT, f"Traceback\n{message}", "abc") == text


def test_ignored_files_are_not_sent_with_the_folder() -> None:
    hint = hint_for(UNSENT, "No module named 'cfg'", "abc")
    assert (
        "cfg.py is next to dyn.py and was not stored with the job: "
        "delete the line in its .musterignore" in hint
    )
    assert "--entrypoint" not in hint


def test_a_mounted_folder_is_named_by_its_path_in_the_node() -> None:
    message = "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'"
    hint = hint_for(UNSENT, message, "abc", {"/mnt/data": "MUSTER_MOUNT_DATA"})
    assert hint == "data is mounted at /mnt/data: use that path or $MUSTER_MOUNT_DATA"
    assert hint_for(UNSENT, message, "abc", {"/mnt/other": "MUSTER_MOUNT_OTHER"}).endswith(COMMAND)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / ".gitignore").write_text("cfg.py\n")
    (code / "train.py").write_text("import near, cfg\n__import__('oth' + 'er')")
    for name in ("near.py", "cfg.py", "other.py", "data.csv"):
        (code / name).touch()
    return code


def test_files_that_are_not_sent_are_recorded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    code, _ = store_code(home, folder / "train.py", None)
    names = ("cfg.py", "other.py", ".gitignore", "data.csv")
    assert unsent_files(home, folder / "train.py", code) == UnsentFiles(
        str(folder), "train.py", names, ("cfg.py",)
    )
    single = store_artifact(home, folder / "near.py", None)
    unsent = unsent_files(home, folder / "near.py", single)
    assert unsent is not None
    assert "train.py" in unsent.names
    packed = store_artifact(home, folder, "train.py")
    only = UnsentFiles(str(folder), "", ("cfg.py",), ("cfg.py",))
    assert unsent_files(home, folder, packed) == only
    monkeypatch.setattr(module, "_MAX_NAMES", 2)
    bounded = unsent_files(home, folder / "train.py", code)
    assert bounded is not None
    assert bounded.names == names[:2]
    assert unsent_files(home, folder / "missing" / "train.py", code) is None


def test_a_failed_run_has_a_hint_about_a_missing_file(folder: Path) -> None:
    run = muster.run(folder / "train.py", nodes=1).wait()
    assert run.cause is not None
    assert run.cause["hint"].startswith(
        "cfg.py is next to train.py and was not stored with the job"
    )
    assert run.cause["hint"] in run.why()
    (folder / ".gitignore").unlink()
    run = muster.run(folder / "train.py", nodes=1).wait()
    assert run.hint == (
        "other.py is next to train.py and was not stored with the job: "
        f"`muster run {folder} --entrypoint train.py` stores the whole folder"
    )
    assert muster.run(folder, entrypoint="train.py", nodes=1).wait().state == "SUCCEEDED"


def test_hints_name_the_folder_of_their_own_submission(folder: Path, tmp_path: Path) -> None:
    muster.run(folder / "train.py", nodes=1).wait()
    copy = tmp_path / "other" / "code"  # the folder's name is part of what is stored
    copy.parent.mkdir()
    folder.rename(copy)
    run = muster.run(copy / "train.py", nodes=1).wait()
    assert run.hint.startswith("cfg.py is next to train.py")
    assert run.spec["artifact"] == str(copy / "train.py")
