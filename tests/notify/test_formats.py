"""What is sent."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from muster.notify.formats import Format, text_of, title_of, write
from muster.notify.oci_events import OciNames
from support.outbox_entries import job_entry, object_entry, run_entry

NAMES = OciNames("ocid1.compartment.x", "vision")


def body(form: Format) -> Any:
    return json.loads(write(run_entry(), form, NAMES).body)


def test_structured_cloudevents() -> None:
    message = write(run_entry(), Format.CLOUDEVENTS, NAMES)
    assert message.content_type == "application/cloudevents+json"
    event = json.loads(message.body)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "event1event1",
        "source": "/projects/vision",
        "type": "muster.run.failed",
        "subject": "runs/run1run1ru",
        "time": "2025-11-24T16:00:11.250000Z",
        "datacontenttype": "application/json",
    }
    assert (data["name"], data["exit_code"], data["tags"]) == ("train-7", 3, {"team": "ml"})
    assert (data["finished_at"], data["started_at"]) == ("2025-11-24T16:00:10.500000Z", None)


def test_binary_cloudevents_have_the_attributes_in_headers() -> None:
    message = write(object_entry(), Format.CLOUDEVENTS_BINARY, NAMES)
    assert message.content_type == "application/json"
    assert json.loads(message.body)["name"] == "a b/ü.csv"
    headers = dict(message.headers)
    assert headers["ce-subject"] == "objects/data/a%20b/%C3%BC.csv"
    assert unquote(headers["ce-subject"]) == object_entry().subject
    assert (headers["ce-specversion"], headers["ce-type"]) == ("1.0", "muster.object.created")
    assert all(value.isascii() and value.isprintable() for value in headers.values())


def test_nothing_in_a_message_of_slack_is_a_link_or_a_mention() -> None:
    text = body(Format.SLACK)["text"]
    assert text == (
        "train-7 FAILED in project vision: node-1 failed: ValueError: &lt;b&gt; &amp; more"
    )


def test_sentences() -> None:
    assert write(run_entry(), Format.TEXT, NAMES).body.decode() == (
        "train-7 FAILED in project vision: node-1 failed: ValueError: <b> & more\n"
    )
    assert text_of(run_entry("run.succeeded", details="")) == (
        "train-7 SUCCEEDED in project vision, by ana"
    )
    assert text_of(job_entry()) == "job train@3 updated in project vision, by bob"
    assert title_of(object_entry()) == "object data/a b/ü.csv created"
