"""`muster disk` and `muster prune`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.control.run_lock import is_held
from muster.errors import InvalidInput
from muster.spec.overrides import Changes
from support.command import json_of, output_of
from support.command import muster as command
from support.embedded import embedded
from support.faults import until

_NOTHING = Changes()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)\n")
    (folder / "data").write_bytes(os.urandom(300_000))
    return folder


def stored(home: Path) -> list[str]:
    """The versions of code, and the contents in them."""
    return sorted(str(path.name) for path in (home / "artifacts").glob("*/*/code/*"))


def test_ended_runs_are_deleted_and_others_stay(client: Client, own_home: Path) -> None:
    ended = [muster.run(command="true").wait(60) for _ in range(3)]
    alive = muster.run(command=["sleep", "1000"])
    suspended = muster.run(command="true", suspend=True)
    assert output_of("prune", "--dry-run") == "nothing to delete\n"  # not 7 days old
    names = ", ".join(run.name for run in reversed(ended[:2]))
    shown = output_of("prune", "--keep", "1", "--dry-run").splitlines()
    assert shown[0] == f"would delete 2 runs: {names}"
    assert shown[1].startswith("would free ")
    assert len(client.runs()) == 5
    refused = command("prune", "--keep", "1", code=2, stdin=-3)
    assert "no terminal to confirm on (add --yes)" in refused.stderr
    lines = output_of("prune", "--keep", "1", "--yes").splitlines()
    assert lines[0] == f"deleted 2 runs: {names}"
    assert lines[1] == shown[1].replace("would free ", "") + " freed"
    assert {run.id for run in client.runs()} == {ended[2].id, alive.id, suspended.id}
    folders = {path.name for path in (own_home / "runs").iterdir()}
    assert {alive.id, ended[2].id} <= folders and not {ended[0].id, ended[1].id} & folders
    found = muster.prune(keep=0)
    assert found.runs == (ended[2].name,) and not found.dry_run
    alive.cancel().wait(60)


@pytest.mark.embedded("a client of a server keeps code in the same MUSTER_HOME here")
def test_code_that_no_job_has_is_deleted_and_shared_code_stays(
    client: Client, own_home: Path, code: Path
) -> None:
    job = muster.create_job(code, entrypoint="main.py", name="one")
    (code / "main.py").write_text("print(2)\n")
    other = muster.create_job(code, entrypoint="main.py", name="one")
    assert len(stored(own_home)) == 4
    found = client.prune()
    assert (found.code, found.leftovers, found.freed) == (0, 0, 0)
    objects = own_home / "artifacts" / "objects"
    job.delete()
    assert stored(own_home) == ["data", "main.py"], "deleting frees at once"
    assert len([*objects.glob("*/*")]) == 2
    with (
        embedded(client).context.backend.store.database.transaction() as connection
    ):  # as if the deletion was interrupted
        connection.execute("UPDATE jobs SET state = 'DELETED'")
    (item,) = [one for one in client.disk() if one.kind == "code"]
    assert item.count == 1 and item.prunable >= 300_000
    found = client.prune()
    assert found.code == 1 and found.freed >= 300_000
    assert stored(own_home) == [] and [*objects.glob("*/*")] == []
    assert other.state == "ACTIVE"  # as it was read


def test_what_killed_processes_left_is_deleted(client: Client, own_home: Path) -> None:
    muster.run(command="true").wait(60)
    part = own_home / "artifacts" / ".part-1-dead" / "code"
    part.mkdir(parents=True)
    (part / "file").write_bytes(bytes(10_000))
    orphan = own_home / "runs" / "orphan"
    orphan.mkdir()
    recent = own_home / "runs" / "recent"
    recent.mkdir()
    checkout = own_home / "checkouts" / "dead"
    checkout.mkdir(parents=True)
    os.utime(orphan, (1, time.time() - 7200))
    (own_home / "digests").mkdir()
    for name, days in (("old", 31), ("new", 29)):
        (own_home / "digests" / name).touch()
        os.utime(own_home / "digests" / name, (1, time.time() - days * 86400))
    (left,) = (one for one in client.disk() if one.kind == "temporary")
    assert left.prunable >= 10_000
    assert client.prune().leftovers == 3
    assert [path.name for path in (own_home / "digests").iterdir()] == ["new"]
    assert not part.parent.exists() and not orphan.exists() and not checkout.exists()
    assert recent.exists(), "it may belong to a run that is being submitted"


def test_code_that_is_being_stored_is_not_deleted(client: Client, code: Path) -> None:
    fields = {"name": "new", "artifact": str(code), "entrypoint": "main.py"}
    from muster.spec.reader import spec_from_mapping

    theirs = Client(embedded(client).home.root)
    prepared = embedded(theirs).prepare_job(spec_from_mapping(fields))
    found = client.prune()
    assert found.code == 0
    assert found.kept == (
        "stored code was kept: another process is storing code; prune again later",
    )
    embedded(theirs).create_job(prepared.record)
    assert client.prune().kept == ()
    run = theirs.start(theirs.prepare_run(prepared.record)).wait(60)
    assert run.state == "SUCCEEDED", run.details
    embedded(theirs).close()


def test_runs_start_while_others_prune(client: Client, code: Path) -> None:
    done = threading.Event()
    failed: list[BaseException] = []

    def prune() -> None:
        theirs = Client(embedded(client).home.root)
        try:
            while not done.is_set():
                theirs.prune(older_than="1h")
        except BaseException as error:  # noqa: BLE001
            failed.append(error)
        embedded(theirs).close()

    thread = threading.Thread(target=prune)
    thread.start()
    try:
        for number in range(6):
            (code / "main.py").write_text(f"print({number})\n")
            run = client.start(client.prepare(code, _NOTHING, entrypoint="main.py")).wait(60)
            assert run.state == "SUCCEEDED", run.details
            if number % 2:
                embedded(client).delete_job(run.job_id)
    finally:
        done.set()
        thread.join()
    assert failed == []


@pytest.mark.embedded("a client of a server keeps code in the same MUSTER_HOME here")
def test_disk_counts_what_versions_share_once(client: Client, own_home: Path, code: Path) -> None:
    muster.run(code, entrypoint="main.py").wait(60)
    (code / "main.py").write_text("print(2)\n")
    muster.run(code, entrypoint="main.py").wait(60)
    muster.run(command="true", resources={"cpus": 0.1}).wait(60)
    assert (own_home / "reservations.json").exists()
    muster.get_run().delete()
    environment = own_home / "environments" / "0123456789abcdef"
    environment.mkdir(parents=True)
    (environment / "sparse").touch()
    os.truncate(environment / "sparse", 10_000_000)
    items = {item["kind"]: item for item in json_of("disk", "--json")}
    assert items["temporary"]["count"] == 0, "what Muster keeps is not temporary"
    assert items["environments"]["prunable"] <= items["environments"]["size"] < 1_000_000
    assert [*items] == ["code", "runs", "environments", "volumes", "database", "temporary"]
    assert items["code"]["count"] == 2
    assert 300_000 < items["code"]["size"] < 400_000
    assert items["runs"]["count"] == 2
    assert sum(items["runs"]["parts"].values()) == items["runs"]["size"]
    assert items["runs"]["parts"]["nodes"] > 600_000  # small code is copied
    lines = output_of("disk").splitlines()
    assert lines[0].split() == ["WHAT", "COUNT", "SIZE", "PRUNE", "FREES"]
    assert lines[-1].split()[0] == "total"


def test_an_empty_home_has_nothing_to_delete(client: Client) -> None:
    done = command("prune", code=0)
    assert (done.stdout, done.stderr) == ("", "nothing to delete\n")
    assert json_of("prune", "--dry-run", "--json")["freed"] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [({"keep": -1}, "keep: must be 0 or more"), ({"older_than": "soon"}, "older_than: 'soon'")],
)
def test_wrong_options_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        muster.prune(**options)  # type: ignore[arg-type]


def test_a_run_whose_files_cannot_be_deleted_stays(
    client: Client, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [muster.run(command="true").wait(60) for _ in range(2)]
    leases = [embedded(client).home.run_dir(run.id).lock for run in runs]
    until(lambda: not any(map(is_held, leases)))
    stays = own_home / "runs" / runs[0].id / "outputs" / "kept"
    stays.touch()
    unlink = os.unlink

    def refuse(path: str, **options: Any) -> None:
        if os.path.basename(path) == "kept":
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        why = f"{runs[0].name} is not deleted: cannot remove {stays}: Operation not permitted"
        with pytest.raises(muster.MusterError, match=why):
            embedded(client).delete(runs[0].id)
        found = muster.prune(keep=0)
    assert found.runs == (runs[1].name,)
    assert [text.partition(" (")[0] for text in found.failed] == [why]
    assert [run.id for run in client.runs()] == [runs[0].id]
    assert muster.prune(keep=0).runs == (runs[0].name,)
    assert not stays.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_plain_user_deletes_a_tree_that_a_program_made_read_only() -> None:
    script = """
import os, shutil, sys
from pathlib import Path
from muster.control.expire import remove_folder
from muster.storage.home import Home
os.setgid(65534)
os.setuid(65534)
home = Home(Path(sys.argv[1]))
tree = home.runs / "id" / "outputs" / "module" / "deep"
tree.mkdir(parents=True)
(tree / "file").touch()
for folder in (tree, tree.parent):
    folder.chmod(0o555)
print(remove_folder(home, "id"))
"""
    with tempfile.TemporaryDirectory() as home:  # that of the test is closed to other users
        os.chmod(home, 0o777)
        words = [sys.executable, "-c", script, home]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        assert done.stdout == "None\n" and not Path(home, "runs", "id").exists()


@pytest.mark.embedded("a client of a server keeps code in the same MUSTER_HOME here")
def test_deleted_code_leaves_no_empty_folders(own_home: Path, code: Path) -> None:
    muster.run(code, entrypoint="main.py", nodes=1, name="job").wait(60)
    assert stored(own_home)
    output_of("jobs", "delete", "job", "--runs")
    left = [path for path in (own_home / "artifacts").rglob("*") if path.name != "objects"]
    assert left == []
