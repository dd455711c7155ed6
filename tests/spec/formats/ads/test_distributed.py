"""ADS YAML of kind distributed: roles, arguments and fields that are noted or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.ads import (
    distributed,
    job,
    prepare_problems,
    read,
    refusals,
    with_storage,
)


@pytest.mark.parametrize("kind", ["dask", "RAY", "PyTorch", "tensorflow", "horovod"])
def test_each_kind_of_cluster(folder: Path, kind: str) -> None:
    spec, _ = read(folder, distributed(kind))
    assert spec.framework == kind.lower()
    assert [(g.name, g.nodes) for g in spec.node_groups] == [("main", 1), ("workers", 2)]
    assert (spec.artifact, spec.entrypoint) == (str(folder), "train.py")


def test_parameter_servers_become_a_group(folder: Path) -> None:
    spec, _ = read(folder, distributed("tensorflow", cluster={"ps": {"replicas": 3}}))
    assert [(g.name, g.nodes) for g in spec.node_groups][2] == ("ps", 3)


def test_args_and_kwargs(folder: Path) -> None:
    runtime = {"args": [50, "a b"], "kwargs": "--epochs 3"}
    spec, _ = read(folder, distributed(runtime_spec=runtime))
    assert spec.args == ("50", "a b", "--epochs", "3")


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_persistent_cluster(folder: Path, kind: str) -> None:
    env = [{"name": "OCI__TTL", "value": "2h"}]
    cluster = {"ephemeral": False, "config": {"env": env}}
    spec, notes = read(folder, distributed(kind, cluster=cluster))
    assert spec.command == ("python", "-m", "muster.node.cluster_lifetime", "--ttl", "7200")
    assert spec.tags == {"muster-cluster": kind}
    assert [(g.name, g.replicas, g.most_replicas) for g in spec.node_groups] == [
        ("main", 1, 1),
        ("workers", 2, 16),
    ]
    assert any(note.startswith("entryPoint is not run") for note in notes)
    spec, notes = read(folder, distributed(kind, cluster={"ephemeral": False}))
    assert spec.command == ("python", "-m", "muster.node.cluster_lifetime")
    assert any("the cluster ends after 30 days" in note for note in notes)
    env[0]["value"] = "soon"
    assert "OCI__TTL" in refusals(folder, distributed(kind, cluster=cluster)).popitem()[1]


def test_fields_without_effect_are_noted(folder: Path) -> None:
    data = distributed(cluster={"image": "a/b:1", "workDir": "oci://b@n/x"})
    data["spec"]["infrastructure"]["spec"] = {"projectId": "p", "shapeName": "VM.Standard2.4"}
    _, notes = read(folder, data)
    output = "\n".join(notes)
    for what in ("projectId", "image", "workDir"):
        assert what in output


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (distributed("mxnet"), "spec.cluster.kind", "'mxnet' is not a kind of cluster"),
        (
            distributed("pytorch", cluster={"ephemeral": False}),
            "spec.cluster.spec.ephemeral",
            "cannot run as a persistent cluster",
        ),
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
            "not found",
        ),
        (
            job("python", scriptPathURI="train.py", entryFunction="f"),
            "spec.runtime.spec.entryFunction",
            "not single functions",
        ),
        (
            job("notebook", notebookPathURI="oci://bucket@ns/a.ipynb"),
            "spec.runtime.spec.notebookPathURI",
            "not on this machine",
        ),
    ],
)
def test_unsupported_fields_are_refused_by_name(
    folder: Path, data: dict[str, Any], path: str, message: str
) -> None:
    assert message in refusals(folder, data)[path]


def test_other_fields_are_refused_with_their_line(folder: Path) -> None:
    data = with_storage(distributed(), ("s3x://a/b", "data"), ("s3x://c/d", "more"))
    data["spec"]["runtime"]["spec"]["env"] = [{"name": "DASK_SCHEDULER_PORT", "value": "x"}]
    data["spec"]["infrastructure"]["spec"]["displayName"] = "n" * 300
    found = {problem.path for problem in prepare_problems(folder, data)}
    assert found == {"spec.infrastructure.spec.displayName"}, "the name is checked first"
    data["spec"]["infrastructure"]["spec"]["displayName"] = "n"
    found = {problem.path for problem in prepare_problems(folder, data)}
    storage = "spec.infrastructure.spec.storageMount"
    assert found == {f"{storage}[0].src", f"{storage}[1].src", "spec.runtime.spec.env[0].value"}
    data = job("script", scriptPathURI="run.sh", inputs={"s3x://a": "a"}, outputUri="s3x://b")
    found = {problem.path for problem in prepare_problems(folder, data)}
    assert found == {"spec.runtime.spec.inputs.s3x://a", "spec.runtime.spec.outputUri"}
