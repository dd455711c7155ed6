"""A server sends the events of notifications."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from standardwebhooks.webhooks import Webhook

from muster.api.notifications import NotificationChange, NotificationRequest
from muster.server import deliverer
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.store.notification_records import DeliveryState, NotificationRecord
from support.api_runs import end_all, prepare, start, wait
from support.faults import until
from support.receivers import Received, Receiver, Reply, receiving
from support.server_thread import TOKEN, ServerThread, running_server
from support.teams import ask

RUN_EVENTS = ["run.accepted", "run.in_progress", "run.succeeded"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setattr("muster.notify.retries._FIRST", 0.01)
    monkeypatch.setattr("muster.notify.retries._MOST", 0.01)
    monkeypatch.setattr(deliverer, "_INTERVAL", 0.05)


@pytest.fixture
def backend_api(own_home: Path) -> Iterator[EmbeddedAPI]:
    """Muster without a server; all its runs are ended afterwards."""
    made = EmbeddedAPI()
    yield made
    end_all(made)
    made.close()


@pytest.fixture
def server(backend_api: EmbeddedAPI) -> Iterator[ServerThread]:
    with running_server(Backend(backend_api.home)) as running:
        yield running


@pytest.fixture
def api(backend_api: EmbeddedAPI, server: ServerThread) -> EmbeddedAPI:
    return backend_api


def add(
    api: EmbeddedAPI, target: str, name: str = "hook", on: tuple[str, ...] = ("run.*",), **more: str
) -> str:
    """The key of a new notification."""
    return api.create_notification(NotificationRequest(name, target, on, **more)).key


def states(api: EmbeddedAPI, name: str = "hook") -> set[str]:
    return {str(one.state) for one in api.deliveries(name)}


def settled(api: EmbeddedAPI, count: int, name: str = "hook") -> None:
    """Wait until so many events were delivered or given up."""

    def done() -> bool:
        found = api.deliveries(name)
        return len(found) == count and all(one.state != "pending" for one in found)

    until(done, f"{count} events are settled")


@pytest.mark.shows("jobs/lifecycle-notifications")
def test_each_state_of_a_run_is_sent_signed(
    api: EmbeddedAPI, receiver: Receiver, server: ServerThread
) -> None:
    key = add(api, receiver.url)
    run = start(api, "true")
    assert wait(api, run.id) == "SUCCEEDED"
    until(lambda: len(receiver.received) == 3, "three events arrive")
    assert receiver.types() == RUN_EVENTS
    last = receiver.received[-1]
    assert (last.path, last.headers["content-type"]) == (
        *("/hook?key=of-the-receiver", "application/cloudevents+json"),
    )
    for one in receiver.received:
        event = Webhook(key).verify(one.body.decode(), dict(one.headers))
        assert (event["id"], event["specversion"]) == (one.headers["webhook-id"], "1.0")
        assert event["subject"] == f"runs/{run.id}"
    assert last.json["data"]["exit_code"] == 0
    settled(api, 3)
    assert {one.answer for one in api.deliveries("hook")} == {"HTTP 200"}
    count = b'muster_deliveries_total{outcome="delivered",target="webhook"} 3.0'
    # each is recorded first, and then counted
    until(lambda: count in ask(server.port, "GET", "/v1/metrics", TOKEN).body, "all are counted")


def test_an_event_is_tried_again_and_the_next_ones_wait(
    api: EmbeddedAPI, receiver: Receiver, server: ServerThread
) -> None:
    refused: list[str] = []

    def answer(request: Received) -> Reply:
        if len(refused) < 3:
            refused.append(request.headers["webhook-id"])
            return Reply(503, body=b"busy\nnow")
        return Reply()

    receiver.answer = answer
    add(api, receiver.url)
    wait(api, start(api, "true").id)
    settled(api, 3)
    assert receiver.types() == ["run.accepted"] * 3 + RUN_EVENTS
    assert len(set(refused)) == 1
    assert [one.attempts for one in api.deliveries("hook")] == [1, 1, 4]
    assert "HTTP 503: busy" in server.log.getvalue()


def test_what_cannot_be_sent_is_kept_and_retried(api: EmbeddedAPI, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(410, body=b"gone")
    add(api, receiver.url, on=("run.succeeded",))
    run = start(api, "true")
    wait(api, run.id)
    settled(api, 1)
    (failed,) = api.failed_deliveries()
    assert (failed.notification, failed.type, failed.subject, failed.attempts, failed.answer) == (
        *("hook", "run.succeeded", f"runs/{run.id}", 1, "HTTP 410: gone"),
    )
    receiver.answer = lambda _: Reply()
    assert api.retry_deliveries("hook") == 1
    until(lambda: states(api) == {DeliveryState.DELIVERED}, "it is delivered")
    first, second = receiver.received
    assert first.json == second.json
    assert api.failed_deliveries() == []
    assert api.retry_deliveries() == 0


def test_a_delivery_is_given_up_after_some_attempts(
    api: EmbeddedAPI, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.notify.retries.MOST_ATTEMPTS", 4)
    receiver.answer = lambda _: Reply(500)
    add(api, receiver.url, on=("run.succeeded",))
    wait(api, start(api, "true").id)
    settled(api, 1)
    assert [one.attempts for one in api.failed_deliveries()] == [4]
    assert len(receiver.received) == 4


def test_nothing_is_sent_while_it_is_paused(api: EmbeddedAPI, receiver: Receiver) -> None:
    add(api, receiver.url, on=("run.succeeded",))
    api.pause_notification("hook")
    wait(api, start(api, "true").id)
    api.resume_notification("hook")
    run = start(api, "true")
    wait(api, run.id)
    settled(api, 1)
    assert [one.json["data"]["id"] for one in receiver.received] == [run.id]


def test_only_what_a_notification_is_about_is_sent(api: EmbeddedAPI, receiver: Receiver) -> None:
    request = NotificationRequest("hook", receiver.url, ("run.succeeded", "job.created"))
    api.create_notification(replace(request, job="wanted", tags={"team": "ml", "any": None}))
    tags = {"team": "ml", "any": "x"}
    for name, given in (("wanted", {"team": "ml"}), ("other", tags), ("wanted", tags)):
        wait(api, start(api, "true", name=name, tags=given).id)
    until(lambda: len(receiver.received) == 2, "two events arrive")
    until(lambda: len(api.deliveries("hook")) == 2, "the others are dropped")
    assert sorted(receiver.types()) == ["job.created", "run.succeeded"]  # of two subjects
    assert all(one.json["data"]["tags"] == tags for one in receiver.received)


def test_a_changed_target_gets_what_waits(api: EmbeddedAPI, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(500)
    add(api, receiver.url, on=("run.succeeded",))
    wait(api, start(api, "true").id)
    until(lambda: bool(receiver.received), "it is tried")
    with receiving() as other:
        changed = api.edit_notification("hook", NotificationChange(other.url, new_key=True))
        until(lambda: bool(other.received), "it is sent there")
        (one,) = other.received
        assert Webhook(changed.key).verify(one.body.decode(), dict(one.headers))


def test_no_secret_is_in_records_logs_or_answers(
    api: EmbeddedAPI, receiver: Receiver, server: ServerThread
) -> None:
    key = add(api, receiver.url.replace("http://", "http://user:word-of-mouth@"))
    wait(api, start(api, "true", env={"TOKEN": "word-of-env"}).id)
    settled(api, 3)
    assert receiver.received[0].headers["authorization"].startswith("Basic ")
    store = api.store
    shown = api.notification("hook")
    kept = store.notifications.get(shown.id)
    assert isinstance(kept, NotificationRecord) and kept.sealed and not shown.sealed
    database = b"".join(
        file.read_bytes() for file in api.home.root.glob("muster.db*") if file.is_file()
    )
    for secret in ("of-the-receiver", "word-of-mouth", key):
        assert secret.encode() not in database
        assert secret not in server.log.getvalue()
        assert secret not in str(shown)
    assert not any(b"word-of-env" in one.body for one in receiver.received)
    assert shown.target == f"http://127.0.0.1:{receiver.port}/..."


def test_events_of_a_creator_without_rights_are_not_sent(
    backend_api: EmbeddedAPI, receiver: Receiver
) -> None:
    store = backend_api.store
    backend_api.create_notification(NotificationRequest("hook", receiver.url, ("job.created",)))
    made = backend_api.store.notifications.find("default", "hook")
    store.notifications.delete(made.id)
    store.notifications.insert(replace(made, created_by="nobody", local=False))
    with running_server(Backend(backend_api.home)):
        backend_api.create_job(prepare(backend_api, "true").job)
        settled(backend_api, 1)
    (failed,) = backend_api.failed_deliveries()
    assert "nobody, who created notification hook, has no account" in failed.answer
    assert receiver.received == []


def test_events_wait_for_a_server(backend_api: EmbeddedAPI, receiver: Receiver) -> None:
    add(backend_api, receiver.url)
    wait(backend_api, start(backend_api, "true").id)
    assert receiver.received == []
    with running_server(Backend(backend_api.home)):
        until(lambda: len(receiver.received) == 3, "they are sent")
    assert receiver.types() == RUN_EVENTS


def test_a_file_has_a_line_for_each_event(api: EmbeddedAPI) -> None:
    file = api.home.root / "events" / "all.jsonl"
    add(api, f"file:{file}")
    wait(api, start(api, "true").id)
    settled(api, 3)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["type"] for one in lines] == [f"muster.{one}" for one in RUN_EVENTS]


def test_a_run_names_who_is_told_of_its_end(api: EmbeddedAPI, receiver: Receiver) -> None:
    add(api, receiver.url, on=("job.deleted",))
    cases = [
        ("true", {"hook": "failed"}),
        ("exit 3", {"hook": "failed"}),
        ("true", ["hook"]),
        ("exit 3", {"hook": "succeeded"}),
        ("true", "hook"),
        ("exit 3", {"hook": "never"}),
        ("true", {}),
    ]
    for command, notify in cases:
        wait(api, start(api, command, name="told", notify=notify).id)
    settled(api, 3)
    found = {(one.json["data"]["name"], one.json["type"]) for one in receiver.received}
    assert found == {
        ("told-2", "muster.run.failed"),
        ("told-3", "muster.run.succeeded"),
        ("told-5", "muster.run.succeeded"),
    }
    # who listens to it anyhow gets it once
    add(api, receiver.url, "all", on=("run.*",))
    wait(api, start(api, "true", notify={"all": "ended"}).id)
    settled(api, len(RUN_EVENTS), "all")
    assert [one.type for one in api.deliveries("all")][::-1] == RUN_EVENTS


def test_nobody_is_told_while_a_notification_is_paused(
    api: EmbeddedAPI, receiver: Receiver
) -> None:
    add(api, receiver.url, on=("job.deleted",))
    add(api, receiver.url, "other", on=("run.succeeded",))
    api.pause_notification("hook")
    wait(api, start(api, "true", notify=["hook"]).id)
    settled(api, 1, "other")
    assert api.deliveries("hook") == []
