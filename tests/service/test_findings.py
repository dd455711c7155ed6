"""What `muster doctor` says of MUSTER_HOME. On other file systems: tests/store/sqlite."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.file_system import FileSystem
from muster.service import findings
from muster.service.findings import home_finding, key_findings
from muster.storage.home import Home


def test_a_home_that_does_not_exist_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "a" / "b"))
    found = home_finding()
    assert found.works
    assert found.says.startswith(f"{tmp_path / 'a' / 'b'} is on ")
    assert not (tmp_path / "a").exists()


def test_what_needs_the_host_of_a_run_is_named(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any host can follow, cancel, suspend, resume and scale a run."""
    shared = FileSystem("nfs4", "server:/export")
    monkeypatch.setattr(findings, "file_system_of", lambda path: shared)
    found = home_finding()
    assert found.works
    assert found.says == (
        f"{own_home} is on {shared}, which other hosts may use too: the database has a rollback "
        "journal, and exec, shell, cp, open, top, stacks and cancel --force work on the host of "
        "the run only"
    )
    assert list(own_home.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_reported(own_home: Path, mode: int) -> None:
    assert key_findings() == []
    key = Home(own_home).secret_key
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_text("key")
    key.chmod(0o600)
    assert key_findings() == []
    key.chmod(mode)
    (found,) = key_findings()
    assert not found.works
    assert found.says == (
        f"other users may read the key of your secrets: {key} has mode {mode:04o}"
    )
    assert found.advice == f"chmod 600 {key}"
