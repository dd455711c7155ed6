"""`muster shapes`, and the limits of shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.explain import explain
from muster.cli.shapes import shapes
from muster.client.client import Client
from muster.errors import InvalidInput
from muster.node.control_groups import usable_limits
from muster.spec.formats.manifests import read_manifest
from muster.spec.overrides import changes_from_mapping

OWN = """
tiny: {ocpus: 0.25, memory: 64MiB, source: the lab's wiki}
VM.Standard2.1: {ocpus: 3, memory: 128MiB}
"""


@pytest.fixture
def own_catalogue(own_home: Path) -> Path:
    own_home.mkdir(parents=True, exist_ok=True)
    (own_home / "shapes.yaml").write_text(OWN)
    return own_home / "shapes.yaml"


def call(*words: str) -> Result:
    return CliRunner().invoke(shapes, list(words), catch_exceptions=False)


@pytest.mark.shows("distributed-jobs/capability-shapes")
def test_the_catalogue_is_listed(own_catalogue: Path) -> None:
    lines = call().output.splitlines()
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert found["SHAPE"] == "OCPUS CPUS MEMORY GPUS FLEXIBLE ORIGIN SOURCE"
    assert found["BM.GPU4.8"] == "64 128 2TiB 8 A100 no built-in Compute Shapes"
    assert found["VM.Standard.A1.Flex"] == "4 4 24GiB none yes built-in Compute Shapes"
    assert found["local"] == "- - - - no built-in the machine itself"
    assert found["tiny"] == "0.25 0.5 64MiB none no yours the lab's wiki"
    assert found["VM.Standard2.1"] == "3 6 128MiB none no yours, replaces a built-in one"
    data = {shape["name"]: shape for shape in json.loads(call("--json").output)}
    assert len(data) == len(lines) - 1
    assert (data["tiny"]["origin"], data["tiny"]["catalogue"]) == ("own", str(own_catalogue))
    assert data["VM.Standard2.1"]["replaces_shipped"] is True
    assert data["local"]["cpus"] is None


def test_a_shape_is_shown(own_catalogue: Path) -> None:
    assert call("VM.Standard2.1").output.splitlines() == [
        "VM.Standard2.1: 3 OCPUs (6 CPUs), 128MiB, GPUs: none",
        f"from {own_catalogue}, replaces a built-in shape",
    ]
    assert call("VM.Standard.E5.Flex:2:16GiB").output.splitlines() == [
        "VM.Standard.E5.Flex: 2 OCPUs (4 CPUs), 16GiB, GPUs: none",
        "flexible: VM.Standard.E5.Flex:OCPUS:MEMORY chooses the size",
        "from the built-in catalogue",
        "source: Compute Shapes",
    ]
    assert json.loads(call("BM.GPU4.8", "--json").output)["gpus"] == 8


#: Prints the CPU limit of its control group (v1 or v2) and allocates more memory than allowed.
EXCEED_MEMORY = """
from pathlib import Path
root = Path("/sys/fs/cgroup")
for line in open("/proc/self/cgroup"):
    _, names, path = line.strip().split(":", 2)
    for folder in [root / name / path[1:] for name in ("cpu", "")]:
        for file in ("cpu.cfs_quota_us", "cpu.max"):
            if "muster-" in path and (folder / file).exists():
                print((folder / file).read_text().split()[0], flush=True)
held = bytearray(200 << 20)
"""


@pytest.mark.shows("jobs/job-shape")
@pytest.mark.skipif(len(usable_limits()) < 2, reason="no control groups here")
def test_a_shape_limits_a_run(own_catalogue: Path, client: Client, tmp_path: Path) -> None:
    """Nodes have the CPUs of their shape; a node that uses more memory is killed, and the run
    reports why."""
    script = tmp_path / "exceed_memory.py"
    script.write_text(EXCEED_MEMORY)
    prepared = client.prepare(script, changes_from_mapping({"shape": "tiny"}))
    run = client.start(prepared).wait(60)
    assert run.state == "FAILED"
    assert "ran out of memory" in run.details
    assert {record.message for record in run.logs(streams=["stdout"])} == {"50000"}
    assert run.limits() == {"workers": "shape tiny: each node has 0.5 CPUs, 64MiB of memory"}


def test_explain_shows_the_resources_of_nodes(own_catalogue: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("command: 'true'\nshape: tiny\nresources: {memory: 32MiB}\n")
    lines = CliRunner().invoke(explain, [str(job)], catch_exceptions=False).output.splitlines()
    assert "  shape tiny: each node has 0.5 CPUs, 32MiB of memory" in lines
    job.write_text("command: 'true'\nshape: tiny\nresources: {memory: 1GiB}\n")
    with pytest.raises(InvalidInput) as caught:
        CliRunner().invoke(explain, [str(job)], catch_exceptions=False)
    assert str(caught.value) == (
        f"{job}:3: resources.memory: more than shape tiny has: 64MiB (reduce it, use a larger "
        f"shape, or leave out one of the two)"
    )


ADS = """
kind: job
spec:
  name: demo
  infrastructure:
    type: dataScienceJob
    spec:
      shapeName: SHAPE
      shapeConfigDetails: {ocpus: 2, memoryInGBs: 1.5, cpuBaseline: BASELINE_1_8}
  runtime: {type: script, spec: {scriptPathURI: train.py}}
"""


def test_a_shape_of_ads_yaml_limits_nodes(
    own_catalogue: Path, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    path = tmp_path / "ads.yaml"
    path.write_text(ADS.replace("SHAPE", "VM.Standard.E4.Flex"))
    prepared = client.prepare(path, changes_from_mapping({}))
    requested = prepared.plan.groups[0].resources
    assert (requested.cpus, requested.memory) == (4, 3 << 29)
    assert any(note.startswith("cpuBaseline is not used: nodes may") for note in prepared.notes)
    path.write_text(ADS.replace("SHAPE", "VM.Standard.E9.Flex"))
    prepared = client.prepare(path, changes_from_mapping({}))
    assert prepared.plan.groups[0].resources.shape is None
    unknown = "shape VM.Standard.E9.Flex is not known (see `muster shapes`)"
    assert f"{unknown}; nodes are not limited" in prepared.notes
    path.write_text(ADS.replace("SHAPE", "BM.GPU4.8"))
    with pytest.raises(InvalidInput, match=r"ads.yaml:8: spec.*BM.GPU4.8 is not flexible"):
        client.prepare(path, changes_from_mapping({}))
    path.write_text(ADS.replace("SHAPE", "VM.Standard.E4.Flex").replace("ocpus: 2, ", ""))
    with pytest.raises(InvalidInput, match=r"ads.yaml:9: .*Details.ocpus: is missing"):
        client.prepare(path, changes_from_mapping({}))


CLUSTER = """
kind: distributed
spec:
  infrastructure: {type: dataScienceJob, spec: {shapeName: SHAPE}}
  cluster: {kind: dask, spec: {worker: {replicas: 2}}}
  runtime: {spec: {entryPoint: train.py}}
"""


@pytest.mark.shows("cluster-design/job-shape")
def test_small_shapes_of_ads_clusters_are_not_used(tmp_path: Path) -> None:
    """In ADS each node is a separate run, which may have two cores or fewer."""
    (tmp_path / "train.py").touch()
    path = tmp_path / "ads.yaml"
    path.write_text(CLUSTER.replace("SHAPE", "VM.Standard2.1"))
    small = read_manifest(path)
    assert small.spec.shape is None
    reason = "VM.Standard2.1 has 1 core; a run of several nodes needs more than 2"
    assert f"shapeName is not used: {reason}" in small.notes
    path.write_text(CLUSTER.replace("SHAPE", "VM.Standard2.4"))
    assert read_manifest(path).spec.shape == "VM.Standard2.4"
    path.write_text(CLUSTER.replace("SHAPE", "<a shape>"))
    assert read_manifest(path).spec.shape == "<a shape>", "an unknown shape is kept"
