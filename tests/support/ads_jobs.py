"""Jobs of ADS, written as in its documentation and run with the real package.

The YAML has the shape, the names and the OCIDs of OCI: nothing of Muster is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from support.oci_server import OciServer

COMPARTMENT = "ocid1.compartment.oc1..aaaateam"
#: Ids that occur in a user's YAML.
IDS = {
    "compartmentId": COMPARTMENT,
    "projectId": "ocid1.datascienceproject.oc1.iad.amaaproject",
    "logGroupId": "ocid1.loggroup.oc1.iad.amaagroup",
    "logId": "ocid1.log.oc1.iad.amaalog",
}
SUBNET = "ocid1.subnet.oc1.iad.aaaasubnet"
CONDA = {"type": "service", "slug": "pytorch110_p38_cpu_v1"}
ENV = [{"name": "NAME", "value": "Welcome to OCI Data Science."}]

#: Creates and runs the job of a YAML file, and watches it.
RUN = """
import json, sys
import ads
from ads.jobs import Job

ads.set_auth("api_key")
job = Job.from_yaml(uri=sys.argv[1])
job.create()
run = job.run()
run.watch(interval=0.5, wait=1)
result = {"job": job.id, "run": run.id, "state": run.status, "code": run.exit_code}
print(json.dumps(result | {"details": run.lifecycle_details}))
"""


def job_yaml(type_: str, runtime: Mapping[str, Any], **infrastructure: Any) -> dict[str, Any]:
    spec = {
        "blockStorageSize": 50,
        "jobInfrastructureType": "STANDALONE",
        "shapeConfigDetails": {"memoryInGBs": 4, "ocpus": 1},
        "shapeName": "VM.Standard.E3.Flex",
        "subnetId": SUBNET,
        **IDS,
        **infrastructure,
    }
    return {
        "kind": "job",
        "spec": {
            "name": "My Job",
            "infrastructure": {"kind": "infrastructure", "type": "dataScienceJob", "spec": spec},
            "runtime": {"kind": "runtime", "type": type_, "spec": dict(runtime)},
        },
    }


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_yaml(oci: OciServer, data: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the run came to, and what ADS has printed."""
    path = oci.folder / "job.yaml"
    path.write_text(yaml.safe_dump(data))
    done = oci.ads(RUN, str(path))
    printed, _, result = done.stdout.strip().rpartition("\n")
    return json.loads(result), printed
