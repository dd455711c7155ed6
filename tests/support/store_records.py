"""Records for tests of stores: a Job, a run, a node, with values that a test may set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from muster.identity import DEFAULT_PROJECT, Owner, new_id
from muster.store.base import Store
from muster.store.records import JobRecord, Lease, NodeRecord, RunRecord

#: The project of the tests that need only one.
PROJECT = DEFAULT_PROJECT
#: The stores that keep accounts, secrets and an audit log, as parameters of the fixture `store`.
DATABASES = ("sqlite", "postgres")
#: A process that drives runs.
OWNER = Owner("ownerone", "host-a", "boot-a")


def job(name: str = "train", **more: Any) -> JobRecord:
    """A Job with content of its own."""
    job_id = new_id()
    record = JobRecord(
        id=job_id,
        name=name,
        version=0,
        content_hash=job_id,
        spec={"command": ["x"]},
        artifact_sha256=None,
        artifact_name=None,
        description="",
        tags={},
        created_at=1.0,
        updated_at=1.0,
    )
    return replace(record, **more)


def node(rank: int, state: str = "PENDING", **more: Any) -> NodeRecord:
    """A node of the group g."""
    record = NodeRecord(
        rank=rank,
        group="g",
        replica=0,
        index=rank,
        node_id=f"n-{rank}",
        fqdn=f"node-{rank}",
        address="127.0.0.9",
        state=state,
        exit_code=None,
        started_at=None,
        finished_at=None,
    )
    return replace(record, **more)


def run(of: JobRecord, number: int, name: str, **more: Any) -> RunRecord:
    """A run that was accepted at 1.0."""
    record = RunRecord(
        id=new_id(),
        name=name,
        number=number,
        job_id=of.id,
        job_name=of.name,
        state="ACCEPTED",
        details="",
        engine="local",
        attempt=0,
        created_at=1.0,
        started_at=None,
        finished_at=None,
        exit_code=None,
        node_count=2,
        spec={},
        origins={},
        overrides={},
        plan={"nodes": [1, 2]},
        lifecycle={},
        notes=["a"],
        cancel_requested_at=None,
        cancel_reason=None,
        project=of.project,
    )
    return replace(record, **more)


def accept(
    store: Store,
    of: JobRecord,
    nodes: Sequence[NodeRecord] = (),
    owner: Owner | None = None,
    lease_expires_at: float | None = None,
    **more: Any,
) -> RunRecord:
    """Store a run of a Job."""

    def build(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, Sequence[NodeRecord]]:
        return run(kept, number, name, **more), nodes

    return store.runs.insert(of, build, owner, lease_expires_at)


def accept_and_drive(store: Store, of: JobRecord, **more: Any) -> tuple[RunRecord, Lease]:
    """Store a run of a Job; the run and its first lease, which OWNER has."""
    made = accept(store, of, [node(0), node(1)], OWNER, **more)
    return made, Lease.first(made.id, OWNER)
