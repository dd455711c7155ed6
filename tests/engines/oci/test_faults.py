"""What the service decides itself, and what keeps it from answering: with a stand-in whose faults a
test chooses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.engines.registry import engine_named
from muster.storage.home import Home
from support.faults import until
from support.oci_service import OciService, Refused, add_engine, needs_sdk

pytestmark = needs_sdk
SLEEP = ["sh", "-c", "echo up; exec sleep 300"]
#: Seconds for what takes a moment on a machine that is not busy.
PATIENCE = 240.0


@pytest.fixture
def service(tmp_path: Path, own_home: Path, client: Client) -> Iterator[OciService]:
    """A service on which nothing is left after the test."""
    made = OciService(tmp_path / "oci")
    with made.serving():
        add_engine(own_home, made)
        yield made
        made.before = lambda _operation: None
        for run in client.runs():
            if not run.done:
                run.cancel("the test is over").wait(PATIENCE)
        states = {one["lifecycleState"] for one in [*made.jobs.values(), *made.runs.values()]}
        assert states <= {"DELETED"}, "no job is left"


def start(command: list[str] = SLEEP, **more: Any) -> JobRun:
    return muster.run(command=command, engine="oci", name="demo", **more)


def refuse(operation: str, *errors: Refused) -> Callable[[str], None]:
    """Answers the first calls of an operation with these errors."""
    left = list(errors)

    def before(called: str) -> None:
        if called == operation and left:
            raise left.pop(0)

    return before


def until_up(run: JobRun) -> None:
    # not a part of a line: Muster's own have "group" in them
    until(lambda: any(line.message == "up" for line in run.logs()), "its program runs", PATIENCE)


def finished(run: JobRun) -> JobRun:
    return run.wait(PATIENCE)


def story(run: JobRun) -> str:
    """All that has happened to a run."""
    return "\n".join(str(entry) for entry in run.events())


def test_a_wait_has_the_words_of_the_service(service: OciService) -> None:
    service.holds = True
    run = start(["true"])
    until(lambda: len(service.runs) == 1, "the job run is created")
    service.only_run()["lifecycleDetails"] = "Waiting for capacity."
    until(lambda: "Waiting for capacity" in story(run), "it is queued", PATIENCE)
    service.start(service.only_run())
    assert finished(run).state == "SUCCEEDED"


def test_a_job_run_that_waits_is_canceled(service: OciService) -> None:
    service.holds = True
    run = start()
    until(lambda: len(service.runs) == 1, "the job run is created")
    run.cancel().wait(PATIENCE)
    assert run.state == "CANCELED"
    assert "cancel_job_run" in service.calls and service.calls[-1] == "delete_job"


def test_a_cancel_waits_until_the_service_has_confirmed_it(service: OciService) -> None:
    run = start(nodes=2)
    until_up(run)
    run.cancel().wait(PATIENCE)
    assert run.state == "CANCELED"
    assert [one["lifecycleState"] for one in service.runs.values()] == ["DELETED"]


def test_what_somebody_cancels_in_the_service_is_not_restarted(service: OciService) -> None:
    run = start(failure={"max_restarts": 3})
    until_up(run)
    service.end(service.only_run(), "CANCELED", "canceled by ben")
    assert finished(run).state == "FAILED"
    assert "was canceled in the service: canceled by ben" in str(run.details)
    assert len(service.runs) == 1


def test_a_job_run_over_its_limit_has_reached_its_deadline(service: OciService) -> None:
    run = start()
    until_up(run)
    service.end(service.only_run(), "CANCELED", "Exceeded maximum runtime.")
    assert finished(run).state == "FAILED"
    assert "maximum run time" in str(run.details)


def test_a_job_run_that_is_lost_is_replaced(service: OciService, tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/first && echo up && exec sleep 300; exit 0"
    run = start(["sh", "-c", script], failure={"max_restarts": 1})
    until_up(run)
    service.end(service.only_run(), "FAILED", "Its machine failed.")
    assert finished(run).state == "SUCCEEDED"
    assert len(service.runs) == 2
    (node,) = run.nodes
    assert node.host_id == [*service.runs][-1]


def test_a_job_run_that_is_deleted_behind_our_back_has_ended(service: OciService) -> None:
    run = start()
    until_up(run)
    service.end(service.only_run(), "DELETED", "")
    assert finished(run).state == "FAILED"
    assert "was deleted in the service" in str(run.details)


def test_an_answer_that_may_be_a_lost_permission_ends_nothing(service: OciService) -> None:
    service.holds = True
    run = start(["true"])
    until(lambda: len(service.runs) == 1, "the job run is created")
    denied = Refused(404, "NotAuthorizedOrNotFound")
    service.before = refuse("get_job_run", *[denied] * 2)
    listed = service.calls.count("list_job_runs")
    until(lambda: service.calls.count("list_job_runs") > listed + 1, "the list is looked at")
    service.start(service.only_run())
    assert finished(run).state == "SUCCEEDED"


def test_a_program_that_fails_restarts_in_the_same_job_run(
    service: OciService, tmp_path: Path
) -> None:
    script = f"mkdir {tmp_path}/first 2>/dev/null && exit 3; exit 0"
    run = start(["sh", "-c", script], nodes=2, failure={"max_restarts": 2})
    assert finished(run).state == "SUCCEEDED"
    assert len(service.runs) == 1


def test_groups_find_their_nodes_whatever_their_order_is(
    service: OciService, tmp_path: Path
) -> None:
    service.last_group_first = True
    say = ["sh", "-c", "echo I am $MUSTER_GROUP, $RANK"]
    groups = [
        {"name": "first", "nodes": 2, "command": say},
        {"name": "second", "nodes": 1, "command": say},
    ]
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"name": "groups", "engine": "oci", "node_groups": groups}))
    run = muster.run(job)
    assert finished(run).state == "SUCCEEDED"
    found = {(line.rank, line.message) for line in run.logs() if "I am" in line.message}
    assert {rank for rank, _ in found} == {0, 1, 2} and len(service.runs) == 1


@pytest.mark.parametrize("operation", ["create_job", "create_job_artifact", "create_job_run"])
def test_what_the_service_refuses_fails_the_run_and_leaves_nothing(
    service: OciService, operation: str
) -> None:
    service.before = refuse(operation, Refused(400, "InvalidParameter", "no such shape."))
    run = finished(start(["true"]))
    assert run.state == "FAILED"
    assert "the service refuses the job run: no such shape (400" in str(run.details)


def test_a_missing_permission_is_named(service: OciService) -> None:
    service.before = refuse("create_job_run", Refused(404, "NotAuthorizedOrNotFound"))
    run = finished(start(["true"]))
    assert "allow group GROUP to manage data-science-job-runs" in str(run.details)


def test_expired_credentials_say_what_to_do(service: OciService) -> None:
    service.before = refuse("create_job", Refused(401, "NotAuthenticated", "expired"))
    run = finished(start(["true"]))
    assert "`oci session authenticate`" in str(run.details)


def test_a_limit_that_is_reached_is_waited_for(service: OciService) -> None:
    service.before = refuse("create_job_run", Refused(400, "LimitExceeded", "too many runs"))
    run = finished(start(["true"]))
    assert run.state == "SUCCEEDED"
    assert "too many runs" in story(run)
    assert len(service.jobs) == 1, "the job that was created is used"


def test_throttled_calls_are_repeated_by_the_sdk(service: OciService) -> None:
    service.before = refuse("create_job", Refused(429, "TooManyRequests"))
    assert finished(start(["true"])).state == "SUCCEEDED"
    assert service.calls.count("create_job") == 2 and len(service.jobs) == 1


def test_a_lost_answer_creates_nothing_twice(service: OciService) -> None:
    """The SDK repeats the call with the same token."""
    first = service.create_job_run

    def lose(body: Any, query: Any, headers: Any) -> Any:
        first(body, query, headers)
        service.create_job_run = first  # type: ignore[method-assign]
        raise Refused(503, "ServiceUnavailable")

    service.create_job_run = lose  # type: ignore[method-assign]
    assert finished(start(["true"])).state == "SUCCEEDED"
    assert service.calls.count("create_job_run") == 2 and len(service.runs) == 1


def test_jobs_are_kept_if_the_profile_says_so(service: OciService, own_home: Path) -> None:
    add_engine(own_home, service, keep_jobs=True)
    assert finished(start(["true"])).state == "SUCCEEDED"
    assert service.only_run()["lifecycleState"] == "SUCCEEDED"
    for one in [*service.jobs.values(), *service.runs.values()]:
        one["lifecycleState"] = "DELETED"


def test_a_job_that_could_not_be_ended_is_ended_before_its_run_is_deleted(
    service: OciService, own_home: Path
) -> None:
    service.before = refuse("delete_job", *[Refused(400, "InvalidParameter", "not now")] * 2)
    run = finished(start(["true"]))
    assert run.state == "SUCCEEDED"
    engine = engine_named("oci", Home(own_home))
    assert engine.left_behind(run.id)
    service.before = lambda _operation: None
    run.delete()
    assert not engine.left_behind(run.id)


def test_a_supervisor_that_is_killed_is_replaced(
    service: OciService, own_home: Path, tmp_path: Path
) -> None:
    script = f"echo up; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done; echo down"
    run = start(["sh", "-c", script], nodes=2)
    until_up(run)
    supervisor = run_lock.holder_pid(Home(own_home).run_dir(run.id).lock)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    (tmp_path / "end").touch()
    assert finished(run).state == "SUCCEEDED"
    assert len(service.runs) == 1, "the next one attaches to its nodes"
    assert sum(line.message == "down" for line in run.logs()) == 2
