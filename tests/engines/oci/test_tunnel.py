"""Runs whose nodes do not reach their supervisor: all goes through a bucket."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.storage.home import Home
from support.command import muster as command
from support.faults import until
from support.oci_objects import BUCKET
from support.oci_service import OciService, add_engine, needs_sdk

pytestmark = needs_sdk
SLEEP = ["sh", "-c", "echo up; exec sleep 300"]
#: Seconds for what takes a moment on a machine that is not busy.
PATIENCE = 240.0


@pytest.fixture
def service(tmp_path: Path, own_home: Path, client: Client) -> Iterator[OciService]:
    """A service with a bucket, on which nothing is left after the test."""
    made = OciService(tmp_path / "oci")
    with made.serving():
        add_engine(own_home, made, bucket=BUCKET)
        yield made
        made.storage.refuses = 0
        for run in client.runs():
            if not run.done:
                run.cancel("the test is over").wait(PATIENCE)
        states = {one["lifecycleState"] for one in [*made.jobs.values(), *made.runs.values()]}
        assert states <= {"DELETED"}, "no job is left"
        assert not made.storage.objects and not made.storage.links, "the bucket is as before"


def start(command: list[str] = SLEEP, **more: Any) -> JobRun:
    return muster.run(command=command, engine="oci", name="demo", **more)


def lines(run: JobRun, text: str) -> int:
    """How many lines of its output are this text."""
    return sum(line.message == text for line in run.logs())


def until_up(run: JobRun, nodes: int) -> None:
    until(lambda: lines(run, "up") == nodes, "its programs run", PATIENCE)


def supervisor_of(run: JobRun, home: Path) -> int:
    found = run_lock.holder_pid(Home(home).run_dir(run.id).lock)
    assert found is not None
    return found


def test_nodes_find_each_other_restart_in_place_and_are_entered(
    service: OciService, tmp_path: Path
) -> None:
    script = (
        'echo "rank $RANK of $WORLD_SIZE, main $MUSTER_MAIN_ADDRESS"\n'
        f"[ $RANK = 1 ] && mkdir {tmp_path}/failed 2>/dev/null && exit 3\n"
        f"echo up; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done"
    )
    run = start(["sh", "-c", script], nodes=2, failure={"max_restarts": 2})
    until(
        lambda: "up" in [line.message for line in run.logs() if line.rank == 1], "again", PATIENCE
    )
    done = command("exec", run.id, "--rank", "1", "--", "cat", input="x" * 3_000_000, code=0)
    assert done.stdout == "x" * 3_000_000
    (tmp_path / "end").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    assert len(service.runs) == 1, "it was restarted in place"
    said = {line.message for line in run.logs() if "rank" in line.message}
    assert {f"rank {rank} of 2" for rank in (0, 1)} == {line.partition(",")[0] for line in said}
    assert not any(line.endswith("main ") for line in said)


def test_what_is_in_the_bucket_has_no_secrets(service: OciService, own_home: Path) -> None:
    seen = list[bytes]()

    class Watched(dict[str, bytes]):
        def __setitem__(self, name: str, content: bytes) -> None:
            seen.append(content)
            super().__setitem__(name, content)

    service.storage.objects = Watched()
    run = start(["sh", "-c", "echo $WORD"], env={"WORD": "xyzzy-plugh"})
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    assert lines(run, "xyzzy-plugh") == 1
    assert len(seen) > 4 and not any(b"xyzzy" in content for content in seen)


def test_a_supervisor_that_is_killed_is_replaced(
    service: OciService, own_home: Path, tmp_path: Path
) -> None:
    script = f"echo up; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done; echo down"
    run = start(["sh", "-c", script], nodes=2)
    until_up(run, 2)
    os.kill(supervisor_of(run, own_home), signal.SIGKILL)
    (tmp_path / "end").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    assert len(service.runs) == 1, "the next one attaches to its nodes"
    assert lines(run, "down") == 2


def test_what_carries_connections_is_started_again(service: OciService, tmp_path: Path) -> None:
    run = start(["sh", "-c", f"echo up; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done"])
    until_up(run, 1)
    [artifact] = service.processes(service.only_run())
    carrier, _server = Path(f"/proc/{artifact}/task/{artifact}/children").read_text().split()
    os.kill(int(carrier), signal.SIGKILL)
    (tmp_path / "end").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    assert len(service.runs) == 1


def test_a_bucket_that_cannot_be_used_is_waited_for(service: OciService) -> None:
    service.holds = True
    run = start(["true"])
    until(lambda: len(service.runs) == 1, "the job run is created", PATIENCE)
    service.storage.refuses = 404
    service.start(service.only_run())
    text = "through the bucket: the service answers NotAuthorizedOrNotFound"
    until(lambda: text in "\n".join(str(entry) for entry in run.events()), "it is queued", PATIENCE)
    service.storage.refuses = 0
    assert run.wait(PATIENCE).state == "SUCCEEDED"


def test_a_url_that_cannot_be_made_fails_the_run(service: OciService, own_home: Path) -> None:
    add_engine(own_home, service, bucket="oci://other@team")
    run = start(["true"]).wait(PATIENCE)
    assert run.state == "FAILED"
    assert "allow group GROUP to manage buckets" in str(run.details)


def test_each_node_may_have_a_job_run_of_its_own(
    service: OciService, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, service, bucket=BUCKET, multi_node=False)
    script = f"echo up; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done"
    run = start(["sh", "-c", script], nodes=2, failure={"max_restarts": 1})
    until_up(run, 2)
    assert len(service.runs) == 2
    jobs = [*service.jobs.values()]
    assert not any("jobNodeConfigurationDetails" in job for job in jobs)
    lost = next(iter(service.runs.values()))
    service.end(lost, "FAILED", "Its machine failed.")
    until(lambda: len(service.runs) == 3, "it is replaced", PATIENCE)
    (tmp_path / "end").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    assert len(service.runs) == 3, "only what was lost was replaced"
