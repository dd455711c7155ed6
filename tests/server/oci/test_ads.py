"""Jobs of ADS, with the real package.

The YAML has the shape, the names and the OCIDs of the examples in ADS's documentation: nothing of
Muster is in it. `server.toml` says which project the compartment is, and which Python stands for
the conda environments.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from msgspec import Struct
from oci.object_storage.models import CreateBucketDetails

from muster.server.settings import OciSettings
from muster.spec.ocids import TENANCY
from support.ads_jobs import COMPARTMENT, CONDA, ENV, job_yaml, run_yaml, write
from support.oci_server import CLIENTS, OciServer, module_server, needs_clients

pytestmark = [needs_clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    settings = OciSettings(
        compartments={COMPARTMENT: "default"}, conda={"*": str(CLIENTS / "bin" / "python")}
    )
    yield from module_server(tmp_path_factory, tls=True, oci=settings)


class Case(Struct, frozen=True):
    """A job of ADS."""

    type: str
    runtime: dict[str, Any]
    files: dict[str, str]
    output: str
    """What its output has."""
    code: int = 0


_CODE_DIR = {
    "code_dir/my_package/my_script.py": (
        "import os, sys, helpers\nprint(helpers.greet(os.environ['NAME']), sys.argv[1:])\n"
    ),
    "code_dir/my_package/my_script.sh": 'echo "$NAME $1 $2 $3"\n',
    "code_dir/other_packages/helpers.py": "def greet(name): return name.upper()\n",
}
_NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": name,
            "metadata": {"tags": tags},
            "outputs": [],
            "source": [source],
        }
        for name, tags, source in (
            ("first", [], "print('in a notebook', 6 * 7)"),
            ("second", ["ignore"], "1 / 0"),
        )
    ],
    "metadata": {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}
CASES = {
    "python, one file": Case(
        "python",
        {
            "args": ["--greeting", "Good morning"],
            "conda": CONDA,
            "env": ENV,
            "scriptPathURI": "script.py",
        },
        {"script.py": "import os, sys\nprint(os.environ['NAME'], sys.argv[1:])\n"},
        "Welcome to OCI Data Science. ['--greeting', 'Good morning']",
    ),
    "python, a folder": Case(
        "python",
        {
            "conda": CONDA,
            "env": ENV,
            "entrypoint": "my_package/my_script.py",
            "pythonPath": ["other_packages"],
            "scriptPathURI": "code_dir",
            "workingDir": "code_dir",
        },
        _CODE_DIR,
        "WELCOME TO OCI DATA SCIENCE. []",
    ),
    "python, a function": Case(
        "python",
        {"args": ["a"], "conda": CONDA, "entryFunction": "main", "scriptPathURI": "f.py"},
        {"f.py": "def main(*args, **more): print('main', args, more)\n"},
        "main ('a',) {}",
    ),
    "script, one file": Case(
        "script",
        {"conda": CONDA, "env": ENV, "scriptPathURI": "script.sh"},
        {"script.sh": 'echo "$NAME"; exit 3\n'},
        "Welcome to OCI Data Science.",
        code=3,
    ),
    "script, a folder": Case(
        "script",
        {
            "args": ['100 linux "hi there"'],
            "conda": CONDA,
            "entrypoint": "code_dir/my_package/my_script.sh",
            "env": ENV,
            "scriptPathURI": "code_dir",
        },
        _CODE_DIR,
        'Welcome to OCI Data Science. 100 linux "hi there"',
    ),
    "notebook": Case(
        "notebook",
        {
            "conda": CONDA,
            "env": ENV,
            "excludeTags": ["ignore", "remove"],
            "notebookEncoding": "utf-8",
            "notebookPathURI": "basics.ipynb",
        },
        {"basics.ipynb": json.dumps(_NOTEBOOK)},
        "in a notebook 42",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_runtimes(oci: OciServer, name: str) -> None:
    case = CASES[name]
    write(oci.folder, case.files)
    result, printed = run_yaml(oci, job_yaml(case.type, case.runtime))
    assert case.output in printed, f"{printed}\n{result}"
    assert (result["state"], result["code"]) == ("FAILED" if case.code else "SUCCEEDED", case.code)


def test_git(oci: OciServer) -> None:
    repository = oci.folder / "examples"
    write(repository, {"model/main.py": "import os, sys\nprint('from git', sys.argv[1:])\n"})
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        [*("-c", "user.name=ana", "-c", "user.email=ana@example.org"), "commit", "-qm", "model"],
    ):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    runtime = {
        "args": ["--epochs", "5"],
        "branch": "main",
        "conda": CONDA,
        "entrypoint": "model/main.py",
        "skipMetadataUpdate": True,
        "url": f"file://{repository}",
        "workingDir": "model",
        "env": [{"name": "HOME", "value": str(oci.folder / "home-of-nodes")}],
    }
    result, printed = run_yaml(oci, job_yaml("gitPython", runtime))
    assert "from git ['--epochs', '5']" in printed, f"{printed}\n{result}"
    assert result["state"] == "SUCCEEDED"


def way_to(oci: OciServer) -> list[dict[str, str]]:
    """Variables of a job in place of names in DNS and a certificate that everybody trusts. Who the
    job run is, its programs know without them."""
    names = ("HTTPS_PROXY", "REQUESTS_CA_BUNDLE")
    return [{"name": name, "value": oci.environ[name]} for name in names]


#: What code in a job of OCI does: nothing of Muster is in it.
_IN_A_JOB = """
import json, os, subprocess, sys
import ads
from ads.common.auth import AuthType, default_signer
from ads.jobs import DataScienceJobRun
import fsspec

