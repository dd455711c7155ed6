"""Schedules from Python."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import muster
from muster.client.client import Client
from muster.errors import InvalidInput


def create(client: Client, name: str = "nightly", **more: object) -> muster.Schedule:
    options = {"cron": "0 3 * * *", "env": {"PASSWORD": "hunter2"}} | more
    return muster.create_schedule(name, command=["true"], **options)  # type: ignore[arg-type]


def test_a_schedule_is_created_as_a_run_is_started(client: Client) -> None:
    made = create(client, cron=None, every="6h", nodes=2, start_within=30)
    assert (made.name, made.job, made.timing.every) == ("nightly", "true@1", 21600.0)
    assert made.timing.start_within == 30.0
    assert made.overrides["env"] == {"PASSWORD": "***"}
    found = muster.get_schedule("nightly")
    assert found.id == made.id
    assert [one.name for one in muster.schedules()] == ["nightly"]
    assert found.created_at <= datetime.now(UTC)


def test_times_are_known_while_it_is_not_paused(client: Client) -> None:
    made = create(client)
    upcoming = made.next_times(3)
    assert upcoming[0] == made.next_at
    assert [(one.hour, one.minute) for one in upcoming] == [(3, 0)] * 3
    assert made.pause().paused
    assert (made.next_at, made.next_times()) == (None, [])
    assert not made.resume().paused


def test_its_runs_have_the_secrets_that_it_does_not_show(client: Client) -> None:
    made = create(client)
    run = made.trigger().wait(60)
    assert run.state == "SUCCEEDED"
    assert (run.schedule, run.tags["muster-schedule"]) == ("nightly", "nightly")
    assert run.scheduled_at is not None and run.scheduled_at <= run.created_at
    (firing,) = made.firings()
    assert (firing.run, firing.run_state, firing.outcome) == (run.name, "SUCCEEDED", "started")
    assert firing.time == run.scheduled_at
    assert made.firings(before=firing.time) == []
    assert "hunter2" not in repr((made.to_dict(), run.to_dict()))


def test_an_edit_changes_what_is_given(client: Client) -> None:
    made = create(client)
    other = muster.create_job(command=["false"], name="other")
    assert made.edit(job="other").job == f"other@{other.version}"
    assert made.edit(overlap="allow", every=3600).timing.cron is None
    assert made.timing.overlap == "allow"
    with pytest.raises(InvalidInput, match="overlap: must be one of allow, skip, replace"):
        made.edit(overlap="never")
    with pytest.raises(InvalidInput, match="no job named 'missing'"):
        made.edit(job="missing")
    made.delete()
    assert muster.schedules() == []


def test_lists_are_tables(client: Client) -> None:
    for name in ("a", "b"):
        create(client, name)
    found = muster.schedules()
    assert found.to_dict()["name"] == ["a", "b"]
    assert "0 3 * * * UTC" in str(found)
    assert "SCHEDULE</th>" in found._repr_html_()
    assert [one.name for one in client.schedules(limit=1, after="a")] == ["b"]
