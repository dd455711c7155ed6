"""Schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.permissions import Permission
from muster.service import resources
from muster.service.caller_checks import CallerChecks
from muster.service.required_permissions import of_one, requires, schedule_of
from muster.submission import sent_variables

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.api.schedules import ScheduleChange, ScheduleRequest, WebhookAddress
    from muster.lifecycle.schedule import Timing
    from muster.lifecycle.trigger import Trigger
    from muster.store.records import RunRecord
    from muster.store.schedule_records import FiringRecord, ScheduleRecord


class ScheduleMethods(CallerChecks):
    """See `MusterAPI`."""

    @requires(Permission.SCHEDULE_CREATE, "create schedules", action="schedules.create")
    def create_schedule(
        self, name: str, timing: Timing, prepared: PreparedRun, trigger: Trigger | None = None
    ) -> ScheduleRecord:
        from muster.service.schedules import create

        self._caller.require(Permission.JOB_RUN_CREATE, "start runs")
        self._check_project(prepared.job)
        if prepared.new_job:
            self._check_new_job(prepared.job)
        environ = sent_variables(self.context.submission.environ)
        return create(self.context, name, timing, prepared, environ, trigger)

    @requires(Permission.SCHEDULE_CREATE, "create schedules", action="schedules.create")
    def submit_schedule(self, request: ScheduleRequest) -> ScheduleRecord:
        """Create a schedule, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import create_schedule

        self._caller.require(Permission.JOB_RUN_CREATE, "start runs")
        return create_schedule(self.context, request, self._check_new_job)

    @requires(Permission.SCHEDULE_INSPECT, "see schedules", some=True)
    def schedules(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        project, listing = self._caller.project, self.store.schedules.listing

        def page(last: ScheduleRecord | None) -> list[ScheduleRecord]:
            return listing(project, limit=limit, after=after if last is None else last.name)

        return self._visible(Permission.SCHEDULE_INSPECT, resources.of_schedules, page, limit)

    @of_one(schedule_of, Permission.SCHEDULE_READ, "see schedules")
    def schedule(self, text: str) -> ScheduleRecord:
        return self._own_schedule(text)

    @of_one(schedule_of, Permission.SCHEDULE_READ, "see schedules")
    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        found = self._own_schedule(schedule_id)
        return self.store.schedules.firings(found.id, limit=limit, before=before)

    @of_one(schedule_of, Permission.SCHEDULE_READ, "see schedules")
    def webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.service.webhooks import address_of

        return address_of(self.context, self._own_schedule(schedule_id))

    @of_one(
        schedule_of,
        Permission.SCHEDULE_UPDATE,
        "change webhooks",
        action="schedules.rotate_webhook",
    )
    def rotate_webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.service.webhooks import rotate

        return rotate(self.context, self._own_schedule(schedule_id))

    @of_one(schedule_of, Permission.SCHEDULE_UPDATE, "edit schedules", action="schedules.edit")
    def edit_schedule(self, schedule_id: str, change: ScheduleChange) -> ScheduleRecord:
        from muster.service.schedules import edit

        return edit(self.context, self._own_schedule(schedule_id), change)

    @of_one(schedule_of, Permission.SCHEDULE_UPDATE, "pause schedules", action="schedules.pause")
    def pause_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.service.schedules import pause

        return pause(self.context, self._own_schedule(schedule_id))

    @of_one(schedule_of, Permission.SCHEDULE_UPDATE, "resume schedules", action="schedules.resume")
    def resume_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.service.schedules import resume

        return resume(self.context, self._own_schedule(schedule_id))

    @of_one(schedule_of, Permission.SCHEDULE_DELETE, "delete schedules", action="schedules.delete")
    def delete_schedule(self, schedule_id: str) -> None:
        self.store.schedules.delete(self._own_schedule(schedule_id).id)

    @of_one(
        schedule_of,
        Permission.SCHEDULE_READ,
        "see schedules",
        action="schedules.trigger",
        creates=(Permission.JOB_RUN_CREATE, "start runs"),
    )
    def trigger_schedule(self, schedule_id: str) -> RunRecord:
        from muster.service.schedules import trigger

        self.recover()
        return trigger(self.context, self._own_schedule(schedule_id), self._check_new_job)
