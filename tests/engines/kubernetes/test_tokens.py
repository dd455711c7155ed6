"""Tokens, also in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.kubernetes.api_stub import OBJECT, ApiStub, write_config
from muster.engines.kubernetes.cluster import Cluster

pytest.importorskip("kubernetes")


def test_a_token_in_a_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-file\n")
    user = {"tokenFile": "token"}
    found = Cluster(write_config(tmp_path / "config", "https://a:1", user)).connection.access()
    assert dict(found.headers)["authorization"] == "Bearer of-file"


@pytest.mark.parametrize(
    ("text", "expected"), [(None, "secret-1"), (" \n", "secret-1"), ("of-file\n", "of-file")]
)
def test_the_token_beside_a_file_without_one_is_used(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    if text is not None:
        (tmp_path / "token").write_text(text)
    user = {"tokenFile": "token", "token": "secret-1"}
    found = Cluster(write_config(tmp_path / "config", "https://a:1", user)).connection.access()
    assert dict(found.headers)["authorization"] == f"Bearer {expected}"


def test_a_token_may_end_with_a_line(tmp_path: Path) -> None:
    server = ApiStub(lambda _: OBJECT)
    try:
        profile = write_config(tmp_path / "config", server.url, {"token": "secret-1\n"})
        Cluster(profile).read("Pod", "p")
        assert server.requests[-1].headers["authorization"] == "Bearer secret-1"
    finally:
        server.close()
