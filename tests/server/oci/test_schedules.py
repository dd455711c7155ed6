"""Schedules of OCI's SDK, and the job runs that they create."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from muster.server.oci.schedule_runs import ScheduleRuns
from muster.server.oci.schedules import KIND
from muster.spec.ocids import TENANCY, compartment_ocid
from support.faults import until
from support.oci_server import OciServer, module_server

oci = pytest.importorskip("oci")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


def hourly(**more: Any) -> Any:
    given = {"frequency": "HOURLY", "interval": 1, **more}
    return oci.data_science.models.ScheduleIntervalTrigger(**given)


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=0.5)


def create(server: OciServer, trigger: Any, job: Any = None, **more: Any) -> Any:
    """A schedule that creates job runs."""
    models = oci.data_science.models
    job = job or server.create_job("print('scheduled')")
    run = models.CreateJobRunDetails(
        project_id=server.project, compartment_id=TENANCY, job_id=job.id, display_name="planned"
    )
    action = models.ScheduleHttpAction(
        action_details=models.CreateJobRunScheduleActionDetails(create_job_run_details=run)
    )
    details = models.CreateScheduleDetails(
        project_id=server.project,
        compartment_id=TENANCY,
        display_name="nightly",
        trigger=trigger,
        action=action,
        **more,
    )
    return server.science.create_schedule(details).data


def runs_of(server: OciServer, job: Any) -> list[Any]:
    found: list[Any] = server.science.list_job_runs(TENANCY, job_id=job.id).data
    return found


def test_a_job_run_is_created_at_its_time(server: OciServer) -> None:
    job = server.create_job("print('scheduled')")
    made = create(server, hourly(time_start=soon()), job)
    assert (made.lifecycle_state, made.display_name) == ("ACTIVE", "nightly")
    until(lambda: runs_of(server, job), "the run is created")
    (run,) = runs_of(server, job)
    assert (run.display_name, server.wait(run).lifecycle_state) == ("planned", "SUCCEEDED")
    assert server.output(run) == "scheduled\n"
    got = server.science.get_schedule
    until(lambda: got(made.id).data.time_last_schedule_run, "it is noted")
    after = got(made.id).data
    assert after.last_schedule_run_details == f"Created {run.id}"
    hour = after.time_next_scheduled_run - after.time_last_schedule_run
    assert hour == timedelta(hours=1)
    server.science.delete_schedule(made.id)


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        (lambda m: m.ScheduleCronTrigger(cron_expression="x"), "needs five fields, not 1"),
        (lambda m: hourly(interval=0), "interval has to be 1 or more, not 0"),
        (lambda m: hourly(frequency="WEEKLY"), "frequency has to be one of HOURLY, DAILY"),
        (lambda m: m.ScheduleICalTrigger(recurrence="FREQ=OFTEN"), "FREQ must be one of"),
        (
            lambda m: hourly(time_start=soon(), time_end=soon() - timedelta(hours=1)),
            "is before start",
        ),
    ],
)
def test_triggers_that_cannot_be(server: OciServer, trigger: Any, problem: str) -> None:
    with pytest.raises(oci.exceptions.ServiceError, match=problem) as caught:
        create(server, trigger(oci.data_science.models))
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("trigger", "first"),
    [
        (
            lambda m: m.ScheduleCronTrigger(cron_expression="30 4 * * *"),
            lambda at: (at.hour, at.minute) == (4, 30),
        ),
        (
            lambda m: m.ScheduleICalTrigger(
                recurrence="DTSTART;TZID=Europe/Rome:20300105T090000\nRRULE:FREQ=DAILY"
            ),
            lambda at: at.isoformat() == "2030-01-05T08:00:00+00:00",
        ),
        (
            lambda m: hourly(interval=3, time_start=datetime(2031, 1, 1, tzinfo=UTC)),
            lambda at: at.year == 2031,
        ),
    ],
)
def test_next_times(server: OciServer, trigger: Any, first: Any) -> None:
    made = create(server, trigger(oci.data_science.models))
    assert first(made.time_next_scheduled_run)
    (listed,) = server.science.list_schedules(TENANCY, id=made.id).data
    assert listed.trigger == made.trigger
    server.science.delete_schedule(made.id)


def test_a_pause(server: OciServer) -> None:
    science, job = server.science, server.create_job("pass")
    made = create(server, hourly(time_start=soon()), job)
    science.deactivate_schedule(made.id)
    with pytest.raises(oci.exceptions.ServiceError, match="INACTIVE"):
        science.deactivate_schedule(made.id)
    paused = science.get_schedule(made.id).data
    assert (paused.lifecycle_state, paused.time_next_scheduled_run) == ("INACTIVE", None)
    until(lambda: datetime.now(UTC) > made.time_next_scheduled_run, "the time has passed")
    science.activate_schedule(made.id)
    resumed = science.get_schedule(made.id).data
    assert resumed.time_next_scheduled_run > datetime.now(UTC) + timedelta(minutes=30)
    assert runs_of(server, job) == []
    changed = oci.data_science.models.UpdateScheduleDetails(display_name="weekly")
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        science.update_schedule(made.id, changed, if_match="no")
    assert caught.value.status == 412
    work = science.update_schedule(made.id, changed).headers["opc-work-request-id"]
    assert science.get_work_request(work).data.operation_type == "SCHEDULE_UPDATE"
    assert science.get_schedule(made.id).data.display_name == "weekly"
    assert science.delete_schedule(made.id).status == 202
    assert science.get_schedule(made.id).data.lifecycle_state == "DELETED"


def test_a_server_that_was_killed_in_between_creates_one_run(server: OciServer) -> None:
    """What was decided is recorded: whoever carries it out again finds the run."""
    job = server.create_job("pass")
    made = create(server, hourly(time_start=datetime(2040, 1, 1, tzinfo=UTC)), job)
    state = server.server.server.state
    resources = state.backend.store.resources
    record = resources.get(KIND, made.id.rpartition(".")[2])
    pending = replace(record, state="INACTIVE", data={**record.data, "pending": 5.0})
    record = resources.update(record, pending)
    acting = ScheduleRuns(state)
    for _ in range(3):
        acting._carry_out(record)
    assert len(runs_of(server, job)) == 1
    assert resources.get(KIND, record.id).data["pending"] is None


def test_a_job_that_was_deleted_is_why_there_is_no_run(server: OciServer) -> None:
    job = server.create_job("pass")
    made = create(server, hourly(time_start=soon()), job)
    server.science.delete_job(job.id)
    got = server.science.get_schedule
    until(lambda: got(made.id).data.lifecycle_details, "it is noted")
    assert "No job run was created: The job is DELETED." in got(made.id).data.lifecycle_details
    server.science.delete_schedule(made.id)


def test_no_runs_where_the_caller_may_start_none(server: OciServer) -> None:
    """Whatever its creator may do there."""
    models, made = oci.data_science.models, create(server, hourly())
    details = made.action.action_details.create_job_run_details
    details.compartment_id = compartment_ocid("elsewhere")
    changed = models.UpdateScheduleDetails(action=made.action)
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        server.science.update_schedule(made.id, changed)
    assert (caught.value.status, caught.value.code) == (404, "NotAuthorizedOrNotFound")
    server.science.delete_schedule(made.id)


def test_a_schedule_that_cannot_be_read_stops_no_others(server: OciServer) -> None:
    broken = create(server, hourly(time_start=datetime(2040, 1, 1, tzinfo=UTC)))
    resources = server.backend.store.resources
    record = resources.get(KIND, broken.id.rpartition(".")[2])
    resources.update(record, replace(record, data={**record.data, "timing": None}))
    job = server.create_job("pass")
    made = create(server, hourly(time_start=soon()), job)
    until(lambda: runs_of(server, job), "the run is created")
    for one in (broken, made):
        server.science.delete_schedule(one.id)
