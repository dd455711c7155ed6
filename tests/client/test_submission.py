"""What a run starts from comes with its submission, not from the process that serves it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import stored_submission
from muster.storage.home import Home
from muster.submission import Submission, of_this_process
from support.embedded import embedded
from support.runs import output_of_success

PROGRAM = """
import os, sys
print(os.environ.get("OURS"), os.environ.get("THEIRS"), os.environ["MARK"])
"""


def submitter(folder: Path, **variables: str) -> Submission:
    """A submitter whose Python sets MARK to the name of its folder."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nMARK={folder.name} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return Submission(environ, str(python), folder)


def start(client: Client, program: Path, **fields: object) -> JobRun:
    job, new = client.job(program, **fields)
    return client.start(client.prepare_run(job, new_job=new))


def test_clients_of_one_process_submit_from_different_places(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "of the process")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    one = Client(own_home, submission=submitter(tmp_path / "one", THEIRS="1"))
    two = Client(own_home, submission=submitter(tmp_path / "two", THEIRS="2"))
    first, second = start(one, program), start(two, program)
    assert output_of_success(first) == ["None 1 one"]
    assert output_of_success(second) == ["None 2 two"]

    # a resumed run starts from where it is resumed
    suspended = start(one, program, suspend=True)
    resumed = two.run(suspended.id)
    resumed.resume()
    assert output_of_success(resumed) == ["None 2 two"]
    for client in (one, two):
        client.close()


def test_programs_are_looked_up_where_the_submitter_is(own_home: Path, tmp_path: Path) -> None:
    there = submitter(tmp_path / "there")
    only_there = tmp_path / "there" / "bin" / "only-there"
    only_there.write_text("#!/bin/sh\necho found\n")
    only_there.chmod(0o755)
    with Client(own_home, submission=there) as theirs:
        job, new = theirs.job(command=["only-there"])
        assert output_of_success(theirs.start(theirs.prepare_run(job, new_job=new))) == ["found"]
    with Client(own_home) as ours:
        prepared = ours.prepare_run(job)
        assert prepared.missing[0].message == "there is no program only-there on PATH"


def test_relative_paths_of_an_edit_are_the_submitters(own_home: Path, tmp_path: Path) -> None:
    there = submitter(tmp_path / "there")
    (tmp_path / "there" / "data").mkdir()
    with Client(own_home, submission=there) as client:
        job, _ = client.job(command=["true"], mounts=[{"source": "/tmp", "path": "/m"}])
        created = embedded(client).create_job(job)
        edited = embedded(client).edit_job(created.id, ["mounts[0].source=data"])
        assert edited.spec["mounts"][0]["source"] == str(tmp_path / "there" / "data")


def test_a_recovery_gets_the_stored_environment_and_interpreter(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = home.run_dir("r1")
    folder.path.mkdir(parents=True)
    assert stored_submission.read(home, "r1") is None, "the file is gone"
    stored_submission.store(home, "r1", {"A": "1", "B": "\udcff\n"}, "/opt/python")
    stored = stored_submission.read(home, "r1")
    assert stored == Submission({"A": "1", "B": "\udcff\n"}, "/opt/python", home.root)
    folder.environ.write_bytes(b"A=1\0")  # of an earlier version
    stored = stored_submission.read(home, "r1")
    assert stored is not None
    assert (stored.environ, stored.python) == ({"A": "1"}, sys.executable)


def test_a_process_in_a_deleted_folder_can_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    folder.rmdir()
    assert of_this_process().folder == folder