ads.set_auth("resource_principal")
signer = default_signer()["signer"]
runs = DataScienceJobRun.list_resource(os.environ["JOB_RUN_COMPARTMENT_OCID"])
os.makedirs("out")
open("out/model", "w").write("weights")
with fsspec.open("oci://models@muster/ocifs", "w", **default_signer()) as file:
    file.write("ocifs")
command = os.path.join(os.path.dirname(sys.executable), "oci")
words = ["os", "object", "put", "-ns", "muster", "-bn", "models", "--name", "oci", "--file", "-"]
done = subprocess.run([command, *words], input=b"oci", capture_output=True)
assert done.returncode == 0, done.stderr
seen = {"self": os.environ["JOB_RUN_OCID"] in [run.id for run in runs], "of": signer.tenancy_id}
print("seen", json.dumps(seen), flush=True)
"""


def test_code_in_a_job_acts_as_its_run(oci: OciServer) -> None:
    storage = oci.client("object_storage.ObjectStorageClient")
    namespace = storage.get_namespace().data
    bucket = CreateBucketDetails(name="models", compartment_id=COMPARTMENT)
    storage.create_bucket(namespace, bucket)
    write(oci.folder, {"trainer/train.py": _IN_A_JOB})
    runtime = {
        "conda": CONDA,
        "entrypoint": "train.py",
        "env": way_to(oci),
        "outputDir": "out",
        "outputUri": f"oci://models@{namespace}/digits",
        "scriptPathURI": "trainer",
        "workingDir": "trainer",
    }
    result, printed = run_yaml(oci, job_yaml("python", runtime))
    assert result["state"] == "SUCCEEDED", f"{printed}\n{result}"
    assert json.dumps({"self": True, "of": TENANCY}) in printed
    for name, content in {"digits/model": b"weights", "ocifs": b"ocifs", "oci": b"oci"}.items():
        assert storage.get_object(namespace, "models", name).data.content == content


_DDP = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "total", total.item(), flush=True)
dist.destroy_process_group()
"""


def test_pytorch_on_two_nodes(oci: OciServer) -> None:
    write(oci.folder, {"ddp/train.py": _DDP})
    runtime = {
        "command": "torchrun ddp/train.py",
        "conda": CONDA,
        "replicas": 2,
        "scriptPathURI": "ddp",
    }
    sizes = {"memoryInGBs": 4, "ocpus": 4}
    result, printed = run_yaml(
        oci, job_yaml("pyTorchDistributed", runtime, shapeConfigDetails=sizes)
    )
    for rank in range(2):
        assert f"rank {rank} of 2 total 2.0" in printed, f"{printed}\n{result}"
    assert result["state"] == "SUCCEEDED"


