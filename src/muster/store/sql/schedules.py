"""Schedules, and what was done at their times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from muster.errors import Conflict, InvalidInput, NotFound, Problem
from muster.lifecycle.schedule import Running
from muster.lifecycle.trigger import AfterRun, Event, cycle_problem, event_types
from muster.store import names
from muster.store.account_records import AuditEntry
from muster.store.outbox_records import ListenerKind
from muster.store.records import CorruptRecord, JobRecord, decoded, read_record
from muster.store.schedule_records import (
    KEPT_FIRINGS,
    KNOWN_DELIVERIES,
    FiringRecord,
    ScheduleRecord,
    WebhookRecord,
)
from muster.store.sql.audit import insert_entries
from muster.store.sql.database import LIVE, Connection, Database, Row
from muster.store.sql.jobs import insert_job
from muster.store.sql.outbox import consume, remove_listener, set_listener
from muster.store.sql.search import named_row
from muster.store.times import micros, optional_micros, seconds

_JSON = ("timing", "overrides", "environ", "notes", "trigger")
_TIMES = ("created_at", "updated_at", "next_at")
#: The columns, which are called like the fields; `job` is that of another table.
_COLUMNS = tuple(name for name in ScheduleRecord.__struct_fields__ if name != "job")
_QUERY = (
    "SELECT schedules.*, jobs.name || '@' || jobs.version AS job "
    "FROM schedules JOIN jobs ON jobs.id = schedules.job_id"
)
_FIRING = tuple(
    name for name in FiringRecord.__struct_fields__ if name not in ("run_name", "run_state")
)
_FIRINGS = (
    "SELECT firings.*, coalesce(runs.name, '') AS run_name, coalesce(runs.state, '') AS run_state "
    "FROM firings LEFT JOIN runs ON runs.id = firings.run_id"
)
_INSERT_FIRING = (
    f"INSERT INTO firings ({', '.join(_FIRING)}) VALUES ({', '.join('?' * len(_FIRING))}) "
    "ON CONFLICT (schedule_id, time) DO NOTHING RETURNING 1"
)
#: Of a schedule, all but the last ones, those to be settled, and those whose run has not ended.
_FORGET = (
    "DELETE FROM firings WHERE schedule_id = ? AND outcome != 'starting' AND time <= ("
    "SELECT time FROM firings WHERE schedule_id = ? ORDER BY time DESC LIMIT 1 OFFSET ?) "
    f"AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = firings.run_id AND {LIVE})"
)
_HINT = "delete the schedule, and create it again"


class SqlSchedules:
    """See `store.protocols.schedules.Schedules`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, schedule: ScheduleRecord, job: JobRecord) -> ScheduleRecord:
        """See `Schedules.insert`."""

        def step(connection: Connection) -> None:
            kept = insert_job(connection, job)
            _check_cycles(connection, schedule, kept.name)
            values = _values(schedule) | {"job_id": kept.id}
            sql = (
                f"INSERT INTO schedules ({', '.join(_COLUMNS)}) "
                f"VALUES ({', '.join('?' * len(_COLUMNS))}) "
                "ON CONFLICT (project, name) DO NOTHING RETURNING 1"
            )
            if connection.execute(sql, [*values.values()]).fetchone() is None:
                text = f"there is a schedule named {schedule.name!r} already"
                hint = "`muster schedules edit` changes it"
                raise InvalidInput(Problem("name", text, hint))
            _listen(connection, schedule)

        def done(connection: Connection) -> bool:
            sql = "SELECT 1 FROM schedules WHERE id = ?"
            return connection.execute(sql, (schedule.id,)).fetchone() is not None

        self._db.write(step, durable=True, done=done)
        return self.get(schedule.id)

    def get(self, schedule_id: str) -> ScheduleRecord:
        """See `Schedules.get`."""
        rows = self._db.read(f"{_QUERY} WHERE schedules.id = ?", (schedule_id,))
        if not rows:
            raise _no_schedule(schedule_id)
        return _schedule(rows[0])

    def find(self, project: str, text: str) -> ScheduleRecord:
        """See `Schedules.find`."""
        given = ("schedules", project, text, "muster schedules list")
        return _schedule(named_row(self._db, _QUERY, *given))

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        """See `Schedules.listing`."""
        sql, values = f"{_QUERY} WHERE schedules.project = ?", [project]
        if after is not None:
            sql, values = f"{sql} AND schedules.name > ?", [*values, after]
        sql += " ORDER BY schedules.name"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_schedule(row) for row in self._db.read(sql, values)]

    def update(self, before: ScheduleRecord, after: ScheduleRecord) -> ScheduleRecord:
        """See `Schedules.update`."""
        changed = ["job_id", "timing", "updated_at", "version", "paused"]
        if before.next_at != after.next_at:  # else a server may have moved it on meanwhile
            changed.append("next_at")
        values = _values(after) | {"version": before.version + 1}
        sql = (
            f"UPDATE schedules SET {', '.join(f'{name} = ?' for name in changed)} "
            "WHERE id = ? AND version = ? RETURNING 1"
        )

        def step(connection: Connection) -> bool:
            _check_cycles(connection, after, _lock_job(connection, after.job_id))
            given = [*(values[name] for name in changed), before.id, before.version]
            if connection.execute(sql, given).fetchone() is None:
                return False
            _listen(connection, after)
            return True

        if not self._db.write(step, durable=True):
            self.get(before.id)  # raises NotFound
            text = f"schedule {before.name} was changed by another user meanwhile"
            raise Conflict(str(Problem("", text, "review the change, then try again")))
        return self.get(before.id)

    def delete(self, schedule_id: str) -> bool:
        """See `Schedules.delete`."""
        sql = "DELETE FROM schedules WHERE id = ? RETURNING 1"

        def step(connection: Connection) -> bool:
            remove_listener(connection, schedule_id)
            return bool(connection.execute(sql, (schedule_id,)).fetchall())

        return self._db.write(step, durable=True)

    def due(self, now: float) -> list[ScheduleRecord]:
        """See `Schedules.due`."""
        sql = f"{_QUERY} WHERE schedules.next_at <= ? ORDER BY schedules.next_at"
        return [_schedule(row) for row in self._db.read(sql, (micros(now),))]

    def next_at(self) -> float | None:
        """See `Schedules.next_at`."""
        first = self._db.read("SELECT min(next_at) FROM schedules")[0][0]
        return None if first is None else float(seconds(first))

    def decide(
        self,
        schedule: ScheduleRecord,
        next_at: float | None,
        firing: FiringRecord,
        *entries: AuditEntry,
    ) -> bool:
        """See `Schedules.decide`."""
        sql = (
            "UPDATE schedules SET next_at = ? WHERE id = ? AND version = ? AND next_at = ? "
            "RETURNING 1"
        )
        known = (schedule.id, schedule.version, optional_micros(schedule.next_at))

        def step(connection: Connection) -> bool:
            moved = connection.execute(sql, (optional_micros(next_at), *known)).fetchone()
            if moved is None or not _insert_firing(connection, firing):
                return False
            insert_entries(connection, entries)
            return True

        def done(connection: Connection) -> bool:
            found = "SELECT 1 FROM firings WHERE schedule_id = ? AND time = ? AND decided_at = ?"
            values = (schedule.id, micros(firing.time), micros(firing.decided_at))
            return connection.execute(found, values).fetchone() is not None

        return self._db.write(step, durable=True, done=done)

    def decide_event(
        self,
        schedule: ScheduleRecord,
        firing: FiringRecord,
        *entries: AuditEntry,
        seq: int | None = None,
    ) -> bool:
        """See `Schedules.decide_event`."""
        event = firing.event
        assert event is not None

        def step(connection: Connection) -> bool:
            if not _count_decision(connection, schedule):
                return False
            if seq is not None:
                new = consume(connection, schedule.id, seq)
            else:
                new = _note_delivery(connection, firing, event)
            if new:
                _insert_firing(connection, _at_free_time(connection, firing))
                insert_entries(connection, entries)
            return new

        def done(connection: Connection) -> bool:
            sql = "SELECT 1 FROM firings WHERE schedule_id = ? AND decided_at = ? AND event = ?"
            values = (schedule.id, micros(firing.decided_at), _event_column(event))
            return connection.execute(sql, values).fetchone() is not None

        return self._db.write(step, durable=True, done=done)

    def pass_over(self, schedule_id: str, seq: int) -> None:
        """See `Schedules.pass_over`."""
        self._db.write(lambda connection: consume(connection, schedule_id, seq))

    def delivered(self, schedule_id: str, delivery: str) -> tuple[bool, str | None]:
        """See `Schedules.delivered`."""
        sql = "SELECT run_id FROM webhook_deliveries WHERE schedule_id = ? AND id = ?"
        rows = self._db.read(sql, (schedule_id, delivery))
        return (True, rows[0]["run_id"]) if rows else (False, None)

    def webhook(self, schedule_id: str) -> WebhookRecord | None:
        """See `Schedules.webhook`."""
        rows = self._db.read("SELECT * FROM webhooks WHERE schedule_id = ?", (schedule_id,))
        if not rows:
            return None
        data = {**dict(rows[0]), "set_at": seconds(rows[0]["set_at"])}
        what = f"the webhook of schedule {schedule_id}"
        return read_record(WebhookRecord, data, what, "`muster schedules webhook --rotate` helps")

    def set_webhook(self, webhook: WebhookRecord) -> None:
        """See `Schedules.set_webhook`."""
        sql = (
            "INSERT INTO webhooks (schedule_id, secret, set_at) VALUES (?, ?, ?) "
            "ON CONFLICT (schedule_id) DO UPDATE SET secret = excluded.secret, "
            "set_at = excluded.set_at"
        )

        def step(connection: Connection) -> None:
            exists = "SELECT 1 FROM schedules WHERE id = ?" + connection.dialect.lock_to_refer
            if connection.execute(exists, (webhook.schedule_id,)).fetchone() is None:
                raise _no_schedule(webhook.schedule_id)
            values = (webhook.schedule_id, webhook.secret, micros(webhook.set_at))
            connection.execute(sql, values)

        self._db.write(step, durable=True)

    def settle(self, firing: FiringRecord) -> bool:
        """See `Schedules.settle`."""
        sql = (
            "UPDATE firings SET outcome = ?, why = ?, event = ? "
            "WHERE schedule_id = ? AND run_id = ? AND outcome = 'starting' RETURNING 1"
        )
        event = _event_column(firing.event if firing.event is None else _without_data(firing.event))
        key = (firing.schedule_id, firing.run_id)  # an event's may be at a later time
        values = (str(firing.outcome), firing.why, event, *key)

        def step(connection: Connection) -> bool:
            return connection.execute(sql, values).fetchone() is not None

        return self._db.write(step)

    def note(self, firing: FiringRecord) -> None:
        """See `Schedules.note`."""

        def step(connection: Connection) -> None:
            exists = "SELECT 1 FROM schedules WHERE id = ?" + connection.dialect.lock_to_refer
            if connection.execute(exists, (firing.schedule_id,)).fetchone() is not None:
                _insert_firing(connection, firing)

        self._db.write(step)

    def unsettled(self, until: float) -> list[FiringRecord]:
        """See `Schedules.unsettled`."""
        sql = f"{_FIRINGS} WHERE outcome = 'starting' AND decided_at <= ? ORDER BY decided_at"
        return [_firing(row) for row in self._db.read(sql, (micros(until),))]

    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        """See `Schedules.firings`."""
        values: tuple[Any, ...]
        sql, values = f"{_FIRINGS} WHERE schedule_id = ?", (schedule_id,)
        if before is not None:
            sql, values = f"{sql} AND time < ?", (schedule_id, micros(before))
        sql += " ORDER BY time DESC"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_firing(row) for row in self._db.read(sql, values)]

    def running(self, schedule_id: str) -> list[Running]:
        """See `Schedules.running`."""
        starting, live = "outcome = 'starting'", f"(runs.id IS NOT NULL AND {LIVE})"
        sql = f"{_FIRINGS} WHERE schedule_id = ? AND ({starting} OR {live}) ORDER BY time DESC"
        return [
            Running(one.run_id or "", one.run_name, one.run_state or "STARTING")
            for one in map(_firing, self._db.read(sql, (schedule_id,)))
        ]


