"""What decisions know of a resource is the same in both APIs."""

from __future__ import annotations

from muster.api.notifications import NotificationRequest
from muster.iam.resources import (
    Resource,
    resource_of_job,
    resource_of_notification,
    resource_of_run,
    resource_of_schedule,
    variables_of,
)
from muster.lifecycle.schedule import Timing
from muster.service.embedded import EmbeddedAPI
from muster.store.resource_records import ResourceRecord
from support.api_runs import prepare, start


def test_both_apis_know_the_same(backend_api: EmbeddedAPI) -> None:
    run = start(backend_api, "true", suspend=True)
    schedule = backend_api.create_schedule(
        "nightly", Timing(cron="0 3 * * *"), prepare(backend_api, "echo nightly")
    )
    request = NotificationRequest("hook", f"file:{backend_api.home.root}/events/all")
    notification = backend_api.create_notification(request).notification
    found: dict[str, Resource] = {
        "datasciencejob": resource_of_job(backend_api.job(run.job_id)),
        "datasciencejobrun": resource_of_run(run),
        "datascienceschedule": resource_of_schedule(schedule),
        "eventrule": resource_of_notification(notification),
    }
    for kind, one in found.items():
        name = backend_api.job(run.job_id).name if kind == "datasciencejob" else one.name
        record = ResourceRecord(
            *(kind, one.id, "default", name, "ACTIVE", one.created_by, 0.0, 0.0, {})
        )
        assert dict(one.variables) == variables_of(record), kind
