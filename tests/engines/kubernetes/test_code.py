"""How code comes to pods: through the API server, once over a volume that they share, or not at
all, as it is in the image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.client.run import JobRun
from muster.engines.kubernetes.pods import NODE, SERVER
from muster.errors import InvalidInput
from muster.storage.home import Home
from support.faults import until
from support.kube import Cluster
from support.kube_engine import add_engine, require_client, shared_cluster

pytestmark = pytest.mark.slow

PATIENCE = 60.0
CLAIM = "research-code"


@pytest.fixture
def cluster() -> Cluster:
    require_client()
    return shared_cluster()


@pytest.fixture
def volume(cluster: Cluster) -> Iterator[Path]:
    """The folder of a claim that all pods share."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": spec,
        }
    )
    yield cluster.folder / "n" / "claims" / "default" / CLAIM
    cluster.storage.delete("persistentvolumeclaims", "default", CLAIM)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that says which one it is, and ends when there is a file."""
    path = tmp_path / "train.py"
    path.write_text(
        "import os, time\n"
        "print('trains', os.environ['NODE_RANK'], flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'flag')!r}): time.sleep(0.05)\n"
    )
    return path


def folders(cluster: Cluster) -> list[Path]:
    """Those of the node servers in all pods."""
    return [
        Path(paths.translate(SERVER))
        for pod in cluster.kubelet.pods.values()
        if (paths := pod.paths.get(NODE)) is not None
    ]


def archives(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def until_trains(run: JobRun, nodes: int) -> None:
    until(
        lambda: {line.message for line in run.logs()} >= {f"trains {n}" for n in range(nodes)},
        "all nodes train",
        PATIENCE,
        pause=0.2,
    )


def test_pods_share_one_copy_on_a_volume(
    cluster: Cluster, own_home: Path, volume: Path, script: Path
) -> None:
    add_engine(own_home, cluster, claim=CLAIM)
    run = muster.run(script, engine="kubernetes", nodes=3)
    until_trains(run, 3)
    (archive,) = archives(volume)
    assert archive.parent.name == f"code-{os.geteuid()}"
    assert len(archive.name) == 64
    assert not [found for one in folders(cluster) for found in archives(one / "code")]
    (script.parent / "flag").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    until(lambda: archives(volume) == [], "the last one removes it", PATIENCE)


def test_without_a_volume_each_pod_has_a_copy(
    cluster: Cluster, own_home: Path, script: Path
) -> None:
    add_engine(own_home, cluster)
    run = muster.run(script, engine="kubernetes", nodes=2)
    until_trains(run, 2)
    assert [len(archives(one / "code")) for one in folders(cluster)] == [1, 1]
    (script.parent / "flag").touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"


def test_code_that_is_in_the_image_is_not_sent(
    cluster: Cluster, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, cluster)
    image = tmp_path / "image"  # the double's pods have the files of this machine
    image.mkdir()
    (image / "trainer.py").write_text("import os\nprint('of the image', os.getcwd())\n")
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "name: from-image\nimage: registry.example.com/train:7\n"
        f"working_dir: {image}\ncommand: [python3, -m, trainer]\nnodes: 2\n"
    )
    run = muster.run(spec, engine="kubernetes")
    assert run.wait(PATIENCE).state == "SUCCEEDED"
    messages = [line.message for line in run.logs()]
    assert messages.count(f"of the image {image}") == 2
    assert not (Home(own_home).run_dir(run.id).path / "code.tar").exists()


def test_a_directory_that_no_pod_has_is_named(
    cluster: Cluster, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, cluster)
    spec = tmp_path / "job.yaml"
    spec.write_text("command: [pwd]\nworking_dir: /home/ana/of-her-laptop\n")
    run = muster.run(spec, engine="kubernetes")
    run.wait(PATIENCE)
    assert run.state == "FAILED"
    assert "working directory /home/ana/of-her-laptop does not exist" in str(run.details)


def test_large_code_is_refused_before_anything_is_applied(
    cluster: Cluster, own_home: Path, script: Path
) -> None:
    add_engine(own_home, cluster, code_limit="100B")
    with pytest.raises(InvalidInput, match="at most 100B are sent to each pod") as found:
        muster.run(script, engine="kubernetes", run_name="large")
    assert found.value.problems[0].path == "artifact"
    assert not [one for one in cluster.calls if one.name.startswith("large")]
