"""The file with what Muster says of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import muster
from muster.control.service_log import ServiceLog
from muster.plan.model import RunPlan
from muster.simulation.book import StoreBook
from muster.simulation.plans import plan_of
from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database
from support.life import policy


def said(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in lines)
    return [line[26:] for line in lines]


@pytest.mark.shows("jobs/logging")
def test_it_tells_the_story_beside_what_the_nodes_wrote(own_home: Path, tmp_path: Path) -> None:
    """For whoever has copied the files, and nothing else."""
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
    told = [line for line in said(path) if not re.search("is (ready|starting|in progress)", line)]
    assert told == [
        "the run was accepted",
        "node-0 (group workers) failed with exit code 1, reason exit",
        f"restart 1: the run starts again: {first}",
        "attempt 1 begins: restart 1",
        "the run succeeded",
    ]
    shown = [record.message for record in run.logs(streams=["service"], attempt="all")]
    assert shown == said(path), "one wording, one truth"


@pytest.fixture
def book(own_home: Path) -> tuple[Database, Home, RunPlan]:
    home = Home(own_home)
    plan = plan_of(1, policy((1, 2, None)))
    db = Database.open(home.database)
    StoreBook(db, plan, 1.0, suspended=False)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return db, home, plan


def tell(db: Database, plan: RunPlan, text: str) -> None:
    runs.save(db, plan.run_id, {}, (), [("supervisor_lost", {"why": text})], 2.0)


def test_a_successor_writes_what_its_predecessor_could_not(
    book: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = book
    folder = home.run_dir(plan.run_id)
    tell(db, plan, "one")
    first = ServiceLog(db, plan.run_id, folder)
    first.catch_up()
    assert said(folder.service_log)[-1] == "one"
    tell(db, plan, "two")  # recorded by one that is killed before it writes
    with folder.service_log.open("a") as file:
        file.write("2026-11-22T16:3")  # half a line
    tell(db, plan, "three")
    second = ServiceLog(db, plan.run_id, folder)
    second.catch_up()
    second.catch_up()
    assert said(folder.service_log)[-3:] == ["one", "two", "three"]


def test_what_a_program_puts_in_its_place_is_in_nobody_s_way(
    book: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = book
    path = home.run_dir(plan.run_id).service_log
    log = ServiceLog(db, plan.run_id, home.run_dir(plan.run_id))
    log.catch_up()
    path.unlink()
    path.mkdir()
    tell(db, plan, "one")
    log.catch_up()
    assert path.is_dir()
    path.rmdir()
    os.mkfifo(path)
    tell(db, plan, "two")
    log.catch_up()
    assert said(path)[-2:] == ["one", "two"]


def test_a_run_without_a_folder_gets_none(book: tuple[Database, Home, RunPlan]) -> None:
    db, home, plan = book
    folder = home.run_dir(plan.run_id)
    folder.path.rmdir()
    ServiceLog(db, plan.run_id, folder).catch_up()
    assert not folder.path.exists()


def test_output_that_is_not_kept_has_no_file(own_home: Path) -> None:
    run = muster.run(command="true", logging={"enabled": False}).wait(60)
    assert not Home(own_home).run_dir(run.id).service_log.exists()
    assert [record.message for record in run.logs()][-1] == "the run succeeded"