def _insert_firing(connection: Connection, firing: FiringRecord) -> bool:
    """Within a transaction: False if something was done at this time already."""
    values = [_firing_column(name, getattr(firing, name)) for name in _FIRING]
    new = connection.execute(_INSERT_FIRING, values).fetchone() is not None
    forget = (firing.schedule_id, firing.schedule_id, KEPT_FIRINGS)
    connection.execute(_FORGET, forget)
    return new


def _count_decision(connection: Connection, schedule: ScheduleRecord) -> bool:
    """Within a transaction: False if something was decided about another event, or the schedule was
    changed, since the schedule was read."""
    sql = (
        "UPDATE schedules SET decided = decided + 1 "
        "WHERE id = ? AND version = ? AND decided = ? RETURNING 1"
    )
    known = (schedule.id, schedule.version, schedule.decided)
    return connection.execute(sql, known).fetchone() is not None


def _note_delivery(connection: Connection, firing: FiringRecord, event: Event) -> bool:
    """Within a transaction: False if the request to the webhook is known. Forgets old ones."""
    old = "DELETE FROM webhook_deliveries WHERE received_at < ?"
    connection.execute(old, (micros(firing.decided_at - KNOWN_DELIVERIES),))
    sql = (
        "INSERT INTO webhook_deliveries (schedule_id, id, received_at, run_id) "
        "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
    )
    values = (firing.schedule_id, event.id, micros(firing.decided_at), firing.run_id)
    return connection.execute(sql, values).fetchone() is not None


