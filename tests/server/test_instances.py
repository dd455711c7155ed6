"""`muster server instance`, on the machine of the server."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from muster.errors import InvalidInput, NotFound
from muster.server import instances
from muster.server.certificate_renewal import auth_url
from muster.server.metadata import metadata_server
from muster.service.backend import Backend
from muster.spec.ocids import NO_REGION
from muster.storage.home import Home
from muster.storage.instances import instance
from muster.store.account_records import UserKind, UserRecord


def test_a_host_is_added_again_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    monkeypatch.setenv("MUSTER_HOME", str(home.root))
    with closing(Backend(home)) as backend:
        backend.store.accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
    folder = tmp_path / "gpu-7"

    def add(name: str, project: str, user: str, *domain: str) -> str:
        return instances.add(name, project, user, str(folder), domain[0] if domain else None, 8431)

    def region() -> str:
        return str(json.loads((folder / "instance.json").read_text())["region"])

    made = add("gpu-7", "default", "ana", "jobs.example.org")
    assert region() == "jobs.example.org:8431", "where a server with these options listens"
    first = instance(home, "gpu-7")
    assert (first.id, first.project, first.user) == (made, "default", "ana")
    assert add("gpu-7", "default", "ana") == made
    assert (region(), auth_url(folder)) == (NO_REGION, None)
    home.oci_region.write_text("jobs.example.org\n")
    assert add("gpu-7", "default", "ana") == made
    assert (region(), auth_url(folder)) == ("jobs.example.org", "https://auth.jobs.example.org")
    assert instance(home, "gpu-7").serial != first.serial
    for given in (("gpu-8", "default", "nobody"), ("gpu-8", "nothing", "ana")):
        with pytest.raises(NotFound):
            add(*given)
    with pytest.raises(InvalidInput, match="not a valid name"):
        add("../x", "default", "ana")
    instances.remove("gpu-7")
    with pytest.raises(NotFound, match="no instance 'gpu-7'"):
        instances.remove("gpu-7")


def test_a_folder_without_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"lacks cert\.pem, key\.pem"):
        metadata_server(tmp_path, 0)
