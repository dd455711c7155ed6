"""Types of events."""

from __future__ import annotations

from muster.store.outbox_records import EVENT_TYPES, matching_types


def test_patterns_name_types() -> None:
    assert matching_types(["*"]) == set(EVENT_TYPES)
    assert matching_types(["run.failed", "job.*"]) == {
        *("run.failed", "job.created", "job.updated", "job.deleted"),
    }
    assert matching_types(["run.fail"]) == set()
