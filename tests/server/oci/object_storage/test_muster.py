"""Muster as a client of its own object storage: mounts, and work directories of clusters."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import MUSTER
from support.oci_config import write_config
from support.oci_storage import NS, Storage

pytest.importorskip("ocifs")


@pytest.fixture
def environ(storage: Storage, tmp_path: Path) -> dict[str, str]:
    """The environment of commands for which oci:// is the server."""
    config = tmp_path / "config"
    write_config(config, storage.configs["anouk"])
    options = {
        "config": str(config),
        "profile": "DEFAULT",
        "config_kwargs": {"service_endpoint": storage.url},
    }
    inherited = {name: text for name, text in os.environ.items() if name != "MUSTER_URL"}
    home = str(tmp_path / "home")
    return {**inherited, "MUSTER_HOME": home, "FSSPEC_OCI": json.dumps(options)}


def test_mounts(
    storage: Storage, client: Any, bucket: str, environ: dict[str, str], tmp_path: Path
) -> None:
    client.put_object(NS, bucket, "data/sub/a.txt", b"what the nodes read\n")
    job = tmp_path / "job.yaml"
    job.write_text(f"""
command: |
  sh -c 'cat "$MUSTER_MOUNT_DATA/sub/a.txt"; echo "$NODE_RANK" > "$MUSTER_MOUNT_OUT/$NODE_RANK"'
nodes: 2
mounts:
  - {{source: "oci://{bucket}@{NS}/data", read_only: true}}
  - {{source: "oci://{bucket}@{NS}/out"}}
""")
    argv = [*MUSTER, "run", str(job)]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("what the nodes read") == 2
    for rank in range(2):
        written = client.get_object(NS, bucket, f"out/{rank}").data.content
        assert written == f"{rank}\n".encode()


@pytest.mark.slow
def test_the_work_directory_of_a_cluster(
    storage: Storage, client: Any, bucket: str, environ: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "sum.py").write_text(
        "from distributed import Client\n"
        "with Client() as client:\n"
        "    print('sum:', client.submit(sum, range(10)).result())\n"
    )
    settings = {
        "WORK_DIR": f"oci://{bucket}@{NS}/work",
        "JOB_OCID": "first",
        "CLUSTER_TYPE": "dask",
        "ENTRY_POINT": "sum.py",
        "CODE_DIR": str(tmp_path),
    }
    nodes = [
        subprocess.Popen(
            [*MUSTER, "node"],
            env={**environ, **settings, "MODE": mode},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for mode in ("MAIN", "WORKER")
    ]
    try:
        outputs = [node.communicate(timeout=120)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert "sum: 45" in outputs[0]
    names = [one.name for one in client.list_objects(NS, bucket, prefix="work/").data.objects]
    assert {"work/first/MAIN_config.json", "work/first/stop"} <= {*names}
    assert not [name for name in names if "probe" in name]
