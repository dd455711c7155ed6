"""Servers start the runs of schedules, with the rights that their creators have then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from muster.api.accounts import UserChange
from muster.api.interface import MusterAPI
from muster.api.schedules import ScheduleChange
from muster.caller import Caller, Role
from muster.client.http.api import HttpAPI
from muster.errors import Forbidden, InvalidInput
from muster.identity import new_id
from muster.lifecycle.schedule import Missed, Overlap, Timing
from muster.server.scheduler import Scheduler
from muster.service.embedded import EmbeddedAPI
from muster.store.account_records import AuditFilter, UserKind, UserRecord
from muster.store.records import RunFilter
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord
from support.api_runs import prepare, wait
from support.faults import until
from support.teams import Teams, serving_teams

SOON = Timing(every=1.0)


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


@pytest.fixture
def user(teams: Teams) -> str:
    """A user who may start runs in project vision."""
    name = f"user-{new_id()}"
    teams.accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0))
    teams.accounts.set_member("vision", name, Role.SUBMITTER)
    return name


@pytest.fixture
def api(teams: Teams, user: str) -> Iterator[MusterAPI]:
    """Muster over HTTP for that user."""
    made = HttpAPI(teams.server.address(teams.token(user, project="vision")))
    yield made
    schedules = teams.backend.store.schedules
    for schedule in schedules.listing("vision"):
        if schedule.created_by == user:
            schedules.delete(schedule.id)
    made.close()


def create(api: MusterAPI, command: str, timing: Timing = SOON, **fields: Any) -> ScheduleRecord:
    return api.create_schedule(f"s-{new_id()}", timing, prepare(api, command, **fields))


def fired(api: MusterAPI, schedule: ScheduleRecord, *outcomes: str) -> FiringRecord:
    """The first time with one of these outcomes."""
    found: list[FiringRecord] = []

    def look() -> bool:
        found[:] = [one for one in api.firings(schedule.id) if one.outcome in outcomes]
        return bool(found)

    until(look, f"a time is {outcomes}", 60)
    return found[-1]


def entries(teams: Teams, user: str, action: str) -> list[Any]:
    return teams.backend.store.audit.listing(AuditFilter(user=user, action=action))


def overdue(teams: Teams, schedule: ScheduleRecord, seconds: float) -> None:
    """As if no server had run since then."""
    store, then = teams.backend.store.schedules, round(time.time() - seconds, 6)
    assert schedule.timing.every is not None
    timing = replace(schedule.timing, since=then - 10 * schedule.timing.every)
    store.update(schedule, replace(schedule, timing=timing, next_at=then))


def test_runs_start_at_their_times(teams: Teams, api: MusterAPI, user: str) -> None:
    command = 'echo "$MUSTER_SCHEDULE at $MUSTER_SCHEDULED_TIME for $WHO, $LANG"'
    prepared = prepare(api, command, node_groups=[{"name": "w", "env": {"WHO": "me"}}])
    made = api.create_schedule("hello", SOON, prepared)
    first = fired(api, made, "started")
    assert wait(api, first.run_id) == "SUCCEEDED"
    run = api.run(first.run_id)
    assert run.created_by == user
    assert run.tags["muster-schedule"] == "hello"
    text = run.tags["muster-scheduled-time"]
    assert run.spec["node_groups"][0]["env"]["MUSTER_SCHEDULED_TIME"] == text
    from muster.api.streams import LogChunk, Selection

    chunks = [one for one in api.log(run.id, Selection()) if isinstance(one, LogChunk)]
    assert f"hello at {text} for me".encode() in b"".join(one.data for one in chunks)
    (entry,) = [one for one in entries(teams, user, "runs.start") if one.request_id == ""][-1:]
    assert (entry.object, entry.address, entry.allowed) == (run.job_id, "schedule hello", True)


def test_a_run_that_has_not_ended_is_not_joined(teams: Teams, api: MusterAPI, user: str) -> None:
    made = create(api, "sleep 600")
    skipped = fired(api, made, "skipped")
    assert skipped.why.startswith("demo-") and " is still " in skipped.why
    assert [one.why for one in entries(teams, user, "schedules.start")][-1] == skipped.why
    assert len([one for one in api.firings(made.id) if one.run_id]) == 1


def test_a_run_that_has_not_ended_is_replaced(api: MusterAPI) -> None:
    made = create(api, "sleep 600", replace(SOON, overlap=Overlap.REPLACE))
    first = fired(api, made, "started")
    assert first.run_id is not None
    assert wait(api, first.run_id) == "CANCELED"
    reason = f"replaced by the next run of schedule {made.name}"
    assert reason in api.run(first.run_id).details


def test_runs_may_overlap(api: MusterAPI) -> None:
    made = create(api, "sleep 600", replace(SOON, overlap=Overlap.ALLOW))
    until(lambda: len(api.runs(RunFilter(tags={"muster-schedule": made.name}))) >= 2, "two", 60)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("disabled", "who created schedule {name}, is disabled"),
        ("role", "may not start runs in project vision: this takes DATA_SCIENCE_JOB_RUN_CREATE"),
        ("member", "may not start runs in project vision: this takes DATA_SCIENCE_JOB_RUN_CREATE"),
    ],
)
def test_the_creator_may_not_start_runs_any_more(
    teams: Teams, api: MusterAPI, user: str, change: str, reason: str
) -> None:
    made = create(api, "true", Timing(cron="0 3 1 1 *"))
    if change == "disabled":
        teams.accounts.change_user(user, UserChange(disabled=True))
    elif change == "role":
        teams.accounts.set_member("vision", user, Role.VIEWER)
    else:
        teams.accounts.remove_member("vision", user)
    store = teams.backend.store.schedules
    store.update(made, replace(made, next_at=time.time(), timing=SOON))
    reader = teams.api("anouk")
    refused = fired(reader, made, "refused")
    assert reason.format(name=made.name) in refused.why
    entry = entries(teams, user, "schedules.start")[0]
    assert (entry.allowed, entry.object) == (False, made.name)
    assert reader.runs(RunFilter(tags={"muster-schedule": made.name})) == []


def test_what_cannot_start_is_refused_with_the_reason(api: MusterAPI, teams: Teams) -> None:
    teams.request("PUT", "/v1/secrets/once", teams.token("anouk"), {"value": "x"})
    groups = [{"name": "w", "node_env": {"KEY": "${secret.once}"}}]
    made = create(api, "true", Timing(cron="0 3 1 1 *"), node_groups=groups)
    teams.request("DELETE", "/v1/secrets/once", teams.token("anouk"))
    api.edit_schedule(made.id, ScheduleChange(every=1.0))
    assert "secret" in fired(api, made, "refused").why


@pytest.mark.parametrize(
    ("missed", "outcome"), [(Missed.SKIP, "missed"), (Missed.RUN_ONCE, "started")]
)
def test_times_without_a_server(api: MusterAPI, teams: Teams, missed: Missed, outcome: str) -> None:
    made = create(api, "true", Timing(every=100.0, missed=missed, start_within=30.0))
    overdue(teams, made, 250.0)
    found = fired(api, made, outcome)
    assert found.passed == 2
    assert len(api.firings(made.id)) == 1
    if outcome == "missed":
        assert found.why == "no server started it within 30s"


def test_what_a_killed_server_has_decided_is_done_by_another(api: MusterAPI, teams: Teams) -> None:
    store = teams.backend.store.schedules
    made = create(api, "true", Timing(every=1000.0))
    before = round(time.time() - 6, 6)
    left = FiringRecord(made.id, before, Outcome.STARTING, before, run_id=new_id())
    store.note(left)
    found = fired(api, made, "started")
    assert (found.time, found.run_id) == (left.time, left.run_id)
    # killed after the run was recorded
    again = FiringRecord(made.id, before - 1, Outcome.STARTING, before, run_id=left.run_id)
    store.note(again)
    until(lambda: not store.unsettled(time.time()), "it is settled", 60)
    assert len(api.runs(RunFilter(tags={"muster-schedule": made.name}))) == 1
    # too long ago
    old = time.time() - 3600
    store.note(FiringRecord(made.id, old, Outcome.STARTING, old, run_id=new_id()))
    assert fired(api, made, "missed").why == "the server was ended meanwhile"


def test_a_later_run_is_not_replaced_by_an_earlier_one(api: MusterAPI, teams: Teams) -> None:
    store, now = teams.backend.store.schedules, round(time.time(), 6)
    made = create(api, "sleep 600", Timing(every=1000.0, overlap=Overlap.REPLACE))
    later = api.trigger_schedule(made.id)
    left = FiringRecord(made.id, now - 9, Outcome.STARTING, now - 9, run_id=new_id())
    store.note(left)
    assert fired(api, made, "skipped").why == "a later run has replaced it"
    assert api.run(later.id).state != "CANCELED"
    api.cancel(later.id)


def test_a_paused_schedule_starts_nothing_and_forgets_what_passed(
    api: MusterAPI, teams: Teams
) -> None:
    made = create(api, "true", Timing(every=1000.0))
    paused = api.pause_schedule(made.id)
    assert paused.paused
    assert api.pause_schedule(made.name).version == made.version + 1
    timing = replace(paused.timing, since=round(time.time() - 2500, 6))
    teams.backend.store.schedules.update(paused, replace(paused, timing=timing))
    Scheduler(teams.server.server.state).look()
    assert api.firings(made.id) == []
    resumed = api.resume_schedule(made.id)
    assert resumed.next_at is not None and resumed.next_at > time.time()
    overdue(teams, resumed, 0.0)
    assert fired(api, made, "started").passed == 0


def test_a_run_is_triggered_in_the_name_of_the_caller(teams: Teams, api: MusterAPI) -> None:
    made = create(api, "true", Timing(cron="0 3 1 1 *"))
    path = f"/v1/schedules/{made.name}/trigger"
    token, key = teams.token("anouk"), {"Idempotency-Key": new_id()}
    first, second = (teams.request("POST", path, token, headers=key) for _ in range(2))
    assert (first.status, first.json["created_by"]) == (201, "anouk")
    assert first.json["id"] == second.json["id"]
    (firing,) = api.firings(made.id)
    assert (firing.run_id, firing.by, firing.outcome) == (first.json["id"], "anouk", "started")
    assert wait(api, first.json["id"]) == "SUCCEEDED"


# --- requests


def test_a_schedule_is_created_once_with_an_idempotency_key(teams: Teams) -> None:
    spec = {"name": "kite", "command": ["true"]}
    body = {
        "name": "once",
        "timing": {"cron": "0 3 1 1 *"},
        "run": {"source": {"type": "spec", "spec": spec}},
    }
    token, key = teams.token("sam", project="vision"), {"Idempotency-Key": "a"}
    first, second = (
        teams.request("POST", "/v1/schedules", token, body, headers=key) for _ in range(2)
    )
    assert (first.status, second.status) == (201, 201)
    assert first.json == second.json
    assert first.headers["location"] == f"/v1/schedules/{first.json['id']}"
    again = teams.request("POST", "/v1/schedules", token, body)
    assert (again.status, again.problem) == (422, "InvalidInput")
    other = teams.request("POST", "/v1/schedules", token, {**body, "name": "b"}, headers=key)
    assert (other.status, other.problem) == (409, "Conflict")


def test_an_edit_is_of_what_was_read(api: MusterAPI, teams: Teams, user: str) -> None:
    made = create(api, "true", Timing(cron="0 3 1 1 *"))
    path, token = f"/v1/schedules/{made.name}", teams.token(user, project="vision")
    tag = teams.request("GET", path, token).headers["etag"]
    change = {"change": {"overlap": "allow"}}
    given = {"If-Match": tag}
    assert teams.request("PATCH", path, token, change, headers=given).status == 200
    assert teams.request("PATCH", path, token, change, headers=given).status == 412
    assert teams.request("DELETE", path, token, headers=given).status == 412
    assert teams.request("DELETE", path, token).status == 200


def test_lists_have_pages(api: MusterAPI, teams: Teams, user: str) -> None:
    for _ in range(3):
        create(api, "true", Timing(cron="0 3 1 1 *"))
    token = teams.token(user, project="vision")
    page = teams.request("GET", "/v1/schedules?limit=2", token)
    assert (
        page.headers["link"] == f'</v1/schedules?limit=2&after={page.json[-1]["name"]}>; rel="next"'
    )


def test_others_change_it_only_if_they_may(teams: Teams, api: MusterAPI) -> None:
    made = create(api, "true", Timing(cron="0 3 1 1 *"))
    sam = HttpAPI(teams.server.address(teams.token("sam", project="vision")))
    assert sam.schedule(made.name) == made
    for change in (sam.pause_schedule, sam.resume_schedule, sam.delete_schedule):
        with pytest.raises(Forbidden, match="schedules of others in project vision"):
            change(made.id)
    with pytest.raises(Forbidden):
        sam.edit_schedule(made.id, ScheduleChange(every=60.0))
    sam.close()
    assert teams.api("anouk").pause_schedule(made.id).paused


def test_what_the_servers_own_user_runs_is_chosen_by_administrators(
    teams: Teams, user: str
) -> None:
    """No role of a project gives the rights of the user that the server runs as."""
    local = EmbeddedAPI(caller=Caller("root", "vision"), backend=teams.backend)
    made = create(local, f"echo {user}", Timing(cron="0 3 1 1 *"))
    anouk, root = (
        HttpAPI(teams.server.address(teams.token(name), "vision")) for name in ("anouk", "root")
    )
    other = anouk.create_job(prepare(anouk, f"echo other {user}").job)
    for change in (
        lambda: anouk.edit_schedule(made.id, ScheduleChange(job=other.id)),
        lambda: anouk.edit_job(made.job_id, ["description=mine"]),
    ):
        with pytest.raises(Forbidden, match="the server's own user"):
            change()
    assert anouk.edit_schedule(made.id, ScheduleChange(cron="0 4 1 1 *")).job_id == made.job_id
    assert root.edit_job(made.job_id, ["description=mine"]).description == "mine"
    local.delete_schedule(made.id)
    for one in (anouk, root):
        one.close()


def test_jobs_of_others_are_edited_by_those_who_may(teams: Teams, api: MusterAPI) -> None:
    job = create(api, f"echo {new_id()}", Timing(cron="0 3 1 1 *")).job_id
    sam = HttpAPI(teams.server.address(teams.token("sam", project="vision")))
    with pytest.raises(Forbidden, match="edit jobs of others in project vision"):
        sam.edit_job(job, ["description=mine"])
    assert api.edit_job(job, ["description=mine"]).description == "mine"
    assert teams.api("anouk").edit_job(job, ["description=better"]).description == "better"
    sam.close()


def test_problems_are_all_named(api: MusterAPI) -> None:
    with pytest.raises(InvalidInput) as caught:
        create(api, "true", Timing(cron="0 25 * * *", start_within=0.0))
    assert [problem.path for problem in caught.value.problems] == ["start_within", "cron"]
    with pytest.raises(InvalidInput, match="'a b' is not a valid name of a schedule"):
        api.create_schedule("a b", SOON, prepare(api, "true"))


def test_what_is_done_is_counted(api: MusterAPI, teams: Teams) -> None:
    fired(api, create(api, "true"), "started")
    assert isinstance(api, HttpAPI)
    connection = api.connection

    def counted() -> dict[str, float]:
        text = connection.request("GET", "/v1/metrics").decode()
        return {
            one.labels["outcome"]: one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == "muster_schedule_times_total"
        }

    until(lambda: counted().get("started", 0.0) >= 1, "what was recorded is counted")
