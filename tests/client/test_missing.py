"""A program that looks in vain for what lay beside its code."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.client.missing import hint_for
from muster.plan.model import LeftBehind
from muster.storage import left_behind as module
from muster.storage.artifacts import store_artifact
from muster.storage.home import Home
from muster.storage.left_behind import left_behind
from muster.storage.neighbours import store_code

LEFT = LeftBehind(
    "/home/me/my code", "dyn.py", ("cfg.py", "data", "data.csv", "other.py"), ("cfg.py",)
)
SENDS = "`muster run '/home/me/my code' --entrypoint dyn.py` sends the folder"


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
def test_what_was_missed_is_named(message: str, entry: str) -> None:
    text = f"{entry} lies beside dyn.py and was not sent: {SENDS}" if entry else ""
    assert hint_for(LEFT, f"Traceback\n{message}", "abc") == text


def test_what_an_ignore_file_keeps_back_is_not_sent_with_the_folder_either() -> None:
    said = hint_for(LEFT, "No module named 'cfg'", "abc")
    assert "cfg.py lies beside dyn.py and was not sent: .musterignore" in said
    assert "--entrypoint" not in said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / ".gitignore").write_text("cfg.py\n")
    (code / "train.py").write_text("import near, cfg\n__import__('oth' + 'er')")
    for name in ("near.py", "cfg.py", "other.py", "data.csv"):
        (code / name).touch()
    return code


def test_what_is_recorded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    code, _ = store_code(home, folder / "train.py", None)
    names = ("cfg.py", "other.py", ".gitignore", "data.csv")
    assert left_behind(home, folder / "train.py", code) == LeftBehind(
        str(folder), "train.py", names, ("cfg.py",)
    )
    single = store_artifact(home, folder / "near.py", None)
    kept = left_behind(home, folder / "near.py", single)
    assert kept is not None
    assert "train.py" in kept.names
    whole = store_artifact(home, folder, "train.py")
    only = LeftBehind(str(folder), "", ("cfg.py",), ("cfg.py",))
    assert left_behind(home, folder, whole) == only
    monkeypatch.setattr(module, "_MOST", 2)
    bounded = left_behind(home, folder / "train.py", code)
    assert bounded is not None
    assert bounded.names == names[:2]
    assert left_behind(home, folder / "gone" / "train.py", code) is None


def test_the_run_says_what_to_do(folder: Path) -> None:
    run = muster.run(folder / "train.py", nodes=1).wait()
    assert run.cause is not None
    assert run.cause["hint"].startswith("cfg.py lies beside train.py and was not sent")
    assert run.cause["hint"] in run.why()
    (folder / ".gitignore").unlink()
    run = muster.run(folder / "train.py", nodes=1).wait()
    assert run.hint == (
        "other.py lies beside train.py and was not sent: "
        f"`muster run {folder} --entrypoint train.py` sends the folder"
    )
    assert muster.run(folder, entrypoint="train.py", nodes=1).wait().state == "SUCCEEDED"


def test_the_folder_is_the_one_of_this_submission(folder: Path, tmp_path: Path) -> None:
    muster.run(folder / "train.py", nodes=1).wait()
    copy = tmp_path / "other" / "code"  # the folder's name is part of what is stored
    copy.parent.mkdir()
    folder.rename(copy)
    run = muster.run(copy / "train.py", nodes=1).wait()
    assert run.hint.startswith("cfg.py lies beside train.py")
    assert run.spec["artifact"] == str(copy / "train.py")
