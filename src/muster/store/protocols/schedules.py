"""Schedules, and what was done at their times. Several servers may act on them at once: what
is done at a time is decided once (`decide`), and what was decided is carried out by whoever
decided it or, if that server was killed, by another one (`unsettled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.lifecycle.schedule import Running
    from muster.store.account_records import AuditEntry
    from muster.store.records import JobRecord
    from muster.store.schedule_records import FiringRecord, ScheduleRecord, WebhookRecord


class Schedules(Protocol):
    """See the module."""

    def insert(self, schedule: ScheduleRecord, job: JobRecord) -> ScheduleRecord:
        """Add a schedule and, if it is new, its Job. Raises InvalidInput if the name is taken, the
        Job is deleted, or runs of schedules would start each other without end."""
        ...

    def get(self, schedule_id: str) -> ScheduleRecord:
        """The schedule with this id. Raises NotFound, CorruptRecord."""
        ...

    def find(self, project: str, text: str) -> ScheduleRecord:
        """The schedule with this name or id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        """The schedules of a project, by name. limit: only the first ones. after: only those after
        this name."""
        ...

    def update(self, before: ScheduleRecord, after: ScheduleRecord) -> ScheduleRecord:
        """Change the Job, the timing, the next time, or whether it is paused. Raises Conflict if
        the schedule was changed since `before` was read, InvalidInput for its Job as `insert`,
        NotFound."""
        ...

    def delete(self, schedule_id: str) -> bool:
        """Delete a schedule and what is known of its times. False if there is none."""
        ...

    def due(self, now: float) -> list[ScheduleRecord]:
        """The schedules of all projects whose next time is now or was before, the earliest
        first."""
        ...

    def next_at(self) -> float | None:
        """The earliest next time of all schedules; None if there is none."""
        ...

    def decide(
        self,
        schedule: ScheduleRecord,
        next_at: float | None,
        firing: FiringRecord,
        *entries: AuditEntry,
    ) -> bool:
        """Record what is to be done at a time of a schedule, and the next time to look at, with
        entries of the audit log about it. False if that was decided already, or the schedule was
        changed or deleted since it was read."""
        ...

    def decide_event(
        self,
        schedule: ScheduleRecord,
        firing: FiringRecord,
        *entries: AuditEntry,
        seq: int | None = None,
    ) -> bool:
        """Record what is to be done about `firing.event`, with entries of the audit log about it.
        seq: of an entry of the outbox, which is handled with that; None: it is a request to the
        webhook. If something else was done at its time, it is recorded at the next free one. False
        if that event is handled already or is known (`delivered`), if something was decided about
        another event since the schedule was read, or if that was changed or deleted."""
        ...

    def pass_over(self, schedule_id: str, seq: int) -> None:
        """Do nothing about an entry of the outbox."""
        ...

    def delivered(self, schedule_id: str, delivery: str) -> tuple[bool, str | None]:
        """Whether a request to the webhook of a schedule is known, and the id of its run; None if
        it has none. Requests of the last `KNOWN_DELIVERIES` seconds are."""
        ...

    def webhook(self, schedule_id: str) -> WebhookRecord | None:
        """The webhook of a schedule; None if it has none."""
        ...

    def set_webhook(self, webhook: WebhookRecord) -> None:
        """Give a schedule a webhook, or change its secret. Raises NotFound."""
        ...

    def settle(self, firing: FiringRecord) -> bool:
        """Record what has become of a run that was to be started. False if that is recorded."""
        ...

    def note(self, firing: FiringRecord) -> None:
        """Record what was done besides the times of the schedule."""
        ...

    def unsettled(self, until: float) -> list[FiringRecord]:
        """Runs of all schedules that were to be started, and of which nothing more is recorded;
        those that were decided by then, the earliest first."""
        ...

    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        """What was done at the times of a schedule, newest first. limit: only the first ones.
        before: only earlier times."""
        ...

    def running(self, schedule_id: str) -> list[Running]:
        """The runs of a schedule that have not ended, the newest first, with those that are about
        to be recorded."""
        ...
