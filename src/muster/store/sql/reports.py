"""Events for listeners, recorded with what they report.

An entry is written only if somebody listens to its type in its project, with a row in `deliveries`
for each listener. A row is there as soon as its transaction is committed: readers need no cursor,
which would pass over entries of transactions that began earlier and ended later.

Each run is recorded with this: it costs one query where nobody listens, and imports nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from muster.identity import new_id
from muster.lifecycle.states import RunState
from muster.store.records import LIFECYCLE_KEYS, JobRecord, decoded
from muster.store.sql.database import Connection
from muster.store.times import micros, seconds

if TYPE_CHECKING:
    from muster.store.object_records import ObjectChange
    from muster.store.outbox_records import NewEvent
    from muster.store.resource_records import ResourceRecord

#: What an event tells of a run: columns of `runs`.
_RUN = (
    *("id", "name", "display_name", "job_id", "job_name", "state", "details", "engine", "attempt"),
    *("node_count", "exit_code", "created_by", "created_at", "started_at", "finished_at"),
)
_TIMES = ("created_at", "started_at", "finished_at")
#: State of a run -> the values of `notify` in its spec that mean it.
_TOLD = {
    "SUCCEEDED": ("ended", "succeeded"),
    "FAILED": ("ended", "failed"),
    "NEEDS_ATTENTION": ("ended", "failed"),
    "CANCELED": ("ended",),
}
#: What it tells of the first failure: fields of `lifecycle.status.Failure`.
_CAUSE = ("rank", "group", "reason", "exit_code", "signal", "message")
#: What it tells of an object: fields of `ObjectRecord`.
_OBJECT = ("name", "size", "etag", "md5", "created_at", "modified_at")
_JOB = ("id", "name", "version", "display_name", "description", "created_by", "state", "tags")
#: What it tells of a job of the OCI API: fields of `ResourceRecord`.
_RESOURCE = ("id", "name", "version", "created_by", "state", "created_at")


def report(connection: Connection, event: NewEvent, told: Collection[str] = ()) -> None:
    """Within the transaction of what it reports: record an event, if somebody listens to it. told:
    names of notifications to which it is sent besides."""
    listening = _listening(connection, event.project, event.type)
    if told:
        known = {listener for listener, _ in listening}
        listening += _named(connection, event.project, told, known)
    if not listening:
        return
    (seq,) = connection.execute(
        "INSERT INTO outbox (id, time, project, type, subject, data) VALUES (?, ?, ?, ?, ?, ?) "
        "RETURNING seq",
        (
            new_id() + new_id(),
            micros(event.time),
            event.project,
            event.type,
            event.subject,
            json.dumps(event.data),
        ),
    ).fetchone()
    connection.executemany(
        "INSERT INTO deliveries (listener, seq, kind, subject, due_at) VALUES (?, ?, ?, ?, ?)",
        [(listener, seq, kind, event.subject, micros(event.time)) for listener, kind in listening],
    )


def report_object(connection: Connection, change: ObjectChange) -> None:
    """Within the transaction that has changed an object: record that as an event."""
    from muster.store.outbox_records import NewEvent

    bucket, found = change.bucket, change.object
    data = {
        "bucket": bucket.name,
        **{name: getattr(found, name) for name in _OBJECT},
        "content_type": found.headers.get("content-type", ""),
    }
    kind, subject = f"object.{change.kind}", f"objects/{bucket.name}/{found.name}"
    report(connection, NewEvent(bucket.project, kind, subject, change.time, data))


def _listening(connection: Connection, project: str, kind: str) -> list[Any]:
    """The ids and kinds of those who listen to a type of events."""
    sql = "SELECT id, kind FROM listeners WHERE project = ? AND type = ?"
    return connection.execute(sql, (project, kind)).fetchall()


def _named(
    connection: Connection, project: str, names: Iterable[str], known: Collection[str]
) -> list[tuple[str, str]]:
    """The ids and kinds of notifications that are not known to listen already."""
    from muster.store.outbox_records import ListenerKind

    sql = "SELECT id FROM notifications WHERE project = ? AND name = ? AND paused = 0"
    rows = (connection.execute(sql, (project, name)).fetchone() for name in names)
    found = [row["id"] for row in rows if row is not None]
    return [(one, str(ListenerKind.NOTIFICATION)) for one in found if one not in known]


def heard_state(connection: Connection, run_id: str) -> str | None:
    """Within a transaction: the state of a run; None if nobody listens to events of its project, or
    it does not exist."""
    row = connection.execute(
        "SELECT state FROM runs WHERE id = ? AND EXISTS "
        "(SELECT 1 FROM listeners WHERE listeners.project = runs.project)",
        (run_id,),
    ).fetchone()
    return None if row is None else str(row[0])


def report_run(
    connection: Connection,
    run_id: str,
    time: float,
    state: str | None = None,
    details: str | None = None,
) -> None:
    """Within a transaction that has changed the run: record a state of it as an event. state,
    details: those that it had, if it has others already; None: those of its row."""
    row = connection.execute(
        f"SELECT {', '.join(_RUN)}, project, tags, lifecycle FROM runs WHERE id = ?", (run_id,)
    ).fetchone()
    facts = {name: row[name] for name in _RUN}
    facts |= {name: seconds(row[name]) for name in _TIMES}
    facts |= {"tags": _json(row["tags"])}
    if isinstance(cause := _json(row["lifecycle"]).get(LIFECYCLE_KEYS["cause"]), Mapping):
        facts["first_cause"] = {name: cause.get(name) for name in _CAUSE}
    if (resource := _job_run(connection, run_id)) is not None:
        facts["oci"] = resource
    if state is not None and state != row["state"]:
        facts |= {"state": str(state), "details": details or ""}
        if state != RunState.DELETED:  # how it has ended is not known yet
            facts |= {"exit_code": None, "finished_at": None}
            facts.pop("first_cause", None)
    if told := _told(connection, run_id, facts["state"]):
        facts["notify"] = told
    from muster.store.outbox_records import NewEvent

    kind = f"run.{facts['state'].lower()}"
    report(connection, NewEvent(row["project"], kind, f"runs/{run_id}", time, facts), told)


def _told(connection: Connection, run_id: str, state: str) -> list[str]:
    """The notifications that the spec of a run names for a state."""
    if (when := _TOLD.get(state)) is None:
        return []
    sql = "SELECT spec FROM run_specs WHERE run_id = ?"
    row = connection.execute(sql, (run_id,)).fetchone()
    if row is None or '"notify"' not in row["spec"]:  # decoding a long one takes time
        return []
    named = _json(row["spec"]).get("notify")
    return [name for name, at in named.items() if at in when] if isinstance(named, Mapping) else []


def report_job(
    connection: Connection,
    job: JobRecord,
    kind: str,
    time: float,
    *,
    by: str,
    changes: Iterable[str] = (),
) -> None:
    """Within the transaction that has changed a Job: record that as an event. kind: created,
    updated or deleted. changes: the names of the settings that were changed."""
    if not _listening(connection, job.project, f"job.{kind}"):
        return
    from muster.store.outbox_records import NewEvent

    data = {name: getattr(job, name) for name in _JOB}
    data |= {"created_at": job.created_at, "by": by, "changes": sorted(changes)}
    report(connection, NewEvent(job.project, f"job.{kind}", f"jobs/{job.id}", time, data))


def report_job_resource(connection: Connection, job: ResourceRecord, kind: str) -> None:
    """Within the transaction that has changed a job of the OCI API: record that as an event. kind:
    created, updated or deleted."""
    if not _listening(connection, job.project, f"job.{kind}"):
        return
    from muster.store.outbox_records import NewEvent

    data = {name: getattr(job, name) for name in _RESOURCE}
    data |= {"tags": job.data.get("freeformTags") or {}, "oci": _of_resource(job.name, job.data)}
    if kind == "created":
        data["by"] = job.created_by
    time = job.created_at if kind == "created" else job.updated_at
    report(connection, NewEvent(job.project, f"job.{kind}", f"jobs/{job.id}", time, data))


def is_job_run(connection: Connection, run_id: str) -> bool:
    """Within a transaction: whether a run is a job run of the OCI API."""
    return _job_run(connection, run_id) is not None


def _job_run(connection: Connection, run_id: str) -> dict[str, Any] | None:
    """What is told of the job run of the OCI API that a run is; None if it is none."""
    from muster.spec.ocids import ocid
    from muster.store.resource_records import JOB, JOB_RUN

    row = connection.execute(
        "SELECT name, parent, data FROM resources WHERE kind = ? AND id = ?", (JOB_RUN, run_id)
    ).fetchone()
    if row is None:
        return None
    return {**_of_resource(row["name"], _json(row["data"])), "job": ocid(JOB, row["parent"])}


def _of_resource(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "defined_tags": data.get("definedTags") or {}}


def _json(text: Any) -> Mapping[str, Any]:
    """The value of a column; empty if it is damaged, which the run's own reader reports."""
    try:
        value = decoded(text)
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}
