"""Events as OCI sends them."""

from __future__ import annotations

from muster.lifecycle.states import RunState
from muster.notify.oci_events import OCI_TYPES, OciNames, oci_event
from muster.store.outbox_records import EVENT_TYPES
from support.outbox_entries import job_entry, object_entry, run_entry

NAMES = OciNames("ocid1.compartment.x", "vision")


def test_each_stage_has_a_type() -> None:
    assert set(OCI_TYPES) == set(EVENT_TYPES)
    assert {f"run.{state.lower()}" for state in RunState} <= set(OCI_TYPES)
    prefixes = ("com.oraclecloud.datascience.", "com.oraclecloud.objectstorage.")
    assert all(one.startswith(prefixes) for one in OCI_TYPES.values())


def test_a_run() -> None:
    assert oci_event(run_entry(display_name="Night"), NAMES) == {
        "eventType": "com.oraclecloud.datascience.failedjobrun",
        "cloudEventsVersion": "0.1",
        "eventTypeVersion": "2.0",
        "source": "DataScience",
        "eventTime": "2025-11-24T16:00:11.250Z",
        "contentType": "application/json",
        "data": {
            "compartmentId": "ocid1.compartment.x",
            "compartmentName": "vision",
            "resourceName": "Night",
            "resourceId": "ocid1.datasciencejobrun.muster.local..run1run1ru",
            "availabilityDomain": "",
            "freeFormTags": {"team": "ml"},
            "definedTags": {},
            "additionalDetails": {
                "jobId": "ocid1.datasciencejob.muster.local..job1job1jo",
                "lifecycleState": "FAILED",
                "lifecycleDetails": "node-1 failed:\nValueError: <b> & more",
                "exitCode": 3,
            },
        },
        "eventID": "event1event1",
        "extensions": {"compartmentId": "ocid1.compartment.x"},
    }


def test_a_job_and_an_object() -> None:
    job = oci_event(job_entry("job.created"), NAMES)
    assert (job["eventType"], job["data"]["resourceName"]) == (
        *("com.oraclecloud.datascience.createjob", "train"),
    )
    made = oci_event(object_entry(), NAMES)
    assert (made["eventType"], made["source"]) == (
        *("com.oraclecloud.objectstorage.createobject", "ObjectStorage"),
    )
    assert made["data"]["resourceId"] == "/n/muster/b/data/o/a b/ü.csv"
    assert made["data"]["additionalDetails"] == {
        **{"bucketName": "data", "namespace": "muster", "eTag": "e1"},
    }
