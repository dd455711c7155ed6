"""Code that is stored but not recorded yet, while other processes discard the same code."""

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
from support.embedded import embedded


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """Two clients that share no state, like two processes."""
    (tmp_path / "code.py").write_text("print('hello')\n")
    pair = Client(tmp_path / "home"), Client(tmp_path / "home")
    yield pair
    for client in pair:
        embedded(client).close()


def prepare_job(client: Client, tmp_path: Path, name: str) -> JobRecord:
    fields = {"name": name, "artifact": str(tmp_path / "code.py")}
    prepared = embedded(client).prepare_job(spec_from_mapping(fields))
    assert prepared.new
    return prepared.record


def stored(home: Home) -> list[Path]:
    return [path for path in home.artifacts.rglob("*") if path.is_file()]


def test_code_of_a_prepared_job_outlives_a_discard_by_another_client(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    ours, theirs = clients
    job = prepare_job(ours, tmp_path, "ours")
    embedded(theirs).discard(prepare_job(theirs, tmp_path, "theirs"))
    assert stored(embedded(ours).home), "the first client's job needs it too"
    run = ours.start(ours.prepare_run(job, new_job=True)).wait(60)
    assert run.state == "SUCCEEDED", run.details


def test_code_that_no_job_needs_is_deleted(clients: tuple[Client, Client], tmp_path: Path) -> None:
    ours, theirs = clients
    for client in (ours, theirs, ours):
        embedded(client).discard(prepare_job(client, tmp_path, "discarded"))
        assert stored(embedded(client).home) == []
    kept, other = prepare_job(ours, tmp_path, "kept"), prepare_job(ours, tmp_path, "other")
    embedded(ours).discard(other)
    assert stored(embedded(ours).home), "another job of the same client needs it"
    ours.start(ours.prepare_run(kept, new_job=True)).wait(60)
    embedded(theirs).discard(prepare_job(theirs, tmp_path, "theirs"))
    assert stored(embedded(ours).home), "a recorded job needs it"


STORE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from muster.client.client import Client
from muster.spec.reader import spec_from_mapping
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
fields = {"name": "killed", "artifact": sys.argv[2]}
Client(Path(sys.argv[1])).api.prepare_job(spec_from_mapping(fields))
"""


def test_partial_files_of_killed_processes_are_removed(
    clients: tuple[Client, Client], tmp_path: Path
) -> None:
    ours, theirs = clients
    home = embedded(ours).home
    argv = [sys.executable, "-c", STORE_AND_DIE, str(home.root), str(tmp_path / "code.py")]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    (left,) = stored(home)
    assert left.name.startswith(".part-")
    job = prepare_job(ours, tmp_path, "ours")
    assert not left.exists()
    being_written = home.artifacts / f".part-{os.getpid()}-other"
    being_written.touch()  # of a process that is still storing code
    embedded(theirs).discard(prepare_job(theirs, tmp_path, "theirs"))
    assert being_written.exists()
    embedded(ours).discard(job)
