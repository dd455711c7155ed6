"""As whom the users of kubectl's configuration call."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import ApiStub, write_config
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from support.certificates import TlsFiles
from support.connect_proxy import connect_proxy

pytest.importorskip("kubernetes")


@pytest.mark.parametrize("password", [{}, {"password": "p:ä"}])
def test_a_name_and_a_password_are_used(tmp_path: Path, password: dict[str, str]) -> None:
    user = {"username": "ana", **password}
    found = Cluster(write_config(tmp_path / "config", "https://a:1", user)).connection.access()
    words = b64encode(f"ana:{password.get('password', '')}".encode()).decode()
    assert dict(found.headers)["authorization"] == f"Basic {words}"


ACTING = {
    "token": "t",
    "as": "ana",
    "as-uid": "7",
    "as-groups": ["a, b", "c"],
    "as-user-extra": {"example.com/scopes": ["x", "y"], "50%": ["z"]},
}


def test_a_user_acts_as_another(tls_server: ApiStub, tls: TlsFiles, tmp_path: Path) -> None:
    own = {"certificate-authority": str(tls.authority), "tls-server-name": "api.test"}
    with connect_proxy(int(tls_server.url.rpartition(":")[2])) as proxy:
        for url, way in ((tls_server.url, {}), ("https://cluster.test", {"proxy-url": proxy.url})):
            profile = write_config(tmp_path / "config", url, ACTING, **own, **way)
            Cluster(profile).read("Pod", "p")
            given = tls_server.requests[-1].headers.items()
            found = [(name[12:], value) for name, value in given if name.startswith("Impersonate")]
            assert sorted(found) == [
                ("Extra-50%25", "z"),
                ("Extra-example.com%2Fscopes", "x"),
                ("Extra-example.com%2Fscopes", "y"),
                ("Group", "a, b"),
                ("Group", "c"),
                ("Uid", "7"),
                ("User", "ana"),
            ]


def test_no_groups_are_lost_on_the_way_through_a_proxy(tmp_path: Path) -> None:
    proxy = {"proxy-url": "http://127.0.0.1:1"}
    cluster = Cluster(write_config(tmp_path / "config", "http://a:1", ACTING, **proxy))
    with pytest.raises(CannotCall, match=r"as of user u in .* names several groups or values"):
        cluster.read("Pod", "p")
