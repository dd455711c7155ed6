"""Engines that tests use as a person has set them up: with a real sshd, Podman or Slurm, a
stand-in for the service of OCI, and a double of a Kubernetes cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import kube_engine, oci_service, podman_service
from support.oci_objects import BUCKET
from support.plugins import install_processes, install_servers
from support.slurm_cluster import require_slurm, shared_cluster, use_cluster
from support.ssh_hosts import add_engine, can_use_ssh, shared_sshd

_TESTS = Path(__file__).parents[1]


def install_engine(name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an engine ready, or skip the test where that is not possible. tmp_path: its programs may
    use files there."""
    site = tmp_path / "site"
    if name == "processes":
        install_processes(site)
    elif name in ("servers", "dialed"):
        install_servers(site)
    elif name == "hosts":
        if not can_use_ssh():
            pytest.skip("OpenSSH is not installed")
        add_engine(home, shared_sshd(), slots=16)
    elif name == "container":
        podman_service.skip_without_podman()
        mounts = [*podman_service.machine_mounts(), str(tmp_path)]
        podman_service.add_engine(home, podman_service.shared_podman(), mounts=mounts)
    elif name == "oci":
        oci_service.require_sdk()
        _add_oci(home, os.environ.get("CONTRACT_OCI", "").split(","))
    elif name == "kubernetes":
        kube_engine.require_client()
        kube_engine.add_engine(home, kube_engine.shared_cluster())
    elif name == "slurm":
        require_slurm()
        use_cluster(shared_cluster(), monkeypatch)
    for path in (str(_TESTS), str(site)) if site.exists() else ():
        monkeypatch.setenv("PYTHONPATH", path, prepend=os.pathsep)
        monkeypatch.syspath_prepend(path)


def _add_oci(home: Path, words: list[str]) -> None:
    """words: `server`, for that of Muster, which takes longer; `bucket`, for messages through one;
    `single`, for a job run for each node."""
    settings = {"multi_node": False} if "single" in words else {}
    if "server" in words:
        from support.oci_engine_server import shared_server

        server = shared_server()
        through = {"bucket": server.bucket} if "bucket" in words else {}
        server.add_engine(home, **through, **settings)
    else:
        through = {"bucket": BUCKET} if "bucket" in words else {}
        oci_service.add_engine(home, oci_service.shared_service(), **through, **settings)