LIFECYCLE = """
import json, sys
import ads
from ads.jobs import DataScienceJob, DataScienceJobRun, Job

ads.set_auth("api_key")
compartment = sys.argv[2]
job = Job.from_yaml(uri=sys.argv[1]).create()
seen = {}

copy = Job.from_datascience_job(job.id)
ours, theirs = json.loads(job.to_json()), json.loads(copy.to_json())
ours["spec"]["runtime"]["spec"]["scriptPathURI"] = theirs["spec"]["runtime"]["spec"][
    "scriptPathURI"
]
seen["copied"] = ours == theirs
seen["listed"] = job.id in [one.job_id for one in DataScienceJob.list_jobs(compartment)]

run = job.run(env_var={"NAME": "over"}, name="second", freeform_tags={"team": "vision"})
run.wait(interval=0.2)
seen["tags"] = run.freeform_tags
seen["logs"] = [line["message"] for line in run.logs()][2:-1]
seen["runs"] = [one.id for one in job.run_list()] == [run.id]
listed = DataScienceJobRun.list_resource(compartment, job_id=job.id)
seen["states"] = [one.lifecycle_state for one in listed]
seen["by ocid"] = DataScienceJobRun.from_ocid(run.id).status

endless = job.run(args="endless")
seen["canceled"] = endless.cancel().status
run.delete()
seen["deleted"] = DataScienceJobRun.from_ocid(run.id).status
job.delete()
seen["job"] = DataScienceJob.from_id(job.id).status
seen["shapes"] = [one.name for one in DataScienceJob.instance_shapes(compartment)][:1]
seen["fast"] = [one.shape_name for one in DataScienceJob.fast_launch_shapes(compartment)][:1]
print(json.dumps(seen))
"""


def test_lifecycle(oci: OciServer) -> None:
    program = (
        "import os, sys, time\nprint(os.environ['NAME'], flush=True)\n"
        "if sys.argv[1:]: time.sleep(600)\n"
    )
    write(oci.folder, {"life.py": program, "life.yaml": ""})
    runtime = {"conda": CONDA, "env": ENV, "scriptPathURI": "life.py"}
    path = oci.folder / "life.yaml"
    path.write_text(yaml.safe_dump(job_yaml("script", runtime)))
    done = oci.ads(LIFECYCLE, str(path), COMPARTMENT)
    assert json.loads(done.stdout.strip().rpartition("\n")[2]) == {
        "copied": True,
        "listed": True,
        "tags": {"team": "vision"},
        "logs": ["over"],
        "runs": True,
        "states": ["SUCCEEDED"],
        "by ocid": "SUCCEEDED",
        "canceled": "CANCELED",
        "deleted": "DELETED",
        "job": "DELETED",
        "shapes": ["BM.DenseIO.E4.128"],
        "fast": ["BM.DenseIO.E4.128"],
    }


def test_opctl(oci: OciServer) -> None:
    write(oci.folder, {"op.py": "print('by opctl')\n"})
    path = oci.folder / "op.yaml"
    path.write_text(yaml.safe_dump(job_yaml("script", {"conda": CONDA, "scriptPathURI": "op.py"})))
    ads = CLIENTS / "bin" / "ads"
    oci.program(ads, "opctl", "configure", check=False)
    made = oci.program(ads, "opctl", "run", "-f", path, "-b", "job", "--auth", "api_key").stdout
    run = next(word for word in made.split() if word.startswith("ocid1.datasciencejobrun."))
    watched = oci.program(
        *(ads, "opctl", "watch", run, "--auth", "api_key", "--interval", "1", "--wait", "1")
    )
    assert "by opctl" in watched.stdout
    deleted = oci.program(ads, "opctl", "delete", run, "--auth", "api_key").stdout
    assert "has been deleted" in deleted
