"""The service log of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import muster
from muster.control.service_log import ServiceLog
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.store.base import Store
from muster.store.records import Lease, RunStep
from muster.store.sqlite.store import SqliteStore
from simulation.harness.fake_ledger import OWNER, RecordedLedger
from simulation.harness.run_plan import run_plan
from support.run_driver import policy


def messages(path: Path) -> list[str]:
    """The lines of a service log, without their times."""
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in lines)
    return [line[26:] for line in lines]


@pytest.mark.shows("jobs/logging")
def test_the_service_log_is_next_to_the_output_of_the_nodes(own_home: Path, tmp_path: Path) -> None:
    """For users who have copied only the files."""
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "command: [sh, -c, 'echo a; test $MUSTER_ATTEMPT = 1']\n"
        "failure: {max_restarts: 1, action: restart_run}\n"
        "logging: {directory: logs}\n"
    )
    run = muster.run(spec).wait(60)
    assert run.state == "SUCCEEDED"
    path = tmp_path / "logs" / run.id / "service.log"
    first = "node-0 (group workers, rank 0) failed with exit code 1"
    lines = [
        line for line in messages(path) if not re.search("is (ready|starting|in progress)", line)
    ]
    assert lines == [
        "the run was accepted",
        "node-0 (group workers) failed with exit code 1, reason exit",
        f"restart 1 of the run: {first}",
        "attempt 1 starts: restart 1",
        "the run succeeded",
    ]
    shown = [record.message for record in run.logs(streams=["service"], attempt="all")]
    assert shown == messages(path), "both have the same texts"


@pytest.fixture
def run(own_home: Path) -> tuple[Store, Home, RunPlan]:
    home = Home(own_home)
    plan = run_plan(1, policy((1, 2, None)))
    store = SqliteStore.open(home.database)
    RecordedLedger(store, plan, 1.0, suspended=False)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return store, home, plan


def record_event(store: Store, plan: RunPlan, text: str) -> None:
    lease = Lease.first(plan.run_id, OWNER)
    store.runs.save(RunStep(lease, {}, (), [("supervisor_lost", {"why": text})], 2.0))


def test_the_next_supervisor_writes_entries_missing_in_the_service_log(
    run: tuple[Store, Home, RunPlan],
) -> None:
    store, home, plan = run
    folder = home.run_dir(plan.run_id)
    record_event(store, plan, "one")
    first = ServiceLog(store, plan.run_id, folder)
    first.catch_up()
    assert messages(folder.service_log)[-1] == "one"
    record_event(store, plan, "two")  # recorded by a supervisor that is killed before it writes
    with folder.service_log.open("a") as file:
        file.write("2026-11-22T16:3")  # an incomplete line
    record_event(store, plan, "three")
    second = ServiceLog(store, plan.run_id, folder)
    second.catch_up()
    second.catch_up()
    assert messages(folder.service_log)[-3:] == ["one", "two", "three"]


def test_a_replaced_service_log_does_not_fail_the_run(
    run: tuple[Store, Home, RunPlan],
) -> None:
    store, home, plan = run
    path = home.run_dir(plan.run_id).service_log
    log = ServiceLog(store, plan.run_id, home.run_dir(plan.run_id))
    log.catch_up()
    path.unlink()
    path.mkdir()
    record_event(store, plan, "one")
    log.catch_up()
    assert path.is_dir()
    path.rmdir()
    os.mkfifo(path)
    record_event(store, plan, "two")
    log.catch_up()
    assert messages(path)[-2:] == ["one", "two"]


def test_a_run_without_a_folder_has_no_service_log(run: tuple[Store, Home, RunPlan]) -> None:
    store, home, plan = run
    folder = home.run_dir(plan.run_id)
    folder.path.rmdir()
    ServiceLog(store, plan.run_id, folder).catch_up()
    assert not folder.path.exists()


def test_without_logging_there_is_no_service_log(own_home: Path) -> None:
    run = muster.run(command="true", logging={"enabled": False}).wait(60)
    assert not Home(own_home).run_dir(run.id).service_log.exists()
    assert [record.message for record in run.logs()][-1] == "the run succeeded"
