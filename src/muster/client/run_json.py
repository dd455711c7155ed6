"""A run and its failures as JSON-ready data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from muster.describe.times import rfc3339, time_text
from muster.secrets import redacted

if TYPE_CHECKING:
    from muster.client.run_facts import RunFacts
    from muster.lifecycle.status import Failure
    from muster.store.records import RunRecord


def run_dict(run: RunFacts, record: RunRecord) -> dict[str, Any]:
    """A run; times as RFC 3339 text. Of an array the nodes that lists show, and the states of the
    replicas in place of the outputs, of which there may be 100,000."""
    nodes, usage = run.shown_nodes, run.usage
    if run.has_array:
        shown = {node.rank for node in nodes}
        usage = {rank: used for rank, used in usage.items() if rank in shown}
        found: dict[str, Any] = {"replica_states": run.replica_states}
    else:
        found = {"outputs": [os.fspath(one) for one in run.outputs()]}
    return {
        "id": record.id,
        "name": record.name,
        "display_name": record.display_name,
        "job_id": record.job_id,
        "job_name": record.job_name,
        "state": str(record.state),
        "details": run.details,
        "engine": record.engine,
        "attempt": record.attempt,
        "tags": run.tags,
        "schedule": run.schedule,
        "scheduled_at": None if run.scheduled_at is None else rfc3339(run.scheduled_at),
        "created_by": record.created_by,
        "created_at": time_text(record.created_at),
        "started_at": time_text(record.started_at),
        "finished_at": time_text(record.finished_at),
        "exit_code": record.exit_code,
        "restarts": run.restarts,
        "cause": run.cause,
        "consequences": run.consequences,
        "notes": run.notes,
        "replicas": run.replicas,
        "endpoints": {} if run.done else run.endpoints,
        **found,
        "nodes": [node.to_dict() for node in nodes],
        "usage": [{"rank": rank, **used.to_dict()} for rank, used in sorted(usage.items())],
    }


def failure_dict(failure: Failure) -> dict[str, Any]:
    """A failure; secrets in its message hidden."""
    return {
        "rank": failure.rank,
        "group": failure.group,
        "reason": str(failure.reason),
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "message": redacted(failure.message),
        "at": time_text(failure.at),
        "raised_at": time_text(failure.raised_at),
    }
