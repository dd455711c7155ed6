"""Engines that tests use as a person has set them up: with a real sshd, Podman or Slurm, and a
stand-in for the service of OCI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import oci_service, podman_service
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
        if os.environ.get("CONTRACT_OCI") == "server":  # of Muster, which takes longer
            from support.oci_engine_server import shared_server

            shared_server().add_engine(home)
        else:
            oci_service.add_engine(home, oci_service.shared_service())
    elif name == "slurm":
        require_slurm()
        use_cluster(shared_cluster(), monkeypatch)
    for path in (str(_TESTS), str(site)) if site.exists() else ():
        monkeypatch.setenv("PYTHONPATH", path, prepend=os.pathsep)
        monkeypatch.syspath_prepend(path)
