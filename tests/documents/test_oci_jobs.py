"""What OCI's pages on jobs and distributed jobs say, where no other test shows it."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.frameworks.registry import framework_names
from muster.spec.reader import spec_from_mapping
from support.servers import serving

#: The 30 days of OCI's maximum runtime, in seconds.
LIMIT = 30 * 24 * 3600

#: What OCI promises every program of a job, and of a distributed one.
VARIABLES = (
    *("TENANCY_OCID", "PROJECT_OCID", "PROJECT_COMPARTMENT_OCID"),
    *("JOB_OCID", "JOB_COMPARTMENT_OCID", "JOB_ARTIFACT_FILE_NAME", "JOB_RUN_ENTRYPOINT"),
    *("JOB_RUN_OCID", "JOB_RUN_COMPARTMENT_OCID"),
    *("NODE_RANK", "NODE_GROUP_NAME", "INITIAL_CLUSTER_SIZE", "FQDN"),
    "CLUSTER_NODES_METADATA_FILE",
)


@pytest.mark.shows("distributed-jobs/environment-variables")
def test_programs_find_the_variables_of_oci(client: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        f"import os\nprint(*(os.environ.get(n, 'none') for n in {VARIABLES}))\n"
    )
    run = muster.run(tmp_path, entrypoint="main.py", nodes=2, network="shared").wait(60)
    assert run.state == "SUCCEEDED", run.details
    for rank in range(2):
        (line,) = [record.message for record in run.logs(ranks=[rank])]
        found = dict(zip(VARIABLES, line.split(), strict=True))
        assert all(value.startswith("ocid1.") for n, value in found.items() if n.endswith("OCID"))
        assert found["JOB_ARTIFACT_FILE_NAME"] == f"{tmp_path.name}.tar"
        assert found["JOB_RUN_ENTRYPOINT"] == "main.py"
        assert (found["NODE_RANK"], found["INITIAL_CLUSTER_SIZE"]) == (str(rank), "2")
        assert (found["NODE_GROUP_NAME"], found["FQDN"]) == ("workers", f"node-{rank}")


@pytest.mark.shows("distributed-jobs/capability-timeout-30-days", "jobs/max-runtime-limit")
def test_the_default_maximum_runtime_is_30_days() -> None:
    assert spec_from_mapping({"command": "x"}).max_runtime == LIMIT
    assert spec_from_mapping({"command": "x", "max_runtime": "30d"}).max_runtime == LIMIT
    with pytest.raises(muster.InvalidInput, match="a run may take up to 30d"):
        spec_from_mapping({"command": "x", "max_runtime": LIMIT + 1})


@pytest.mark.shows("distributed-jobs/benefit-integration-frameworks")
def test_frameworks_that_ship() -> None:
    assert set(framework_names()) >= {
        *("pytorch", "accelerate", "lightning", "deepspeed", "dask", "ray", "spark"),
        *("mpi", "horovod", "tensorflow", "jax"),
    }


@pytest.mark.shows("jobs/edit-while-running")
def test_a_job_is_edited_while_a_run_is_in_progress(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done"]
    run = muster.run(command=wait, name="waits", shape="local")
    muster.get_job("waits").edit("shape=VM.Standard2.1")
    later = muster.run("waits")
    assert not run.refresh().done
    go.touch()
    shapes = []
    for one in (run, later):
        assert one.wait(60).state == "SUCCEEDED", one.details
        shapes += [s.value for s in one.settings() if s.path == "node_groups[workers].shape"]
    assert shapes == ["local", "VM.Standard2.1"]


@pytest.mark.shows("cluster-design/job-artifact-name")
def test_the_artifact_of_a_job_is_shown(client: Client, tmp_path: Path) -> None:
    (tmp_path / "container.py").write_text("import os; print(os.environ['JOB_ARTIFACT_FILE_NAME'])")
    run = muster.run(tmp_path / "container.py").wait(60)
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == ["container.py"]
    job = muster.get_job("container").to_dict()
    assert job["artifact"] == "container.py"
    assert len(job["artifact_sha256"]) == 64


@pytest.mark.shows("cluster-design/job-logging")
def test_logging_can_be_turned_off(client: Client) -> None:
    run = muster.run(command=["echo", "x"], logging={"enabled": False}).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert list(run.logs(streams=["stdout", "stderr"])) == []


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from outside")

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.mark.shows("jobs/access-external")
def test_nodes_have_the_connectivity_of_the_machine(client: Client) -> None:
    """A server of this machine stands for one elsewhere."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hello)
    url = f"http://127.0.0.1:{server.server_port}"
    code = f"import urllib.request as u; print(u.urlopen({url!r}).read().decode())"
    env = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
    with serving(server):
        run = muster.run(command=["python", "-c", code], nodes=2, network="shared", env=env)
        assert run.wait(60).state == "SUCCEEDED", run.details
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == [
        "from outside"
    ] * 2
