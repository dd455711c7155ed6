"""Which events a notification wants."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.notify.conditions import condition_problem, matches, types_of, wants
from muster.notify.oci_events import OciNames, oci_event
from muster.store.notification_records import NotificationRecord
from muster.store.outbox_records import EVENT_TYPES, OutboxEntry
from support.outbox_entries import job_entry, object_entry, run_entry

NAMES = OciNames("ocid1.compartment.x", "vision")
RULE = NotificationRecord(
    *("id1id1id1i", "hook", "vision", "webhook", "https://x/...", ("*",), "", {}, "cloudevents"),
    condition=None,
    created_by="ana",
    created_at=1.0,
    updated_at=1.0,
)
FAILED = "com.oraclecloud.datascience.failedjobrun"


@pytest.mark.parametrize(
    ("more", "entry", "wanted"),
    [
        ({}, run_entry(), True),
        ({"job": "train"}, run_entry(), True),
        ({"job": "job1job1jo"}, run_entry(), True),
        ({"job": "trai"}, run_entry(), False),
        ({"job": "train"}, job_entry(), True),
        ({"job": "data"}, object_entry(), False),
        ({"tags": {"team": "ml"}}, run_entry(), True),
        ({"tags": {"team": None}}, run_entry(), True),
        ({"tags": {"team": "vision"}}, run_entry(), False),
        ({"tags": {"other": None}}, run_entry(), False),
        ({"tags": {"team": None}}, object_entry(), False),
        ({"condition": {"eventType": FAILED}}, run_entry(), True),
        ({"condition": {"eventType": FAILED}, "job": "x"}, run_entry(), False),
        ({"condition": {"eventType": FAILED}}, run_entry("run.succeeded"), False),
    ],
)
def test_a_notification_wants_what_it_is_about(
    more: dict[str, Any], entry: OutboxEntry, wanted: bool
) -> None:
    assert wants(replace(RULE, **more), entry, NAMES) is wanted


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ({}, True),
        ({"eventType": FAILED}, True),
        ({"eventType": ["com.x.y", FAILED]}, True),
        ({"eventType": "com.oraclecloud.datascience.*jobrun"}, True),
        ({"eventType": "com.oraclecloud.datascience.?ailedjobrun"}, False),
        ({"eventType": []}, False),
        ({"eventType": FAILED, "data": {"resourceName": "train-*"}}, True),
        ({"eventType": FAILED, "data": {"resourceName": "other-*"}}, False),
        ({"data": {"freeformTags": {"team": "ml"}}}, True),  # as OCI's console writes it
        ({"data": {"freeFormTags": {"team": ["x", "m*"]}}}, True),
        ({"data": {"freeFormTags": {"other": "ml"}}}, False),
        ({"data": {"additionalDetails": {"exitCode": 3}}}, True),
        ({"data": {"additionalDetails": {"exitCode": "3"}}}, False),
        ({"data": "x"}, False),
        ({"data": {"resourceName": {"x": "y"}}}, False),
        ({"unknown": "*"}, False),
    ],
)
def test_a_condition_of_oci(condition: dict[str, Any], fits: bool) -> None:
    assert matches(condition, oci_event(run_entry(), NAMES)) is fits
    assert condition_problem(condition) is None


def test_only_types_that_may_fit_are_listened_to() -> None:
    assert types_of({}) == types_of({"data": {"x": "y"}}) == EVENT_TYPES
    assert types_of({"eventType": FAILED}) == ("run.failed",)
    wanted = ["com.oraclecloud.datascience.createjobrun.*", FAILED]
    assert types_of({"EVENTTYPE": wanted}) == ("run.accepted", "run.in_progress", "run.failed")
    assert types_of({"eventType": "com.oraclecloud.computeapi.*"}) == ()


def test_what_is_no_condition_is_refused() -> None:
    deep: Any = "x"
    for _ in range(20):
        deep = {"data": deep}
    assert "nested" in (condition_problem(deep) or "")
    assert condition_problem([]) == "the condition has to be a JSON object"
    assert condition_problem({"eventType": [["x"]]}) == "eventType: an array in an array"
