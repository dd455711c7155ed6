"""ADS's YAML: what becomes of each field, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.errors import InvalidInput
from muster.spec.formats.manifests import read_manifest
from muster.spec.models import JobSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "book.ipynb", "run.sh", "requirements.txt"):
        (tmp_path / name).touch()
    return tmp_path


def read(folder: Path, data: dict[str, Any]) -> tuple[JobSpec, tuple[str, ...]]:
    path = folder / "ads.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    manifest = read_manifest(path)
    return manifest.spec, manifest.notes


def distributed(kind: str = "dask", **changes: Any) -> dict[str, Any]:
    cluster = {"worker": {"replicas": 2}, **changes.pop("cluster", {})}
    runtime = {"entryPoint": "train.py", **changes.pop("runtime_spec", {})}
    return {
        "kind": "distributed",
        "apiVersion": "v1.0",
        "spec": {
            "infrastructure": {"kind": "infrastructure", "type": "dataScienceJob", "spec": {}},
            "cluster": {"kind": kind, "spec": cluster},
            "runtime": {"kind": "python", "spec": runtime, **changes.pop("runtime", {})},
        },
    }


def job(type_: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "job",
        "spec": {
            "name": "my job",
            "infrastructure": {
                "kind": "infrastructure",
                "type": "dataScienceJob",
                "spec": {"shapeName": "VM.Standard2.1", "compartmentId": "ocid1"},
            },
            "runtime": {"kind": "runtime", "type": type_, "spec": spec},
        },
    }


def refusals(folder: Path, data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, data)
    assert all(problem.source for problem in caught.value.problems), caught.value
    return {problem.path: problem.message for problem in caught.value.problems}


# --- distributed


@pytest.mark.parametrize("kind", ["dask", "RAY", "PyTorch", "tensorflow", "horovod"])
def test_each_kind_of_cluster(folder: Path, kind: str) -> None:
    spec, _ = read(folder, distributed(kind))
    assert spec.framework == kind.lower()
    assert [(g.name, g.nodes) for g in spec.node_groups] == [("main", 1), ("workers", 2)]
    assert (spec.artifact, spec.entrypoint) == (str(folder), "train.py")


def test_parameter_servers_are_a_group(folder: Path) -> None:
    spec, _ = read(folder, distributed("tensorflow", cluster={"ps": {"replicas": 3}}))
    assert [(g.name, g.nodes) for g in spec.node_groups][2] == ("ps", 3)


def test_variables_of_everybody_and_of_a_role(folder: Path) -> None:
    cluster = {
        "config": {"env": [{"name": "A", "value": 1}, {"name": "B", "value": {"x": [1]}}]},
        "worker": {"replicas": 1, "config": {"env": [{"name": "A", "value": "w"}]}},
    }
    runtime = {"env": [{"name": "C", "value": "r"}, {"name": "B", "value": "later"}]}
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec=runtime))
    assert spec.env == {"A": "1", "B": "later", "C": "r"}
    assert [group.env for group in spec.node_groups] == [{}, {"A": "w"}]


def test_start_options_go_to_the_service_they_are_for(folder: Path) -> None:
    cluster = {
        "config": {"startOptions": ["--preload a.py"]},
        "worker": {"replicas": 1, "config": {"startOptions": ["--nthreads 1", "--no-nanny"]}},
    }
    spec, _ = read(folder, distributed(cluster=cluster))
    assert spec.framework_options == {
        "worker_on_main": False,
        "scheduler_args": ["--preload", "a.py"],
        "worker_args": ["--nthreads", "1", "--no-nanny"],
    }
    assert "startOptions" in " ".join(refusals(folder, distributed("pytorch", cluster=cluster)))


def test_certificates_are_made_by_us(folder: Path) -> None:
    cluster = {
        "certificate": {"caCert": {"id": "x"}, "cert": {"id": "y"}},
        "config": {"startOptions": ["--tls-key /k --tls-cert=/c", "--verbose"]},
    }
    spec, notes = read(folder, distributed(cluster=cluster))
    assert spec.framework_options["tls"] is True
    assert spec.framework_options["scheduler_args"] == ["--verbose"]
    assert any("certificates" in note for note in notes)


def test_args_and_kwargs(folder: Path) -> None:
    runtime = {"args": [50, "a b"], "kwargs": "--epochs 3"}
    spec, _ = read(folder, distributed(runtime_spec=runtime))
    assert spec.args == ("50", "a b", "--epochs", "3")


def test_code_from_git_and_from_elsewhere(folder: Path) -> None:
    runtime = {"uri": "https://host/owner/code.git", "branch": "main", "commit": "abcdef12"}
    spec, _ = read(folder, distributed(runtime={"type": "git"}, runtime_spec=runtime))
    assert spec.git is not None
    assert (spec.git.url, spec.git.branch, spec.git.commit) == tuple(runtime.values())
    assert spec.entrypoint == "train.py"
    remote = distributed(runtime={"type": "remote"}, runtime_spec={"uri": "s3://bucket/code"})
    spec, _ = read(folder, remote)
    assert spec.command == ("python", "/mnt/code/train.py")
    assert [(m.source, m.destination) for m in spec.mounts] == [("s3://bucket/code", "/mnt/code")]


def test_profiling_and_synchronisation(folder: Path) -> None:
    env = {
        **{"PROFILE": 1, "PROFILE_CMD": "nsys profile -o out", "SYNC_ARTIFACTS": 1},
        **{"WORKSPACE": "s3://bucket", "WORKSPACE_PREFIX": "team", "OCI__SYNC_DIR": "/mnt/out"},
    }
    listed = [{"name": name, "value": value} for name, value in env.items()]
    spec, _ = read(folder, distributed(cluster={"config": {"env": listed}}))
    assert spec.command == ("nsys", "profile", "-o", "out", "python", str(folder / "train.py"))
    assert [(m.source, m.destination) for m in spec.mounts] == [
        ("s3://bucket/team/sync", "/mnt/out")
    ]
    assert spec.env == {}


def test_what_means_nothing_here_is_a_note(folder: Path) -> None:
    data = distributed(cluster={"image": "a/b:1", "workDir": "oci://b@n/x"})
    data["spec"]["infrastructure"]["spec"] = {"projectId": "p", "shapeName": "VM.Standard2.4"}
    _, notes = read(folder, data)
    said = "\n".join(notes)
    for what in ("projectId", "shapeName", "image", "workDir"):
        assert what in said


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (distributed("mxnet"), "spec.cluster.kind", "no cluster called mxnet"),
        (distributed(cluster={"ephemeral": False}), "spec.cluster.spec.ephemeral", "stays"),
        (
            distributed(cluster={"wrker": {"replicas": 1}}),
            "spec.cluster.spec.wrker",
            "does not read",
        ),
        (
            distributed(runtime_spec={"gitSecretId": "ocid1"}),
            "spec.runtime.spec.gitSecretId",
            "vault",
        ),
        (
            distributed(runtime_spec={"entryPoint": "nowhere.py"}),
            "spec.runtime.spec.entryPoint",
            "there is no",
        ),
        (job("python", inputs={"a": "b"}), "spec.runtime.spec.inputs", "inputs"),
        (
            job("python", scriptPathURI="train.py", entryFunction="f"),
            "spec.runtime.spec.entryFunction",
            "not single functions",
        ),
        (
            job("script", scriptPathURI="oci://bucket@ns/a.sh"),
            "spec.runtime.spec.scriptPathURI",
            "not at hand",
        ),
        (job("container", image="a/b:1"), "spec.runtime.spec.cmd", "only the image knows"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    folder: Path, data: dict[str, Any], path: str, message: str
) -> None:
    assert message in refusals(folder, data)[path]


def test_storage_mounts_are_refused(folder: Path) -> None:
    data = job("script", scriptPathURI="run.sh")
    data["spec"]["infrastructure"]["spec"]["storageMount"] = [{"src": "a", "dest": "b"}]
    found = refusals(folder, data)
    assert "file storage" in found["spec.infrastructure.spec.storageMount"]


# --- jobs


def test_script_and_python(folder: Path) -> None:
    data = job(
        "python",
        scriptPathURI="train.py",
        args=["a", 1],
        env=[{"name": "A", "value": 1}],
        pythonPath=["lib", "more"],
        maximumRuntimeInMinutes=90,
        freeformTags={"team": "x"},
        conda={"type": "service", "slug": "s"},
    )
    spec, notes = read(folder, data)
    assert (spec.name, spec.artifact) == ("my-job", str(folder / "train.py"))
    assert spec.args == ("a", "1")
    assert spec.env == {"A": "1", "PYTHONPATH": "lib:more"}
    assert (spec.max_runtime, spec.tags) == (5400.0, {"team": "x"})
    assert any("conda" in note for note in notes)
    spec, _ = read(folder, job("script", scriptPathURI="run.sh"))
    assert spec.artifact == str(folder / "run.sh")


def test_notebook(folder: Path) -> None:
    data = job("notebook", notebookPathURI="book.ipynb", excludeTags=["skip"])
    spec, _ = read(folder, data)
    assert spec.artifact == str(folder / "book.ipynb")
    assert spec.notebook is not None and spec.notebook.exclude_tags == ("skip",)


def test_git(folder: Path) -> None:
    data = job("gitPython", url="https://h/o/r.git", branch="dev", entrypoint="a/b.py")
    spec, _ = read(folder, data)
    assert spec.git is not None and (spec.git.branch, spec.entrypoint) == ("dev", "a/b.py")


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "command"),
    [
        ("/bin/sh,-c", "echo a", ("/bin/sh", "-c", "echo", "a")),
        (["/bin/sh", "-c"], ["echo a, b"], ("/bin/sh", "-c", "echo a, b")),
        (None, "sleep 5", ("sleep", "5")),
        (None, '"python","a.py"', ("python", "a.py")),
    ],
)
def test_container(folder: Path, entrypoint: Any, cmd: Any, command: tuple[str, ...]) -> None:
    spec, notes = read(folder, job("container", image="a/b:1", entrypoint=entrypoint, cmd=cmd))
    assert (spec.command, spec.image) == (command, "a/b:1")
    assert any("image" in note for note in notes)


@pytest.mark.parametrize(
    ("command", "expected", "processes"),
    [
        ("torchrun train.py --x 1", ("python", "train.py", "--x", "1"), 1),
        ("torchrun --nproc_per_node=4 train.py", ("python", "train.py"), 4),
        ("torchrun --nproc-per-node 2 --rdzv-backend c10d a.py", ("python", "a.py"), 2),
        ("deepspeed train.py", ("python", "train.py"), 1),
        ("accelerate launch --num_processes 2 train.py", ("python", "train.py"), 2),
        ("python train.py", ("python", "train.py"), 1),
    ],
)
def test_pytorch(folder: Path, command: str, expected: tuple[str, ...], processes: int) -> None:
    data = job("pyTorchDistributed", source=".", command=command, replicas=3)
    spec, _ = read(folder, data)
    assert (spec.framework, spec.nodes, spec.command) == ("pytorch", 3, expected)
    assert spec.processes_per_node == processes


def test_pytorch_with_requirements(folder: Path) -> None:
    dependencies = {"pipPackages": "a>1 b"}
    data = job("pyTorchDistributed", source=".", command="x", dependencies=dependencies)
    assert read(folder, data)[0].requirements == ("a>1", "b")


def test_several_documents_are_several_jobs(folder: Path) -> None:
    text = yaml.safe_dump_all([job("script", scriptPathURI="run.sh"), distributed()])
    (folder / "two.yaml").write_text(text)
    assert read_manifest(folder / "two.yaml", "my-job").spec.name == "my-job"
    with pytest.raises(InvalidInput, match="there are 2"):
        read_manifest(folder / "two.yaml")


def test_a_spec_of_our_own_is_not_taken_for_one(tmp_path: Path) -> None:
    from muster.spec.reader import is_manifest

    assert not is_manifest("command: echo kind job\n")
    assert not is_manifest("description: |\n  kind: job\ncommand: x\n")
    assert is_manifest("kind: job\nspec: {}\n")
