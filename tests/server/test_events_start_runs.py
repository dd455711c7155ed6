"""Servers start the runs of schedules after runs of other jobs, and when objects are created."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from muster.api.interface import MusterAPI
from muster.api.schedules import ScheduleChange
from muster.api.streams import LogChunk, Selection
from muster.client.http.api import HttpAPI
from muster.errors import InvalidInput
from muster.identity import new_id
from muster.lifecycle.schedule import Missed, Overlap, Timing
from muster.lifecycle.trigger import AfterRun, End, ObjectCreated, Trigger
from muster.store.account_records import AuditFilter
from muster.store.object_records import BucketRecord, ObjectRecord, PieceRecord
from muster.store.outbox_records import ListenerKind
from muster.store.records import RunFilter, RunRecord
from muster.store.schedule_records import FiringRecord, ScheduleRecord
from support.api_runs import prepare, start, wait
from support.faults import until
from support.teams import Teams, serving_teams

ANY = Timing(overlap=Overlap.ALLOW, missed=Missed.RUN_ONCE)


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


@pytest.fixture
def api(teams: Teams) -> Iterator[MusterAPI]:
    """Muster over HTTP for sam, who may start runs in project vision."""
    made = HttpAPI(teams.server.address(teams.token("sam", project="vision")))
    yield made
    for schedule in made.schedules():
        made.delete_schedule(schedule.id)
    made.close()


@pytest.fixture
def job() -> str:
    """The name of a job that nothing else has."""
    return f"job-{new_id()}"


def create(
    api: MusterAPI, trigger: Trigger, command: str = "true", timing: Timing = ANY, **fields: Any
) -> ScheduleRecord:
    return api.create_schedule(f"s-{new_id()}", timing, prepare(api, command, **fields), trigger)


def ended(api: MusterAPI, name: str, command: str = "true") -> RunRecord:
    """A run of a job with this name, which has ended."""
    run = start(api, command, name=name)
    wait(api, run.id)
    return run


def fired(api: MusterAPI, schedule: ScheduleRecord, count: int = 1) -> list[FiringRecord]:
    """What was done about that many events, newest first."""
    found: list[FiringRecord] = []

    def look() -> bool:
        found[:] = [one for one in api.firings(schedule.id) if one.outcome != "starting"]
        return len(found) >= count

    until(look, f"{count} events", 60)
    return found


def settled(teams: Teams) -> None:
    """Wait until the server has handled every event."""
    outbox = teams.backend.store.outbox
    until(lambda: not outbox.pending(ListenerKind.TRIGGER, limit=1), "it has handled all", 60)


def output(api: MusterAPI, run_id: str | None) -> str:
    assert run_id is not None
    wait(api, run_id)
    chunks = [one for one in api.log(run_id, Selection()) if isinstance(one, LogChunk)]
    return b"".join(one.data for one in chunks if one.stream.rank is not None).decode()


def test_a_run_starts_with_the_outputs_of_the_one_before(
    teams: Teams, api: MusterAPI, job: str
) -> None:
    ended(api, job)
    command = (
        'echo "$MUSTER_AFTER_RUN $MUSTER_AFTER_STATE"; cat "$MUSTER_AFTER_OUTPUTS/model" '
        '"$MUSTER_EVENT"; echo; touch "$MUSTER_AFTER_OUTPUTS/x" 2> /dev/null || echo unchanged'
    )
    made = create(api, AfterRun(job), command)
    before = ended(api, job, 'echo weights > "$MUSTER_RUN_OUTPUTS/model"')
    (firing,) = fired(api, made)
    first, second, event, last = output(api, firing.run_id).splitlines()
    assert (first, second, last) == (f"{before.name} SUCCEEDED", "weights", "unchanged")
    told = json.loads(event)
    assert (told["type"], told["subject"]) == ("run.succeeded", before.name)
    assert (told["data"]["id"], told["data"]["job_name"]) == (before.id, job)
    assert firing.run_id is not None
    run = api.run(firing.run_id)
    assert run.tags["muster-after"] == before.name
    (entry, *_) = teams.backend.store.audit.listing(AuditFilter(user="sam", action="runs.start"))
    assert entry.address == f"schedule {made.name}: run.succeeded {before.name}"
    assert api.outputs(before.id) != []


@pytest.mark.parametrize(
    ("on", "commands", "expected"),
    [
        (End.SUCCEEDED, ("true", "exit 3"), ["run.succeeded"]),
        (End.FAILED, ("true", "exit 3"), ["run.failed"]),
        (End.ENDED, ("true", "exit 3"), ["run.succeeded", "run.failed"]),
    ],
)
def test_how_a_run_has_to_end(
    teams: Teams, api: MusterAPI, job: str, on: End, commands: tuple[str, ...], expected: list[str]
) -> None:
    ended(api, job)
    made = create(api, AfterRun(job, on))
    for command in commands:
        ended(api, job, command)
    ended(api, f"other-{new_id()}")
    fired(api, made, len(expected))
    settled(teams)
    found = api.firings(made.id)[::-1]
    assert [one.event.type for one in found if one.event] == expected
    assert len(api.runs(RunFilter(tags={"muster-schedule": made.name}))) == len(expected)


def test_chains_of_jobs(api: MusterAPI, job: str) -> None:
    ended(api, job)
    second = create(api, AfterRun(job), name=f"{job}-b")
    third = create(api, AfterRun(f"{job}-b"), name=f"{job}-c")
    run = ended(api, job)
    (middle,) = fired(api, second)
    (last,) = fired(api, third)
    assert middle.event and middle.event.subject == run.name
    assert last.event and last.event.subject == f"{job}-b-1"


def test_cycles_are_refused(api: MusterAPI, job: str) -> None:
    ended(api, job)
    second = create(api, AfterRun(job), name=f"{job}-b")
    with pytest.raises(InvalidInput, match=f"without end: {job}-b -> {job} -> {job}-b"):
        create(api, AfterRun(f"{job}-b"), name=job)
    with pytest.raises(InvalidInput, match=f"without end: {job} -> {job}"):
        create(api, AfterRun(job), name=job)
    with pytest.raises(InvalidInput, match=f"without end: {job} -> {job}"):
        api.edit_schedule(second.id, ScheduleChange(job=job))
    with pytest.raises(InvalidInput, match="no job named"):
        create(api, AfterRun(f"{job}-missing"))


def test_an_event_while_paused_starts_nothing(teams: Teams, api: MusterAPI, job: str) -> None:
    ended(api, job)
    made = create(api, AfterRun(job))
    api.pause_schedule(made.id)
    ended(api, job)
    assert not api.resume_schedule(made.id).paused
    last = ended(api, job)
    fired(api, made)
    settled(teams)
    assert [one.event.subject for one in api.firings(made.id) if one.event] == [last.name]


def test_times_cannot_be_given_to_a_schedule_of_events(api: MusterAPI, job: str) -> None:
    ended(api, job)
    made = create(api, AfterRun(job))
    with pytest.raises(InvalidInput, match="a schedule has every and an event"):
        api.edit_schedule(made.id, ScheduleChange(every=60.0))
    assert api.edit_schedule(made.id, ScheduleChange(overlap=Overlap.SKIP)).trigger == AfterRun(job)


def test_an_object_starts_a_run(teams: Teams, api: MusterAPI) -> None:
    bucket = BucketRecord(new_id(), f"b-{new_id()}", "vision", "sam", 1.0, 1.0, {})
    assert teams.backend.store.buckets.insert(bucket)
    command = 'echo "$MUSTER_OBJECT_BUCKET $MUSTER_OBJECT_NAME"'
    made = create(api, ObjectCreated(bucket.name, "in/"), command)
    for name in ("out/a", "in/b c"):
        content = new_id()
        record = ObjectRecord(bucket.id, name, new_id(), content, 3, "md5", 1.5, 2.5, {}, {})
        piece = PieceRecord(content, 1, new_id(), 3, new_id(), "md5")
        teams.backend.store.objects.put(record, [piece])
    settled(teams)
    (firing,) = fired(api, made)
    assert output(api, firing.run_id) == f"{bucket.name} in/b c\n"


def test_a_bucket_that_is_missing_is_refused(teams: Teams, api: MusterAPI) -> None:
    name = f"b-{new_id()}"
    text = f"on_object: project vision has no bucket '{name}' in the server's object storage"
    with pytest.raises(InvalidInput, match=text):
        create(api, ObjectCreated(name))
    others = BucketRecord(new_id(), name, "sound", "oscar", 1.0, 1.0, {})
    assert teams.backend.store.buckets.insert(others)
    with pytest.raises(InvalidInput, match=text):
        create(api, ObjectCreated(name))
    with pytest.raises(InvalidInput, match="on_object: has no bucket"):
        create(api, ObjectCreated(""))


def test_a_run_that_is_run_again_finds_what_it_found(api: MusterAPI, job: str) -> None:
    ended(api, job)
    made = create(api, AfterRun(job), 'cat "$MUSTER_AFTER_OUTPUTS/x"; wc -c < "$MUSTER_EVENT"')
    ended(api, job, 'echo data > "$MUSTER_RUN_OUTPUTS/x"')
    (firing,) = fired(api, made)
    assert firing.run_id is not None
    before = output(api, firing.run_id)
    from muster.spec.overrides import Changes

    again = api.start(api.prepare_rerun(firing.run_id, Changes(), update_code=False))
    assert output(api, again.id) == before
    assert "muster-after" not in api.run(again.id).tags
