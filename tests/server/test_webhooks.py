"""Signed requests to the webhooks of schedules start runs."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from muster.api.interface import MusterAPI
from muster.api.schedules import WebhookAddress
from muster.api.streams import LogChunk, Selection
from muster.caller import Role
from muster.client.http.api import HttpAPI
from muster.errors import Forbidden, InvalidInput
from muster.iam.webhook_signatures import new_secret, sign
from muster.identity import new_id
from muster.lifecycle.schedule import Overlap, Timing
from muster.lifecycle.trigger import Webhook
from muster.permissions import Right
from muster.server.webhooks import MOST_BODY
from muster.service.embedded import EmbeddedAPI
from muster.store.account_records import AuditFilter
from muster.store.records import RunFilter
from muster.store.schedule_records import ScheduleRecord
from support.api_runs import prepare, wait
from support.authorities import caller_with
from support.teams import Reply, Teams, ask, serving_teams

ANY = Timing(overlap=Overlap.ALLOW)
BODY = b'{"ref": "refs/heads/main", "cost": "${HOME} $5"}'


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


@pytest.fixture
def api(teams: Teams) -> Iterator[MusterAPI]:
    """Muster over HTTP for sam, who may start runs in project vision."""
    made = HttpAPI(teams.server.address(teams.token("sam", project="vision")))
    yield made
    made.close()


Hook = tuple[ScheduleRecord, WebhookAddress]


def create(api: MusterAPI, command: str = "true", timing: Timing = ANY) -> Hook:
    name = f"hook-{new_id()}"
    made = api.create_schedule(name, timing, prepare(api, command), Webhook())
    return made, api.rotate_webhook(made.id)


def send(
    teams: Teams, hook: Hook, body: bytes = BODY, *, name: str = "", at: float | None = None
) -> Reply:
    """The answer to a request of Standard Webhooks."""
    _, address = hook
    now = int(time.time() if at is None else at)
    name = name or new_id()
    headers = {
        "webhook-id": name,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(address.secret, name, now, body),
    }
    return teams.request("POST", address.path, "", body, headers=headers)


def send_github(teams: Teams, hook: Hook, event: str, body: bytes = BODY) -> Reply:
    digest = hmac.digest(hook[1].secret.encode(), body, "sha256").hex()
    headers = {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": new_id(),
        "Content-Type": "application/json",
    }
    return teams.request("POST", hook[1].path, "", body, headers=headers)


def log_text(api: MusterAPI, run_id: str) -> str:
    chunks = [one for one in api.log(run_id, Selection()) if isinstance(one, LogChunk)]
    return b"".join(one.data for one in chunks).decode()


def runs_of(api: MusterAPI, hook: Hook) -> list[str]:
    return [run.id for run in api.runs(RunFilter(tags={"muster-schedule": hook[0].name}))]


def test_a_signed_request_starts_a_run_that_finds_its_body(teams: Teams, api: MusterAPI) -> None:
    hook = create(api, 'echo "$MUSTER_EVENT_TYPE $MUSTER_EVENT_ID"; cat "$MUSTER_EVENT"')
    reply = send(teams, hook, name="msg_1")
    assert (reply.status, reply.json["outcome"]) == (202, "started")
    run_id = reply.json["run"]
    assert wait(api, run_id) == "SUCCEEDED"
    text = log_text(api, run_id)
    assert "webhook msg_1" in text
    assert BODY.decode() in text
    run = api.run(run_id)
    assert (run.created_by, run.tags["muster-event"]) == ("sam", "msg_1")
    (entry, *_) = teams.backend.store.audit.listing(AuditFilter(user="sam", action="runs.start"))
    assert entry.address.startswith(f"schedule {hook[0].name}: webhook from 127.")
    assert entry.request_id == "msg_1"
    (firing,) = api.firings(hook[0].id)
    assert firing.event is not None
    assert (firing.outcome, firing.event.type, firing.event.data) == ("started", "webhook", {})


def test_the_same_request_starts_one_run(teams: Teams, api: MusterAPI) -> None:
    hook = create(api)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: send(teams, hook, name="msg_2"), range(4)))
    assert sorted(reply.status for reply in replies) == [200, 200, 200, 202]
    assert len({reply.json["run"] for reply in replies}) == 1
    assert len(runs_of(api, hook)) == 1
    # with another time, as a sender that tries again does
    assert send(teams, hook, name="msg_2", at=time.time() - 60).json["outcome"] == "repeated"
    assert send(teams, hook, name="msg_3").status == 202


def test_requests_of_github(teams: Teams, api: MusterAPI) -> None:
    hook = create(api, 'test "$MUSTER_EVENT_TYPE" = github.push')
    assert send_github(teams, hook, "ping").json == {"outcome": "pong"}
    assert runs_of(api, hook) == []
    first = send_github(teams, hook, "push")
    assert first.status == 202
    assert wait(api, first.json["run"]) == "SUCCEEDED"
    # replayed with another id, which is not signed
    assert send_github(teams, hook, "push").json["outcome"] == "repeated"
    assert send_github(teams, hook, "push", b"{}").status == 202


def test_what_is_refused_tells_nothing(teams: Teams, api: MusterAPI) -> None:
    hook = create(api)
    schedule, address = hook
    other = api.create_schedule(f"s-{new_id()}", Timing(every=6e6), prepare(api, "true"))
    wrong = replace(address, secret=new_secret())
    replies = [
        send(teams, (schedule, wrong)),
        send(teams, hook, at=time.time() - 400),
        send(teams, hook, at=time.time() + 400),
        teams.request("POST", address.path, "", BODY),
        send(teams, (schedule, replace(address, path="/hooks/0123456789"))),
        send(teams, (schedule, replace(address, path="/hooks/%00"))),
        send(teams, (other, replace(address, path=f"/hooks/{other.id}"))),
    ]
    assert {(reply.status, reply.json["detail"]) for reply in replies} == {
        (401, replies[0].json["detail"])
    }
    assert runs_of(api, hook) == []
    reply = teams.request("POST", address.path, "", b"x" * (MOST_BODY + 1))
    assert (reply.status, reply.problem) == (413, "BodyTooLarge")
    assert teams.request("GET", address.path, "").status == 405


def test_a_new_secret_replaces_the_one_before(teams: Teams, api: MusterAPI) -> None:
    schedule, first = create(api)
    second = api.rotate_webhook(schedule.id)
    assert send(teams, (schedule, first)).status == 401
    assert send(teams, (schedule, second)).status == 202
    shown = api.webhook(schedule.id)
    assert (shown.path, shown.secret, shown.set_at) == (second.path, "", second.set_at)
    kept = teams.backend.store.schedules.webhook(schedule.id)
    assert kept is not None and second.secret not in kept.secret
    assert second.secret not in json.dumps(str(teams.backend.store.audit.listing(AuditFilter())))


def test_a_schedule_that_is_paused_or_over_starts_nothing(teams: Teams, api: MusterAPI) -> None:
    hook = create(api)
    api.pause_schedule(hook[0].id)
    reply = send(teams, hook, name="msg_4")
    assert (reply.status, reply.problem) == (409, "Conflict")
    api.resume_schedule(hook[0].id)
    assert send(teams, hook, name="msg_4").status == 202
    later = create(api, timing=replace(ANY, start=time.time() + 1000))
    assert send(teams, later).status == 409


def test_a_run_that_has_not_ended_is_joined_only_if_runs_may_overlap(
    teams: Teams, api: MusterAPI
) -> None:
    hook = create(api, "sleep 600", replace(ANY, overlap=Overlap.SKIP))
    assert send(teams, hook).status == 202
    reply = send(teams, hook)
    assert (reply.status, reply.json) == (200, {"outcome": "skipped"})
    assert len(runs_of(api, hook)) == 1


def test_the_rights_are_those_of_the_creator(teams: Teams, api: MusterAPI) -> None:
    hook = create(api)
    teams.accounts.set_member("vision", "sam", Role.VIEWER)
    try:
        reply = send(teams, hook)
        assert (reply.status, reply.json["outcome"]) == (200, "refused")
    finally:
        teams.accounts.set_member("vision", "sam", Role.SUBMITTER)
    (firing,) = api.firings(hook[0].id)
    assert "this takes DATA_SCIENCE_JOB_RUN_CREATE; ask an admin of the project" in firing.why
    assert runs_of(api, hook) == []


def test_only_who_may_change_a_schedule_changes_its_secret(teams: Teams, api: MusterAPI) -> None:
    schedule, _ = create(api)
    reader = EmbeddedAPI(backend=teams.backend, caller=caller_with("nora", "vision", {Right.READ}))
    assert reader.webhook(schedule.id).secret == ""
    with pytest.raises(Forbidden):
        reader.rotate_webhook(schedule.id)
    plain = api.create_schedule(f"s-{new_id()}", Timing(every=6e6), prepare(api, "true"))
    with pytest.raises(InvalidInput, match="has no webhook"):
        api.rotate_webhook(plain.id)


def test_too_many_wrong_requests_of_an_address(teams: Teams, api: MusterAPI) -> None:
    _, address = create(api)
    statuses: list[int] = []
    for _ in range(25):
        reply = ask(teams.port, "POST", address.path, body=BODY, source="127.0.0.9")
        statuses.append(reply.status)
    assert statuses[:15] == [401] * 15
    assert statuses[-1] == 429
    # others are still served
    reply = ask(teams.port, "POST", address.path, body=BODY, source="127.0.0.10")
    assert reply.status == 401
