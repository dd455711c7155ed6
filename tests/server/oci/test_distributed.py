"""Containers of ADS, and `ads opctl run` on YAML of kind `distributed`.

That makes several job runs of one job, which are containers, and find each other over a work
directory in object storage.

The image is what Oracle's images for Dask are: a provider on the classes of ADS, which start the
scheduler on the main node and a worker on each other one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from oci.object_storage.models import CreateBucketDetails

from muster.server.settings import OciSettings
from muster.storage.home import Home
from support import podman_service
from support.ads_jobs import COMPARTMENT, job_yaml, run_yaml
from support.oci_server import CLIENTS, OciServer, needs_clients, oci_server
from support.ssh_hosts import free_port

pytestmark = [needs_clients, pytest.mark.slow]

IMAGE = "localhost/dask:1"
BUCKET = "work"

#: What the image runs.
BOOTSTRAP = """
import os, runpy, subprocess, sys, time

import distributed
from ads.opctl.distributed.common.abstract_cluster_provider import ClusterProvider
from ads.opctl.distributed.common.cluster_provider_factory import ClusterProviderFactory
from ads.opctl.distributed.common.cluster_runner import ClusterRunner


class Dask(ClusterProvider):
    def configuration(self, conf={}):
        config = self.basic_configuration()
        if self.mode == "MAIN":
            config["SCHEDULER_IP"] = self.ip
        return config

    def start_main(self):
        self.export_configuration(self.export_config_files())
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler",
                          "--no-dashboard", "--port", os.environ["SCHEDULER_PORT"]])

    def start_worker(self):
        self.export_configuration(self.export_config_files())
        address = os.environ["SCHEDULER_IP"] + ":" + os.environ["SCHEDULER_PORT"]
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", address,
                          "--no-dashboard", "--nthreads", "1",
                          "--name", os.environ["RANK"]])

    def run_code(self):
        if self.mode == "MAIN":
            runpy.run_path(os.environ["OCI__ENTRY_SCRIPT"], run_name="__main__")
            self.code_execution_complete = True


ClusterProviderFactory.register("DASK", Dask)
ClusterRunner().run()
"""

TRAIN = """
import os
from distributed import Client

client = Client(os.environ["SCHEDULER_IP"] + ":" + os.environ["SCHEDULER_PORT"])
client.wait_for_workers(int(os.environ["OCI__WORKER_COUNT"]), timeout=120)
names = sorted(worker["name"] for worker in client.scheduler_info()["workers"].values())
total = sum(client.gather(client.map(lambda x: x * x, range(10))))
print("workers", names, "total", total, flush=True)
"""


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    podman_service.skip_without_podman()
    folder = tmp_path_factory.mktemp("oci")
    home = folder / "home"
    home.mkdir()
    podman = podman_service.shared_podman()
    (folder / "bootstrap.py").write_text(BOOTSTRAP)
    command = f'["{CLIENTS}/bin/python", "{folder}/bootstrap.py"]'
    podman.add_image(IMAGE, f"ENTRYPOINT {command}")
    mounts = [*podman_service.machine_mounts(), f"{folder}:ro"]
    podman_service.add_engine(home, podman, mounts=mounts)
    settings = OciSettings(compartments={COMPARTMENT: "default"})
    with oci_server(Home(home), folder, tls=True, oci=settings) as server:
        yield server


def test_container_runtime(oci: OciServer) -> None:
    runtime = {
        "cmd": "echo $GREETINGS && exit 3",
        "entrypoint": ["/bin/sh", "-c"],
        "env": [{"name": "GREETINGS", "value": "Welcome to OCI Data Science"}],
        "image": podman_service.IMAGE,
    }
    result, printed = run_yaml(oci, job_yaml("container", runtime))
    assert "Welcome to OCI Data Science" in printed, f"{printed}\n{result}"
    assert (result["state"], result["code"]) == ("FAILED", 3)


def test_dask(oci: OciServer) -> None:
    storage = oci.client("object_storage.ObjectStorageClient")
    namespace = storage.get_namespace().data
    bucket = CreateBucketDetails(name=BUCKET, compartment_id=COMPARTMENT)
    storage.create_bucket(namespace, bucket)
    (oci.folder / "train.py").write_text(TRAIN)
    path = oci.folder / "cluster.yaml"
    variables = {
        "HOME": str(oci.folder),
        **{name: oci.environ[name] for name in ("HTTPS_PROXY", "REQUESTS_CA_BUNDLE")},
        "OCI_IAM_TYPE": "api_key",
        "POST_PROCESSING_WAIT": "0",
        "SCHEDULER_PORT": str(free_port()),
    }
    path.write_text(yaml.safe_dump(cluster_yaml(oci, namespace, variables)))
    made = oci.program(
        *(CLIENTS / "bin" / "ads", "opctl", "run", "-f", path, "--nobuild"),
        *("--auth", "api_key"),
    ).stdout
    told = yaml.safe_load(made[made.index("jobId:") :])
    runs = [*told["mainJobRunId"].items()]
    runs += [pair for one in told["otherJobRunIds"] for pair in one.items()]
    assert len(runs) == 3
    ended = {}
    for name, identifier in runs:
        ended[name] = oci.wait(oci.science.get_job_run(identifier).data, within=240)
    main = ended["main"]
    states = {name: (run.lifecycle_state, run.lifecycle_details) for name, run in ended.items()}
    assert {state for state, _ in states.values()} == {"SUCCEEDED"}, states
    assert "workers [1, 2] total 285" in oci.output(main)
    objects = storage.list_objects(namespace, BUCKET, prefix="dask/").data.objects
    names = [one.name.rpartition("/")[2] for one in objects]
    assert {"MAIN_config.json", "stop"} <= {*names}
    assert len([name for name in names if name.startswith("WORKER_")]) == 2


def cluster_yaml(oci: OciServer, namespace: str, variables: dict[str, str]) -> dict[str, object]:
    infrastructure = {
        "projectId": oci.project,
        "compartmentId": COMPARTMENT,
        "displayName": "Dask on a server",
        "subnetId": "ocid1.subnet.oc1.iad.aaaasubnet",
        "logGroupId": oci.log_group,
        "shapeName": "VM.Standard2.1",
        "blockStorageSize": 50,
    }
    cluster = {
        "image": IMAGE,
        "workDir": f"oci://{BUCKET}@{namespace}/dask",
        "name": "dask",
        "config": {"env": [{"name": key, "value": text} for key, text in variables.items()]},
        "main": {"config": {}},
        "worker": {"config": {}, "replicas": 2},
    }
    runtime = {"entryPoint": str(oci.folder / "train.py")}
    version = {"apiVersion": "v1.0"}
    return {
        "kind": "distributed",
        **version,
        "spec": {
            "infrastructure": {
                "kind": "infrastructure",
                "type": "dataScienceJob",
                **version,
                "spec": infrastructure,
            },
            "cluster": {"kind": "dask", **version, "spec": cluster},
            "runtime": {"kind": "python", **version, "spec": runtime},
        },
    }
