"""Notifications in Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import muster
from muster.client.client import Client
from support.receivers import Receiver, receiving


@pytest.fixture
def receiver(client: Client) -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def test_a_notification_from_its_creation_to_its_end(receiver: Receiver) -> None:
    made = muster.create_notification(
        "hook", receiver.url, on="run.failed, job.*", job="train", tags={"team": None}
    )
    assert made.key.startswith("whsec_")
    assert repr(made) == f"<Notification hook http://127.0.0.1:{receiver.port}/...>"
    found = muster.get_notification("hook")
    assert (found.on, found.job, found.tags, found.format, found.paused, found.key) == (
        *(["run.failed", "job.*"], "train", {"team": None}, "cloudevents", False, ""),
    )
    assert found.test().delivered
    assert receiver.types() == ["test"]
    assert found.edit(on=["run.*"], job="", tags={}).on == ["run.*"]
    assert found.edit(new_key=True).key not in ("", made.key)
    assert found.pause().paused and not found.resume().paused
    assert found.deliveries() == [] and found.retry() == 0
    assert muster.notifications().to_dict()["name"] == ["hook"]
    assert muster.notifications()._repr_html_().count("<tr") >= 1
    found.delete()
    assert muster.notifications() == []


def test_what_waits_is_listed(client: Client, receiver: Receiver) -> None:
    made = client.create_notification("hook", receiver.url, on="run.*")
    run = muster.run(command=["true"]).wait(60)
    waiting = made.deliveries()
    assert [one.type for one in waiting] == ["run.succeeded", "run.in_progress", "run.accepted"]
    assert {one.subject for one in waiting} == {f"runs/{run.id}"}
    if waiting[0].state == "pending":  # no server runs
        assert waiting[0].due_at is not None and waiting[0].to_dict()["attempts"] == 0
    assert "run.succeeded" in str(waiting[0])
    assert client.failed_deliveries() == []