def _listen(connection: Connection, schedule: ScheduleRecord) -> None:
    """Within a transaction: a schedule hears of the events that may start its runs."""
    types = () if schedule.paused else event_types(schedule.trigger)
    if schedule.trigger is not None:
        place = (schedule.id, ListenerKind.TRIGGER, schedule.project)
        set_listener(connection, *place, types)


def _at_free_time(connection: Connection, firing: FiringRecord) -> FiringRecord:
    """Within a transaction: a firing at a time that its schedule has nothing at. Several events may
    happen at one moment."""
    sql = "SELECT max(time) FROM firings WHERE schedule_id = ? AND time >= ?"
    (last,) = connection.execute(sql, (firing.schedule_id, micros(firing.time))).fetchone()
    return firing if last is None else replace(firing, time=float(seconds(last + 1)))


def _without_data(event: Event) -> Event:
    return replace(event, data={})


def _event_column(event: Event | None) -> str:
    return json.dumps(to_builtins(event))


def _firing_column(name: str, value: Any) -> Any:
    if name in ("time", "decided_at"):
        return micros(value)
    if name == "event":
        return _event_column(value)
    return str(value) if name == "outcome" else value


def _check_cycles(connection: Connection, schedule: ScheduleRecord, job: str) -> None:
    """Within a transaction: raises InvalidInput if the runs of the schedule and those of others
    would start each other without end. job: the name of its Job."""
    if not isinstance(schedule.trigger, AfterRun):
        return
    if lock := connection.dialect.lock_text:  # two at once would not see each other
        connection.execute(lock, (f"schedules after runs in {schedule.project}",))
    rows = connection.execute(
        "SELECT trigger, jobs.name AS job FROM schedules JOIN jobs ON jobs.id = job_id "
        "WHERE schedules.project = ? AND schedules.id != ? AND trigger != 'null'",
        (schedule.project, schedule.id),
    ).fetchall()
    edges = []
    for row in rows:
        try:
            found = decoded(row["trigger"])
        except ValueError:  # it is reported to who reads that schedule, and starts nothing
            continue
        if isinstance(found, Mapping) and found.get("type") == "run":
            edges.append((str(found.get("job")), row["job"]))
    if (problem := cycle_problem(edges, schedule.trigger.job, job)) is not None:
        raise InvalidInput(problem)


