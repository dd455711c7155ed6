"""Starts job runs for the events of rules, whose actions name a job as their function."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec

from muster.errors import MusterError, NotFound, StoreError
from muster.iam.principals import principal_of
from muster.iam.resources import ocid_of
from muster.identity import id_of
from muster.lifecycle.trigger import Event
from muster.notify.oci_events import oci_event
from muster.notify.retries import Answer
from muster.permissions import Permission
from muster.server.oci.actor import Actor
from muster.server.oci.errors import oci_error
from muster.server.oci.job_run_start import AFTER, start_job_run
from muster.server.oci.resources import find
from muster.service.audit import Origin
from muster.service.notifications import names_in_oci, opened
from muster.spec.formats.oci.model import CreateJobRun
from muster.store.resource_records import JOB, JOB_RUN, ResourceRecord

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.store.notification_records import NotificationRecord
    from muster.store.outbox_records import OutboxEntry


class _Rule(Actor):
    """Acts in the name of who has created an action of a rule, for one event."""

    def __init__(self, state: ServerState, action: NotificationRecord, entry: OutboxEntry) -> None:
        super().__init__(state, Origin(f"rule {action.name}", entry.id))
        accounts, policies = state.backend.store.accounts, state.backend.policies
        self.principal = principal_of(accounts, policies, action.created_by, f"rule {action.name}")
        self._id = id_of(JOB_RUN, action.id, entry.id)

    def creation(self, kind: str) -> tuple[str, str]:
        return self._id, self._id


def start_for_event(state: ServerState, action: NotificationRecord, entry: OutboxEntry) -> Answer:
    """Start the job run of an event; the same one if this is repeated. action: its target is the
    job. Raises StoreError."""
    try:
        actor = _Rule(state, action, entry)
        address = opened(state.backend.home, action)[0].address
        job = find(actor, JOB, address, Permission.JOB_READ)
        after = _jobs_before(actor, entry)
        if job.id in after:
            return Answer(False, _endless(actor, after, job), final=True)
        compartment = actor.compartments.ocid
        wanted = CreateJobRun(
            project_id=job.data["projectId"],
            compartment_id=compartment(job.project),
            job_id=ocid_of(job),
        )
        given = msgspec.json.encode(oci_event(entry, names_in_oci(action.project, compartment)))
        subject = str(entry.data.get("name", entry.subject))
        # the body is what a function would be called with
        data = {**entry.data, "body": b64encode(given).decode()}
        event = Event(entry.id, entry.type, subject, data)
        made = start_job_run(actor, wanted, event, after)
    except StoreError:
        raise
    except MusterError as error:
        final = not oci_error(error).is_transient
        return Answer(False, f"no job run was created: {error}", final=final)
    return Answer(True, f"created {ocid_of(made)}")


def _jobs_before(actor: Actor, entry: OutboxEntry) -> tuple[str, ...]:
    """The ids of the jobs whose job runs have led to an event, one after the other."""
    if not entry.type.startswith("run."):
        return ()
    try:
        run = actor.store.resources.get(JOB_RUN, str(entry.data["id"]))
    except NotFound:
        return ()
    return (*run.data.get(AFTER, ()), run.parent)


def _endless(actor: Actor, after: tuple[str, ...], job: ResourceRecord) -> str:
    """Why a job run is not started: one of its job has led to it."""
    resources, names = actor.store.resources, []
    for identifier in (*after[after.index(job.id) :], job.id):
        try:
            names.append(resources.get(JOB, identifier).name)
        except NotFound:
            names.append(identifier)
    return f"no job run was created: they would start each other without end: {' -> '.join(names)}"
