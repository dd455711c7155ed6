"""Connections that are secure, and keys that are left nowhere."""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import ApiStub, write_config
from muster.engines.kubernetes import tls as tls_module
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from support.certificates import TlsFiles

pytest.importorskip("kubernetes")


def test_a_client_has_a_certificate(tls_server: ApiStub, tls: TlsFiles, tmp_path: Path) -> None:
    user = {
        "client-certificate-data": b64encode(tls.cert.read_bytes()).decode(),
        "client-key-data": b64encode(tls.key.read_bytes()).decode(),
    }
    authority = b64encode(tls.authority.read_bytes()).decode()
    own = {"certificate-authority-data": authority, "tls-server-name": "api.test"}
    cluster = Cluster(write_config(tmp_path / "config", tls_server.url, user, **own))
    cluster.read("Pod", "p")
    assert "api.test" in tls_server.requests[0].headers["client"]
    found = cluster.connection.access()
    assert (found.url, found.server_name) == (tls_server.url, "api.test")
    assert found.ssl is not None


def test_an_unknown_authority_is_refused(tls_server: ApiStub, tmp_path: Path) -> None:
    cluster = Cluster(write_config(tmp_path / "config", tls_server.url))
    with pytest.raises(CannotCall, match=r"is not secure: .*self-signed certificate") as found:
        cluster.read("Pod", "p")
    assert found.value.refused
    assert not tls_server.requests


def test_people_may_trust_everybody(tls_server: ApiStub, tmp_path: Path) -> None:
    own = {"insecure-skip-tls-verify": True}
    Cluster(write_config(tmp_path / "config", tls_server.url, **own)).read("Pod", "p")
    assert len(tls_server.requests) == 1


def test_a_certificate_for_another_name_is_refused(
    tls_server: ApiStub, tls: TlsFiles, tmp_path: Path
) -> None:
    own = {"certificate-authority": str(tls.authority), "tls-server-name": "other.test"}
    cluster = Cluster(write_config(tmp_path / "config", tls_server.url, **own))
    with pytest.raises(CannotCall, match=r"is not secure: .*other\.test"):
        cluster.read("Pod", "p")


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_no_key_is_left_in_a_file(
    tls_server: ApiStub,
    tls: TlsFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_memory_files: bool,
) -> None:
    """Nor has it a name while it is used, so that none is left if this process is killed."""
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    names: list[str] = []
    nameless = tls_module._nameless

    @contextmanager
    def noted(content: bytes) -> Iterator[str]:
        with nameless(content) as path:
            yield path
            names.extend(os.listdir(scratch))
            assert Path(path).read_bytes() in (tls.cert.read_bytes(), tls.key.read_bytes())

    monkeypatch.setattr(tls_module, "_nameless", noted)
    user = {
        "client-certificate-data": b64encode(tls.cert.read_bytes()).decode(),
        "client-key-data": b64encode(tls.key.read_bytes()).decode(),
    }
    authority = b64encode(tls.authority.read_bytes()).decode()
    own = {"certificate-authority-data": authority, "tls-server-name": "api.test"}
    Cluster(write_config(tmp_path / "config", tls_server.url, user, **own)).read("Pod", "p")
    assert "api.test" in tls_server.requests[0].headers["client"]
    assert names == [] and os.listdir(scratch) == []


def test_a_file_for_keys_of_tls_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "none" / "keys"))
    with pytest.raises(CannotCall, match=r"SSLKEYLOGFILE of the environment is .*/none/keys, w"):
        Cluster(write_config(tmp_path / "config", "https://a:1")).read("Pod", "p")
