"""What a run finds of the event that has started it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import muster
from muster.lifecycle.trigger import Event
from muster.service.embedded import EmbeddedAPI
from muster.service.event_inputs import inputs_of_event
from muster.service.prepare import prepare_run
from muster.spec.overrides import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.storage.home import Home
from muster.unix_account import UnixAccount

SAM = UnixAccount(12345, 12345, (12345,), "/", "sam")


@pytest.fixture
def home(own_home: Path) -> Home:
    return Home(own_home)


def ended(run_id: str) -> Event:
    return Event("e1", "run.succeeded", "first-1", {"id": run_id, "name": "first-1"})


def test_outputs_of_another_account_are_not_there_and_a_note_says_so(home: Home) -> None:
    run = muster.run(command=["true"], name="first").wait()
    event = ended(run.id)
    own, of_sam = inputs_of_event(home, event, None), inputs_of_event(home, event, SAM)
    assert own.notes == ()
    assert [one.variable for one in own.mounts] == [
        *("MUSTER_EVENT", "MUSTER_AFTER_OUTPUTS"),
    ]
    assert [one.variable for one in of_sam.mounts] == ["MUSTER_EVENT"]
    assert of_sam.notes == (
        "MUSTER_AFTER_OUTPUTS is not set: the outputs of first-1 are another user's, whose runs "
        "have a Unix account of their own",
    )
    run.delete()
    assert inputs_of_event(home, event, None).notes == (
        "MUSTER_AFTER_OUTPUTS is not set: first-1 was deleted",
    )


def test_an_event_about_something_else_has_no_outputs(home: Home) -> None:
    event = Event("e1", "object.created", "x", {"name": "x"})
    found = inputs_of_event(home, event, SAM)
    assert found.notes == ()
    assert len(found.mounts) == 1


def test_a_run_that_waits_for_one_of_another_account_has_the_note(home: Home) -> None:
    before = muster.run(command=["true"], name="first").wait()
    api = EmbeddedAPI()
    job = api.prepare_job(spec_from_mapping({"name": "second", "command": ["true"]})).record
    context = replace(api.context, submission=replace(api.context.submission, account=SAM))
    found = prepare_run(context, job, RunOverrides(after=(before.name,)), new_job=True)
    assert any("the outputs of first-1 are another user's" in note for note in found.notes)
    assert "MUSTER_AFTER_OUTPUTS" not in [m.variable for m in found.plan.groups[0].mounts]
    api.close()
