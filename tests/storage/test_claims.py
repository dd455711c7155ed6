"""Code that is stored and not recorded yet, while other processes discard theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.spec.reader import spec_from_mapping
from muster.storage.home import Home
from muster.store.records import JobRecord


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """Two that know nothing of each other, as two processes."""
    (tmp_path / "code.py").write_text("print('hello')\n")
    pair = Client(tmp_path / "home"), Client(tmp_path / "home")
    yield pair
    for client in pair:
        client.service.close()


def drafted(client: Client, tmp_path: Path, name: str) -> JobRecord:
    fields = {"name": name, "artifact": str(tmp_path / "code.py")}
    job, new = client.service.draft_job(spec_from_mapping(fields))
    assert new
    return job


def stored(home: Home) -> list[Path]:
    return [path for path in home.artifacts.rglob("*") if path.is_file()]


def test_code_of_a_draft_outlives_another_s_discard(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    ours, theirs = clients
    job = drafted(ours, tmp_path, "ours")
    theirs.service.discard(drafted(theirs, tmp_path, "theirs"))
    assert stored(ours.service.home), "it is ours as well, and not recorded yet"
    run = ours.start(ours.draft(job, new_job=True)).wait(60)
    assert run.state == "SUCCEEDED", run.details


def test_code_that_nobody_needs_is_deleted(clients: tuple[Client, Client], tmp_path: Path) -> None:
    ours, theirs = clients
    for client in (ours, theirs, ours):
        client.service.discard(drafted(client, tmp_path, "draft"))
        assert stored(client.service.home) == []
    kept, other = drafted(ours, tmp_path, "kept"), drafted(ours, tmp_path, "other")
    ours.service.discard(other)
    assert stored(ours.service.home), "another draft of the same process has it"
    ours.start(ours.draft(kept, new_job=True)).wait(60)
    theirs.service.discard(drafted(theirs, tmp_path, "theirs"))
    assert stored(ours.service.home), "it is recorded"


STORES = """
import os, signal, sys
from pathlib import Path
from muster.client.client import Client
from muster.spec.reader import spec_from_mapping
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
fields = {"name": "killed", "artifact": sys.argv[2]}
Client(Path(sys.argv[1])).service.draft_job(spec_from_mapping(fields))
"""


def test_what_a_killed_process_left_is_removed(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    ours, theirs = clients
    home = ours.service.home
    argv = [sys.executable, "-c", STORES, str(home.root), str(tmp_path / "code.py")]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    (left,) = stored(home)
    assert left.name.startswith(".part-")
    job = drafted(ours, tmp_path, "ours")
    assert not left.exists()
    being_written = home.artifacts / f".part-{os.getpid()}-other"
    being_written.touch()  # of another process that stores code now
    theirs.service.discard(drafted(theirs, tmp_path, "theirs"))
    assert being_written.exists()
    ours.service.discard(job)
