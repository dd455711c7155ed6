"""Entries of an outbox."""

from __future__ import annotations

from typing import Any

from muster.store.outbox_records import OutboxEntry

RUN = {
    "id": "run1run1ru",
    "name": "train-7",
    "display_name": None,
    "job_id": "job1job1jo",
    "job_name": "train",
    "state": "FAILED",
    "details": "node-1 failed:\nValueError: <b> & more",
    "engine": "local",
    "attempt": 0,
    "node_count": 2,
    "exit_code": 3,
    "created_by": "ana",
    "created_at": 1_764_000_000.0,
    "started_at": None,
    "finished_at": 1_764_000_010.5,
    "tags": {"team": "ml"},
}
JOB = {"id": "job1job1jo", "name": "train", "version": 3, "by": "bob", "tags": {}}
OBJECT = {"bucket": "data", "name": "a b/ü.csv", "etag": "e1", "size": 3}


def run_entry(kind: str = "run.failed", **more: Any) -> OutboxEntry:
    """An event about a run."""
    state = kind.partition(".")[2].upper()
    data = {**RUN, "state": state, **more}
    return OutboxEntry(
        *(5, "event1event1", 1_764_000_011.25, "vision", kind, "runs/run1run1ru", data)
    )


def job_entry(kind: str = "job.updated", **more: Any) -> OutboxEntry:
    """An event about a Job."""
    subject, data = "jobs/job1job1jo", {**JOB, **more}
    return OutboxEntry(6, "event2event2", 1_764_000_012.0, "vision", kind, subject, data)


def object_entry(kind: str = "object.created", **more: Any) -> OutboxEntry:
    """An event about an object."""
    subject, data = "objects/data/a b/ü.csv", {**OBJECT, **more}
    return OutboxEntry(7, "event3event3", 1_764_000_013.0, "vision", kind, subject, data)
