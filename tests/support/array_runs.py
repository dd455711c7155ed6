"""Runs with arrays that are only recorded, in states of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.identity import new_owner
from muster.plan.model import RunPlan
from muster.spec.overrides import changes_from_mapping
from muster.store.records import NodeRecord, RunStep
from support.embedded import embedded

#: When they started (epoch seconds).
START = 1.0e9


def recorded(
    client: Client,
    records: Mapping[int, Mapping[str, Any]],
    *,
    state: str = "FAILED",
    details: str = "",
    stopping: Mapping[str, Any] | None = None,
    entries: tuple[tuple[str, Mapping[str, Any]], ...] = (),
    **settings: Any,
) -> JobRun:
    """A run that did not run. records: of nodes, fields by rank; the others have none."""
    given = {"suspend": True, **settings}
    prepared = client.prepare(None, changes_from_mapping(given), command=["true"], name="sweep")
    run = client.start(prepared)
    store = embedded(client).store
    plan = RunPlan.from_json(store.runs.get(run.id).plan)
    nodes = []
    for rank, fields in records.items():
        one = plan.node(rank)
        facts: dict[str, Any] = {
            name: getattr(one, name)
            for name in ("group", "replica", "index", "node_id", "fqdn", "address")
        }
        times = {"exit_code": None, "started_at": START, "finished_at": None}
        nodes.append(NodeRecord(rank=rank, **facts, **{**times, **fields}))
    lease = store.leases.take(run.id, new_owner(), START)
    ends = START + 100 if state in ("FAILED", "SUCCEEDED", "CANCELED") else None
    changes = {"state": state, "details": details, "started_at": START, "finished_at": ends}
    changes["lifecycle"] = {"going_since": START, "stopping": stopping}
    store.runs.save(RunStep(lease, changes, nodes, entries, START + 100))
    store.leases.release(lease)
    if state == "IN_PROGRESS":  # else the next command would recover it
        run_lock.acquire_or_refuse(embedded(client).home.run_dir(run.id), run.name)
    return run.refresh()
