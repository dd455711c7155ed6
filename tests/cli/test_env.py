"""`muster env`, on environments that are there without anything having been installed."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.env import env
from muster.errors import InvalidInput


def make(home: Path, key: str, *, days: float = 0, whole: bool = True) -> Path:
    folder = home / "environments" / key
    (folder / "env").mkdir(parents=True)
    (folder / "env" / "file").write_bytes(bytes(1 << 20))
    if whole:
        about = {"requirements": ["numpy==2"], "conda": False, "python": "3.11", "created": 1.0}
        (folder / "about").write_text(json.dumps(about))
        then = (folder / "about").stat().st_mtime - days * 86400
        os.utime(folder / "about", (then, then))
    return folder


def call(*words: str) -> tuple[str, str]:
    done = CliRunner().invoke(env, words, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, done.stderr


def test_list(own_home: Path) -> None:
    assert call("list") == ("", "no environments\n")
    make(own_home, "aa", days=2)
    make(own_home, "bb", whole=False)
    out, _ = call("list")
    head, first, second = out.splitlines()
    assert head.split() == ["KEY", "PYTHON", "STATE", "SIZE", "USED", "WHAT"]
    assert first.split() == ["aa", "3.11", "ready", "1", "MiB", "2d", "ago", "numpy==2"]
    assert second.split()[:3] == ["bb", "-", "half-made"]
    found = json.loads(call("list", "--json")[0])
    assert [(one["key"], one["ready"], one["created"]) for one in found] == [
        ("aa", True, "1970-01-01T00:00:01.000000Z"),
        ("bb", False, None),
    ]


def test_prune_takes_what_is_old_and_half_made(own_home: Path) -> None:
    old, new = make(own_home, "old", days=31), make(own_home, "new", days=29)
    half = make(own_home, "half", whole=False)
    _, err = call("prune")
    assert sorted(err.splitlines()) == ["2 MiB freed", "pruned half", "pruned old"]
    assert [path.exists() for path in (old, new, half)] == [False, True, False]
    call("prune", "--older-than", "7d")
    assert not new.exists()


def test_one_word_for_pruning() -> None:
    for command in ((), ("prune",)):
        out, _ = call(*command, "--help")
        assert "rune" in out
        assert "emove" not in out


def test_prune_some_and_all(own_home: Path) -> None:
    kept, gone = make(own_home, "aa"), make(own_home, "bb")
    call("prune", "bb")
    assert (kept.exists(), gone.exists()) == (True, False)
    with pytest.raises(InvalidInput, match="there is no environment ab"):
        CliRunner().invoke(env, ["prune", "ab"], catch_exceptions=False)
    call("prune", "--all")
    assert not kept.exists()


def test_what_is_in_use_stays(own_home: Path) -> None:
    folder = make(own_home, "aa", days=100)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert call("prune", "--all")[1] == "aa is in use and stays\n0 MiB freed\n"
        assert "in use" in call("list")[0]
    assert folder.exists()
    call("prune")
    assert not folder.exists()
