"""Events as OCI's Events service sends them: CloudEvents 0.1, with OCI's types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.describe.times import time_text_ms
from muster.spec.ocids import ocid
from muster.store.outbox_records import OutboxEntry

_SCIENCE, _STORAGE = "com.oraclecloud.datascience.", "com.oraclecloud.objectstorage."
#: Type of Muster -> the type of OCI, for each stage of a lifecycle. OCI documents none for runs
#: that wait, are suspended or need attention; here, they are updates.
OCI_TYPES: Mapping[str, str] = {
    "run.accepted": f"{_SCIENCE}createjobrun.begin",
    "run.queued": f"{_SCIENCE}updatejobrun",
    "run.in_progress": f"{_SCIENCE}createjobrun.end",
    "run.suspended": f"{_SCIENCE}updatejobrun",
    "run.needs_attention": f"{_SCIENCE}updatejobrun",
    "run.succeeded": f"{_SCIENCE}succeededjobrun",
    "run.failed": f"{_SCIENCE}failedjobrun",
    "run.canceling": f"{_SCIENCE}canceljobrun.begin",
    "run.canceled": f"{_SCIENCE}canceljobrun.end",
    "run.deleted": f"{_SCIENCE}deletejobrun",
    "job.created": f"{_SCIENCE}createjob",
    "job.updated": f"{_SCIENCE}updatejob",
    "job.deleted": f"{_SCIENCE}deletejob.end",
    "object.created": f"{_STORAGE}createobject",
    "object.replaced": f"{_STORAGE}updateobject",
    "object.deleted": f"{_STORAGE}deleteobject",
}


class OciNames(Struct, frozen=True):
    """What a project is in OCI."""

    compartment: str
    """Its OCID."""
    compartment_name: str
    namespace: str = "muster"
    """Of the object storage."""


def oci_event(entry: OutboxEntry, names: OciNames) -> dict[str, Any]:
    """An event in OCI's envelope."""
    about, data = entry.type.partition(".")[0], entry.data
    is_object, oci = about == "object", data.get("oci") or {}
    event_type = OCI_TYPES.get(entry.type, f"{_SCIENCE}{entry.type}")
    return {
        "eventType": event_type,
        "cloudEventsVersion": "0.1",
        "eventTypeVersion": "2.0",
        "source": "ObjectStorage" if is_object else "DataScience",
        "eventTime": time_text_ms(entry.time),
        "contentType": "application/json",
        "data": {
            "compartmentId": names.compartment,
            "compartmentName": names.compartment_name,
            "resourceName": oci.get("name") or data.get("display_name") or data.get("name"),
            "resourceId": _resource_id(entry, names),
            "availabilityDomain": "",
            "freeFormTags": {} if is_object else dict(data.get("tags") or {}),
            "definedTags": oci.get("defined_tags") or {},
            "additionalDetails": _details(entry, names),
        },
        "eventID": entry.id,
        "extensions": {"compartmentId": names.compartment},
    }


def _resource_id(entry: OutboxEntry, names: OciNames) -> str:
    about, data = entry.type.partition(".")[0], entry.data
    if about == "object":
        return f"/n/{names.namespace}/b/{data.get('bucket')}/o/{data.get('name')}"
    if about == "run":
        return ocid("datasciencejobrun", data["id"])
    return ocid("datasciencejob", str(data.get("id")))


def _details(entry: OutboxEntry, names: OciNames) -> dict[str, Any]:
    about, data = entry.type.partition(".")[0], entry.data
    if about == "object":
        given = {"bucketName": data.get("bucket"), "namespace": names.namespace}
        return {**given, "eTag": data.get("etag")}
    if about == "run":
        return {
            # a job of the OCI API has several of Muster: one for each content
            "jobId": (data.get("oci") or {}).get("job") or ocid("datasciencejob", data["job_id"]),
            "lifecycleState": data["state"],
            "lifecycleDetails": data["details"],
            "exitCode": data["exit_code"],
        }
    return {}
