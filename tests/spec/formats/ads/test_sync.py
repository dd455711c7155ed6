"""Folders that ADS YAML synchronises with a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ads import (
    SYNCED,
    distributed,
    line_of,
    prepare_problems,
    read,
    refusals,
)


@pytest.mark.parametrize(
    ("env", "source", "where"),
    [
        ({}, "s3://bucket/sync", "/opt/ml"),
        (
            {"WORKSPACE_PREFIX": "team", "OCI__SYNC_DIR": "/mnt/out"},
            "s3://bucket/team/sync",
            "/mnt/out",
        ),
    ],
)
def test_programs_get_the_variables_of_synchronised_folders(
    folder: Path, env: dict[str, str], source: str, where: str
) -> None:
    listed = [{"name": name, "value": value} for name, value in {**SYNCED, **env}.items()]
    spec, _ = read(folder, distributed(cluster={"config": {"env": listed}}))
    assert [(m.source, m.destination) for m in spec.mounts] == [(source, where)]
    assert spec.env["OCI__SYNC_DIR"] == where


def test_synchronised_folders_are_mounted_next_to_mounted_code(folder: Path) -> None:
    env = [{"name": name, "value": value} for name, value in SYNCED.items()]
    env.append({"name": "SYNC_SLEEP", "value": "60"})
    runtime = {"uri": "s3://bucket/code", "env": env}
    spec, notes = read(folder, distributed(runtime_spec=runtime))
    assert [m.destination for m in spec.mounts] == ["/mnt/code", "/opt/ml"]
    assert any(note.startswith("SYNC_SLEEP is not used") for note in notes)


def test_without_synchronisation_its_variables_are_ordinary(folder: Path) -> None:
    env = [{"name": "OCI__SYNC_DIR", "value": "/mnt/out"}]
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}}))
    assert (spec.env["OCI__SYNC_DIR"], spec.mounts) == ("/mnt/out", ())


@pytest.mark.parametrize(
    ("workspace", "work_dir", "source"),
    [
        ("bucket", "oci://other@ns/x", "oci://bucket@ns/sync"),
        ("oci://bucket@ns2", "oci://other@ns/x", "oci://bucket@ns2/sync"),
        ("", "oci://other@ns/x", "oci://other@ns/x/sync"),
    ],
)
def test_destination_of_the_synchronised_folder(
    folder: Path, workspace: str, work_dir: str, source: str
) -> None:
    env = [{"name": "SYNC_ARTIFACTS", "value": 1}, {"name": "WORKSPACE", "value": workspace}]
    cluster = {"config": {"env": env}, "workDir": work_dir}
    spec, _ = read(folder, distributed(cluster=cluster))
    assert spec.mounts[0].source == source
    cluster["workDir"] = "/shared"
    if workspace == "bucket":
        found = refusals(folder, distributed(cluster=cluster))
        assert "WORKSPACE is not a URL: 'bucket'" in found.popitem()[1]


def test_a_mount_from_a_variable_is_refused_by_the_name_of_the_variable(folder: Path) -> None:
    env = [{"name": name, "value": value} for name, value in SYNCED.items()]
    env[1]["value"] = "s3x://bucket"
    # horovod chooses free ports, so other programs cannot have them
    cluster = {"config": {"env": env}}
    (problem,) = prepare_problems(folder, distributed("horovod", cluster=cluster))
    assert problem.path == "spec.cluster.spec.config.env[1].value"
    assert problem.message.startswith("WORKSPACE: s3x://bucket/sync: no package can read")
    assert problem.source.endswith(line_of(folder, "s3x://bucket"))
