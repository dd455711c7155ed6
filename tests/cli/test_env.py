"""`muster env`, on environments created by hand, without installing anything."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.env import env
from muster.errors import InvalidInput
from muster.storage import environments

pytestmark = pytest.mark.embedded("environments are listed on the machine of the server")


def make(home: Path, key: str, *, days: float = 0, complete: bool = True) -> Path:
    folder = home / "environments" / key
    (folder / "env").mkdir(parents=True)
    (folder / "env" / "file").write_bytes(bytes(1 << 20))
    if complete:
        about = {"requirements": ["numpy==2"], "conda": False, "python": "3.11", "created": 1.0}
        (folder / "about").write_text(json.dumps(about))
        then = (folder / "about").stat().st_mtime - days * 86400
        os.utime(folder / "about", (then, then))
    return folder


def call(*words: str) -> tuple[str, str]:
    done = CliRunner().invoke(env, words, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, done.stderr


def test_environments_are_listed(own_home: Path) -> None:
    assert call("list") == ("", "no environments\n")
    make(own_home, "aa", days=2)
    make(own_home, "bb", complete=False)
    out, _ = call("list")
    head, first, second = out.splitlines()
    assert head.split() == ["KEY", "PYTHON", "STATE", "SIZE", "USED", "WHAT"]
    assert first.split() == ["aa", "3.11", "ready", "1MiB", "2d", "ago", "numpy==2"]
    assert second.split()[:3] == ["bb", "-", "incomplete"]
    found = json.loads(call("list", "--json")[0])
    assert [(one["key"], one["ready"], one["created"]) for one in found] == [
        ("aa", True, "1970-01-01T00:00:01.000000Z"),
        ("bb", False, None),
    ]


def test_an_environment_whose_description_is_cut_off_is_incomplete(own_home: Path) -> None:
    cut = make(own_home, "cut")
    (cut / "about").write_text("")
    assert call("list")[0].splitlines()[1].split()[:3] == ["cut", "-", "incomplete"]
    call("prune")
    assert not cut.exists()


def test_an_environment_that_cannot_be_deleted_is_an_error(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError(13, "Permission denied", "x")

    make(own_home, "old", days=31)
    monkeypatch.setattr(environments, "remove", refuse)
    done = CliRunner().invoke(env, ["prune"], catch_exceptions=False)
    assert done.exit_code == 4
    assert done.stderr.startswith("error: old: ")


def test_prune_deletes_old_and_incomplete_environments(own_home: Path) -> None:
    old, new = make(own_home, "old", days=31), make(own_home, "new", days=29)
    half = make(own_home, "half", complete=False)
    _, err = call("prune")
    assert sorted(err.splitlines()) == ["2MiB freed", "deleted half", "deleted old"]
    assert [path.exists() for path in (old, new, half)] == [False, True, False]
    call("prune", "--older-than", "7d")
    assert not new.exists()


def test_an_invalid_age_is_reported_with_its_option(own_home: Path) -> None:
    with pytest.raises(InvalidInput, match="--older-than: 'soon' is neither a duration"):
        CliRunner().invoke(env, ["prune", "--older-than", "soon"], catch_exceptions=False)


def test_help_says_prune_and_not_remove() -> None:
    for command in ((), ("prune",)):
        out, _ = call(*command, "--help")
        assert "rune" in out
        assert "emove" not in out


def test_prune_deletes_named_or_all_environments(own_home: Path) -> None:
    kept, pruned = make(own_home, "aa"), make(own_home, "bb")
    call("prune", "bb")
    assert (kept.exists(), pruned.exists()) == (True, False)
    with pytest.raises(InvalidInput, match="no environment named 'ab"):
        CliRunner().invoke(env, ["prune", "ab"], catch_exceptions=False)
    call("prune", "--all")
    assert not kept.exists()


def test_environments_in_use_are_kept(own_home: Path) -> None:
    folder = make(own_home, "aa", days=100)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert call("prune", "--all")[1] == "aa is in use and is kept\n0B freed\n"
        assert "in use" in call("list")[0]
    assert folder.exists()
    call("prune")
    assert not folder.exists()
