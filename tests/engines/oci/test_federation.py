"""A Muster that runs jobs on another: the real SDK against Muster's own server."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from support.command import muster as command
from support.faults import until
from support.oci_engine_server import OciServer, oci_server
from support.oci_service import needs_sdk

pytestmark = needs_sdk
ROOT = Path(__file__).parents[3]
SLEEP = ["sh", "-c", "echo up; exec sleep 300"]


@pytest.fixture(scope="module")
def server() -> Iterator[OciServer]:
    """One whose nodes have namespaces, and networks of their own where there are several."""
    with oci_server() as made:
        yield made


@pytest.fixture
def service(server: OciServer, own_home: Path, client: Client) -> Iterator[OciServer]:
    """A server on which nothing is left after the test."""
    server.add_engine(own_home)
    yield server
    for run in client.runs():
        if not run.done:
            run.cancel("the test is over").wait(60)
    assert states(server) <= {"DELETED"}, "no job is left"


def states(server: OciServer) -> set[str]:
    """The states of all jobs and job runs."""
    kinds = (server.client.list_jobs, server.client.list_job_runs)
    return {one.lifecycle_state for kind in kinds for one in kind(TENANCY).data}


def until_up(run: JobRun, nodes: int) -> None:
    def is_up() -> bool:
        return sum(line.message == "up" for line in run.logs()) == nodes

    until(is_up, "its programs run", 60)


def test_all_is_found(service: OciServer) -> None:
    done = command("engines", "check", "oci", code=0)
    assert "accepts the credentials" in done.stdout and "\nyes project: jobs" in done.stdout


def test_nodes_of_two_groups_run_there(service: OciServer, tmp_path: Path) -> None:
    say = "command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE']"
    job = tmp_path / "job.yaml"
    groups = [f"- {{name: {name}, nodes: {nodes}, {say}}}" for name, nodes in (("a", 1), ("b", 2))]
    job.write_text("engine: oci\nnode_groups:\n" + "\n".join(groups) + "\n")
    run = muster.run(job).wait(120)
    assert run.state == "SUCCEEDED", run.details
    said = {(line.rank, line.message) for line in run.logs() if "rank" in line.message}
    assert {(rank, f"rank {rank} of 3") for rank in range(3)} <= said


def test_commands_reach_its_nodes_and_a_cancel_leaves_nothing(service: OciServer) -> None:
    run = muster.run(command=SLEEP, engine="oci", name="demo", nodes=2)
    until_up(run, 2)
    assert "IN_PROGRESS" in states(service)
    done = command("exec", run.id, "--rank", "1", "--", "sh", "-c", "echo inside", code=0)
    assert done.stdout == "inside\n"
    assert run.cancel().wait(60).state == "CANCELED"


def test_what_is_canceled_there_fails_here(service: OciServer) -> None:
    run = muster.run(command=SLEEP, engine="oci", name="demo", failure={"max_restarts": 2})
    until_up(run, 1)
    [own] = service.client.list_job_runs(TENANCY, lifecycle_state="IN_PROGRESS").data
    service.client.cancel_job_run(own.id)
    assert run.wait(90).state == "FAILED"
    assert "was canceled in the service" in str(run.details)


def test_what_keeps_nodes_from_dialing_is_read_in_their_log(
    service: OciServer, own_home: Path
) -> None:
    service.add_engine(own_home, folder="/proc/nowhere", log_group=service.log_group)
    run = muster.run(command=["true"], engine="oci", name="demo").wait(60)
    assert run.state == "FAILED"
    assert "with exit code 1: muster-node: [Errno" in str(run.details)
    assert "/proc/nowhere" in str(run.details)


def test_the_log_of_a_job_run_has_the_output_of_programs(
    service: OciServer, own_home: Path
) -> None:
    service.add_engine(own_home, log_group=service.log_group)
    run = muster.run(command=SLEEP, engine="oci", name="demo")

    def lines() -> list[str]:
        """Of the job run, which is a run there."""
        written = service.home.root.glob("runs/*/logs/*/*.out")
        return [line for path in written for line in path.read_text().splitlines()]

    until(lambda: lines() == ["up"], "the log has its output", 60)
    assert run.cancel().wait(60).state == "CANCELED"


def test_a_supervisor_that_is_killed_is_replaced(service: OciServer, own_home: Path) -> None:
    run = muster.run(command=["sh", "-c", "echo up; sleep 4; echo down"], engine="oci", nodes=2)
    until_up(run, 2)
    supervisor = run_lock.holder_pid(Home(own_home).run_dir(run.id).lock)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert run.wait(90).state == "SUCCEEDED"
    assert sum(line.message == "down" for line in run.logs()) == 2


@pytest.mark.slow
def test_the_example_with_pytorch(service: OciServer, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ignored = shutil.ignore_patterns("*.pt")  # of a run in the source tree, such as `make demo`
    shutil.copytree(ROOT / "examples/pytorch-digits", tmp_path / "digits", ignore=ignored)
    done = command("run", str(tmp_path / "digits/job.yaml"), "--engine", "oci")
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
