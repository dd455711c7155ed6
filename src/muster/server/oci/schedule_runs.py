"""Creates the job runs of schedules of the OCI API at their times.

What is done at a time is recorded in the schedule before it is done: one of several servers records
it, and whoever carries it out, also after a kill, creates the job run with the same id.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import convert
from msgspec.structs import replace

from muster.errors import Conflict, MusterError, NotFound, StoreError
from muster.iam.principals import principal_of
from muster.iam.resources import ocid_of
from muster.identity import id_of
from muster.lifecycle.schedule import Action, Timing, due
from muster.server.oci.actor import Actor
from muster.server.oci.job_run_start import start_job_run
from muster.server.oci.schedules import KIND
from muster.service.audit import Origin
from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.schedule_model import HttpAction
from muster.store.resource_records import ResourceRecord

if TYPE_CHECKING:
    from muster.server.state import ServerState


class _Schedule(Actor):
    """Acts in the name of who has created a schedule."""

    def __init__(self, state: ServerState, record: ResourceRecord, at: float) -> None:
        super().__init__(state, Origin(f"schedule {record.name}"))
        accounts, policies = state.backend.store.accounts, state.backend.policies
        self.principal = principal_of(
            accounts, policies, record.created_by, f"schedule {record.id}"
        )
        self._id = id_of(KIND, record.id, f"{at:.6f}")

    def creation(self, kind: str) -> tuple[str, str]:
        return self._id, self._id


class ScheduleRuns:
    """Does what is due; see the module. `server.scheduler` calls it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def active(self) -> list[ResourceRecord]:
        """The schedules that may be due. Raises StoreError."""
        return self._state.backend.store.resources.in_state(KIND, "ACTIVE")

    def act(self, record: ResourceRecord) -> None:
        """Do what is due of one schedule. Raises StoreError, and what keeps a job run from being
        created for now: the next call tries it again."""
        try:
            decided = record if record.data.get("pending") else self._decide(record)
            if decided is not None:
                self._carry_out(decided)
        except (Conflict, NotFound):
            return  # another server does it, or the schedule was changed

    def _decide(self, record: ResourceRecord) -> ResourceRecord | None:
        """The schedule with what is to be done now; None if nothing is."""
        timing = convert(record.data["timing"], Timing)
        found = due(timing, record.data.get("nextAt"), time.time(), ())
        if found is None:
            return None
        data: dict[str, Any] = {**record.data, "nextAt": found.next_at}
        if found.action == Action.START:
            data["pending"] = found.time
        else:
            data["last"] = {**(data.get("last") or {}), "problem": found.why}
        after = self._state.backend.store.resources.update(record, replace(record, data=data))
        return after if found.action == Action.START else None

    def _carry_out(self, record: ResourceRecord) -> None:
        at: float = record.data["pending"]
        last: dict[str, Any] = {"time": at}
        try:
            actor = _Schedule(self._state, record, at)
            action = decode(HttpAction, record.data["action"])
            made = start_job_run(actor, action.action_details.create_job_run_details)
            last["details"] = f"Created {ocid_of(made)}"
        except StoreError:
            raise
        except MusterError as error:
            last["problem"] = last["details"] = f"No job run was created: {error}"
        resources = self._state.backend.store.resources
        latest = resources.get(KIND, record.id)  # it may have been changed meanwhile
        if latest.data.get("pending") == at:
            data = {**latest.data, "pending": None, "last": last}
            resources.update(latest, replace(latest, data=data))
        self._state.log.info(
            "schedule", schedule=record.name, project=record.project, details=last["details"]
        )