def _lock_job(connection: Connection, job_id: str) -> str:
    """Within a transaction: the Job stays as it is until it ends. Returns its name. Raises
    NotFound, and InvalidInput if it is deleted."""
    sql = f"SELECT name, version, state FROM jobs WHERE id = ?{connection.dialect.lock_to_refer}"
    row = connection.execute(sql, (job_id,)).fetchone()
    if row is None:
        raise names.no_job_error(job_id)
    if row["state"] != "ACTIVE":
        raise InvalidInput(Problem("job", f"job {row['name']}@{row['version']} is deleted"))
    return str(row["name"])


def _values(schedule: ScheduleRecord) -> dict[str, Any]:
    """Column -> its value."""
    given = {name: getattr(schedule, name) for name in _COLUMNS}
    for name in _JSON:
        given[name] = json.dumps(to_builtins(given[name]))
    for name in _TIMES:
        given[name] = optional_micros(given[name])
    return given | {"local": int(schedule.local), "paused": int(schedule.paused)}


def _schedule(row: Row) -> ScheduleRecord:
    data: dict[str, Any] = dict(row)
    what = f"the record of schedule {row['name']}"
    for name in _JSON:
        try:
            data[name] = decoded(data[name])
        except ValueError as error:
            raise CorruptRecord(f"{what} is corrupt: {name}: {error}; {_HINT}") from None
    for name in _TIMES:
        data[name] = seconds(data[name])
    flags = {name: bool(data[name]) for name in ("local", "paused")}
    return read_record(ScheduleRecord, data | flags, what, _HINT)


def _firing(row: Row) -> FiringRecord:
    data: Mapping[str, Any] = dict(row)
    times = {name: seconds(data[name]) for name in ("time", "decided_at")}
    what = f"what was done by schedule {row['schedule_id']}"
    try:
        event = decoded(data["event"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: event: {error}; {_HINT}") from None
    return read_record(FiringRecord, {**data, **times, "event": event}, what, _HINT)


def _no_schedule(schedule_id: str) -> NotFound:
    hint = "`muster schedules list` lists them"
    return NotFound(Problem("", f"no schedule with the id {schedule_id!r}", hint))
